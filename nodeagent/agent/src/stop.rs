//! Carries out the steps of a stop, in order. Blocking; called as a job of the loop.

use std::sync::Arc;

use anyhow::Context as _;
use headroom_container_shim::record;
use headroom_node_cgroup::EnforcedGroup;
use headroom_node_exec::{WatchedProcess, starttime_of};
use headroom_types::{ContainerId, StopCause};

use crate::clock;
use crate::crash;
use crate::disk::{self, StopRecord, file};
use crate::node_context::NodeContext;
use crate::recorded_process;

/// SIGTERM.
const TERM: i32 = 15;
/// SIGKILL.
const KILL: i32 = 9;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopStep {
    /// Record the cause of the stop.
    Record(StopCause),
    /// Send SIGTERM to the program.
    Terminate,
    /// Send SIGKILL to all processes.
    Kill,
}

/// The processes of a container that receive a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalTarget {
    /// The program that was launched.
    Program,
    /// All processes.
    All,
}

/// Carries out `steps` on one container. `group` is `None` if it could not be opened.
pub(crate) fn carry_out(
    site: &NodeContext,
    id: &ContainerId,
    group: Option<&Arc<EnforcedGroup>>,
    task_groups: bool,
    steps: &[StopStep],
) {
    for step in steps {
        match step {
            StopStep::Record(cause) => {
                crash::at("stop-wanted");
                write_down(site, id, group, task_groups, *cause);
                crash::at("stop-recorded");
            }
            StopStep::Terminate => {
                signal(site, id, TERM);
                crash::at("terminated");
            }
            StopStep::Kill => {
                kill(site, id, group);
                crash::at("killed");
            }
        }
    }
}

fn write_down(
    site: &NodeContext,
    id: &ContainerId,
    group: Option<&Arc<EnforcedGroup>>,
    task_groups: bool,
    cause: StopCause,
) {
    // If tasks have their own groups, a counted kill may belong to an earlier task.
    let kills = group
        .and_then(|g| g.facts().ok())
        .is_some_and(|f| f.events.oom_kill + f.events.oom_group_kill > 0);
    let record = StopRecord::new(cause, clock::unix_now(), kills && !task_groups);
    if let Err(error) = disk::write_json(&site.layout.container(id).join(file::STOP), &record) {
        tracing::error!(container_id = %id, %error, "the cause of a stop cannot be recorded; the container is still stopped");
    }
}

/// Signals the program, if its process is still the one that was started.
pub(crate) fn signal(site: &NodeContext, id: &ContainerId, number: i32) {
    if let Some(program) = recorded_process::process(&site.layout.container(id), record::file::PID)
        && let Err(error) = program.signal(number)
    {
        tracing::warn!(container_id = %id, number, %error, "the program cannot be signalled");
    }
}

/// Delivers a requested signal to the program of a container, or to every process in its group.
/// Returns the number of signalled processes; 0 if none lives.
pub(crate) fn deliver(
    site: &NodeContext,
    id: &ContainerId,
    group: Option<&EnforcedGroup>,
    number: i32,
    whom: SignalTarget,
) -> anyhow::Result<u32> {
    let members = || {
        group
            .map(EnforcedGroup::pids)
            .transpose()
            .map(Option::unwrap_or_default)
    };
    let processes: Vec<WatchedProcess> = match whom {
        SignalTarget::Program => {
            recorded_process::process(&site.layout.container(id), record::file::PID)
                .into_iter()
                .collect()
        }
        SignalTarget::All => {
            let open = |pid: i32| WatchedProcess::open(pid, starttime_of(pid).ok()??).ok()?;
            let held: Vec<WatchedProcess> = members()?.into_iter().filter_map(open).collect();
            // Only processes that are still members after their pidfd was opened. Otherwise the pid
            // could belong to an unrelated process.
            let still = members()?;
            held.into_iter()
                .filter(|process| still.contains(&process.pid()))
                .collect()
        }
    };
    for process in &processes {
        process
            .signal(number)
            .with_context(|| format!("process {} cannot be signalled", process.pid()))?;
    }
    Ok(u32::try_from(processes.len()).unwrap_or(u32::MAX))
}

/// Kills every process of a container.
pub(crate) fn kill(site: &NodeContext, id: &ContainerId, group: Option<&Arc<EnforcedGroup>>) {
    let Some(group) = group else {
        signal(site, id, KILL);
        return;
    };
    if let Err(error) = group.kill() {
        tracing::warn!(container_id = %id, %error, "the agent cannot kill all processes of the container at once; trying again");
        signal(site, id, KILL);
    }
}
