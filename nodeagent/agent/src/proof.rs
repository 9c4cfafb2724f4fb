//! The proof of the enforcer before the node takes work: a small child exceeds its limit and must
//! be classified as killed at its own limit. Blocking; runs once, at start.
//!
//! The child is bounded: without enforcement it allocates 64 MiB and exits, which shows that the
//! limit is not enforced.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use headroom_node_cgroup::{EnforcedGroup, GroupLimits, OomGroup};
use headroom_node_core::{VerdictScope, classify};
use headroom_node_exec::{ChildProcess, ExecArguments, ProcessEnd, SpawnCommand, spawn};
use headroom_types::{Bytes, EnforcerKind, Evidence, ExitReason, StopCause};
use headroom_wire::v1::nodes::NodeHealthState;

use crate::node_context::NodeContext;
use crate::process_wait::ends_within;

/// Memory limit of the child.
const LIMIT: Bytes = Bytes::from_mib(16);
/// Maximum time of the proof.
const PROOF_TIMEOUT: Duration = Duration::from_secs(15);
/// Sampling interval of the `poll` enforcer.
const LOOK: Duration = Duration::from_millis(20);

/// Doubles a variable of 16 bytes up to 64 MiB in any POSIX shell, then leaves a slow enforcer some
/// time.
const GREEDY: &str =
    "x=0123456789abcdef; n=0; while [ $n -lt 22 ]; do x=$x$x; n=$((n+1)); done; sleep 3; exit 0";

/// Runs the proof. The reason is one sentence.
pub(crate) fn examine(site: &NodeContext) -> NodeHealthState {
    match prove(site) {
        Ok(()) => NodeHealthState::Healthy,
        Err(error) => NodeHealthState::Unhealthy {
            reason: format!("the {} enforcer failed its proof: {error:#}", site.kind()),
        },
    }
}

fn prove(site: &NodeContext) -> anyhow::Result<()> {
    let name = format!("doctor-{}", std::process::id());
    let limits = GroupLimits {
        memory: Some(LIMIT),
        processes: Some(64),
        cpu_weight: None,
        oom_group: OomGroup::Yes,
        low: None,
    };
    let group = site
        .enforcer
        .create(&name, &limits)
        .context("a test group could not be created")?;
    let verdict = over_allocate(site, &group);
    let killed = group.kill();
    let removed = group.remove(Duration::from_secs(5));
    verdict?;
    killed.context("the test group could not be killed")?;
    removed.context("the test group could not be removed")
}

fn over_allocate(site: &NodeContext, group: &EnforcedGroup) -> anyhow::Result<()> {
    let procs = group.procs_files();
    let env = [("PATH".into(), "/usr/bin:/bin".into())];
    let arguments = ExecArguments::new(["/bin/sh", "-c", GREEDY], &env)?;
    let command = SpawnCommand {
        procs_files: &procs,
        new_session: true,
        ..SpawnCommand::new(&arguments, Path::new("/"))
    };
    let child = spawn(&command).context("the test child could not be started")?;
    group.set_root_pid(child.pid);
    let stopped = end_of(group, &child)?;
    let mut e = Evidence::empty(site.kind());
    match child
        .wait()
        .context("the end of the test child could not be read")?
    {
        ProcessEnd::Code(code) => e.exit_code = Some(code),
        ProcessEnd::Signal(signal) => e.signal = Some(signal),
    }
    e.stop_asked = stopped;
    e.own = group
        .facts()
        .context("the counters of the test group could not be read")?;
    let verdict = classify(&e, VerdictScope::Container, &[]);
    ensure!(
        e.exit_code != Some(0),
        "a child allocated 64 MiB in a group limited to {LIMIT} and was not killed"
    );
    ensure!(
        verdict.reason == ExitReason::OverheadOom,
        "a child that exceeded its limit of {LIMIT} was classified as {} (peak {}, {} kills counted)",
        verdict.reason,
        e.own.peak.unwrap_or_default(),
        e.own.events.oom_kill
    );
    Ok(())
}

/// Waits for the child's end. The `poll` enforcer has no kernel support, so this function samples
/// and kills in its place.
fn end_of(group: &EnforcedGroup, child: &ChildProcess) -> anyhow::Result<Option<StopCause>> {
    let deadline = Instant::now() + PROOF_TIMEOUT;
    let mut stopped = None;
    while !ends_within(child, LOOK)? {
        let over = group.kind() == EnforcerKind::Poll
            && group.sample().is_ok_and(|(current, _)| current > LIMIT);
        if over && stopped.is_none() {
            stopped = Some(StopCause::OverLimit);
            group.kill().context("the test child could not be killed")?;
        }
        if Instant::now() > deadline {
            child.signal(9).ok();
            bail!(
                "the test child neither was killed nor ended within {} s",
                PROOF_TIMEOUT.as_secs()
            );
        }
    }
    Ok(stopped)
}
