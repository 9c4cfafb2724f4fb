//! The time from the start of `rmctl` to its last byte of output, on an idle cluster.
//!
//! A real resource manager runs on loopback without nodes; each round is a new process. A command
//! without any call shows the cost of the program alone.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use integration::load::daemon::Daemon;
use integration::programs;
use serde::Serialize;

use crate::quantiles::{millis, quantile};

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct CliStartResults {
    p50_ms: f64,
    p99_ms: f64,
    alone_p50_ms: f64,
    n: usize,
    build: &'static str,
}

/// Runs the rounds.
pub(crate) fn measure(rounds: u32) -> Result<CliStartResults> {
    let daemon = Daemon::start()?;
    let addr = format!("http://{}", daemon.address());
    // The first runs load the program into the page cache.
    for _ in 0..3 {
        one(&["status", "--addr", &addr])?;
    }
    let (mut status, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        status.push(one(&["status", "--addr", &addr])?);
        alone.push(one(&["config", "show"])?);
    }
    let at = |times: &[u128], percent| {
        quantile(times, percent)
            .map(millis)
            .context("nothing was measured")
    };
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    Ok(CliStartResults {
        p50_ms: at(&status, 50)?,
        p99_ms: at(&status, 99)?,
        alone_p50_ms: at(&alone, 50)?,
        n: status.len(),
        build,
    })
}

fn one(arguments: &[&str]) -> Result<u128> {
    let mut command = Command::new(programs::path("rmctl")?);
    command.args(arguments).env_clear().stdin(Stdio::null());
    let started = Instant::now();
    let output = command.output().context("starting rmctl")?;
    let time = started.elapsed().as_nanos();
    ensure!(
        output.status.success() && !output.stdout.is_empty(),
        "rmctl: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(time)
}
