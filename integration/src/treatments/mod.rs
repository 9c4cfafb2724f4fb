//! Each treatment in real jobs on a real cluster: the number of attempts for each sub-cause, and
//! the end of the job.

mod cases;
mod node_conditions;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_types::treatment::usual_treatment;
use headroom_types::{Bytes, SubCause, Treatment};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{AttemptRow, TaskRow};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, NodeShape};
use crate::provoke::Programs;

pub use cases::{NodeCondition, TreatmentCase, TreatmentEnd, all};

/// Memory of the node: enough for the second attempt of the largest case, and at most the memory of
/// a guest.
const NODE: Bytes = Bytes::from_mib(1280);
/// Timeout of the job of one case. A program that starts 4,096 threads twice takes minutes in a
/// guest.
const JOB_TIMEOUT: Duration = Duration::from_secs(900);
/// Reserve for the executor itself, of a debug build.
const RESERVE: Bytes = Bytes::from_mib(96);

/// One row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TreatmentRow {
    /// The program.
    pub program: String,
    /// The expected sub-cause.
    pub cause: SubCause,
    /// The sub-cause of its last failure, or of its first for a program that never succeeds.
    pub named: SubCause,
    /// The treatment of its first failure.
    pub treatment: String,
    /// Number of attempts of its task.
    pub attempts: usize,
    /// Number of attempts that the treatment implies.
    pub least: usize,
    /// A description of its end.
    pub outcome: String,
    /// Whether cause, treatment and end are as expected.
    pub right: bool,
}

impl TreatmentRow {
    /// Attempts in excess of those that the treatment implies.
    pub fn wasted(&self) -> usize {
        self.attempts.saturating_sub(self.least)
    }
}

/// A cluster that runs failing programs.
#[derive(Debug)]
pub struct TreatmentBench {
    cluster: Cluster,
    /// The programs.
    pub programs: Programs,
}

impl TreatmentBench {
    /// A cluster of one node. `native` is the built program `provoke`.
    pub fn new(native: &Path) -> Result<TreatmentBench> {
        let cluster = Cluster::start(&[NodeShape {
            memory: NODE,
            cpus: 8,
            enforcer: None,
        }])?;
        let name = format!("headroom-treatments-{}", std::process::id());
        let programs = Programs::new(native, cluster.dir(), &name);
        Ok(TreatmentBench { cluster, programs })
    }

    /// Runs the job of one case to its end.
    pub fn run(&self, case: &TreatmentCase) -> Result<(TreatmentRow, AppView)> {
        self.programs.compile(case.needs)?;
        let place = node_conditions::make(case.place, &self.cluster, &self.programs)?;
        let app = self.cluster.submit(&job(case))?;
        let ended = |view: &AppView| view.state.is_final().then(|| view.clone());
        let end = self
            .cluster
            .until_app(&app, &format!("{app} to end"), JOB_TIMEOUT, ended)?;
        drop(place);
        let _ = std::fs::remove_file(&self.programs.in_memory); // only one case creates it
        let task = end
            .job
            .as_ref()
            .and_then(|job| job.tasks.first())
            .context("a job without a task")?;
        Ok((row(case, &end, task), end))
    }
}

/// The job file of a case. Growth is disabled, because a growing task fails less often.
fn job(case: &TreatmentCase) -> String {
    let heap = case.heap.unwrap_or(case.limit);
    let overhead = case.limit.saturating_sub(heap);
    let memory = case.limit.saturating_add(RESERVE);
    format!(
        "version = 1\nname = \"{}\"\n[profiles.exec]\nmemory = \"{}B\"\ncpus = 1\n\
         [profiles.task]\nheap = \"{}B\"\noverhead = \"{}B\"\ncpus = 1\n\
         [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 1\nreserve = \"{}B\"\n\
         [[stage]]\nname = \"s\"\ngrow = false\nprofile = \"task\"\ncommand = {:?}\n{}\n{}",
        case.program,
        memory.get(),
        heap.get(),
        overhead.get(),
        RESERVE.get(),
        case.command,
        case.stage,
        case.rest
    )
}

fn row(case: &TreatmentCase, end: &AppView, task: &TaskRow) -> TreatmentRow {
    let first = task.attempts.first();
    let failed = match case.ends {
        // The second attempt may fail for another reason. For example, a limit that was set by hand
        // can be below the larger budget.
        TreatmentEnd::Treated => first,
        TreatmentEnd::Cured | TreatmentEnd::Failed(_) => task
            .attempts
            .iter()
            .rev()
            .find(|attempt| attempt.treatment.is_some()),
    };
    let named = failed
        .and_then(|attempt| attempt.diagnosis.first())
        .map_or(SubCause::Unnamed, |found| found.name);
    let treatment = first
        .and_then(|attempt| attempt.treatment)
        .map(|treated| treated.to_string())
        .unwrap_or_default();
    let (ended, outcome) = match case.ends {
        TreatmentEnd::Cured => (
            end.state == AppState::Finished,
            format!("{:?}", end.state).to_lowercase(),
        ),
        TreatmentEnd::Failed(says) => (
            end.state == AppState::Failed && task.note.contains(says),
            task.note.clone(),
        ),
        TreatmentEnd::Treated => second(case, task),
    };
    let usual = usual_treatment(case.cause);
    let shown = match (case.treatment, usual.remedy) {
        ("", Some(remedy)) => format!("{} {remedy}", usual.first),
        ("", None) => usual.first.to_string(),
        (other, _) => other.to_owned(),
    };
    let right = ended
        && named == case.cause
        && treatment.starts_with(&shown)
        && task.attempts.len() == case.attempts;
    TreatmentRow {
        program: case.program.clone(),
        cause: case.cause,
        named,
        treatment,
        attempts: task.attempts.len(),
        least: case.attempts,
        outcome,
        right,
    }
}

/// Checks the size and remedies of the second attempt, for a program that never succeeds.
fn second(case: &TreatmentCase, task: &TaskRow) -> (bool, String) {
    let (Some(first), Some(second)) = (task.attempts.first(), task.attempts.get(1)) else {
        return (false, format!("no second attempt: {}", task.note));
    };
    let size = |attempt: &AttemptRow| attempt.profile.memory();
    match usual_treatment(case.cause).first {
        Treatment::Grow => (
            size(second) > size(first),
            format!("given {} after {}", size(second), size(first)),
        ),
        Treatment::Remedy => {
            let names: Vec<&str> = second
                .remedies
                .iter()
                .map(|remedy| remedy.as_str())
                .collect();
            let same = size(second) == size(first) && !names.is_empty();
            (same, format!("the same size with {}", names.join(", ")))
        }
        Treatment::Retry | Treatment::Elsewhere => (
            size(second) == size(first),
            "the same size again".to_owned(),
        ),
        Treatment::Fail | Treatment::Unknown => (false, "it should have failed at once".to_owned()),
    }
}
