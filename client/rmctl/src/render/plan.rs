//! The plan of a job, before it is submitted.

use headroom_config::job::ClusterProfiles;
use headroom_config::job::{GrowthSetting, growth};
use headroom_config::{InputLocality, JobSpec, MemoryQuantities, StageSpec, TaskLimit};
use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;

use super::figures::short;
use super::table::wrap;

/// Width of a line. Columns.
const COLUMNS: usize = 100;

/// The plan of a job: its executors, its stages, and its reaction to memory failures. `polls`
/// returns true for a stage whose nodes have no kernel enforcer.
pub(crate) fn plan(
    job: &JobSpec,
    mode: MemoryFailureMode,
    largest: Option<Bytes>,
    polls: impl Fn(&StageSpec) -> bool,
) -> String {
    let executors = job.executors.iter().map(|e| {
        let slots = if e.slots == 1 { "slot" } else { "slots" };
        let name = &e.name;
        format!(
            "plan  executors {name}: {} × {} with {} {slots}, {} a slot\n",
            e.count,
            e.profile,
            e.slots,
            short(e.slot_memory())
        )
    });
    let stages = job
        .stages
        .iter()
        .map(|s| format!("{}{}", stage(job, s), growth(s, mode, polls(s))));
    let live = job.live.iter().map(|live| {
        let seconds = live.lease.as_secs();
        format!("live  accepts tasks until a client closes it, or {seconds} s without a client\n")
    });
    let sizes = format!("mode {}: {}", mode.as_str(), ladder(job, mode, largest));
    let sizes = wrap(&sizes, COLUMNS - 6)
        .into_iter()
        .map(|line| format!("      {line}\n"));
    executors.chain(stages).chain(live).chain(sizes).collect()
}

/// The profiles of the cluster that a job file names, with their present sizes, which the job
/// keeps.
pub(crate) fn named(profiles: &ClusterProfiles) -> String {
    profiles
        .iter()
        .map(|(name, size)| {
            format!(
                "from  the cluster's profile {name}: {size}, {} cpus\n",
                size.cpus
            )
        })
        .collect()
}

fn stage(job: &JobSpec, s: &StageSpec) -> String {
    let at_once = job.executors_of(s).map_or(0, |e| {
        let slots = e.slots_for(s.profile.memory()).max(s.cpus_per_task);
        e.count.saturating_mul(e.slots / slots.max(1))
    });
    let at_once = if at_once == 0 {
        "in containers of their own".to_owned()
    } else {
        format!("{at_once} at once")
    };
    let after: Vec<String> = s.after.iter().map(ToString::to_string).collect();
    let after = if after.is_empty() {
        String::new()
    } else {
        format!(" after {}", after.join(", "))
    };
    let input = input(s);
    // The tasks of a live stage are added while the job runs.
    let tasks = match s.count {
        0 => "tasks of".to_owned(),
        count => format!("{count} ×"),
    };
    format!(
        "plan  {} {tasks} {}, {at_once}{after}\n{input}",
        s.name, s.profile
    )
}

/// Whether tasks of a stage grow before they are killed.
fn growth(s: &StageSpec, mode: MemoryFailureMode, polls: bool) -> String {
    let off = match s.grow {
        _ if !growth::mode_allows_growth(mode) => {
            format!("mode {} does not grow tasks", mode.as_str())
        }
        GrowthSetting::Usual(_) if polls => "no node has a limit that can be raised".to_owned(),
        GrowthSetting::Usual(hold) | GrowthSetting::Stated(hold) => {
            let seconds = hold.as_secs_f64();
            return format!(
                "      {}: a task near its limit grows in place; it waits up to {seconds} s for the memory\n",
                s.name
            );
        }
        GrowthSetting::Off if s.enforce == TaskLimit::Executor => {
            "its tasks have no limits of their own".to_owned()
        }
        GrowthSetting::Off => "grow = false".to_owned(),
    };
    format!("      {}: a running task does not grow: {off}\n", s.name)
}

/// The consequences of the location of a stage's input.
fn input(s: &StageSpec) -> String {
    match (s.input_locality, s.runtime.memory()) {
        (None, _) => String::new(),
        (Some(InputLocality::Local), _) => format!(
            "      {}: containers wait 3 s for nodes that hold its input\n",
            s.name
        ),
        (Some(InputLocality::Remote), MemoryQuantities::HeapAndOverhead) if s.input.is_some() => {
            format!(
                "      {}: the input that a task fetches from other hosts is added to its overhead\n",
                s.name
            )
        }
        (Some(InputLocality::Remote), MemoryQuantities::HeapAndOverhead) => {
            format!(
                "      {}: its input is fetched from other hosts, but its size is not known; add input = …\n",
                s.name
            )
        }
        (Some(InputLocality::Remote), MemoryQuantities::One) => {
            format!("      {}: its input is fetched from other hosts\n", s.name)
        }
    }
}

/// The ladder in words, because its sizes are decided only after a kill.
fn ladder(job: &JobSpec, mode: MemoryFailureMode, largest: Option<Bytes>) -> String {
    let cap = job.retry.cap.into_iter().chain(largest).min();
    let cap = cap
        .map(|c| format!("up to {}", short(c)))
        .unwrap_or_else(|| "up to the largest node".to_owned());
    match mode {
        MemoryFailureMode::Headroom => format!(
            "a task killed for memory takes two slots, then a container of its own, {cap}; {} tries",
            job.retry.memory_attempts
        ),
        MemoryFailureMode::Pinterest => {
            format!(
                "a task killed for memory takes two slots, then an executor of 2, 3, 4 times the size, {cap}"
            )
        }
        MemoryFailureMode::Uber => {
            "a task killed for memory gets a whole executor; killed alone on one is final"
                .to_owned()
        }
        MemoryFailureMode::Databricks => {
            format!(
                "a task killed for memory gets twice the size, {cap}; {} tries",
                job.retry.memory_attempts
            )
        }
        MemoryFailureMode::Tovar => {
            format!("a task killed for memory gets the largest possible size, {cap}")
        }
        MemoryFailureMode::Fixed => {
            format!(
                "a task killed for memory runs again at the same size, {} tries",
                job.retry.max_attempts
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"
version = 1
name = "group-by"
[profiles.exec]
heap = "128MiB"
overhead = "32MiB"
cpus = 2
[executors.main]
profile = "exec"
count = 2
slots = 4
reserve = "32MiB"
[[stage]]
name = "group"
array = "0-19"
command = ["prog", "{index}"]
[[stage]]
name = "merge"
after = ["group"]
command = ["prog", "all"]
"#;

    #[test]
    fn the_location_of_the_input_changes_the_plan() {
        let plan_of = |more: &str| {
            let text = JOB.replace("array = \"0-19\"", &format!("array = \"0-19\"\n{more}"));
            let text = text.replace(
                "[[stage]]\nname = \"group\"",
                "[profiles.task]\nheap = \"16MiB\"\noverhead = \"8MiB\"\n[[stage]]\nname = \"group\"",
            );
            plan(
                &headroom_config::job::compile(&text, "job.toml").expect("compiles"),
                MemoryFailureMode::Headroom,
                None,
                |_| false,
            )
        };
        assert!(plan_of("input_hosts = [\"w{index}\"]").contains("group: containers wait 3 s"));
        let jvm = "profile = \"task\"\nruntime = \"jvm\"\ninput_locality = \"remote\"";
        assert!(plan_of(jvm).contains("its size is not known"));
        assert!(
            plan_of(&format!("{jvm}\ninput = \"{{index}}.csv\""))
                .contains("is added to its overhead")
        );
        assert!(!plan_of("").contains("input"));
    }

    #[test]
    fn a_job_in_each_mode() {
        let job = headroom_config::job::compile(JOB, "job.toml").expect("compiles");
        let plans = MemoryFailureMode::ALL
            .map(|mode| plan(&job, mode, Some(Bytes::from_gib(3)), |_| false));
        insta::assert_snapshot!(plans.join("---\n"));
    }
}
