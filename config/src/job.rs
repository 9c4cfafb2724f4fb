//! Job files: stages of tasks, the executors they share, and their treatment of failures.
//!
//! [`compile`] parses the text and reports every error at once. [`infeasible_stages`] compares the
//! result with the largest container that a cluster could ever grant.

mod access;
mod declared_stage;
pub mod executor_request;
mod executors;
pub mod feasibility;
mod files;
pub mod growth;
mod growth_check;
mod input;
pub mod keys;
mod live;
mod node_constraints;
mod output;
pub mod profiles;
mod runtime;
mod spec;
mod stages;
mod template;
mod treatments;
pub mod uploads;

use headroom_types::{Name, QueuePath};
use headroom_wire::v1::job::MemoryFailureMode;
use toml::Spanned;
use toml::de::DeValue;

pub use feasibility::{InfeasibleStage, infeasible_stages};
pub use growth::GrowthRefusal;
pub use growth_check::growth_problems;
pub use live::LiveJob;
pub use node_constraints::NodeConstraints;
pub use profiles::ClusterProfiles;
pub use runtime::{GcLogSetting, MemoryQuantities, RuntimeFlags, TaskRuntime};
pub use spec::{
    ExecutorProgram, ExecutorSpec, GibibyteHours, GrowthSetting, Idempotent, InputHosts,
    InputLocality, InputSizes, JobSpec, MAX_TASKS, RetrySpec, SizingMode, StageSpec, TaskGroups,
    TaskLimit, mode_learns_sizes,
};
pub use template::{Placeholder, PlaceholderTemplate};
pub use treatments::Treatments;

use crate::problem::{FileProblem, ProblemCollector};
use crate::toml_reader::{
    self, TomlSection, count, duration_or_zero, hint, integer, nonzero_size, parsed, read_keys,
    some,
};

/// Version of the job file format.
pub const VERSION: i64 = 1;

/// Compiles a job file that uses no profile of the cluster; `file` is its name in messages.
pub fn compile(text: &str, file: &str) -> Result<JobSpec, Vec<FileProblem>> {
    compile_with(text, file, &ClusterProfiles::new())
}

/// Compiles a job file that may use profiles of the cluster. Profiles of the file override those of
/// the cluster.
pub fn compile_with(
    text: &str,
    file: &str,
    cluster: &ClusterProfiles,
) -> Result<JobSpec, Vec<FileProblem>> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    let mut root = TomlSection::root(&table, &report);
    let job = read(&mut root, cluster);
    root.reject_unknown_keys();
    report.finish(job)
}

fn read(root: &mut TomlSection<'_>, cluster: &ClusterProfiles) -> Option<JobSpec> {
    let version = hint(
        "a later format may use the same keys with another meaning",
        "write version = 1 as the first line",
    );
    root.read_required("version", version, |v| integer(v, VERSION, VERSION));
    let name = root.read_required(
        "name",
        hint("it names the application", "write name = \"word-count\""),
        parsed::<Name>,
    );
    let queue = root.read(
        "queue",
        hint(
            "the job waits in this queue",
            "write the name of a queue, or leave it out",
        ),
        parsed::<QueuePath>,
    );
    let priority = hint(
        "a higher priority is served first within its queue",
        "write a whole number from -1000 to 1000",
    );
    let priority = root.read_or("priority", priority, 0, |v| {
        integer(v, -1000, 1000).and_then(|n| i32::try_from(n).map_err(|e| e.to_string()))
    });
    let mode = hint(
        "it sets the reaction to memory failures",
        "write \"headroom\", \"pinterest\", \"uber\", \"databricks\", \"tovar\" or \"fixed\"",
    );
    let mode = root.read_or(
        "mode",
        mode,
        MemoryFailureMode::default(),
        parsed::<MemoryFailureMode>,
    );
    let sizes = sizes(root, mode);
    let lease = live::read(root);
    let profiles = profiles::read(root, cluster);
    let executors = executors::read(root, &profiles, lease.is_some());
    let retry = retry(root);
    let access = access::read(root);
    let treatments = treatments::read(root);
    let codes = runtime::ExitCodes::read(root);
    let stages = stages::read(
        root,
        stages::StageContext {
            mode,
            profiles: &profiles,
            executors: &executors,
            codes: &codes,
            live: lease.is_some(),
        },
    );
    let live = lease.map(|lease| Box::new(LiveJob::new(lease, &profiles, codes.clone())));
    let executors = executors.into_values().flatten().collect();
    let (name, queue) = (name?.into_inner(), queue.map(Spanned::into_inner));
    Some(JobSpec {
        name,
        queue,
        priority,
        mode,
        sizes,
        executors,
        stages,
        retry,
        access,
        treatments,
        live,
    })
}

/// Reads `sizes`, which only some modes allow.
fn sizes(root: &mut TomlSection<'_>, mode: MemoryFailureMode) -> Option<SizingMode> {
    let hint = hint(
        "it sets the first size of tasks",
        "write sizes = \"stated\", \"learned\" or \"shadow\"",
    );
    let sizes = root.read("sizes", hint, parsed::<SizingMode>)?;
    if !mode_learns_sizes(mode) && *sizes.get_ref() == SizingMode::Learned {
        let what = format!("sizes = \"learned\" in mode {}", mode.as_str());
        let why = "that mode starts every task with the size of its stage";
        root.problems().add(
            sizes.span(),
            "sizes",
            what,
            why,
            "use mode = \"headroom\", or sizes = \"shadow\" to see the learned sizes",
        );
    }
    Some(sizes.into_inner())
}

/// Parses memory × time above zero: `20`, `2.5` or `"2.5"`.
fn gib_hours(value: &DeValue<'_>) -> Result<GibibyteHours, String> {
    match value {
        DeValue::Integer(n) => n.as_str().parse(),
        DeValue::Float(n) => n.as_str().parse(),
        DeValue::String(t) => t.parse(),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err(format!(
                "this is {}, not a number of GiB·h",
                toml_reader::kind(value)
            ))
        }
    }
}

fn retry(root: &mut TomlSection<'_>) -> RetrySpec {
    let whole = hint("it limits the attempts of a task", "write a table [retry]");
    root.read_table("retry", whole, |s| {
        let budget = hint(
            "no task of the job grows after memory failures have cost this much",
            "write GiB·h as a number above 0, such as budget_gib_h = 2.5, or leave it out for no limit",
        );
        let budget = s.read_value("budget_gib_h", budget, gib_hours);
        let (why, fix) = (
            "a task that always fails must end",
            "write a whole number, such as 4",
        );
        read_keys!(s, RetrySpec { budget, ..RetrySpec::default() }, {
            max_attempts: count(1, 100) => why, fix;
            memory_attempts: count(1, 20) => why, fix;
            transient: count(0, 100) => why, fix;
            cap: some(nonzero_size) =>
                "no task grows beyond this size",
                "write a size such as cap = \"4GiB\", or leave it out for the largest node";
            breaker: some(count(1, 100)) =>
                "a stage is marked badly sized if more of its tasks need another size",
                "write a percentage from 1 to 100, such as breaker = 50, or leave it out for no limit";
            drain_after: duration_or_zero =>
                "an executor of the job then ends and frees memory for the task's own container",
                "write a duration such as drain_after = \"1s\", or \"0s\" for at once";
            cpus: some(toml_reader::cpus) =>
                "processors of an escalated task's own container",
                "write a number of cores, such as cpus = 0.5, or leave it out";
        })
    })
}
