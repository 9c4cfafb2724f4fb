//! The cost of each place for the journal of a master: empty tasks per second with the journal on
//! the node, in a directory of its disk that stands for a shared one, in the state of the resource
//! manager, and in an object store, whose server is on the same processors.
//!
//! Each place has a cluster of its own. All run at once, and their jobs take turns, so that they meet
//! the same machine.

use std::time::Instant;

use anyhow::{Context as _, Result};
use headroom_types::Bytes;
use integration::cluster::{Cluster, IN_RESOURCE_MANAGER, NodeShape};
use integration::object_store::ObjectStoreServer;
use serde::Serialize;

use crate::progress;
use crate::quantiles::quantile;
use crate::tasks;

/// Journals of this size are accepted, so that no job moves its journal to the node.
const MAX_JOURNAL: &str = "64MiB";

/// Default number of jobs at each place.
const ROUNDS: u32 = 7;
/// Default number of tasks of a job.
const TASKS: u32 = 4000;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct JournalResults {
    rounds: u32,
    n: u32,
    node_tasks_per_s: f64,
    shared_tasks_per_s: f64,
    manager_tasks_per_s: f64,
    objects_tasks_per_s: f64,
    /// Median over the rounds of the time of a job, relative to the same round's job with its journal
    /// on the node. Percent more.
    shared_cost_percent: f64,
    manager_cost_percent: f64,
    objects_cost_percent: f64,
}

/// Runs `rounds` jobs of `n` tasks at each place.
pub(crate) fn measure(rounds: Option<u32>, n: Option<u32>) -> Result<JournalResults> {
    let (rounds, n) = (rounds.unwrap_or(ROUNDS), n.unwrap_or(TASKS));
    let configuration =
        format!("[journals]\nmax_journal = \"{MAX_JOURNAL}\"\nmax_total = \"1GiB\"\n");
    let shape = [NodeShape {
        memory: Bytes::from_gib(4),
        cpus: 4,
        enforcer: None,
    }];
    let start = |place| Cluster::start_sharing_journals(&shape, &configuration, place);
    let store = ObjectStoreServer::start()?;
    let clusters = [
        start(None)?,
        start(Some("journals"))?,
        start(Some(IN_RESOURCE_MANAGER))?,
        Cluster::start_with_object_store(&shape, &configuration, &store)?,
    ];
    let mut micros: [Vec<u128>; 4] = Default::default();
    // The first job of a cluster reads its programs from the disk.
    for cluster in &clusters {
        tasks::run(cluster, n / 10)?;
    }
    for round in 0..rounds {
        for position in 0..clusters.len() {
            let place = (position + usize::try_from(round)?) % clusters.len();
            let (Some(cluster), Some(micros)) = (clusters.get(place), micros.get_mut(place)) else {
                continue;
            };
            let started = Instant::now();
            tasks::run(cluster, n)?;
            micros.push(started.elapsed().as_micros());
        }
        progress::print_line(&format!("{} of {rounds} rounds", round + 1));
    }
    let [node, shared, manager, objects] = &micros;
    Ok(JournalResults {
        rounds,
        n,
        node_tasks_per_s: rate(n, node)?,
        shared_tasks_per_s: rate(n, shared)?,
        manager_tasks_per_s: rate(n, manager)?,
        objects_tasks_per_s: rate(n, objects)?,
        shared_cost_percent: cost(node, shared)?,
        manager_cost_percent: cost(node, manager)?,
        objects_cost_percent: cost(node, objects)?,
    })
}

#[allow(clippy::cast_precision_loss)] // microseconds of minutes
fn rate(n: u32, micros: &[u128]) -> Result<f64> {
    let median = quantile(micros, 50).context("no round")?;
    Ok(f64::from(n) * 1e6 / median as f64)
}

/// The median of the ratios of each round. Percent above one.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn cost(node: &[u128], other: &[u128]) -> Result<f64> {
    let ratios: Vec<u128> = node
        .iter()
        .zip(other)
        .map(|(node, other)| other * 1_000_000 / node.max(&1))
        .collect();
    let median = quantile(&ratios, 50).context("no round")?;
    Ok(median as f64 / 10_000.0 - 100.0)
}
