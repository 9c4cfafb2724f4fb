//! Values that follow from a job file: first sizes, requests and launches of executors, and the
//! start message of a task. Pure functions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use headroom_config::job::executor_request::{set_request, set_resource};
use headroom_config::{
    ExecutorSpec, InputSizes, JobSpec, MemoryQuantities, Placeholder, RetrySpec, StageSpec,
    TaskLimit,
};
use headroom_types::{
    Bytes, Cpus, Profile, Remedy, RequestId, Resource, TaskAttemptId, TaskId, millis,
};
use headroom_wire::v1::submission::SubmittedTask;
use headroom_wire::v1::task::TaskStart;

use crate::policy::{AttemptPlace, AttemptSize, ladder};
use crate::runtime;

/// The first size of the tasks of a stage. A task that no shared executor can hold starts in its
/// own container.
pub fn first_size(job: &JobSpec, spec: &StageSpec) -> AttemptSize {
    first_size_with(job, spec, Bytes::ZERO)
}

/// The first size with `more` additional overhead.
pub fn first_size_with(job: &JobSpec, spec: &StageSpec, more: Bytes) -> AttemptSize {
    let profile = Profile {
        overhead: spec.profile.overhead.saturating_add(more),
        ..spec.profile.clone()
    };
    size_of_profile(job, spec, profile)
}

/// The first size of a task whose submitter states its memory, in place of that of its stage.
pub fn first_size_of_memory(job: &JobSpec, spec: &StageSpec, memory: Bytes) -> AttemptSize {
    size_of_profile(job, spec, ladder::in_proportion(&spec.profile, memory))
}

/// The first size of a task with this profile, with its place.
fn size_of_profile(job: &JobSpec, spec: &StageSpec, profile: Profile) -> AttemptSize {
    let slots = job.executors_of(spec).map_or((1, 1), |set| {
        let needed = set.slots_for(profile.memory()).max(spec.cpus_per_task);
        (needed, set.slots)
    });
    let (slots, place) = if slots.0 <= slots.1 {
        (slots.0, AttemptPlace::Shared)
    } else {
        (1, AttemptPlace::Own)
    };
    AttemptSize {
        profile,
        slots,
        rung: 1,
        place,
    }
}

/// The request id of a task's own container on a rung.
pub fn own_request(task: &TaskId, rung: u32) -> Option<RequestId> {
    format!("own-{}-{}-r{rung}", task.stage, task.index)
        .parse()
        .ok()
}

/// The set that a request id belongs to, or the task and rung.
pub fn purpose_of(job: &JobSpec, request: &RequestId) -> Option<RequestOwner> {
    if let Some(name) = request.as_str().strip_prefix("set-") {
        return job
            .executors
            .iter()
            .position(|e| e.name.as_str() == name)
            .map(RequestOwner::Set);
    }
    let (rest, rung) = request.as_str().strip_prefix("own-")?.rsplit_once("-r")?;
    let (stage, index) = rest.rsplit_once('-')?;
    let task = TaskId {
        stage: stage.parse().ok()?,
        index: index.parse().ok()?,
    };
    Some(RequestOwner::Own {
        task,
        rung: rung.parse().ok()?,
    })
}

/// The parts of a request id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOwner {
    /// The index of an executor set in the job file.
    Set(usize),
    /// A task's own container on a rung.
    Own {
        /// The task.
        task: TaskId,
        /// Its rung.
        rung: u32,
    },
}

/// Size of a task's own container: its memory, the executor's reserve, and the processors of one
/// task. An escalated task gets at most `retry.cpus`.
pub fn own_resource(
    retry: &RetrySpec,
    set: &ExecutorSpec,
    stage: &StageSpec,
    (memory, rung): (Bytes, u32),
) -> Resource {
    let milli = u64::from(set.profile.cpus.milli()) * u64::from(stage.cpus_per_task)
        / u64::from(set.slots.max(1));
    let of_task = Cpus::from_milli(u32::try_from(milli).unwrap_or(u32::MAX).max(1));
    let cpus = retry
        .cpus
        .filter(|_| rung > 1)
        .map_or(of_task, |most| most.min(of_task));
    Resource::new(
        headroom_config::job::feasibility::own_container(memory, set.reserve),
        cpus,
    )
}

/// Values in the environment of every executor of the application.
#[derive(Clone, Debug)]
pub struct ExecutorEnvironment {
    /// The URL on which this master listens.
    pub master_url: String,
    /// The application's secret.
    pub token: String,
}

/// The parameters of an attempt's start message.
#[derive(Clone, Copy, Debug)]
pub struct StartParameters<'a> {
    /// Its id.
    pub id: &'a TaskAttemptId,
    /// Its size.
    pub size: &'a AttemptSize,
    /// The reason of the previous attempt's end; empty for the first attempt.
    pub previous: &'a str,
    /// Its own output directory, in a fenced stage.
    pub output: Option<&'a str>,
    /// Remedies for the failures of earlier attempts.
    pub remedies: &'a [Remedy],
    /// The submitted task, in a live stage.
    pub submitted: Option<&'a SubmittedTask>,
}

/// The files that the tasks of a stage read, if the job names them. A relative path is resolved
/// against the working directory of tasks, which may be unknown.
pub fn input_files(job: &JobSpec, stage: usize, base_dir: Option<&str>) -> Vec<Option<PathBuf>> {
    let Some(spec) = job.stages.get(stage) else {
        return Vec::new();
    };
    let Some(InputSizes::File(file)) = &spec.input else {
        return Vec::new();
    };
    let one = |index: u32| {
        let path = PathBuf::from(file.fill(|place| match place {
            Placeholder::Index => index.to_string(),
            Placeholder::Stage => spec.name.to_string(),
            Placeholder::Job => job.name.to_string(),
            Placeholder::Attempt
            | Placeholder::Rung
            | Placeholder::Heap
            | Placeholder::HeapMib
            | Placeholder::Memory
            | Placeholder::MemoryMib
            | Placeholder::Overhead
            | Placeholder::Slots
            | Placeholder::Output => String::new(),
        }));
        match base_dir {
            Some(dir) => Some(Path::new(dir).join(path)),
            None => Some(path).filter(|path| path.is_absolute()),
        }
    };
    spec.indexes().map(one).collect()
}

/// The start message of an attempt, with its templates filled in.
pub fn task_start(
    job: &JobSpec,
    stage: &StageSpec,
    attempt: StartParameters<'_>,
    base_dir: Option<&str>,
) -> TaskStart {
    let fill = |place| value(place, job, stage, attempt);
    let mut env: BTreeMap<String, String> = stage
        .env
        .iter()
        .map(|(k, v)| (k.clone(), v.fill(fill)))
        .collect();
    let own = attempt.submitted.into_iter().flat_map(|task| &task.env);
    env.extend(own.map(|(k, v)| (k.clone(), v.clone())));
    env.extend(task_env(job, stage, attempt));
    env.extend(
        attempt
            .output
            .map(|dir| ("HEADROOM_OUTPUT".to_owned(), dir.to_owned())),
    );
    // Files are in the working directory of the container; tasks with files therefore run there.
    let cwd = base_dir.filter(|_| stage.files.is_empty());
    let variable = base_dir.filter(|_| !stage.files.is_empty());
    env.extend(variable.map(|dir| ("HEADROOM_BASE_DIR".to_owned(), dir.to_owned())));
    runtime::set_memory_budget(stage, attempt.size, &mut env);
    runtime::remedy(stage.runtime, attempt.size, attempt.remedies, &mut env);
    let profile = &attempt.size.profile;
    let mut command: Vec<String> = stage.command.iter().map(|word| word.fill(fill)).collect();
    command.extend(
        attempt
            .submitted
            .into_iter()
            .flat_map(|task| task.args.clone()),
    );
    TaskStart {
        attempt: attempt.id.clone(),
        command,
        env,
        cwd: cwd.map(str::to_owned),
        slots: attempt.size.slots,
        limit: match stage.enforce {
            TaskLimit::Task => Some(profile.memory()),
            TaskLimit::Executor => None,
        },
        heap: match stage.runtime.memory() {
            MemoryQuantities::One => None,
            MemoryQuantities::HeapAndOverhead => Some(profile.heap),
        },
        heap_exit_codes: stage.heap_exit_codes.clone(),
        timeout_ms: stage.timeout.map(millis),
        freeze_timeout_ms: job.freeze_timeout(stage).map(millis),
        output: attempt.output.map(str::to_owned),
        // With an input, even an empty one, the executor also reads the value of the program.
        input: attempt
            .submitted
            .map(|task| task.input.clone().unwrap_or_default()),
        fork_server: stage.fork_server.clone().unwrap_or_default(),
    }
}

fn task_env(
    job: &JobSpec,
    stage: &StageSpec,
    attempt: StartParameters<'_>,
) -> Vec<(String, String)> {
    let id = attempt.id;
    let profile = &attempt.size.profile;
    let mut env = vec![
        ("HEADROOM_JOB", job.name.to_string()),
        ("HEADROOM_STAGE", stage.name.to_string()),
        ("HEADROOM_TASK", id.task.to_string()),
        ("HEADROOM_INDEX", id.task.index.to_string()),
        ("HEADROOM_ATTEMPT", id.attempt.to_string()),
        ("HEADROOM_RUNG", attempt.size.rung.to_string()),
        ("HEADROOM_MEMORY_BYTES", profile.memory().get().to_string()),
        ("HEADROOM_SLOTS", attempt.size.slots.to_string()),
        ("HEADROOM_PREVIOUS_REASON", attempt.previous.to_owned()),
    ];
    if stage.runtime.memory() == MemoryQuantities::HeapAndOverhead {
        env.push(("HEADROOM_HEAP_BYTES", profile.heap.get().to_string()));
    }
    env.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

fn value(
    place: Placeholder,
    job: &JobSpec,
    stage: &StageSpec,
    attempt: StartParameters<'_>,
) -> String {
    let profile = &attempt.size.profile;
    match place {
        Placeholder::Index => attempt.id.task.index.to_string(),
        Placeholder::Attempt => attempt.id.attempt.to_string(),
        Placeholder::Rung => attempt.size.rung.to_string(),
        Placeholder::Heap => jvm_size(profile.heap),
        Placeholder::HeapMib => profile.heap.whole_mib().to_string(),
        Placeholder::Memory => profile.memory().get().to_string(),
        Placeholder::MemoryMib => profile.memory().whole_mib().to_string(),
        Placeholder::Overhead => profile.overhead.get().to_string(),
        Placeholder::Slots => attempt.size.slots.to_string(),
        Placeholder::Stage => stage.name.to_string(),
        Placeholder::Job => job.name.to_string(),
        Placeholder::Output => attempt.output.unwrap_or_default().to_owned(),
    }
}

/// A size in the format of `-Xmx`: in whole MiB if possible, else in whole KiB.
fn jvm_size(bytes: Bytes) -> String {
    let mib = 1 << 20;
    if bytes.get() >= mib && bytes.get().is_multiple_of(mib) {
        format!("{}m", bytes.get() / mib)
    } else {
        format!("{}k", bytes.get() >> 10)
    }
}
