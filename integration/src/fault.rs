//! What goes wrong in a simulated cluster: single disturbances with their moment, and the weather on its wires.
//!
//! Drawn from the seed before anything runs; the world carries it out.

use crate::world::chance::Chance;

/// Whether what was being written when a process died had reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWrite {
    /// It had; nobody was told.
    Kept,
    /// It had not.
    Lost,
}

/// When a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At once.
    Now,
    /// While it writes the next time: everything that leaves too early is caught there.
    InNextWrite,
}

/// One disturbance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The resource manager dies and is started again.
    ManagerDies {
        /// How long nobody is there. Milliseconds.
        down_ms: u64,
        /// The write under way.
        write: LastWrite,
        /// At which moment of its work.
        moment: Moment,
    },
    /// A node agent dies and is started again; its containers live on.
    AgentDies {
        /// Which node, by its place.
        node: usize,
        /// How long nobody is there. Milliseconds.
        down_ms: u64,
    },
    /// A host is reset: all its processes are gone, its disk stays.
    HostResets {
        /// Which node, by its place.
        node: usize,
        /// How long it is away. Milliseconds.
        down_ms: u64,
    },
    /// Nothing reaches a host or leaves it.
    HostCutOff {
        /// Which node, by its place.
        node: usize,
        /// For how long. Milliseconds.
        for_ms: u64,
    },
    /// A master dies. Somebody starts an unmanaged one again.
    MasterDies {
        /// Whose, by the place of its job.
        job: usize,
        /// How long nobody is there. Milliseconds.
        down_ms: u64,
        /// The write under way.
        write: LastWrite,
        /// At which moment of its work.
        moment: Moment,
    },
    /// Somebody kills a container's processes.
    ContainerKilled {
        /// Which of those that live then.
        pick: u64,
    },
    /// Somebody kills a task's processes.
    TaskKilled {
        /// Which of those that run then.
        pick: u64,
    },
    /// A connection between an executor and its master breaks.
    LineBreaks {
        /// Which of those that are open then.
        pick: u64,
    },
    /// A long answer of the resource manager breaks off.
    StreamBreaks {
        /// Which of those that are open then.
        pick: u64,
    },
    /// A user ends an application.
    AppKilled {
        /// Whose, by the place of its job.
        job: usize,
    },
}

/// How messages fare.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Usual time on the wire. Milliseconds.
    pub delay_ms: (u64, u64),
    /// Messages in 1000 that take much longer.
    pub slow: u64,
    /// Calls in 1000 whose request or answer is lost.
    pub lost: u64,
    /// Calls in 1000 that arrive a second time, later.
    pub twice: u64,
    /// Containers in 1000 that cannot be started.
    pub launch_fails: u64,
    /// Programs in 100 that do not heed SIGTERM.
    pub stubborn: u64,
}

impl Weather {
    /// Nothing is lost and nothing is slow.
    pub fn calm() -> Self {
        Weather { delay_ms: (1, 3), slow: 0, lost: 0, twice: 0, launch_fails: 0, stubborn: 0 }
    }
    /// Any.
    pub fn any(chance: &mut Chance) -> Self {
        if chance.percent(15) {
            return Weather::calm();
        }
        Weather {
            delay_ms: (1, chance.between(2, 60)),
            slow: chance.below(30),
            lost: chance.pick(&[0, 0, 5, 20, 60]).unwrap_or(0),
            twice: chance.pick(&[0, 0, 10, 50]).unwrap_or(0),
            launch_fails: chance.pick(&[0, 0, 10, 50]).unwrap_or(0),
            stubborn: chance.pick(&[0, 20, 100]).unwrap_or(0),
        }
    }
}

/// How many there are of what can be disturbed.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes.
    pub nodes: usize,
    /// Jobs.
    pub jobs: usize,
    /// Disturbances begin at this time. Milliseconds.
    pub from_ms: u64,
    /// Disturbances end at this time. Milliseconds.
    pub until_ms: u64,
}

fn place(chance: &mut Chance, n: usize) -> usize {
    usize::try_from(chance.below(u64::try_from(n).unwrap_or(1))).unwrap_or(0)
}

fn write(chance: &mut Chance) -> LastWrite {
    if chance.percent(50) { LastWrite::Kept } else { LastWrite::Lost }
}

fn moment(chance: &mut Chance) -> Moment {
    if chance.percent(50) { Moment::Now } else { Moment::InNextWrite }
}

/// Mostly short; now and then so long that others give up waiting.
fn absence(chance: &mut Chance) -> u64 {
    match chance.below(10) {
        0..=6 => chance.between(50, 4_000),
        7..=8 => chance.between(4_000, 25_000),
        _ => chance.between(25_000, 90_000),
    }
}

/// Disturbances with their moments, in order.
pub fn plan(chance: &mut Chance, shape: Shape) -> Vec<(u64, Fault)> {
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

fn any(chance: &mut Chance, shape: Shape) -> Fault {
    let (node, job) = (place(chance, shape.nodes), place(chance, shape.jobs));
    match chance.below(20) {
        0..=2 => Fault::ManagerDies { down_ms: absence(chance), write: write(chance), moment: moment(chance) },
        3..=4 => Fault::AgentDies { node, down_ms: absence(chance) },
        5 => Fault::HostResets { node, down_ms: absence(chance) },
        6..=7 => Fault::HostCutOff { node, for_ms: absence(chance) },
        8..=10 => Fault::MasterDies { job, down_ms: absence(chance), write: write(chance), moment: moment(chance) },
        11..=12 => Fault::ContainerKilled { pick: chance.any() },
        13..=14 => Fault::TaskKilled { pick: chance.any() },
        15..=16 => Fault::LineBreaks { pick: chance.any() },
        17..=18 => Fault::StreamBreaks { pick: chance.any() },
        _ if chance.percent(20) => Fault::AppKilled { job },
        _ => Fault::TaskKilled { pick: chance.any() },
    }
}
