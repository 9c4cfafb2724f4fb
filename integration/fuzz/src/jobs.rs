//! Job files: from the text to the tasks that a master starts.

use headroom_appmaster::policy::AttemptSize;
use headroom_appmaster::spec::{self, RequestOwner, StartParameters};
use headroom_config::job::{MAX_TASKS, compile, infeasible_stages};
use headroom_config::{JobSpec, StageSpec};
use headroom_types::{Bytes, Cpus, Resource, TaskAttemptId, TaskId};

use super::config::check_problems;

/// A file is refused with bounded errors, or it compiles to a consistent plan.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match compile(text, "job.toml") {
        Ok(job) => {
            assert_eq!(
                compile(text, "job.toml").as_ref(),
                Ok(&job),
                "the same text gives the same job"
            );
            plan(&job, text);
        }
        Err(problems) => check_problems(&problems, text),
    }
}

fn plan(job: &JobSpec, text: &str) {
    assert!(job.tasks() <= MAX_TASKS && !job.stages.is_empty());
    for offer in [
        Resource::new(Bytes::ZERO, Cpus::from_milli(0)),
        Resource::new(Bytes::from_gib(64), Cpus::from_milli(8000)),
    ] {
        assert!(infeasible_stages(job, &offer).len() <= job.stages.len() + job.executors.len());
    }
    for set in &job.executors {
        let request = spec::set_request(set).expect("a set's name is a valid request name");
        assert!(matches!(
            spec::purpose_of(job, &request),
            Some(RequestOwner::Set(_))
        ));
        assert!(!spec::set_resource(set).memory.is_zero());
    }
    // A stage may have 100,000 tasks; the first and the last stand for all of them.
    for stage in job.stages.iter().take(32) {
        for index in stage
            .indexes()
            .next()
            .into_iter()
            .chain(stage.indexes().last())
        {
            task(job, stage, index, text);
        }
    }
}

fn task(job: &JobSpec, stage: &StageSpec, index: u32, text: &str) {
    let size: AttemptSize = spec::first_size(job, stage);
    assert!(!size.profile.memory().is_zero() && size.slots >= 1);
    let id = TaskId {
        stage: stage.name.clone(),
        index,
    };
    let request = spec::own_request(&id, 7).expect("a task's name is a valid request name");
    assert_eq!(
        spec::purpose_of(job, &request),
        Some(RequestOwner::Own {
            task: id.clone(),
            rung: 7
        })
    );
    if let Some(set) = job.executors_of(stage) {
        assert!(
            !spec::own_resource(&job.retry, set, stage, (size.profile.memory(), size.rung))
                .memory
                .is_zero()
        );
    }
    let id = TaskAttemptId {
        task: id,
        attempt: 1,
    };
    assert!(!id.file_name().contains(['/', '\0']));
    let attempt = StartParameters {
        id: &id,
        size: &size,
        previous: "",
        output: None,
        remedies: &[],
        submitted: None,
    };
    let start = spec::task_start(job, stage, attempt, Some("/base"));
    assert!(!start.command.is_empty());
    let line = serde_json::to_vec(&start).expect("writes");
    assert!(
        line.len() <= (64 << 10) + 256 * text.len(),
        "a file of {} bytes becomes a launch of {}",
        text.len(),
        line.len()
    );
}
