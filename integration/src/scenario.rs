//! Scenarios of the simulation: a cluster, jobs with the memory and run time of their tasks, and
//! faults, all drawn from one seed.

mod frozen_tasks;
mod full_nodes;
pub mod scenario_cluster;
pub mod several_managers;
mod trees;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use headroom_config::{JobSpec, StageSpec};
use headroom_types::{Bytes, Cpus, Resource, TaskId};

pub use scenario_cluster::ScenarioCluster;
pub use several_managers::ManagerSetup;

use crate::fault::{self, Fault, FaultTargets, NetworkFaults};
use crate::simulation::random_source::RandomSource;

/// All nodes register before this time, and no fault occurs. Jobs begin later, because a master
/// keeps the largest node that was reported at its registration. Milliseconds.
const EVERYBODY_IS_THERE: u64 = 5_000;

/// Separates the random numbers of tenants from those of jobs.
const ESTATE: u64 = 0x0e57_a7e5;

/// Separates the random numbers of faults that double masters.
const DOUBLED: u64 = 0x0d0b_1ed0;

/// The behaviour of a task, independent of its executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimTaskPlan {
    /// Heap that it needs, if its runtime has one.
    pub heap: Bytes,
    /// Memory that it needs beside the heap.
    pub off_heap: Bytes,
    /// Run time without interruption. Milliseconds.
    pub runs_ms: u64,
    /// Number of attempts that end with exit code 1 before one succeeds.
    pub fails: u32,
}

impl SimTaskPlan {
    /// Heap and other memory.
    pub fn memory(&self) -> Bytes {
        self.heap.saturating_add(self.off_heap)
    }
}

/// A job of the scenario.
#[derive(Clone, Debug)]
pub struct ScenarioJob {
    /// The compiled job file.
    pub spec: JobSpec,
    /// The behaviour of each task.
    pub habits: BTreeMap<TaskId, SimTaskPlan>,
    /// Time of submission. Milliseconds.
    pub at_ms: u64,
    /// Memory of its master's container; `None` for an unmanaged master.
    pub managed: Option<Bytes>,
    /// Whether its first executor starts along with a managed master.
    pub first_executor: bool,
}

/// The complete plan of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Resources of each node.
    pub nodes: Vec<Resource>,
    /// The jobs.
    pub jobs: Vec<ScenarioJob>,
    /// Network and launch faults.
    pub weather: NetworkFaults,
    /// The resource managers.
    pub managers: ManagerSetup,
    /// Nodes, tenants, queues and operators.
    pub estate: ScenarioCluster,
    /// Faults with their times in milliseconds.
    pub faults: Vec<(u64, Fault)>,
    /// Time after which no fault occurs. Milliseconds.
    pub calm_ms: u64,
    /// True if the nodes share the directory of the journals of masters.
    pub shared_journals: bool,
    /// Longest time from the end of a task killed for memory to the start of its next attempt in
    /// its own container. `None` without a bound: the cluster may be too small or have too many
    /// faults.
    pub own_container_within: Option<Duration>,
    /// Longest time for which all tasks of a node may be frozen near their limits, each waiting for
    /// the memory of another. `None` if only the hold time of each task bounds it.
    pub standstill_within: Option<Duration>,
}

/// A deliberate bug in the simulated environment. The invariant checker must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// No bug.
    Nothing,
    /// The resource manager delivers an order to the right node and to another one.
    OrderToTwoNodes,
    /// One end of a container in ten never reaches the resource manager.
    EndForgotten,
    /// Responses are sent before their data is durable.
    AnswersBeforeWrite,
    /// A leader sends effects without a check of its lease.
    GrantsAfterLease,
    /// The writes of a leader do not depend on its key.
    WritesWithoutGuard,
    /// A write without an answer is sent again, and its first sending can still take effect.
    RepeatsWithoutFence,
    /// A leader that is asked to end stops to listen before its last write.
    ClosesBeforeHandOver,
    /// A kill from outside is reported as a kill for memory.
    BlamesMemory,
    /// Tasks start before the journal records them.
    StartsBeforeJournal,
    /// A master requests another executor in place of each one that it drains.
    ReplacesDrained,
    /// No task receives an eviction and no hold ends: each frozen task waits for another one.
    NobodyGivesWay,
}

impl Scenario {
    /// The scenario of a seed: only jobs, or tenants and operators with at most one job; one manager
    /// or several.
    pub fn of(seed: u64) -> Self {
        let mut scenario = Scenario::one_manager(seed);
        scenario.draw_managers(seed);
        scenario
    }

    /// The scenario of a seed with one manager.
    pub fn one_manager(seed: u64) -> Self {
        let mut scenario = Scenario::jobs_alone(seed);
        let mut chance = RandomSource::new(seed ^ ESTATE);
        if chance.percent(70) {
            let jobs = chance.pick(&[0, 0, 1]).unwrap_or(0);
            scenario.jobs.truncate(jobs);
            scenario.estate = ScenarioCluster::any(
                &mut chance,
                &scenario.nodes,
                EVERYBODY_IS_THERE,
                scenario.calm_ms,
            );
            if jobs > 0 {
                // The job's master counts on all nodes.
                scenario.estate.open_to_all();
            }
        }
        scenario
    }

    /// The jobs of a seed, without tenants and operators.
    pub fn jobs_alone(seed: u64) -> Self {
        let mut chance = RandomSource::new(seed);
        let nodes = nodes(&mut chance.split());
        let mut for_jobs = chance.split();
        let count = for_jobs.pick(&[1, 1, 1, 2, 3]).unwrap_or(1);
        let jobs: Vec<ScenarioJob> = (0..count)
            .map(|n| job(n, &nodes, &mut for_jobs.split()))
            .collect();
        let calm_ms = chance.between(20_000, 120_000);
        let shape = FaultTargets {
            nodes: nodes.len(),
            jobs: jobs.len(),
            from_ms: EVERYBODY_IS_THERE,
            until_ms: calm_ms,
        };
        let faults = fault::plan(&mut chance.split(), shape);
        let estate = ScenarioCluster::none(nodes.len());
        Scenario {
            nodes,
            jobs,
            managers: ManagerSetup::one(),
            estate,
            weather: NetworkFaults::any(&mut chance.split()),
            faults,
            calm_ms,
            shared_journals: false,
            own_container_within: None,
            standstill_within: None,
        }
    }
    /// The jobs of a seed with a managed master, a shared directory of journals, and faults after
    /// which two attempts of a master run at the same time.
    pub fn doubled_masters(seed: u64) -> Self {
        let mut scenario = Scenario::jobs_alone(seed);
        let mut chance = RandomSource::new(seed ^ DOUBLED);
        scenario.shared_journals = true;
        if let Some(job) = scenario.jobs.first_mut() {
            job.managed = Some(Bytes::from_mib(64));
        }
        // Another node can take the master.
        let second = scenario.nodes.first().cloned();
        scenario
            .nodes
            .extend(second.filter(|_| scenario.nodes.len() < 2));
        scenario.estate = ScenarioCluster::none(scenario.nodes.len());
        // The largest tasks fit beside a master.
        for node in &mut scenario.nodes {
            node.memory = node.memory.saturating_add(Bytes::from_mib(64));
        }
        let shape = FaultTargets {
            nodes: scenario.nodes.len(),
            jobs: 1,
            from_ms: EVERYBODY_IS_THERE,
            until_ms: EVERYBODY_IS_THERE + 20_000,
        };
        scenario.calm_ms = scenario.calm_ms.max(shape.until_ms);
        scenario
            .faults
            .extend(fault::doubled_masters(&mut chance, shape));
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario
    }
    /// The memory of the largest node.
    pub fn largest(&self) -> Bytes {
        self.nodes
            .iter()
            .map(|n| n.memory)
            .max()
            .unwrap_or_default()
    }
}

fn nodes(chance: &mut RandomSource) -> Vec<Resource> {
    let count = chance.between(1, 4);
    let one = |chance: &mut RandomSource| {
        Resource::new(
            Bytes::from_mib(chance.between(4, 16) * 128),
            Cpus::from_cores(16),
        )
    };
    (0..count).map(|_| one(chance)).collect()
}

fn job(n: usize, nodes: &[Resource], chance: &mut RandomSource) -> ScenarioJob {
    let text = job_file(n, chance);
    let spec = headroom_config::job::compile(&text, "job.toml").unwrap_or_else(|problems| {
        let rendered = headroom_config::render(&problems);
        unreachable!("a scenario with an invalid job: {rendered}\n{text}")
    });
    let largest = nodes.iter().map(|n| n.memory).max().unwrap_or_default();
    // Two masters on the largest node can each keep the other's largest task waiting forever.
    // Therefore at most one master is managed.
    let managed = (chance.percent(45) && n == 0).then(|| Bytes::from_mib(64));
    let cap = largest
        .saturating_sub(managed.unwrap_or_default())
        .saturating_sub(Bytes::from_mib(32));
    let mut habits = BTreeMap::new();
    for stage in &spec.stages {
        for index in stage.indexes() {
            habits.insert(
                TaskId {
                    stage: stage.name.clone(),
                    index,
                },
                habit(stage, cap, chance),
            );
        }
    }
    ScenarioJob {
        spec,
        habits,
        at_ms: chance.between(EVERYBODY_IS_THERE, 15_000),
        managed,
        first_executor: chance.percent(50),
    }
}

fn job_file(n: usize, chance: &mut RandomSource) -> String {
    let mode = chance
        .pick(&[
            "headroom",
            "headroom",
            "headroom",
            "headroom",
            "pinterest",
            "uber",
            "fixed",
        ])
        .unwrap_or("headroom");
    let (slots, count) = (chance.between(1, 4), chance.between(1, 3));
    let memory = 32 + 64 * slots;
    let mut text = format!(
        "version = 1\nname = \"job{n}\"\nmode = \"{mode}\"\n[profiles.exec]\nmemory = \"{memory}MiB\"\ncpus = {slots}\n\
         [profiles.jvm]\nheap = \"44MiB\"\noverhead = \"20MiB\"\n\
         [executors.main]\nprofile = \"exec\"\ncount = {count}\nslots = {slots}\n"
    );
    let stages = chance.between(1, 2);
    for stage in 0..stages {
        let count = chance.between(1, 8);
        let _ = write!(
            text,
            "[[stage]]\nname = \"s{stage}\"\ncount = {count}\ncommand = [\"prog\", \"{{index}}\"]\n"
        );
        if stage > 0 {
            text.push_str("after = [\"s0\"]\n");
        }
        if chance.percent(30) {
            text.push_str("profile = \"jvm\"\nruntime = \"jvm\"\n");
        } else if chance.percent(20) {
            text.push_str("enforce = \"executor\"\n");
        }
        if chance.percent(10) {
            text.push_str("idempotent = \"no\"\n");
        }
        // Derived instead of drawn, so that the other choices of a seed stay the same.
        if (memory / 64 + count).is_multiple_of(3) {
            text.push_str("grow = false\n");
        }
    }
    text
}

fn habit(stage: &StageSpec, cap: Bytes, chance: &mut RandomSource) -> SimTaskPlan {
    let (small, large) = (
        Bytes::from_mib(chance.between(8, 56)),
        cap.mul_ratio(chance.between(5, 99), 100),
    );
    let memory = match chance.below(20) {
        0..=13 => small,
        14..=18 => large.max(Bytes::from_mib(8)),
        _ => cap.mul_ratio(chance.between(101, 200), 100),
    };
    let heap = match stage.runtime.memory() {
        headroom_config::MemoryQuantities::One => Bytes::ZERO,
        headroom_config::MemoryQuantities::HeapAndOverhead => {
            memory.mul_ratio(chance.between(20, 90), 100)
        }
    };
    let fails = match chance.below(40) {
        0 => 99,
        1..=4 => chance.small(1, 2),
        _ => 0,
    };
    let runs_ms = chance.pick(&[50, 500, 3_000, 3_000, 20_000]).unwrap_or(500) + chance.below(200);
    SimTaskPlan {
        heap,
        off_heap: memory.saturating_sub(heap),
        runs_ms,
        fails,
    }
}
