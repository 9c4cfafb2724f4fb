//! What is simulated: a cluster, jobs whose tasks need so much and take so long, and what goes wrong, all drawn from one number.

mod crowded;
pub mod estate;
mod held;
mod trees;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use headroom_config::{JobSpec, StageSpec};
use headroom_types::{Bytes, Cpus, Resource, TaskId};

pub use estate::Estate;

use crate::fault::{self, Fault, Shape, Weather};
use crate::world::chance::Chance;

/// Nodes come before this, and nothing goes wrong. A master keeps the largest node it was told of when it registered, so jobs begin
/// when all nodes are there. Milliseconds.
const EVERYBODY_IS_THERE: u64 = 5_000;

/// What is drawn for tenants is drawn apart from what is drawn for jobs.
const ESTATE: u64 = 0x0e57_a7e5;

/// How a task behaves, whoever runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Habit {
    /// Heap that it needs, when its runtime has one.
    pub heap: Bytes,
    /// All else that it needs.
    pub off_heap: Bytes,
    /// How long it runs when nobody stops it. Milliseconds.
    pub runs_ms: u64,
    /// So many of its attempts end with exit code 1 before one succeeds.
    pub fails: u32,
}

impl Habit {
    /// Heap and all else.
    pub fn memory(&self) -> Bytes {
        self.heap.saturating_add(self.off_heap)
    }
}

/// One job that will be submitted.
#[derive(Clone, Debug)]
pub struct Job {
    /// As checked.
    pub spec: JobSpec,
    /// Every task.
    pub habits: BTreeMap<TaskId, Habit>,
    /// When it is submitted. Milliseconds.
    pub at_ms: u64,
    /// Memory of its master's container; `None` when somebody runs the master elsewhere.
    pub managed: Option<Bytes>,
}

/// A whole run before it begins.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What each node offers.
    pub nodes: Vec<Resource>,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The wires.
    pub weather: Weather,
    /// Everything that is no job.
    pub estate: Estate,
    /// What goes wrong, and when.
    pub faults: Vec<(u64, Fault)>,
    /// From here on nothing goes wrong any more. Milliseconds.
    pub calm_ms: u64,
    /// The longest time from the end of a task killed for memory to the start of its next attempt in a container of its own; `None`
    /// where the cluster may be too small or too disturbed for any bound.
    pub own_container_within: Option<Duration>,
    /// The longest time for which all tasks of a node may be held near their limits, each for the memory of another; `None` where
    /// there is no bound but their holds.
    pub standstill_within: Option<Duration>,
}

/// A mistake put into the simulated surroundings on purpose, to see whether the oracle finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None.
    Nothing,
    /// The resource manager's mailbox delivers an order to the right node and to another one.
    OrderToTwoNodes,
    /// The end of a container in ten never reaches the resource manager.
    EndForgotten,
    /// Answers leave before what they rest on is on disk.
    AnswersBeforeWrite,
    /// A kill from outside is told as a kill for memory.
    BlamesMemory,
    /// Tasks are started before the journal knows of them.
    StartsBeforeJournal,
    /// A master asks for another executor in the place of each one that it drains.
    ReplacesDrained,
    /// No task hears that it is to give way, and none is let go: each held one waits for another one.
    NobodyGivesWay,
}

impl Scenario {
    /// The scenario of a seed: jobs alone, or tenants and operators with a job among them.
    pub fn of(seed: u64) -> Self {
        let mut scenario = Scenario::jobs_alone(seed);
        let mut chance = Chance::new(seed ^ ESTATE);
        if chance.percent(70) {
            let jobs = chance.pick(&[0, 0, 1]).unwrap_or(0);
            scenario.jobs.truncate(jobs);
            scenario.estate = Estate::any(&mut chance, &scenario.nodes, EVERYBODY_IS_THERE, scenario.calm_ms);
            if jobs > 0 {
                // Its master counts on every node there is.
                scenario.estate.open_to_all();
            }
        }
        scenario
    }

    /// The jobs of a seed, and nobody else.
    pub fn jobs_alone(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let nodes = nodes(&mut chance.split());
        let mut for_jobs = chance.split();
        let count = for_jobs.pick(&[1, 1, 1, 2, 3]).unwrap_or(1);
        let jobs: Vec<Job> = (0..count).map(|n| job(n, &nodes, &mut for_jobs.split())).collect();
        let calm_ms = chance.between(20_000, 120_000);
        let shape = Shape { nodes: nodes.len(), jobs: jobs.len(), from_ms: EVERYBODY_IS_THERE, until_ms: calm_ms };
        let faults = fault::plan(&mut chance.split(), shape);
        let estate = Estate::none(nodes.len());
        Scenario {
            nodes,
            jobs,
            estate,
            weather: Weather::any(&mut chance.split()),
            faults,
            calm_ms,
            own_container_within: None,
            standstill_within: None,
        }
    }
    /// The memory of the largest node.
    pub fn largest(&self) -> Bytes {
        self.nodes.iter().map(|n| n.memory).max().unwrap_or_default()
    }
}

fn nodes(chance: &mut Chance) -> Vec<Resource> {
    let count = chance.between(1, 4);
    let one = |chance: &mut Chance| Resource::new(Bytes::from_mib(chance.between(4, 16) * 128), Cpus::from_cores(16));
    (0..count).map(|_| one(chance)).collect()
}

fn job(n: usize, nodes: &[Resource], chance: &mut Chance) -> Job {
    let text = job_file(n, chance);
    let spec = headroom_config::job::compile(&text, "job.toml").unwrap_or_else(|problems| {
        let told = headroom_config::render(&problems);
        unreachable!("a scenario with a job that is not right: {told}\n{text}")
    });
    let largest = nodes.iter().map(|n| n.memory).max().unwrap_or_default();
    // Two masters on the largest node can each keep the other's largest task waiting for ever, so there is one at most.
    let managed = (chance.percent(45) && n == 0).then(|| Bytes::from_mib(64));
    let cap = largest.saturating_sub(managed.unwrap_or_default()).saturating_sub(Bytes::from_mib(32));
    let mut habits = BTreeMap::new();
    for stage in &spec.stages {
        for index in stage.indexes() {
            habits.insert(TaskId { stage: stage.name.clone(), index }, habit(stage, cap, chance));
        }
    }
    Job { spec, habits, at_ms: chance.between(EVERYBODY_IS_THERE, 15_000), managed }
}

fn job_file(n: usize, chance: &mut Chance) -> String {
    let mode = chance.pick(&["headroom", "headroom", "headroom", "headroom", "pinterest", "uber", "fixed"]).unwrap_or("headroom");
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
        let _ = write!(text, "[[stage]]\nname = \"s{stage}\"\ncount = {count}\ncommand = [\"prog\", \"{{index}}\"]\n");
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
        // Not drawn: what is drawn for the rest stays as it is for each seed.
        if (memory / 64 + count).is_multiple_of(3) {
            text.push_str("grow = false\n");
        }
    }
    text
}

fn habit(stage: &StageSpec, cap: Bytes, chance: &mut Chance) -> Habit {
    let (small, large) = (Bytes::from_mib(chance.between(8, 56)), cap.mul_ratio(chance.between(5, 99), 100));
    let memory = match chance.below(20) {
        0..=13 => small,
        14..=18 => large.max(Bytes::from_mib(8)),
        _ => cap.mul_ratio(chance.between(101, 200), 100),
    };
    let heap = match stage.runtime.memory() {
        headroom_config::Memory::One => Bytes::ZERO,
        headroom_config::Memory::HeapAndOverhead => memory.mul_ratio(chance.between(20, 90), 100),
    };
    let fails = match chance.below(40) {
        0 => 99,
        1..=4 => chance.small(1, 2),
        _ => 0,
    };
    let runs_ms = chance.pick(&[50, 500, 3_000, 3_000, 20_000]).unwrap_or(500) + chance.below(200);
    Habit { heap, off_heap: memory.saturating_sub(heap), runs_ms, fails }
}
