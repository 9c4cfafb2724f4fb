//! The faults of a simulated cluster: single faults with their times, and network faults.
//!
//! They are drawn from the seed before the run starts; the simulated world carries them out.

use crate::simulation::random_source::RandomSource;

/// Whether the write that was under way when a process died reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWrite {
    /// It reached the disk, but no peer was notified.
    Kept,
    /// It did not reach the disk.
    Lost,
}

/// The moment at which a process dies, or is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMoment {
    /// Immediately.
    Now,
    /// During the next write. This finds messages that are sent before their data is durable.
    InNextWrite,
}

/// The moment at which a manager is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseMoment {
    /// Immediately.
    Now,
    /// During the next write.
    InNextWrite,
    /// After the next check of its lease, before it sends the effects.
    BeforeSend,
}

/// One injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The resource manager dies and is restarted; of several ones, the leader.
    ManagerDies {
        /// Time until the restart. Milliseconds.
        down_ms: u64,
        /// The fate of the write under way.
        write: LastWrite,
        /// The moment at which it dies.
        moment: FaultMoment,
    },
    /// The leader of several managers is asked to end, and hands its leadership over.
    ManagerStops {
        /// Time until it starts again. Milliseconds.
        down_ms: u64,
        /// The moment at which it is asked.
        moment: FaultMoment,
    },
    /// A manager is paused: it processes nothing, and continues later where it was.
    ManagerPaused {
        /// Selects the manager, mostly the leader.
        pick: u64,
        /// Duration. Milliseconds.
        for_ms: u64,
        /// The moment at which it is paused.
        moment: PauseMoment,
    },
    /// A manager is partitioned from etcd.
    ManagerLosesEtcd {
        /// Selects the manager, mostly the leader.
        pick: u64,
        /// Duration. Milliseconds.
        for_ms: u64,
        /// During its next write, whose answer is lost: whether the write takes effect. `None`:
        /// immediately.
        write: Option<LastWrite>,
    },
    /// A manager is partitioned from nodes, masters, clients and the other managers.
    ManagerCutOff {
        /// Selects the manager, mostly the leader.
        pick: u64,
        /// Duration. Milliseconds.
        for_ms: u64,
    },
    /// etcd has no quorum.
    EtcdWithoutQuorum {
        /// Duration. Milliseconds.
        for_ms: u64,
    },
    /// etcd elects a leader of its own.
    EtcdChangesLeader {
        /// Duration. Milliseconds.
        for_ms: u64,
    },
    /// A standby dies and is restarted.
    StandbyDies {
        /// Selects one of them.
        pick: u64,
        /// Time until the restart. Milliseconds.
        down_ms: u64,
    },
    /// A node agent dies and is restarted; its containers keep running.
    AgentDies {
        /// Index of the node.
        node: usize,
        /// Time until the restart. Milliseconds.
        down_ms: u64,
    },
    /// A host is reset: all its processes end, its disk is kept.
    HostResets {
        /// Index of the node.
        node: usize,
        /// Time until the host is back. Milliseconds.
        down_ms: u64,
    },
    /// A host is partitioned: no message reaches it or leaves it.
    HostCutOff {
        /// Index of the node.
        node: usize,
        /// Duration. Milliseconds.
        for_ms: u64,
    },
    /// A master dies. If it is unmanaged, the simulation restarts it.
    MasterDies {
        /// Index of its job.
        job: usize,
        /// Time until the restart. Milliseconds.
        down_ms: u64,
        /// The fate of the write under way.
        write: LastWrite,
        /// The moment at which it dies.
        moment: FaultMoment,
    },
    /// A master is paused: it processes nothing, and continues later where it was. It may find that
    /// another attempt has taken over.
    MasterPaused {
        /// Index of its job.
        job: usize,
        /// Duration. Milliseconds.
        for_ms: u64,
    },
    /// The host of a master is partitioned. The file server stays reachable.
    MasterCutOff {
        /// Index of its job.
        job: usize,
        /// Duration. Milliseconds.
        for_ms: u64,
    },
    /// A process outside the cluster kills the processes of a container.
    ContainerKilled {
        /// Selects one of the containers that are alive at that time.
        pick: u64,
    },
    /// A process outside the cluster kills the processes of a task.
    TaskKilled {
        /// Selects one of the tasks that run at that time.
        pick: u64,
    },
    /// A connection between an executor and its master breaks.
    LineBreaks {
        /// Selects one of the connections that are open at that time.
        pick: u64,
    },
    /// A response stream of the resource manager breaks.
    StreamBreaks {
        /// Selects one of the streams that are open at that time.
        pick: u64,
    },
    /// A user kills an application.
    AppKilled {
        /// Index of its job.
        job: usize,
    },
}

/// Network and launch faults: rates of delay, loss and duplication.
#[derive(Clone, Debug)]
pub struct NetworkFaults {
    /// Range of the usual delay of a message. Milliseconds.
    pub delay_ms: (u64, u64),
    /// Messages in 1000 with a much longer delay.
    pub slow: u64,
    /// Calls in 1000 whose request or response is lost.
    pub lost: u64,
    /// Calls in 1000 that arrive twice, the second time later.
    pub twice: u64,
    /// Containers in 1000 whose launch fails.
    pub launch_fails: u64,
    /// Programs in 100 that ignore SIGTERM.
    pub stubborn: u64,
}

impl NetworkFaults {
    /// No loss and short delays.
    pub fn calm() -> Self {
        NetworkFaults {
            delay_ms: (1, 3),
            slow: 0,
            lost: 0,
            twice: 0,
            launch_fails: 0,
            stubborn: 0,
        }
    }
    /// Random rates.
    pub fn any(chance: &mut RandomSource) -> Self {
        if chance.percent(15) {
            return NetworkFaults::calm();
        }
        NetworkFaults {
            delay_ms: (1, chance.between(2, 60)),
            slow: chance.below(30),
            lost: chance.pick(&[0, 0, 5, 20, 60]).unwrap_or(0),
            twice: chance.pick(&[0, 0, 10, 50]).unwrap_or(0),
            launch_fails: chance.pick(&[0, 0, 10, 50]).unwrap_or(0),
            stubborn: chance.pick(&[0, 20, 100]).unwrap_or(0),
        }
    }
}

/// The number of targets and the time range of a fault plan.
#[derive(Clone, Copy, Debug)]
pub struct FaultTargets {
    /// Nodes.
    pub nodes: usize,
    /// Jobs.
    pub jobs: usize,
    /// Start of the range in which faults occur. Milliseconds.
    pub from_ms: u64,
    /// End of the range in which faults occur. Milliseconds.
    pub until_ms: u64,
}

fn place(chance: &mut RandomSource, n: usize) -> usize {
    usize::try_from(chance.below(u64::try_from(n).unwrap_or(1))).unwrap_or(0)
}

fn write(chance: &mut RandomSource) -> LastWrite {
    if chance.percent(50) {
        LastWrite::Kept
    } else {
        LastWrite::Lost
    }
}

fn moment(chance: &mut RandomSource) -> FaultMoment {
    if chance.percent(50) {
        FaultMoment::Now
    } else {
        FaultMoment::InNextWrite
    }
}

/// A downtime. Most are short; some exceed the timeouts of the peers.
fn absence(chance: &mut RandomSource) -> u64 {
    match chance.below(10) {
        0..=6 => chance.between(50, 4_000),
        7..=8 => chance.between(4_000, 25_000),
        _ => chance.between(25_000, 90_000),
    }
}

/// Draws faults with their times, in order.
pub fn plan(chance: &mut RandomSource, shape: FaultTargets) -> Vec<(u64, Fault)> {
    let most = chance.pick(&[0, 2, 5, 12, 25]).unwrap_or(0);
    let mut faults: Vec<(u64, Fault)> = (0..chance.between(0, most))
        .map(|_| {
            let at = chance.between(shape.from_ms, shape.until_ms);
            (at, any(chance, shape))
        })
        .collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// Draws faults after which two attempts of a master run at the same time: pauses, and partitions of
/// the hosts of masters.
pub fn doubled_masters(chance: &mut RandomSource, shape: FaultTargets) -> Vec<(u64, Fault)> {
    let count = chance.between(1, 6);
    let one = |chance: &mut RandomSource| {
        let at = chance.between(shape.from_ms, shape.until_ms);
        let for_ms = chance.between(500, 80_000);
        let job = place(chance, shape.jobs);
        let fault = match chance.below(3) {
            0 => Fault::MasterPaused { job, for_ms },
            _ => Fault::MasterCutOff { job, for_ms },
        };
        (at, fault)
    };
    (0..count).map(|_| one(chance)).collect()
}

/// Draws faults of several managers and of their etcd with their times.
pub fn of_managers(
    chance: &mut RandomSource,
    (from_ms, until_ms): (u64, u64),
) -> Vec<(u64, Fault)> {
    let most = chance.pick(&[0, 3, 8, 16]).unwrap_or(0);
    (0..chance.between(0, most))
        .map(|_| (chance.between(from_ms, until_ms), one_of_managers(chance)))
        .collect()
}

fn one_of_managers(chance: &mut RandomSource) -> Fault {
    let pick = chance.below(1 << 16);
    match chance.below(16) {
        0..=1 => Fault::ManagerDies {
            down_ms: absence(chance),
            write: write(chance),
            moment: moment(chance),
        },
        2..=3 => Fault::ManagerStops {
            down_ms: absence(chance),
            moment: moment(chance),
        },
        4..=7 => Fault::ManagerPaused {
            pick,
            for_ms: match chance.below(3) {
                0 => chance.between(200, 3_000),
                1 => chance.between(3_000, 15_000),
                _ => chance.between(15_000, 60_000),
            },
            moment: chance
                .pick(&[
                    PauseMoment::Now,
                    PauseMoment::InNextWrite,
                    PauseMoment::BeforeSend,
                ])
                .unwrap_or(PauseMoment::Now),
        },
        8..=10 => Fault::ManagerLosesEtcd {
            pick,
            for_ms: chance.between(300, 20_000),
            write: chance.percent(70).then(|| write(chance)),
        },
        11..=12 => Fault::ManagerCutOff {
            pick,
            for_ms: absence(chance),
        },
        13 => Fault::EtcdWithoutQuorum {
            for_ms: chance.between(1_000, 20_000),
        },
        14 => Fault::EtcdChangesLeader {
            for_ms: chance.between(100, 2_000),
        },
        _ => Fault::StandbyDies {
            pick,
            down_ms: absence(chance),
        },
    }
}

fn any(chance: &mut RandomSource, shape: FaultTargets) -> Fault {
    let (node, job) = (place(chance, shape.nodes), place(chance, shape.jobs));
    match chance.below(20) {
        0..=2 => Fault::ManagerDies {
            down_ms: absence(chance),
            write: write(chance),
            moment: moment(chance),
        },
        3..=4 => Fault::AgentDies {
            node,
            down_ms: absence(chance),
        },
        5 => Fault::HostResets {
            node,
            down_ms: absence(chance),
        },
        6..=7 => Fault::HostCutOff {
            node,
            for_ms: absence(chance),
        },
        8..=10 => Fault::MasterDies {
            job,
            down_ms: absence(chance),
            write: write(chance),
            moment: moment(chance),
        },
        11..=12 => Fault::ContainerKilled { pick: chance.any() },
        13..=14 => Fault::TaskKilled { pick: chance.any() },
        15..=16 => Fault::LineBreaks { pick: chance.any() },
        17..=18 => Fault::StreamBreaks { pick: chance.any() },
        _ if chance.percent(20) => Fault::AppKilled { job },
        _ => Fault::TaskKilled { pick: chance.any() },
    }
}
