//! Container requests: what was asked, and how much of it was given.
//!
//! Counts are absolute, so the same ask twice is one ask. What was given is counted apart from what was asked, because it must
//! outlive a withdrawn request and a restarted master.

use std::sync::Arc;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{Name, NodeId, RequestId, Resource, Tick};

use crate::event::Launch;
use crate::sched::locality::Reach;

/// One container request as a master states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Named by the application.
    pub request: RequestId,
    /// Size of each container.
    pub resource: Resource,
    /// Containers it is worth in all: live, ended, still to come.
    pub count: u32,
    /// How many of them the master has seen end.
    pub settled: u32,
    /// Higher goes first within the application.
    pub priority: i32,
    /// Where it may go and would like to go.
    pub place: Placement,
    /// How long it may wait, counted from when it was first taken in. What is missing then will not come.
    pub deadline: Option<Duration>,
    /// How long the master has wanted it already, by its own count.
    pub waited: Duration,
    /// What to run.
    pub launch: Arc<Launch>,
}

/// Where containers of an ask may go, and where they would rather go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Only on these nodes; empty for any.
    pub nodes: Vec<NodeId>,
    /// Only in these racks; empty for any.
    pub racks: Vec<Name>,
    /// Not on these nodes while another fits.
    pub avoid_nodes: Vec<NodeId>,
    /// Not in these racks while another fits.
    pub avoid_racks: Vec<Name>,
    /// Rather on these nodes.
    pub prefer_nodes: Vec<NodeId>,
    /// Rather in these racks; asked after the preferred nodes.
    pub prefer_racks: Vec<Name>,
    /// What becomes of the preference when there is no room where it points.
    pub relax: Relax,
    /// The node has all of these labels.
    pub labels: BTreeSet<Name>,
    /// The node's attributes compare so.
    pub attributes: BTreeMap<Name, Match>,
    /// Taints of nodes that do not keep it away, with the value they must have; `None` for any.
    pub tolerate: BTreeMap<Name, Option<String>>,
    /// Never beside certain others.
    pub apart: Option<Apart>,
    /// Evenly over nodes or racks, rather than tightly.
    pub spread: Option<Level>,
}

impl Placement {
    /// True when a taint does not keep it away.
    pub fn tolerates(&self, taint: &Name, value: &str) -> bool {
        self.tolerate.get(taint).is_some_and(|wanted| wanted.as_deref().is_none_or(|wanted| wanted == value))
    }
}

/// When a preference gives way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relax {
    /// At once.
    #[default]
    AtOnce,
    /// When a container of it has waited so long: first from node to rack, after as long again to anywhere.
    After(Duration),
    /// Never: the preference is a must.
    Never,
}

/// How an attribute of a node compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// It is there, with any value.
    Exists,
    /// It is not there.
    Absent,
    /// It is one of these.
    OneOf(BTreeSet<String>),
    /// It is not there, or none of these.
    NoneOf(BTreeSet<String>),
}

/// What counts as the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// One node.
    Node,
    /// One rack; a node without one is a rack by itself.
    Rack,
}

/// Never in one place with containers of these requests of the same application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Which requests; empty for its own.
    pub from: Vec<RequestId>,
    /// What counts as one place.
    pub level: Level,
}

/// An ask in the table.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub ask: Ask,
    /// Its place among the requests of all applications; first come, first served.
    pub arrival: u64,
    /// Since when it wants something: from when it was first taken in, or raised after it had all.
    pub wanting: Tick,
    /// How long it had been wanted before that: it was known to an earlier life of the resource manager.
    pub before: Duration,
    /// Since when it has waited for its next container.
    pub waiting: Tick,
    /// How many containers had been granted to anybody when it began to wait.
    pub served: u64,
    /// How far from its preference its next container may go by now.
    pub reach: Reach,
    /// When its deadline passed with something missing; it is given nothing more after that.
    pub expired: Option<Tick>,
}

impl Request {
    /// A request that begins to wait.
    pub fn new(ask: Ask, arrival: u64, now: Tick) -> Self {
        let reach = Reach::first(&ask.place);
        let before = ask.waited;
        Request { ask, arrival, wanting: now, before, waiting: now, served: 0, reach, expired: None }
    }
}

/// What one request was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Alive on a node.
    pub live: u32,
    /// Ended, and the master has not acknowledged it.
    pub unacked: u32,
    /// Granted and acknowledged in this life of the resource manager.
    own: u32,
    /// Granted in an earlier life, and the master knows their end.
    before: u32,
}

/// How far a master's own count of ends can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was counted together with the acknowledgement just taken in.
    Exactly,
    /// It may be older than what was acknowledged since.
    AtLeast,
}

/// In which life a container was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// This one.
    This,
    /// An earlier one.
    Earlier,
}

impl Tally {
    /// All that were ever given.
    pub fn granted(&self) -> u32 {
        self.live.saturating_add(self.unacked).saturating_add(self.settled())
    }
    /// Ended, and the master knows.
    pub fn settled(&self) -> u32 {
        self.own.saturating_add(self.before)
    }
    /// A container was given, or found on a node.
    pub fn took(&mut self) {
        self.live = self.live.saturating_add(1);
    }
    /// One of them ended.
    pub fn ended(&mut self) {
        self.live = self.live.saturating_sub(1);
        self.unacked = self.unacked.saturating_add(1);
    }
    /// The master knows of one end.
    pub fn acked(&mut self, life: Life) {
        self.unacked = self.unacked.saturating_sub(1);
        match life {
            Life::This => self.own = self.own.saturating_add(1),
            // the master may have known before the restart; until it counts again, rather one too many than one granted twice
            Life::Earlier => self.before = self.before.saturating_add(1),
        }
    }
    /// Another run of the master begins, and nobody has said yet what it knows.
    pub fn forget_settled(&mut self) {
        (self.own, self.before) = (0, 0);
    }
    /// The master says how many ends it has seen in all its life.
    pub fn told(&mut self, settled: u32, how: Told) {
        match how {
            // a count below what is known for certain comes from somebody who does not count
            Told::Exactly if settled >= self.own => self.before = settled - self.own,
            Told::Exactly => {}
            Told::AtLeast => self.before = self.before.max(settled.saturating_sub(self.own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_told_in_two_lives_is_counted_once() {
        let mut tally = Tally::default();
        tally.told(3, Told::Exactly); // first words after a restart: three ends seen, one of which no life heard of
        tally.took();
        tally.ended();
        assert_eq!(tally.granted(), 4);
        tally.acked(Life::Earlier);
        assert_eq!(tally.granted(), 4, "in doubt it counts");
        tally.told(3, Told::AtLeast);
        assert_eq!(tally.granted(), 4);
        tally.told(3, Told::Exactly);
        assert_eq!(tally.granted(), 3, "the master has counted: it was one of the three");
    }

    #[test]
    fn somebody_who_never_counts_gets_nothing_twice() {
        let mut tally = Tally::default();
        tally.took();
        tally.ended();
        tally.acked(Life::This);
        tally.told(0, Told::Exactly);
        tally.told(0, Told::AtLeast);
        assert_eq!((tally.granted(), tally.settled()), (1, 1));
    }
}
