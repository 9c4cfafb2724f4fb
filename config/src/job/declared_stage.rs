//! Stages that the clients of a live job declare while it runs.

use headroom_types::Name;

use super::profiles::ProfileTable;
use super::spec::{JobSpec, StageSpec};
use super::stages::{self, StageContext};
use crate::problem::{FileProblem, ProblemCollector};
use crate::toml_reader::{self, TomlSection};

impl JobSpec {
    /// Compiles a stage that a client declares while this job runs. `keys` is an object with the
    /// keys of a `[[stage]]` table, without `name`, `array` and `count`.
    ///
    /// # Errors
    /// The job is not live, or the stage has errors; all of them.
    pub fn compile_stage(
        &self,
        name: &Name,
        keys: &serde_json::Value,
    ) -> Result<StageSpec, Vec<FileProblem>> {
        let file = format!("stage {name}");
        let refuse =
            |what: &str, why: &str, fix: &str| vec![FileProblem::of_file(&file, what, why, fix)];
        let Some(live) = &self.live else {
            let why = "the tasks of other jobs are known when they start";
            return Err(refuse(
                "the job is not live",
                why,
                "add live = true to its file",
            ));
        };
        let Some(object) = keys.as_object().filter(|keys| !keys.contains_key("name")) else {
            let fix = "write the keys of a [[stage]] table as a JSON object, without name";
            return Err(refuse("the keys of the stage are not valid", "", fix));
        };
        let keys = toml::to_string(object).map_err(|error| {
            let what = format!("the keys of the stage cannot be written as TOML: {error}");
            refuse(&what, "they are those of a job file", "remove null values")
        })?;
        let text = format!("name = \"{name}\"\n{keys}");
        let report = ProblemCollector::new(&file, &text);
        let table = toml_reader::parse(&text, &report);
        let profiles: ProfileTable = live
            .profiles
            .iter()
            .map(|(name, profile)| (name.clone(), Some(profile.clone())))
            .collect();
        let executors = self
            .executors
            .iter()
            .map(|set| (set.name.clone(), Some(set.clone())))
            .collect();
        let context = StageContext {
            mode: self.mode,
            profiles: &profiles,
            executors: &executors,
            codes: &live.codes,
            live: true,
        };
        let stage = stages::declared(TomlSection::root(&table, &report), context);
        if let Some(stage) = &stage {
            self.reject_unfetched_files(stage, &report);
        }
        report.finish(stage)
    }

    /// Rejects files that no stage of the job file names: executors that run already do not have
    /// them.
    fn reject_unfetched_files(&self, stage: &StageSpec, report: &ProblemCollector<'_>) {
        let known = self.files_for(&stage.executors);
        for file in stage.files.iter().filter(|file| !known.contains(file)) {
            report.add(
                0..0,
                "stage.files",
                format!("{:?} is not a file of this job", file.name),
                "executors fetch their files before they start",
                "name the file in a stage of the job file that uses the same executors",
            );
        }
    }
}
