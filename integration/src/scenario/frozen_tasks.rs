//! A job whose executors fill its nodes and whose tasks need more than their limits: each frozen
//! task waits for the memory of others.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{Bytes, Cpus, Resource, TaskId};

use super::{
    EVERYBODY_IS_THERE, ManagerSetup, Scenario, ScenarioCluster, ScenarioJob, SimTaskPlan,
};
use crate::fault::{Fault, FaultMoment, LastWrite, NetworkFaults};
use crate::simulation::random_source::RandomSource;

/// Memory of a slot. MiB.
const SLOT: u64 = 64;
/// Reserve of the executor. MiB.
const RESERVE: u64 = 32;
/// Longest time from the moment when all tasks of a node are frozen to the first one that is not:
/// refusals, messages, and the ends of an attempt and of its container.
const STANDSTILL: Duration = Duration::from_secs(8);

/// The master dies for one second and loses its write under way.
const MASTER_DIES: Fault = Fault::MasterDies {
    job: 0,
    down_ms: 1_000,
    write: LastWrite::Lost,
    moment: FaultMoment::Now,
};

impl Scenario {
    /// A scenario in which, in one run of three, the master dies a few times; there are no other
    /// faults. Each task alone fits a node.
    pub fn held(seed: u64) -> Self {
        let mut chance = RandomSource::new(seed);
        let (hosts, each, slots) = (
            chance.between(1, 2),
            chance.between(2, 4),
            chance.between(1, 3),
        );
        let executor = RESERVE + SLOT * slots;
        let node = executor * each + chance.below(executor / 2);
        let executors = hosts * each;
        let tasks = executors * slots * chance.between(1, 3);
        let text = format!(
            "version = 1\nname = \"held\"\n[profiles.exec]\nmemory = \"{executor}MiB\"\ncpus = {slots}\n\
             [executors.main]\nprofile = \"exec\"\ncount = {executors}\nslots = {slots}\n\
             [[stage]]\nname = \"map\"\ncount = {tasks}\ncommand = [\"prog\", \"{{index}}\"]\n"
        );
        let spec = headroom_config::job::compile(&text, "held.toml").unwrap_or_else(|problems| {
            let shown = headroom_config::render(&problems);
            unreachable!("a scenario with an invalid job: {shown}\n{text}")
        });
        let hungry = chance.between(30, 100);
        let mut habits = BTreeMap::new();
        for stage in &spec.stages {
            for index in stage.indexes() {
                let runs_ms = chance.pick(&[500, 2_000, 5_000]).unwrap_or(500) + chance.below(300);
                let needs = if chance.percent(hungry) {
                    chance.between(SLOT + 1, node - RESERVE)
                } else {
                    SLOT / 2
                };
                let habit = SimTaskPlan {
                    heap: Bytes::ZERO,
                    off_heap: Bytes::from_mib(needs),
                    runs_ms,
                    fails: 0,
                };
                habits.insert(
                    TaskId {
                        stage: stage.name.clone(),
                        index,
                    },
                    habit,
                );
            }
        }
        let nodes = (0..hosts)
            .map(|_| Resource::new(Bytes::from_mib(node), Cpus::from_cores(32)))
            .collect::<Vec<_>>();
        let estate = ScenarioCluster::none(nodes.len());
        let jobs = vec![ScenarioJob {
            spec,
            habits,
            at_ms: EVERYBODY_IS_THERE,
            managed: None,
            first_executor: false,
        }];
        let weather = NetworkFaults {
            delay_ms: (1, chance.between(2, 30)),
            ..NetworkFaults::calm()
        };
        let dies = chance.percent(33);
        let deaths = if dies { chance.between(1, 4) } else { 0 };
        let faults: Vec<(u64, Fault)> = (0..deaths)
            .map(|_| (chance.between(6_000, 40_000), MASTER_DIES.clone()))
            .collect();
        // No bound applies while the master is away, because it resolves the frozen tasks.
        let standstill_within = Some(STANDSTILL).filter(|_| !dies);
        Scenario {
            managers: ManagerSetup::one(),
            nodes,
            jobs,
            estate,
            weather,
            faults,
            calm_ms: 45_000,
            shared_journals: false,
            own_container_within: None,
            standstill_within,
        }
    }
}
