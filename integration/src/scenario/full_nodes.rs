//! A job that fills its nodes. A few of its tasks need their own container, for which only its own
//! executors can free memory.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{Bytes, Cpus, Resource, TaskId};

use super::{
    EVERYBODY_IS_THERE, ManagerSetup, Scenario, ScenarioCluster, ScenarioJob, SimTaskPlan,
};
use crate::fault::NetworkFaults;
use crate::simulation::random_source::RandomSource;

/// Memory of a slot. MiB.
const SLOT: u64 = 64;
/// Reserve of the executor. MiB.
const RESERVE: u64 = 32;
/// Time between a drain and the start of the task, apart from task run time: heartbeats, delay
/// scheduling, launches. Milliseconds.
const OVERHEAD: u64 = 1_000;

impl Scenario {
    /// A scenario without faults. Each escalated task starts within a bound that depends on the
    /// task run time.
    pub fn full_nodes(seed: u64) -> Self {
        let mut chance = RandomSource::new(seed);
        let (hosts, each, slots) = (
            chance.between(1, 2),
            chance.between(2, 3),
            chance.between(1, 2),
        );
        let executor = RESERVE + SLOT * slots;
        // The free memory is too small for another executor.
        let node = executor * each + chance.below(executor);
        let executors = hosts * each;
        let runs_ms = chance.pick(&[1_000, 5_000]).unwrap_or(1_000);
        let victims = chance.between(1, 3);
        // The need of such a task exceeds all slots of an executor and fits a node.
        let most = node - RESERVE;
        let needs = |chance: &mut RandomSource| chance.between((SLOT * slots + 1).min(most), most);
        // The next size after one slot is two slots; after several, it is all slots.
        let turn_ms = (each + 3) * (runs_ms + OVERHEAD);
        let bound_ms = victims * turn_ms;
        // The other tasks keep the job running longer than the bound.
        let tasks = executors * slots * (bound_ms * 3 / 2 / runs_ms + 5);
        let text = format!(
            "version = 1\nname = \"full-nodes\"\n[profiles.exec]\nmemory = \"{executor}MiB\"\ncpus = {slots}\n\
             [executors.main]\nprofile = \"exec\"\ncount = {executors}\nslots = {slots}\n\
             [[stage]]\nname = \"map\"\ncount = {tasks}\ngrow = false\ncommand = [\"prog\", \"{{index}}\"]\n"
        );
        let spec =
            headroom_config::job::compile(&text, "full-nodes.toml").unwrap_or_else(|problems| {
                let shown = headroom_config::render(&problems);
                unreachable!("a scenario with an invalid job: {shown}\n{text}")
            });
        let usual = SimTaskPlan {
            heap: Bytes::ZERO,
            off_heap: Bytes::from_mib(SLOT / 2),
            runs_ms,
            fails: 0,
        };
        let mut habits = BTreeMap::new();
        for stage in &spec.stages {
            for index in stage.indexes() {
                habits.insert(
                    TaskId {
                        stage: stage.name.clone(),
                        index,
                    },
                    usual.clone(),
                );
            }
        }
        let all: Vec<TaskId> = habits.keys().cloned().collect();
        for _ in 0..victims {
            // The chosen tasks run early, while most of the job is still ahead.
            let early = all.get(usize::try_from(chance.below(2 * executors * slots)).unwrap_or(0));
            if let Some(habit) = early.and_then(|id| habits.get_mut(id)) {
                habit.off_heap = Bytes::from_mib(needs(&mut chance));
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
        let own_container_within = Some(Duration::from_millis(bound_ms));
        Scenario {
            managers: ManagerSetup::one(),
            nodes,
            jobs,
            estate,
            weather,
            faults: Vec::new(),
            calm_ms: EVERYBODY_IS_THERE,
            shared_journals: false,
            own_container_within,
            standstill_within: None,
        }
    }
}
