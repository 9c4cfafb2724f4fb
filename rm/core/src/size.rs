//! The size of one container: the machine of a change of it while the container runs.
//!
//! Owned by the container's record. Never adds up resources and never speaks to anybody: that comes out as [`Act`]s. The size a
//! container *has* is what its node showed last; this machine holds what was ordered beyond it.
//!
//! ```text
//!              order                 shown at the ordered version
//!  Settled ────────────► Ordered ──────────────────────────────────► Settled, new size
//!     ▲                    │ │ refused by the node
//!     │                    │ └─────────────────────────────────────► Settled, old size
//!     │                    │ overdue
//!     │ shown or refused   ▼
//!     └──────────────── Withdrawn: the old size is ordered under a later version
//! ```
//!
//! Orders are levels, not commands: an order that the node has not taken up is told again whenever the node shows an earlier
//! version. A version is never used for two orders of one life. The node's word stands: a later version than the one known here
//! comes from an order of an earlier life of the resource manager, and is taken over as it is.
//!
//! *What an order counts.* From the moment it is told until the node has answered, either size may be in force, so the ledger
//! counts the larger one, resource by resource. That holds for a withdrawn order too: it may still be taken up. After 30 s
//! without an answer an order is withdrawn rather than struck out, because nobody knows whether the node has heard it; the room is
//! free again once the node shows or refuses a version that settles it, or once the container ends.

use headroom_types::{Bytes, Cpus, Resource};

use crate::event::RefusedSize;

/// A size with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sized {
    /// All of it.
    pub resource: Resource,
    /// The heap budget in it. Bytes.
    pub heap: Option<Bytes>,
    /// Counts up with every order.
    pub version: u32,
}

/// What was ordered beyond the size a container has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    #[default]
    Settled,
    /// Another size, which its node has not shown.
    Ordered {
        /// The size.
        want: Sized,
    },
    /// The size it had, because its node did not say in time what became of the order.
    Withdrawn {
        /// The order that may still be taken up.
        tried: Sized,
        /// The size it had, under a later version.
        back: Sized,
    },
}

/// What can happen to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants another size, and may have it.
    Order(Sized),
    /// Its node shows this size.
    Shown {
        /// All of it.
        resource: Resource,
        /// The version of it.
        version: u32,
    },
    /// Its node keeps the size it has.
    Refused {
        /// What it refused.
        what: RefusedSize,
        /// The version it has.
        keeps: u32,
    },
    /// Its node has said nothing about the order for too long.
    Overdue,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// This is the size it has from now on.
    Has(Sized),
    /// Its node has to be told of the order.
    Tell,
    /// Its master has to hear the new size.
    Resized,
    /// Its master has to hear that it has not got the size, and why.
    Failed(String),
}

/// The event has no meaning in this state; the state is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("size in state {state:?} cannot take {event:?}")]
pub struct Illegal {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

/// The only place where the state of a size changes. `has` is the size the container has.
pub fn on(state: State, has: &Sized, event: Event, out: &mut Vec<Act>) -> Result<State, Box<Illegal>> {
    match &state {
        State::Settled => match event {
            Event::Order(want) => {
                out.push(Act::Tell);
                Ok(State::Ordered { want })
            }
            Event::Shown { version, .. } if version <= has.version => Ok(state), // an older report, or a sign of life
            Event::Shown { resource, version } => Ok(taken_over(has, resource, version, out)),
            Event::Refused { .. } | Event::Overdue => Ok(state), // late, on purpose
        },
        State::Ordered { want } => match event {
            Event::Order(_) => Err(Box::new(Illegal { state, event })),
            Event::Shown { version, .. } if version < want.version => Ok(state), // not yet
            Event::Shown { resource, version } if resource == want.resource => {
                Ok(settle(Sized { version, ..want.clone() }, None, out))
            }
            Event::Shown { resource, version } => {
                let has = Sized { resource, version, heap: has.heap };
                Ok(settle(has, Some("its node was given another size before the restart".into()), out))
            }
            Event::Refused { what, .. } if what.version < want.version => Ok(state), // of an earlier order
            Event::Refused { what, .. } => {
                out.push(Act::Failed(what.why));
                Ok(State::Settled)
            }
            Event::Overdue => {
                out.push(Act::Tell);
                let back = Sized { version: want.version.saturating_add(1), ..has.clone() };
                Ok(State::Withdrawn { tried: want.clone(), back })
            }
        },
        State::Withdrawn { tried, back } => match event {
            Event::Order(_) => Err(Box::new(Illegal { state, event })),
            Event::Shown { version, .. } if version < back.version => Ok(state), // it may have taken the order up: it has to go back
            Event::Shown { resource, version } => {
                let heap = back.heap;
                Ok(settle(Sized { resource, version, heap }, Some(SILENT.into()), out))
            }
            Event::Refused { what, .. } if what.version < tried.version => Ok(state), // of an earlier order
            // it cannot go back from the order it did take up: so that is its size
            Event::Refused { what, keeps } if what.version >= back.version && keeps == tried.version => {
                Ok(settle(tried.clone(), None, out))
            }
            Event::Refused { what, .. } => {
                out.push(Act::Failed(what.why)); // it never took the order up
                Ok(State::Settled)
            }
            Event::Overdue => Ok(state), // told again with every report
        },
    }
}

/// Why an order failed that its node never answered.
const SILENT: &str = "its node did not confirm the size in time; it has the size before";

fn settle(has: Sized, failed: Option<String>, out: &mut Vec<Act>) -> State {
    out.push(Act::Has(has));
    out.push(failed.map_or(Act::Resized, Act::Failed));
    State::Settled
}

/// A size that was ordered in an earlier life of the resource manager.
fn taken_over(has: &Sized, resource: Resource, version: u32, out: &mut Vec<Act>) -> State {
    settle(Sized { resource, version, heap: has.heap }, None, out)
}

impl State {
    /// What is on its way to the node, if anything is.
    pub fn order(&self) -> Option<&Sized> {
        match self {
            State::Settled => None,
            State::Ordered { want } => Some(want),
            State::Withdrawn { back, .. } => Some(back),
        }
    }
    /// What the ledger has to count for a container that has `has`: whatever may be in force.
    pub fn counted(&self, has: &Resource, heap: Option<Bytes>) -> (Resource, Bytes) {
        let heap = heap.unwrap_or_default();
        match self {
            State::Settled => (has.clone(), heap),
            State::Ordered { want: other } | State::Withdrawn { tried: other, .. } => {
                (larger(has, &other.resource), heap.max(other.heap.unwrap_or_default()))
            }
        }
    }
}

/// The larger of two sizes, resource by resource.
pub fn larger(a: &Resource, b: &Resource) -> Resource {
    let mut extra = a.extra.clone();
    for (name, n) in &b.extra {
        let slot = extra.entry(name.clone()).or_default();
        *slot = (*slot).max(*n);
    }
    Resource { memory: a.memory.max(b.memory), cpus: a.cpus.max(b.cpus), extra }
}

/// By how much `b` is more than `a`, resource by resource.
pub fn excess(b: &Resource, a: &Resource) -> Resource {
    let extra = b.extra.iter().filter_map(|(name, n)| {
        let more = n.saturating_sub(a.extra.get(name).copied().unwrap_or(0));
        (more > 0).then(|| (name.clone(), more))
    });
    Resource {
        memory: b.memory.saturating_sub(a.memory),
        cpus: Cpus::from_milli(b.cpus.milli().saturating_sub(a.cpus.milli())),
        extra: extra.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(gib: u64, version: u32) -> Sized {
        Sized { resource: Resource::new(Bytes::from_gib(gib), Cpus::from_cores(1)), heap: None, version }
    }
    fn shown(gib: u64, version: u32) -> Event {
        Event::Shown { resource: sized(gib, 0).resource, version }
    }
    fn refused(version: u32, keeps: u32) -> Event {
        Event::Refused { what: RefusedSize { version, why: "full".into() }, keeps }
    }

    /// A container of 2 GiB at version 3; 4 GiB are ordered as version 4, and withdrawn as version 5.
    /// One word a cell: next state's first letter (`.` same, `!` illegal), then the acts: `t` tell, `h` with the size it has from
    /// now on in GiB, `r` resized, `f` failed.
    #[test]
    fn every_cell() {
        let has = sized(2, 3);
        let states =
            [State::Settled, State::Ordered { want: sized(4, 4) }, State::Withdrawn { tried: sized(4, 4), back: sized(2, 5) }];
        let events = [
            Event::Order(sized(4, 4)),
            shown(2, 3),
            shown(4, 4),
            shown(7, 4), // of an earlier life, under the same number
            shown(2, 5),
            refused(3, 3),
            refused(4, 3),
            refused(5, 3),
            refused(5, 4),
            Event::Overdue,
        ];
        let table = [
            "Ot . .h4r .h7r .h2r . . . . .",    // Settled
            "! . Sh4r Sh7f Sh2f . Sf Sf Sf Wt", // Ordered
            "! . . . Sh2f . Sf Sf Sh4r .",      // Withdrawn
        ];
        for (state, row) in states.iter().zip(table) {
            for (event, cell) in events.iter().zip(row.split_whitespace()) {
                let mut out = Vec::new();
                let mut got = match on(state.clone(), &has, event.clone(), &mut out) {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == *state => ".".to_owned(),
                    Ok(State::Settled) => "S".to_owned(),
                    Ok(State::Ordered { .. }) => "O".to_owned(),
                    Ok(State::Withdrawn { .. }) => "W".to_owned(),
                };
                for act in &out {
                    match act {
                        Act::Tell => got.push('t'),
                        Act::Has(now) => got.push_str(&format!("h{}", now.resource.memory.get() >> 30)),
                        Act::Resized => got.push('r'),
                        Act::Failed(_) => got.push('f'),
                    }
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }

    #[test]
    fn what_may_be_in_force_is_counted() {
        let has = sized(2, 1);
        let mut want = sized(1, 2);
        want.resource.cpus = Cpus::from_cores(3);
        let (counted, _) = State::Ordered { want }.counted(&has.resource, None);
        assert_eq!(counted, Resource::new(Bytes::from_gib(2), Cpus::from_cores(3)));
    }
}
