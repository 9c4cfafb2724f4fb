//! Size of one container, and the state machine of a resize.
//!
//! The container's record owns it. This module does no resource accounting and sends no messages:
//! it returns the required actions as [`Act`]s. The current size is the one in the node's latest
//! report; this state machine contains the order beyond it.
//!
//! ```text
//!              order                 reported at the ordered version
//!  Settled ────────────► Ordered ──────────────────────────────────► Settled, new size
//!     ▲                    │ │ refused by the node
//!     │                    │ └─────────────────────────────────────► Settled, old size
//!     │                    │ overdue
//!     │ reported, refused  ▼
//!     └──────────────── Withdrawn: the old size is ordered under a later version
//! ```
//!
//! Orders are states, not commands: as long as the node reports an earlier version, the order is
//! sent again. A version is never used for two orders of one incarnation. The node takes
//! precedence: a later version than the known one comes from an order of an earlier incarnation,
//! and is accepted.
//!
//! *Accounting of an order.* From the order until the node's answer, either size may be in effect.
//! So the ledger counts the maximum, resource by resource, also for a withdrawn order, which the
//! node may still apply. After 30 s without an answer an order is withdrawn, not deleted, because
//! the node may have received it. The resources become free when the node reports or refuses a
//! deciding version, or when the container ends.

use headroom_types::{Bytes, Cpus, Resource};

use crate::event::RefusedSize;

/// Size with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sized {
    /// The whole size.
    pub resource: Resource,
    /// Heap budget within it. Bytes.
    pub heap: Option<Bytes>,
    /// Version; counts up with every order.
    pub version: u32,
}

/// Order beyond the current size of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No order.
    #[default]
    Settled,
    /// A size that the node has not reported.
    Ordered {
        /// Ordered size.
        want: Sized,
    },
    /// The previous size is ordered again, because the node did not confirm the order in time.
    Withdrawn {
        /// Withdrawn order, which the node may still apply.
        tried: Sized,
        /// Previous size, with a later version.
        back: Sized,
    },
}

/// Input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An order for another size, which passed all checks.
    Order(Sized),
    /// The node reported this size.
    Shown {
        /// The whole size.
        resource: Resource,
        /// Its version.
        version: u32,
    },
    /// The node keeps the current size.
    Refused {
        /// Refused order.
        what: RefusedSize,
        /// Version of the current size.
        keeps: u32,
    },
    /// The node did not answer the order in time.
    Overdue,
}

/// Action that follows a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The container has this size now.
    Has(Sized),
    /// The order must be sent to the node.
    Tell,
    /// The master must receive the new size.
    Resized,
    /// The master must receive the reason of the failure.
    Failed(String),
}

/// Error for an event that is not allowed in a state; the state does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("size in state {state:?} cannot take {event:?}")]
pub struct Illegal {
    /// State before the event.
    pub state: State,
    /// Rejected event.
    pub event: Event,
}

/// The only place where the state of a size changes. `has` is the current size.
pub fn on(state: State, has: &Sized, event: Event, out: &mut Vec<Act>) -> Result<State, Box<Illegal>> {
    match &state {
        State::Settled => match event {
            Event::Order(want) => {
                out.push(Act::Tell);
                Ok(State::Ordered { want })
            }
            // an older report, or a repeated heartbeat
            Event::Shown { version, .. } if version <= has.version => Ok(state),
            Event::Shown { resource, version } => Ok(taken_over(has, resource, version, out)),
            Event::Refused { .. } | Event::Overdue => Ok(state), // late events are allowed
        },
        State::Ordered { want } => match event {
            Event::Order(_) => Err(Box::new(Illegal { state, event })),
            Event::Shown { version, .. } if version < want.version => Ok(state), // not applied yet
            Event::Shown { resource, version } if resource == want.resource => {
                Ok(settle(Sized { version, ..want.clone() }, None, out))
            }
            Event::Shown { resource, version } => {
                let has = Sized { resource, version, heap: has.heap };
                Ok(settle(has, Some("its node was given another size before the restart".into()), out))
            }
            // about an earlier order
            Event::Refused { what, .. } if what.version < want.version => Ok(state),
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
            // the node may have applied the order and must go back
            Event::Shown { version, .. } if version < back.version => Ok(state),
            Event::Shown { resource, version } => {
                let heap = back.heap;
                Ok(settle(Sized { resource, version, heap }, Some(SILENT.into()), out))
            }
            // about an earlier order
            Event::Refused { what, .. } if what.version < tried.version => Ok(state),
            // the node applied the withdrawn order and cannot go back: that is the current size
            Event::Refused { what, keeps } if what.version >= back.version && keeps == tried.version => {
                Ok(settle(tried.clone(), None, out))
            }
            Event::Refused { what, .. } => {
                out.push(Act::Failed(what.why)); // the node never applied the order
                Ok(State::Settled)
            }
            Event::Overdue => Ok(state), // the order is sent again with every report
        },
    }
}

/// Reason of the failure when the node never answered.
const SILENT: &str = "its node did not confirm the size in time; it has the size before";

fn settle(has: Sized, failed: Option<String>, out: &mut Vec<Act>) -> State {
    out.push(Act::Has(has));
    out.push(failed.map_or(Act::Resized, Act::Failed));
    State::Settled
}

/// Accepts a size that an earlier incarnation of the resource manager ordered.
fn taken_over(has: &Sized, resource: Resource, version: u32, out: &mut Vec<Act>) -> State {
    settle(Sized { resource, version, heap: has.heap }, None, out)
}

impl State {
    /// Current order for the node, if any.
    pub fn order(&self) -> Option<&Sized> {
        match self {
            State::Settled => None,
            State::Ordered { want } => Some(want),
            State::Withdrawn { back, .. } => Some(back),
        }
    }
    /// Resources that the ledger counts: the maximum of all sizes that may be in effect.
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

/// Maximum of two sizes, resource by resource.
pub fn larger(a: &Resource, b: &Resource) -> Resource {
    let mut extra = a.extra.clone();
    for (name, n) in &b.extra {
        let slot = extra.entry(name.clone()).or_default();
        *slot = (*slot).max(*n);
    }
    Resource { memory: a.memory.max(b.memory), cpus: a.cpus.max(b.cpus), extra }
}

/// Excess of `b` over `a`, resource by resource.
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

    /// A container of 2 GiB at version 3; 4 GiB are ordered as version 4, and withdrawn as version
    /// 5. One cell per state and event: the next state's first letter (`.` same, `!` illegal), then
    /// the actions: `t` tell, `h` with the new current size in GiB, `r` resized, `f` failed.
    #[test]
    fn every_cell() {
        let has = sized(2, 3);
        let states =
            [State::Settled, State::Ordered { want: sized(4, 4) }, State::Withdrawn { tried: sized(4, 4), back: sized(2, 5) }];
        let events = [
            Event::Order(sized(4, 4)),
            shown(2, 3),
            shown(4, 4),
            shown(7, 4), // from an earlier incarnation, under the same number
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
