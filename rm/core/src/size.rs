//! Size of one container, and the state machine of a resize.
//!
//! The container's record owns it. This module does no resource accounting and sends no messages:
//! it returns the required actions as [`ResizeAction`]s. The current size is the one in the node's
//! latest report; this state machine contains the order beyond it.
//!
//! ```text
//!              order                 reported at the ordered version
//!  Stable ─────────────► Ordered ──────────────────────────────────► Stable, new size
//!     ▲                    │ │ refused by the node
//!     │                    │ └─────────────────────────────────────► Stable, old size
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

use crate::event::RefusedResize;

/// Size with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedSize {
    /// The whole size.
    pub resource: Resource,
    /// Heap budget within it. Bytes.
    pub heap: Option<Bytes>,
    /// Version; counts up with every order.
    pub version: u32,
}

/// Order beyond the current size of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResizeState {
    /// No order.
    #[default]
    Stable,
    /// A size that the node has not reported.
    Ordered {
        /// Ordered size.
        want: Box<VersionedSize>,
    },
    /// The previous size is ordered again, because the node did not confirm the order in time.
    Withdrawn {
        /// Withdrawn order, which the node may still apply.
        tried: Box<VersionedSize>,
        /// Previous size, with a later version.
        back: Box<VersionedSize>,
    },
}

/// Input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeEvent {
    /// An order for another size, which passed all checks.
    Order(VersionedSize),
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
        what: RefusedResize,
        /// Version of the current size.
        keeps: u32,
    },
    /// The node did not answer the order in time.
    Overdue,
}

/// Action that follows a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeAction {
    /// The container has this size now.
    Has(VersionedSize),
    /// The order must be sent to the node.
    SendOrder,
    /// The master must receive the new size.
    Resized,
    /// The master must receive the reason of the failure.
    Failed(String),
}

/// Error for an event that is not allowed in a state; the state does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("size in state {state:?} cannot take {event:?}")]
pub struct InvalidResizeEvent {
    /// State before the event.
    pub state: ResizeState,
    /// Rejected event.
    pub event: ResizeEvent,
}

/// The only place where the state of a size changes. `has` is the current size.
pub fn next_resize_state(
    state: ResizeState,
    has: &VersionedSize,
    event: ResizeEvent,
    out: &mut Vec<ResizeAction>,
) -> Result<ResizeState, Box<InvalidResizeEvent>> {
    match &state {
        ResizeState::Stable => match event {
            ResizeEvent::Order(want) => {
                out.push(ResizeAction::SendOrder);
                Ok(ResizeState::Ordered {
                    want: Box::new(want),
                })
            }
            // an older report, or a repeated heartbeat
            ResizeEvent::Shown { version, .. } if version <= has.version => Ok(state),
            ResizeEvent::Shown { resource, version } => Ok(taken_over(has, resource, version, out)),
            ResizeEvent::Refused { .. } | ResizeEvent::Overdue => Ok(state), // late events are allowed
        },
        ResizeState::Ordered { want } => match event {
            ResizeEvent::Order(_) => Err(Box::new(InvalidResizeEvent { state, event })),
            ResizeEvent::Shown { version, .. } if version < want.version => Ok(state), // not applied yet
            ResizeEvent::Shown { resource, version } if resource == want.resource => {
                Ok(complete_resize(
                    VersionedSize {
                        version,
                        ..VersionedSize::clone(want)
                    },
                    None,
                    out,
                ))
            }
            ResizeEvent::Shown { resource, version } => {
                let has = VersionedSize {
                    resource,
                    version,
                    heap: has.heap,
                };
                Ok(complete_resize(
                    has,
                    Some("its node received another size before the restart".into()),
                    out,
                ))
            }
            // about an earlier order
            ResizeEvent::Refused { what, .. } if what.version < want.version => Ok(state),
            ResizeEvent::Refused { what, .. } => {
                out.push(ResizeAction::Failed(what.why));
                Ok(ResizeState::Stable)
            }
            ResizeEvent::Overdue => Ok(withdraw_order(want, has, out)),
        },
        ResizeState::Withdrawn { tried, back } => match event {
            ResizeEvent::Order(_) => Err(Box::new(InvalidResizeEvent { state, event })),
            // the node may have applied the order and must go back
            ResizeEvent::Shown { version, .. } if version < back.version => Ok(state),
            ResizeEvent::Shown { resource, version } => {
                let heap = back.heap;
                Ok(complete_resize(
                    VersionedSize {
                        resource,
                        version,
                        heap,
                    },
                    Some(SILENT.into()),
                    out,
                ))
            }
            // about an earlier order
            ResizeEvent::Refused { what, .. } if what.version < tried.version => Ok(state),
            // the node applied the withdrawn order and cannot go back: that is the current size
            ResizeEvent::Refused { what, keeps }
                if what.version >= back.version && keeps == tried.version =>
            {
                Ok(complete_resize(VersionedSize::clone(tried), None, out))
            }
            ResizeEvent::Refused { what, .. } => {
                out.push(ResizeAction::Failed(what.why)); // the node never applied the order
                Ok(ResizeState::Stable)
            }
            ResizeEvent::Overdue => Ok(state), // the order is sent again with every report
        },
    }
}

/// Reason of the failure when the node never answered.
const SILENT: &str =
    "its node did not confirm the size in time; the container keeps its earlier size";

fn complete_resize(
    has: VersionedSize,
    failed: Option<String>,
    out: &mut Vec<ResizeAction>,
) -> ResizeState {
    out.push(ResizeAction::Has(has));
    out.push(failed.map_or(ResizeAction::Resized, ResizeAction::Failed));
    ResizeState::Stable
}

/// Orders the current size again, because the node did not answer the order `want` in time.
fn withdraw_order(
    want: &VersionedSize,
    has: &VersionedSize,
    out: &mut Vec<ResizeAction>,
) -> ResizeState {
    out.push(ResizeAction::SendOrder);
    ResizeState::Withdrawn {
        tried: Box::new(want.clone()),
        back: Box::new(VersionedSize {
            version: want.version.saturating_add(1),
            ..has.clone()
        }),
    }
}

/// Accepts a size that an earlier incarnation of the resource manager ordered.
fn taken_over(
    has: &VersionedSize,
    resource: Resource,
    version: u32,
    out: &mut Vec<ResizeAction>,
) -> ResizeState {
    complete_resize(
        VersionedSize {
            resource,
            version,
            heap: has.heap,
        },
        None,
        out,
    )
}

impl ResizeState {
    /// Current order for the node, if any.
    pub fn order(&self) -> Option<&VersionedSize> {
        match self {
            ResizeState::Stable => None,
            ResizeState::Ordered { want } => Some(want),
            ResizeState::Withdrawn { back, .. } => Some(back),
        }
    }
    /// Resources that the ledger counts: the maximum of all sizes that may be in effect.
    pub fn counted(&self, has: &Resource, heap: Option<Bytes>) -> (Resource, Bytes) {
        let heap = heap.unwrap_or_default();
        match self {
            ResizeState::Stable => (has.clone(), heap),
            ResizeState::Ordered { want: other } | ResizeState::Withdrawn { tried: other, .. } => (
                larger(has, &other.resource),
                heap.max(other.heap.unwrap_or_default()),
            ),
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
    Resource {
        memory: a.memory.max(b.memory),
        cpus: a.cpus.max(b.cpus),
        extra,
    }
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

    fn sized(gib: u64, version: u32) -> VersionedSize {
        VersionedSize {
            resource: Resource::new(Bytes::from_gib(gib), Cpus::from_cores(1)),
            heap: None,
            version,
        }
    }
    fn shown(gib: u64, version: u32) -> ResizeEvent {
        ResizeEvent::Shown {
            resource: sized(gib, 0).resource,
            version,
        }
    }
    fn refused(version: u32, keeps: u32) -> ResizeEvent {
        ResizeEvent::Refused {
            what: RefusedResize {
                version,
                why: "full".into(),
            },
            keeps,
        }
    }

    /// A container of 2 GiB at version 3; 4 GiB are ordered as version 4, and withdrawn as version
    /// 5. One cell per state and event: the next state's first letter (`.` same, `!` illegal), then
    /// the actions: `t` send, `h` with the new current size in GiB, `r` resized, `f` failed.
    #[test]
    fn each_state_accepts_its_events() {
        let has = sized(2, 3);
        let states = [
            ResizeState::Stable,
            ResizeState::Ordered {
                want: Box::new(sized(4, 4)),
            },
            ResizeState::Withdrawn {
                tried: Box::new(sized(4, 4)),
                back: Box::new(sized(2, 5)),
            },
        ];
        let events = [
            ResizeEvent::Order(sized(4, 4)),
            shown(2, 3),
            shown(4, 4),
            shown(7, 4), // from an earlier incarnation, under the same number
            shown(2, 5),
            refused(3, 3),
            refused(4, 3),
            refused(5, 3),
            refused(5, 4),
            ResizeEvent::Overdue,
        ];
        let table = [
            "Ot . .h4r .h7r .h2r . . . . .",    // Stable
            "! . Sh4r Sh7f Sh2f . Sf Sf Sf Wt", // Ordered
            "! . . . Sh2f . Sf Sf Sh4r .",      // Withdrawn
        ];
        for (state, row) in states.iter().zip(table) {
            for (event, cell) in events.iter().zip(row.split_whitespace()) {
                let mut out = Vec::new();
                let mut got = match next_resize_state(state.clone(), &has, event.clone(), &mut out)
                {
                    Err(_) => "!".to_owned(),
                    Ok(next) if next == *state => ".".to_owned(),
                    Ok(ResizeState::Stable) => "S".to_owned(),
                    Ok(ResizeState::Ordered { .. }) => "O".to_owned(),
                    Ok(ResizeState::Withdrawn { .. }) => "W".to_owned(),
                };
                for act in &out {
                    match act {
                        ResizeAction::SendOrder => got.push('t'),
                        ResizeAction::Has(now) => {
                            got.push_str(&format!("h{}", now.resource.memory.get() >> 30))
                        }
                        ResizeAction::Resized => got.push('r'),
                        ResizeAction::Failed(_) => got.push('f'),
                    }
                }
                assert_eq!(got, cell, "{state:?} × {event:?}");
            }
        }
    }

    #[test]
    fn the_ledger_counts_the_larger_of_current_and_ordered_size() {
        let has = sized(2, 1);
        let mut want = sized(1, 2);
        want.resource.cpus = Cpus::from_cores(3);
        let want = Box::new(want);
        let (counted, _) = ResizeState::Ordered { want }.counted(&has.resource, None);
        assert_eq!(
            counted,
            Resource::new(Bytes::from_gib(2), Cpus::from_cores(3))
        );
    }
}
