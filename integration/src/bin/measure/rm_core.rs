//! Containers per second that the resource manager's pure core grants, on one thread.
//!
//! Nodes report running and ended containers, masters acknowledge and request again; each granted
//! container goes through its whole life cycle. The measured time is that of `step` alone, the same
//! function that the daemon calls; the simulation of nodes and masters is not counted. For the
//! comparison of 10,000 nodes with 1,000 and 100,000, each node has the same load and each queue has
//! the same number of nodes.

mod instructions;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use headroom_rm_core::testkit::load::{ClusterLoad, LoadShape};
use headroom_rm_core::{
    Cluster, ClusterCall, ClusterEffect, ClusterEvent, ContainerCommand, RestoredCluster,
};
use headroom_types::{Epoch, Tick};
use serde::Serialize;

pub(crate) use instructions::run_steps;

/// Repetitions; the median counts.
const ROUNDS: usize = 5;
/// Containers granted in one repetition.
const DECISIONS: u64 = 100_000;
/// Nodes for each queue with its user: a thousand queues at ten thousand nodes.
const NODES_PER_QUEUE: u32 = 10;
/// Most queues of a tree, without the root.
const MAX_LEAVES: u32 = 9_999;
/// Requests of each application.
const REQUESTS: u32 = 100;
const HUGE: u32 = 100_000;
const LARGE: u32 = 10_000;
const SMALL: u32 = 1000;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct ManagerCoreResults {
    decisions_per_s: u64,
    p99_event_us: f64,
    growth_1k_to_10k: f64,
    /// Time of a decision with 100,000 nodes, divided by the time with 10,000.
    growth_10k_to_100k: f64,
    /// Granted containers per second while the empty cluster fills, from the request to the effects
    /// of the grant. Only this part of a container's life is counted here.
    allocations_per_s: u64,
    /// Instructions for one decision with 1,000 nodes; `None` when valgrind is not installed.
    instructions_per_decision: Option<u64>,
    nodes: u32,
    pending: u64,
    live: usize,
    /// For comparison: moves per second of keys in a sorted tree with as many keys as there are
    /// pending requests, on the same machine.
    tree_moves_per_s: u64,
}

/// Times of one repetition.
pub(crate) struct Round {
    pub(crate) per_decision: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
}

/// A core under load, full of containers.
pub(crate) struct CoreRun {
    cluster: Cluster,
    pub(crate) load: ClusterLoad,
    shape: LoadShape,
    first: FirstGrants,
}

/// Grants to the first requests of all applications.
#[derive(Default)]
struct FirstGrants {
    granted: u32,
    spent: Duration,
}

impl FirstGrants {
    /// Counts a step, if the step granted all containers of its requests. The last requests find no
    /// room in the full cluster, so their steps are not counted.
    fn add(&mut self, asked: u32, effects: &[ClusterEffect], spent: Duration) {
        let runs = |effect: &&ClusterEffect| {
            matches!(
                effect,
                ClusterEffect::SendCommand {
                    want: ContainerCommand::Run(_),
                    ..
                }
            )
        };
        let granted = u32::try_from(effects.iter().filter(runs).count()).unwrap_or(u32::MAX);
        if asked > 0 && granted == asked {
            self.granted += granted;
            self.spent += spent;
        }
    }
}

/// Containers that an event requests.
fn asked(event: &ClusterEvent) -> u32 {
    if let ClusterEvent::Call {
        what: ClusterCall::Sync(sync),
        ..
    } = event
    {
        return sync.asks.iter().map(|ask| ask.count).sum();
    }
    0
}

pub(crate) fn measure() -> Result<ManagerCoreResults> {
    let (mut large, mut small) = (
        CoreRun::new(usual_shape(LARGE))?,
        CoreRun::new(usual_shape(SMALL))?,
    );
    let (mut at_large, mut at_small) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        at_small.push(small.round()?);
        at_large.push(large.round()?);
    }
    ensure!(
        large.load.granted > DECISIONS,
        "too few containers were granted"
    );
    large.cluster.assert_invariants();
    let per_decision = median(at_large.iter().map(|round| round.per_decision).collect());
    let before = median(at_small.iter().map(|round| round.per_decision).collect());
    let p99 = median(at_large.iter().map(|round| round.p99).collect());
    ensure!(
        large.first.granted > 0,
        "the first requests were not granted"
    );
    let allocation = large.first.spent / large.first.granted;
    drop(small);
    let growth_10k_to_100k = growth(&mut large)?;
    Ok(ManagerCoreResults {
        decisions_per_s: per_second(per_decision),
        p99_event_us: micros(p99),
        growth_1k_to_10k: hundredths(per_decision.as_secs_f64() / before.as_secs_f64()),
        growth_10k_to_100k,
        allocations_per_s: per_second(allocation),
        instructions_per_decision: instructions::per_decision()?,
        nodes: large.shape.nodes,
        pending: large.load.pending(),
        live: large.load.live(),
        tree_moves_per_s: tree_moves(large.load.pending()),
    })
}

/// Time of a decision with [`HUGE`] nodes, divided by the time in `large`.
fn growth(large: &mut CoreRun) -> Result<f64> {
    let mut huge = CoreRun::new(usual_shape(HUGE))?;
    let (mut at_huge, mut at_large) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        at_large.push(large.round()?.per_decision);
        at_huge.push(huge.round()?.per_decision);
    }
    let (before, after) = (median(at_large), median(at_huge));
    Ok(hundredths(after.as_secs_f64() / before.as_secs_f64()))
}

/// The load of a cluster with so many nodes.
fn usual_shape(nodes: u32) -> LoadShape {
    LoadShape {
        nodes,
        queues: (nodes / NODES_PER_QUEUE).min(MAX_LEAVES),
        users: 1,
        requests: REQUESTS,
        exits: 4,
    }
}

impl CoreRun {
    pub(crate) fn new(shape: LoadShape) -> Result<CoreRun> {
        let epoch = Epoch(1);
        let restored = RestoredCluster {
            epoch,
            ..RestoredCluster::default()
        };
        let mut cluster = Cluster::new(ClusterLoad::settings(shape), restored, Tick(0));
        let mut load = ClusterLoad::new(shape, epoch);
        let mut first = FirstGrants::default();
        load.register_all(|event| {
            let (asked, mut out) = (asked(&event), Vec::new());
            let begin = Instant::now();
            cluster.step(Tick(1), event, &mut out);
            first.add(asked, &out, begin.elapsed());
            out
        });
        let mut run = CoreRun {
            cluster,
            load,
            shape,
            first,
        };
        // Runs until the cluster is full and all containers have been replaced.
        let enough = run.load.granted + u64::from(shape.nodes) * 20;
        let mut out = Vec::new();
        let mut turns = 0u64;
        while run.load.granted < enough && turns < 100_000_000 {
            turns += 1;
            let event = run.load.next_event();
            run.cluster.step(run.load.now(), event, &mut out);
            run.load.take(out.drain(..));
        }
        Ok(run)
    }

    pub(crate) fn round(&mut self) -> Result<Round> {
        let before = self.load.granted;
        let mut out = Vec::new();
        let mut times: Vec<Duration> = Vec::new();
        while self.load.granted - before < DECISIONS {
            let event = self.load.next_event();
            let now = self.load.now();
            let begin = Instant::now();
            if self.cluster.next_deadline().is_some_and(|due| due <= now) {
                self.cluster.step(now, ClusterEvent::Time, &mut out);
            }
            self.cluster.step(now, event, &mut out);
            times.push(begin.elapsed());
            self.load.take(out.drain(..));
            ensure!(times.len() < 100_000_000, "no more containers are granted");
        }
        let all: Duration = times.iter().sum();
        times.sort_unstable();
        let p99 = times
            .get(times.len() * 99 / 100)
            .copied()
            .unwrap_or_default();
        let granted = u32::try_from(self.load.granted - before)?;
        Ok(Round {
            per_decision: all / granted,
            p99,
            longest: times.last().copied().unwrap_or_default(),
        })
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rounded number
pub(crate) fn per_second(each: Duration) -> u64 {
    (1.0 / each.as_secs_f64()) as u64
}

fn micros(time: Duration) -> f64 {
    hundredths(time.as_secs_f64() * 1e6)
}

pub(crate) fn hundredths(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

fn tree_moves(keys: u64) -> u64 {
    let scatter = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut tree: BTreeMap<u64, u64> = (0..keys).map(|n| (scatter(n), n)).collect();
    const MOVES: u32 = 1_000_000;
    let begin = Instant::now();
    for n in 0..u64::from(MOVES) {
        tree.remove(&scatter(n));
        tree.insert(scatter(n + keys), n);
    }
    per_second(begin.elapsed() / MOVES)
}
