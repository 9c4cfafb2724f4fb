//! `grow` and `grow_hold`: growth of running tasks.

use std::time::Duration;

use headroom_wire::v1::job::MemoryFailureMode;
use toml::de::DeValue;

use super::spec::{GrowthSetting, JobSpec, StageSpec, TaskLimit};
use crate::problem::ProblemCollector;
use crate::toml_reader::{TomlSection, boolean, duration, hint};

/// Default time for which a task is frozen near its limit while more memory is searched.
const DEFAULT_FREEZE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum of `grow_hold`.
const MAX_FREEZE_TIMEOUT: Duration = Duration::from_secs(300);

/// True if the mode grows running tasks. The other modes reproduce systems that kill instead.
pub fn mode_allows_growth(mode: MemoryFailureMode) -> bool {
    match mode {
        MemoryFailureMode::Headroom => true,
        MemoryFailureMode::Pinterest
        | MemoryFailureMode::Uber
        | MemoryFailureMode::Databricks
        | MemoryFailureMode::Tovar
        | MemoryFailureMode::Fixed => false,
    }
}

/// The reason that `grow = true` cannot work for a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthRefusal {
    /// The mode kills instead.
    Mode(MemoryFailureMode),
    /// All nodes that could run the stage have the `poll` enforcer.
    PollOnly,
}

impl JobSpec {
    /// Maximum time for which tasks of a stage are frozen near their limit; `None` if they do not
    /// grow.
    pub fn freeze_timeout(&self, stage: &StageSpec) -> Option<Duration> {
        match stage.grow {
            GrowthSetting::Usual(hold) | GrowthSetting::Stated(hold) => {
                Some(hold).filter(|_| mode_allows_growth(self.mode))
            }
            GrowthSetting::Off => None,
        }
    }
}

/// Records that `grow = true` cannot work.
pub(super) fn refuse(
    r: &ProblemCollector<'_>,
    (place, key): (std::ops::Range<usize>, &str),
    why: GrowthRefusal,
) {
    match why {
        GrowthRefusal::Mode(mode) => r.add(
            place,
            key,
            format!("grow = true in mode {}", mode.as_str()),
            "this mode never raises the limit of a running task",
            "use mode = \"headroom\", or remove grow",
        ),
        GrowthRefusal::PollOnly => r.add(
            place,
            key,
            "grow = true where no node can raise a limit",
            "every node that could run the stage has the enforcer poll, which cannot freeze tasks",
            "give the nodes a memory controller, or remove grow",
        ),
    }
}

/// Reads both keys. Only a task with its own limit, in a mode that does not kill, can grow.
pub(super) fn read(
    s: &mut TomlSection<'_>,
    (enforce, mode): (TaskLimit, MemoryFailureMode),
) -> GrowthSetting {
    let grow = hint(
        "it sets whether a running task may get more memory",
        "write grow = true or grow = false",
    );
    let hold = hint(
        "it limits the time of a frozen task",
        "write a time up to 5 minutes, such as grow_hold = \"30s\"",
    );
    let stated = s.read_value("grow", grow, boolean);
    let hold = s.read_value("grow_hold", hold, longest);
    if hold.is_some() && stated == Some(false) {
        let fix = "remove it, or grow = false";
        s.reject(
            "grow_hold",
            "grow_hold with grow = false",
            "only a task that can grow is frozen",
            fix,
        );
    }
    let time = hold.unwrap_or(DEFAULT_FREEZE_TIMEOUT);
    let executor = enforce == TaskLimit::Executor;
    match stated {
        Some(true) if executor => {
            let (what, why) = (
                "grow with enforce = \"executor\"",
                "a task without its own limit has no limit to raise",
            );
            s.reject("grow", what, why, "use enforce = \"task\", or remove grow");
            GrowthSetting::Off
        }
        Some(true) => {
            if !mode_allows_growth(mode) {
                refuse(
                    s.problems(),
                    (s.place("grow"), &s.path_of("grow")),
                    GrowthRefusal::Mode(mode),
                );
            }
            GrowthSetting::Stated(time)
        }
        Some(false) => GrowthSetting::Off,
        None if executor => {
            if hold.is_some() {
                let (what, why) = (
                    "grow_hold with enforce = \"executor\"",
                    "a task without its own limit is not frozen",
                );
                s.reject(
                    "grow_hold",
                    what,
                    why,
                    "use enforce = \"task\", or remove grow_hold",
                );
            }
            GrowthSetting::Off
        }
        None => GrowthSetting::Usual(time),
    }
}

fn longest(value: &DeValue<'_>) -> Result<Duration, String> {
    match duration(value)? {
        long if long > MAX_FREEZE_TIMEOUT => Err(format!(
            "{} s is longer than {} s",
            long.as_secs(),
            MAX_FREEZE_TIMEOUT.as_secs()
        )),
        time => Ok(time),
    }
}
