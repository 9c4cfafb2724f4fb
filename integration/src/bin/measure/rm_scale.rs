//! Growth curves of the resource manager's pure core: more nodes, more queues and users, and more
//! waiting requests.
//!
//! Each point is its own process, so its resident memory is that of one cluster. The load is that
//! of `rm-core`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_rm_core::testkit::load::LoadShape;
use integration::load::daemon::usage;
use serde::{Deserialize, Serialize};

use crate::progress;
use crate::rm_core::{CoreRun, hundredths, median, per_second};

/// Repetitions; the median counts.
const ROUNDS: usize = 3;

/// Shapes of the points: nodes, queues, users of a queue, requests of a user.
const SHAPES: [[u32; 4]; 13] = [
    // nodes, each with the same load, and ten for each queue
    [100, 10, 1, 100],
    [1_000, 100, 1, 100],
    [10_000, 1_000, 1, 100],
    [100_000, 9_999, 1, 100],
    // queues
    [1_000, 1, 1, 1_000],
    [1_000, 10, 1, 100],
    [1_000, 1_000, 1, 10],
    // waiting requests
    [1_000, 100, 1, 10],
    [1_000, 100, 1, 1_000],
    [1_000, 100, 1, 10_000],
    // users
    [1_000, 100, 10, 10],
    [10_000, 1_000, 10, 10],
    [100_000, 1_000, 10, 100],
];

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct ScaleResults {
    points: Vec<ScalePoint>,
}

/// One cluster.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ScalePoint {
    nodes: u32,
    queues: u32,
    users: u32,
    pending: u64,
    live: usize,
    decisions_per_s: u64,
    p99_event_us: f64,
    /// The longest event: a pass over all queues, or a housekeeping of all nodes.
    longest_event_ms: f64,
    /// Resident memory of the core together with the simulated nodes and masters.
    rss_mib: u64,
}

/// Measures all points, one after another.
pub(crate) fn measure() -> Result<ScaleResults> {
    let program = std::env::current_exe().context("the path of this program")?;
    let mut points = Vec::new();
    for shape in SHAPES {
        let numbers = shape.map(|n| n.to_string()).join(",");
        progress::print_line(&format!("nodes, queues, users, requests: {numbers}"));
        let output = Command::new(&program)
            .args(["rm-scale", "--point", &numbers, "-o", "json"])
            .output()
            .context("this program does not start")?;
        ensure!(
            output.status.success(),
            "point {numbers}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let point: ScalePoint = serde_json::from_slice(&output.stdout).context(numbers)?;
        progress::print_line(&row(&point));
        points.push(point);
    }
    Ok(ScaleResults { points })
}

/// Measures one point in this process.
pub(crate) fn point(numbers: &[u32]) -> Result<ScalePoint> {
    let &[nodes, queues, users, requests] = numbers else {
        anyhow::bail!("a point has four numbers: nodes, queues, users and requests")
    };
    let mut run = CoreRun::new(LoadShape {
        nodes,
        queues,
        users,
        requests,
        exits: 4,
    })?;
    let (mut each, mut p99, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..ROUNDS {
        let round = run.round()?;
        each.push(round.per_decision);
        p99.push(round.p99);
        longest = longest.max(round.longest);
    }
    Ok(ScalePoint {
        nodes,
        queues,
        users: queues * users,
        pending: run.load.pending(),
        live: run.load.live(),
        decisions_per_s: per_second(median(each)),
        p99_event_us: hundredths(median(p99).as_secs_f64() * 1e6),
        longest_event_ms: hundredths(longest.as_secs_f64() * 1e3),
        rss_mib: usage(std::process::id())?.rss_mib,
    })
}

/// The curves as a table.
pub(crate) fn table(results: &ScaleResults) -> String {
    let mut text = String::from(
        "   nodes  queues   users    pending    live  decisions/s  p99 us  longest ms    MiB\n",
    );
    for point in &results.points {
        text.push_str(&row(point));
        text.push('\n');
    }
    text
}

fn row(point: &ScalePoint) -> String {
    format!(
        "{:8}{:8}{:8}{:11}{:8}{:13}{:8.1}{:12.2}{:7}",
        point.nodes,
        point.queues,
        point.users,
        point.pending,
        point.live,
        point.decisions_per_s,
        point.p99_event_us,
        point.longest_event_ms,
        point.rss_mib
    )
}
