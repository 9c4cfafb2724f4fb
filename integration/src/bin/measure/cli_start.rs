//! How long `rmctl` takes from its start to its last byte, on a cluster that does nothing else: what somebody who types waits for.
//!
//! A real resource manager on loopback without nodes; each round is a new process. Beside it a verb that asks nobody, which is what the
//! program costs by itself.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use integration::load::daemon::Daemon;
use integration::programs;
use serde::Serialize;

use crate::quantiles::{millis, quantile};

/// What came out.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    p50_ms: f64,
    p99_ms: f64,
    alone_p50_ms: f64,
    n: usize,
    build: &'static str,
}

/// Runs the rounds.
pub(crate) fn measure(rounds: u32) -> Result<Figures> {
    let daemon = Daemon::start()?;
    let addr = format!("http://{}", daemon.address());
    // The first ones bring the program into memory.
    for _ in 0..3 {
        one(&["status", "--addr", &addr])?;
    }
    let (mut status, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        status.push(one(&["status", "--addr", &addr])?);
        alone.push(one(&["config", "show"])?);
    }
    let at = |times: &[u128], percent| quantile(times, percent).map(millis).context("nothing was measured");
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    Ok(Figures { p50_ms: at(&status, 50)?, p99_ms: at(&status, 99)?, alone_p50_ms: at(&alone, 50)?, n: status.len(), build })
}

fn one(arguments: &[&str]) -> Result<u128> {
    let mut command = Command::new(programs::path("rmctl")?);
    command.args(arguments).env_clear().stdin(Stdio::null());
    let begun = Instant::now();
    let output = command.output().context("starting rmctl")?;
    let time = begun.elapsed().as_nanos();
    ensure!(output.status.success() && !output.stdout.is_empty(), "rmctl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(time)
}
