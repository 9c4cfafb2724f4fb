//! Instructions that the core executes for a decision, counted by callgrind.
//!
//! The measurement starts its own program under valgrind. Callgrind counts only while
//! [`counted_step`] runs, so the simulated nodes and masters are not counted. Unlike time, the count
//! does not depend on the load of the machine.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use headroom_rm_core::{Cluster, ClusterEffect, ClusterEvent};
use headroom_types::Tick;

use super::{CoreRun, SMALL, usual_shape};

/// Counted decisions.
const COUNTED: u64 = 5000;

/// Instructions for one decision at 1,000 nodes; `None` when valgrind is not installed.
pub(super) fn per_decision() -> Result<Option<u64>> {
    let program = std::env::current_exe().context("the path of this program")?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args([
            "--collect-atstart=no",
            "--toggle-collect=*instructions*counted_step*",
        ])
        .arg(program)
        .args(["rm-core", "--only-steps"]);
    let output = match valgrind.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("valgrind does not start"),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {text}");
    let collected = text.lines().find_map(collected).with_context(|| {
        format!("valgrind reported no number of collected instructions: {text}")
    })?;
    ensure!(
        collected > 0,
        "callgrind did not find the function counted_step; build without stripping symbols"
    );
    Ok(Some(collected / COUNTED))
}

/// Number in a line such as `==7== Collected : 92268607`.
fn collected(line: &str) -> Option<u64> {
    let (_, number) = line.split_once("Collected :")?;
    number.split_whitespace().next()?.parse().ok()
}

/// The counted program: fills a cluster of 1,000 nodes and makes [`COUNTED`] decisions.
pub(crate) fn run_steps() -> Result<()> {
    let mut run = CoreRun::new(usual_shape(SMALL))?;
    let enough = run.load.granted + COUNTED;
    let mut out = Vec::new();
    while run.load.granted < enough {
        let (event, now) = (run.load.next_event(), run.load.now());
        if run.cluster.next_deadline().is_some_and(|due| due <= now) {
            counted_step(&mut run.cluster, now, ClusterEvent::Time, &mut out);
        }
        counted_step(&mut run.cluster, now, event, &mut out);
        run.load.take(out.drain(..));
    }
    Ok(())
}

/// A step under a name that callgrind recognizes.
#[inline(never)]
fn counted_step(
    cluster: &mut Cluster,
    now: Tick,
    event: ClusterEvent,
    out: &mut Vec<ClusterEffect>,
) {
    cluster.step(now, event, out);
}
