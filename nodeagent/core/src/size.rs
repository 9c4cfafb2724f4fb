//! The size of one container: the ordered size, the present size, and whether the order can be met.
//!
//! [`crate::agent::AgentCore`] owns it next to the state machine of the container, which knows no
//! sizes. Orders are level-triggered: a repeated order changes nothing, and a refused size is not
//! tried again until another size is ordered. The size of a container is the size of its order. It
//! changes only when the driver has reported success.
//!
//! ```text
//!            ordered, it runs                done, refused
//!   Stable ──────────────────► Changing ──────────────────► Stable
//!      │ ordered, not yet         │  ▲ ordered: the latest is next
//!      ▼                          └──┘
//!   Waiting ── it runs ──► Changing
//! ```
//!
//! A container that is stopping or has ended gets no other size: a waiting size is dropped. A late
//! result still counts, because it describes the limits in the kernel.

use headroom_types::Resource;

/// A size with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedSize {
    /// Increases with each order.
    pub version: u32,
    /// The resources.
    pub resource: Resource,
}

/// A size that could not be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeRefusal {
    /// The size.
    pub size: OrderedSize,
    /// The reason in one sentence for the user.
    pub why: String,
}

/// The phase of the program, as far as its limits are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizingPhase {
    /// The program does not run yet.
    Before,
    /// The program runs.
    Running,
    /// The program is stopping or has ended.
    Over,
}

/// The state of a change of size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SizeChange {
    /// The container has the last ordered size, or that size was refused.
    #[default]
    Stable,
    /// This size is applied as soon as the container runs.
    Waiting(OrderedSize),
    /// The driver applies a size.
    Changing {
        /// The size that the driver applies.
        to: OrderedSize,
        /// The latest size that was ordered since.
        next: Option<OrderedSize>,
    },
}

/// The change of one container's size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSizing {
    /// The state of the change.
    pub change: SizeChange,
    /// The last refused size. A later success clears it.
    pub refused: Option<ResizeRefusal>,
}

impl ContainerSizing {
    /// Applies an order with this size. `has` is the present version. Returns the size that the
    /// driver must apply now.
    pub fn on_order(
        &mut self,
        has: u32,
        size: OrderedSize,
        life: SizingPhase,
    ) -> Option<OrderedSize> {
        let newest = self.change.newest().map_or(has, |v| v.max(has));
        if life == SizingPhase::Over || size.version <= newest || self.was_refused(&size) {
            return None;
        }
        match (&mut self.change, life) {
            (SizeChange::Changing { next, .. }, _) => {
                *next = Some(size);
                None
            }
            (SizeChange::Stable | SizeChange::Waiting(_), SizingPhase::Running) => {
                self.begin(Some(size))
            }
            (
                change @ (SizeChange::Stable | SizeChange::Waiting(_)),
                SizingPhase::Before | SizingPhase::Over,
            ) => {
                *change = SizeChange::Waiting(size);
                None
            }
        }
    }

    /// Applies a change of phase. Returns the size that the driver must apply now.
    pub fn on_phase(&mut self, life: SizingPhase) -> Option<OrderedSize> {
        match (life, &mut self.change) {
            (SizingPhase::Over, SizeChange::Changing { next, .. }) => {
                *next = None;
                None
            }
            (SizingPhase::Over, change @ SizeChange::Waiting(_)) => {
                *change = SizeChange::Stable;
                None
            }
            (SizingPhase::Running, SizeChange::Waiting(size)) => {
                let size = size.clone();
                self.begin(Some(size))
            }
            (SizingPhase::Before, _)
            | (SizingPhase::Running | SizingPhase::Over, SizeChange::Stable)
            | (SizingPhase::Running, SizeChange::Changing { .. }) => None,
        }
    }

    /// Applies the driver's result for `version`. Returns the new present size, if it changed, and
    /// the next size for the driver. A result for another version is dropped.
    pub fn done(&mut self, version: u32, result: Result<(), String>) -> Option<ResizeOutcome> {
        let SizeChange::Changing { to, next } = &mut self.change else {
            return None;
        };
        if to.version != version {
            return None;
        }
        let (to, next) = (to.clone(), next.take());
        let has = match result {
            Ok(()) => {
                self.refused = None;
                Some(to)
            }
            Err(why) => {
                self.refused = Some(ResizeRefusal { size: to, why });
                None
            }
        };
        Some(ResizeOutcome {
            has,
            next: self.begin(next),
        })
    }

    fn begin(&mut self, size: Option<OrderedSize>) -> Option<OrderedSize> {
        self.change = match &size {
            Some(to) => SizeChange::Changing {
                to: to.clone(),
                next: None,
            },
            None => SizeChange::Stable,
        };
        size
    }

    /// The same version with another size is another order: a restarted resource manager may count
    /// again.
    fn was_refused(&self, size: &OrderedSize) -> bool {
        self.refused
            .as_ref()
            .is_some_and(|r| size.version < r.size.version || *size == r.size)
    }
}

/// The consequence of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeOutcome {
    /// The new present size; `None` when it did not change.
    pub has: Option<OrderedSize>,
    /// The size that the driver must apply next.
    pub next: Option<OrderedSize>,
}

impl SizeChange {
    /// The latest version that is waiting or being applied.
    fn newest(&self) -> Option<u32> {
        match self {
            SizeChange::Stable => None,
            SizeChange::Waiting(size)
            | SizeChange::Changing {
                next: Some(size), ..
            } => Some(size.version),
            SizeChange::Changing { to, next: None } => Some(to.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus};

    fn size(version: u32) -> OrderedSize {
        OrderedSize {
            version,
            resource: Resource::new(
                Bytes::from_mib(u64::from(version) * 10),
                Cpus::from_cores(1),
            ),
        }
    }
    fn changing(to: u32, next: Option<u32>) -> SizeChange {
        SizeChange::Changing {
            to: size(to),
            next: next.map(size),
        }
    }
    fn at(change: SizeChange) -> ContainerSizing {
        ContainerSizing {
            change,
            refused: None,
        }
    }

    /// State and phase before an order of version 3, the state after it, and the version to apply;
    /// no change is being applied.
    fn orders_without_a_change() -> [(SizeChange, SizingPhase, SizeChange, Option<u32>); 7] {
        [
            (
                SizeChange::Stable,
                SizingPhase::Before,
                SizeChange::Waiting(size(3)),
                None,
            ),
            (
                SizeChange::Stable,
                SizingPhase::Running,
                changing(3, None),
                Some(3),
            ),
            (
                SizeChange::Stable,
                SizingPhase::Over,
                SizeChange::Stable,
                None,
            ),
            (
                SizeChange::Waiting(size(2)),
                SizingPhase::Before,
                SizeChange::Waiting(size(3)),
                None,
            ),
            (
                SizeChange::Waiting(size(3)),
                SizingPhase::Before,
                SizeChange::Waiting(size(3)),
                None,
            ),
            (
                SizeChange::Waiting(size(2)),
                SizingPhase::Running,
                changing(3, None),
                Some(3),
            ),
            (
                SizeChange::Waiting(size(2)),
                SizingPhase::Over,
                SizeChange::Waiting(size(2)),
                None,
            ),
        ]
    }

    /// As `orders_without_a_change`, while a change is being applied.
    fn orders_during_a_change() -> [(SizeChange, SizingPhase, SizeChange, Option<u32>); 5] {
        [
            (
                changing(2, None),
                SizingPhase::Before,
                changing(2, Some(3)),
                None,
            ),
            (
                changing(2, None),
                SizingPhase::Running,
                changing(2, Some(3)),
                None,
            ),
            (
                changing(3, None),
                SizingPhase::Running,
                changing(3, None),
                None,
            ),
            (
                changing(2, Some(4)),
                SizingPhase::Running,
                changing(2, Some(4)),
                None,
            ),
            (
                changing(2, None),
                SizingPhase::Over,
                changing(2, None),
                None,
            ),
        ]
    }

    /// Covers each cell: state and phase, with an order of version 3.
    #[test]
    fn an_order_is_handled_in_every_state() {
        let table = orders_without_a_change()
            .into_iter()
            .chain(orders_during_a_change());
        for (before, life, after, todo) in table {
            let mut s = at(before.clone());
            assert_eq!(
                s.on_order(1, size(3), life),
                todo.map(size),
                "{before:?} {life:?}"
            );
            assert_eq!(s.change, after, "{before:?} {life:?}");
            assert_eq!(
                s.on_order(3, size(3), life),
                None,
                "the container already has this size"
            );
        }
    }

    /// Covers each cell: state and phase.
    #[test]
    fn a_phase_change_is_handled_in_every_state() {
        let table = [
            (
                SizeChange::Stable,
                SizingPhase::Before,
                SizeChange::Stable,
                None,
            ),
            (
                SizeChange::Stable,
                SizingPhase::Running,
                SizeChange::Stable,
                None,
            ),
            (
                SizeChange::Stable,
                SizingPhase::Over,
                SizeChange::Stable,
                None,
            ),
            (
                SizeChange::Waiting(size(2)),
                SizingPhase::Before,
                SizeChange::Waiting(size(2)),
                None,
            ),
            (
                SizeChange::Waiting(size(2)),
                SizingPhase::Running,
                changing(2, None),
                Some(2),
            ),
            (
                SizeChange::Waiting(size(2)),
                SizingPhase::Over,
                SizeChange::Stable,
                None,
            ),
            (
                changing(2, Some(3)),
                SizingPhase::Before,
                changing(2, Some(3)),
                None,
            ),
            (
                changing(2, Some(3)),
                SizingPhase::Running,
                changing(2, Some(3)),
                None,
            ),
            (
                changing(2, Some(3)),
                SizingPhase::Over,
                changing(2, None),
                None,
            ),
        ];
        for (before, life, after, todo) in table {
            let mut s = at(before.clone());
            assert_eq!(
                (s.on_phase(life), s.change),
                (todo.map(size), after),
                "{before:?} {life:?}"
            );
        }
    }

    #[test]
    fn a_refused_size_is_not_retried_but_another_size_is() {
        let mut s = at(changing(2, None));
        assert_eq!(
            s.done(2, Err("no".into())),
            Some(ResizeOutcome {
                has: None,
                next: None
            })
        );
        assert_eq!(s.on_order(1, size(2), SizingPhase::Running), None);
        let other = OrderedSize {
            version: 2,
            ..size(9)
        };
        assert_eq!(
            s.on_order(1, other.clone(), SizingPhase::Running),
            Some(other),
            "versions restart in another epoch"
        );
        assert_eq!(
            s.done(2, Ok(())).and_then(|d| d.has).map(|h| h.resource),
            Some(size(9).resource)
        );
        assert_eq!(
            s.refused, None,
            "the applied size is newer than the refused size"
        );
    }

    #[test]
    fn a_size_ordered_meanwhile_follows_and_late_results_are_dropped() {
        let mut s = at(changing(2, Some(3)));
        assert_eq!(s.done(1, Ok(())), None);
        assert_eq!(
            s.done(2, Ok(())),
            Some(ResizeOutcome {
                has: Some(size(2)),
                next: Some(size(3))
            })
        );
        assert_eq!(s.done(2, Ok(())), None);
        assert_eq!(
            s.done(3, Err("no".into())),
            Some(ResizeOutcome {
                has: None,
                next: None
            })
        );
        assert_eq!(s.refused.map(|r| r.size), Some(size(3)));
    }
}
