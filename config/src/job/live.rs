//! `live` and `lease`: jobs that accept stages and tasks while they run, and the stages that their
//! clients declare.

use std::time::Duration;

use headroom_types::Name;

use super::profiles::{ClusterProfiles, ProfileTable};
use super::runtime::ExitCodes;
use super::spec::{JobSpec, StageSpec};
use super::stages::{self, StageContext};
use crate::problem::{FileProblem, ProblemCollector};
use crate::toml_reader::{self, TomlSection, hint};

/// The default of `lease`.
const USUAL_LEASE: Duration = Duration::from_secs(60);
/// Minimum of `lease`: a client needs time to connect again.
const MIN_LEASE: Duration = Duration::from_secs(1);
/// Maximum of `lease`.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings of a live job, and the parts of its file to which declared stages refer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveJob {
    /// Time after which the job ends while no client is connected and no client has closed it.
    pub lease: Duration,
    profiles: ClusterProfiles,
    codes: ExitCodes,
}

impl LiveJob {
    pub(super) fn new(lease: Duration, profiles: &ProfileTable, codes: ExitCodes) -> LiveJob {
        let valid = |(name, profile): (&Name, &Option<_>)| Some((name.clone(), profile.clone()?));
        LiveJob {
            lease,
            profiles: profiles.iter().filter_map(valid).collect(),
            codes,
        }
    }
}

/// Reads `live` and `lease`: the lease of a live job, `None` for any other job.
pub(super) fn read(root: &mut TomlSection<'_>) -> Option<Duration> {
    let live_hint = hint(
        "a live job accepts stages and tasks while it runs",
        "write live = true, or leave it out",
    );
    let lease_hint = hint(
        "the job ends if no client is connected for this time",
        "write a time from \"1s\" to \"24h\", such as lease = \"60s\"",
    );
    let live = root.read_or("live", live_hint, false, toml_reader::boolean);
    let lease = root.read_or("lease", lease_hint, USUAL_LEASE, |v| {
        let lease = toml_reader::duration(v)?;
        if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
            Ok(lease)
        } else {
            Err("this time is not from 1s to 24h".to_owned())
        }
    });
    if !live && root.has("lease") {
        let why = "only a live job waits for a client";
        root.reject(
            "lease",
            "lease in a job that is not live",
            why,
            "add live = true, or remove lease",
        );
    }
    live.then_some(lease)
}

/// Rejects the keys that need the tasks of a stage to be known when the job starts.
pub(super) fn reject_keys_of_arrays(s: &TomlSection<'_>) {
    for key in ["after", "output", "input", "input_locality", "input_hosts"] {
        if s.has(key) {
            s.reject(
                key,
                format!("{key} in a live stage, which has no array"),
                "its tasks are not known before they are submitted",
                "remove it, or give the stage an array",
            );
        }
    }
}

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
