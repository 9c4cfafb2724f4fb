//! One container's size: what it should have instead of what it has, and whether that can be.
//!
//! Owned by [`crate::agent::Agent`], beside the machine of the container's life, which knows nothing of sizes. What is wanted is
//! level-triggered: an order that was seen before changes nothing, and a size that was refused is not tried again until another
//! one is ordered. The size a container has is that of its order, and changes only when the shell has said that it is so.
//!
//! ```text
//!            wanted, it runs                done, refused
//!   Settled ─────────────────► Changing ──────────────────► Settled
//!      │ wanted, not yet          │  ▲ wanted: the latest is next
//!      ▼                          └──┘
//!   Waiting ── it runs ──► Changing
//! ```
//!
//! A container that ends, or is about to, is given no other size: whatever waits is dropped. A result that comes late is taken in
//! all the same, for it is the truth about the kernel.

use headroom_types::Resource;

/// A size with the number of its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Counts up with every order.
    pub version: u32,
    /// How much.
    pub resource: Resource,
}

/// A size that could not be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub size: Size,
    /// Why, for people.
    pub why: String,
}

/// Whether the program is there whose limits would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It will run.
    Before,
    /// It runs.
    Running,
    /// It ends or has ended.
    Over,
}

/// Where a change of size is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// It has what was last ordered, or was refused it.
    #[default]
    Settled,
    /// To be given as soon as it runs.
    Waiting(Size),
    /// The shell is at it.
    Changing {
        /// What it tries.
        to: Size,
        /// What was ordered meanwhile.
        next: Option<Size>,
    },
}

/// The change of one container's size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizing {
    /// Where it is.
    pub change: Change,
    /// The last size that could not be given, until a later one was.
    pub refused: Option<Refused>,
}

impl Sizing {
    /// An order names this size; `has` is the version it has. Answers what the shell should do now.
    pub fn wanted(&mut self, has: u32, size: Size, life: Life) -> Option<Size> {
        let newest = self.change.newest().map_or(has, |v| v.max(has));
        if life == Life::Over || size.version <= newest || self.was_refused(&size) {
            return None;
        }
        match (&mut self.change, life) {
            (Change::Changing { next, .. }, _) => {
                *next = Some(size);
                None
            }
            (Change::Settled | Change::Waiting(_), Life::Running) => self.begin(Some(size)),
            (change @ (Change::Settled | Change::Waiting(_)), Life::Before | Life::Over) => {
                *change = Change::Waiting(size);
                None
            }
        }
    }

    /// It runs, or it is over. Answers what the shell should do now.
    pub fn lives(&mut self, life: Life) -> Option<Size> {
        match (life, &mut self.change) {
            (Life::Over, Change::Changing { next, .. }) => {
                *next = None;
                None
            }
            (Life::Over, change @ Change::Waiting(_)) => {
                *change = Change::Settled;
                None
            }
            (Life::Running, Change::Waiting(size)) => {
                let size = size.clone();
                self.begin(Some(size))
            }
            (Life::Before, _) | (Life::Running | Life::Over, Change::Settled) | (Life::Running, Change::Changing { .. }) => None,
        }
    }

    /// The shell is done with `version`. Answers the size it has from now on, if it is another one, and what the shell should do
    /// next. A result that nobody waits for is dropped.
    pub fn done(&mut self, version: u32, result: Result<(), String>) -> Option<Done> {
        let Change::Changing { to, next } = &mut self.change else { return None };
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
                self.refused = Some(Refused { size: to, why });
                None
            }
        };
        Some(Done { has, next: self.begin(next) })
    }

    fn begin(&mut self, size: Option<Size>) -> Option<Size> {
        self.change = match &size {
            Some(to) => Change::Changing { to: to.clone(), next: None },
            None => Change::Settled,
        };
        size
    }

    /// The same number with another size is another order: a resource manager that was restarted may count again.
    fn was_refused(&self, size: &Size) -> bool {
        self.refused.as_ref().is_some_and(|r| size.version < r.size.version || *size == r.size)
    }
}

/// What follows from a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The size it has from now on; `None` when that is the one it had.
    pub has: Option<Size>,
    /// What the shell should try next.
    pub next: Option<Size>,
}

impl Change {
    /// The latest version that is on its way.
    fn newest(&self) -> Option<u32> {
        match self {
            Change::Settled => None,
            Change::Waiting(size) | Change::Changing { next: Some(size), .. } => Some(size.version),
            Change::Changing { to, next: None } => Some(to.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus};

    fn size(version: u32) -> Size {
        Size { version, resource: Resource::new(Bytes::from_mib(u64::from(version) * 10), Cpus::from_cores(1)) }
    }
    fn changing(to: u32, next: Option<u32>) -> Change {
        Change::Changing { to: size(to), next: next.map(size) }
    }
    fn at(change: Change) -> Sizing {
        Sizing { change, refused: None }
    }

    /// Every cell: state, order of version 3, in each part of life.
    #[test]
    fn an_order_in_every_state() {
        let table = [
            (Change::Settled, Life::Before, Change::Waiting(size(3)), None),
            (Change::Settled, Life::Running, changing(3, None), Some(3)),
            (Change::Settled, Life::Over, Change::Settled, None),
            (Change::Waiting(size(2)), Life::Before, Change::Waiting(size(3)), None),
            (Change::Waiting(size(3)), Life::Before, Change::Waiting(size(3)), None),
            (Change::Waiting(size(2)), Life::Running, changing(3, None), Some(3)),
            (Change::Waiting(size(2)), Life::Over, Change::Waiting(size(2)), None),
            (changing(2, None), Life::Before, changing(2, Some(3)), None),
            (changing(2, None), Life::Running, changing(2, Some(3)), None),
            (changing(3, None), Life::Running, changing(3, None), None),
            (changing(2, Some(4)), Life::Running, changing(2, Some(4)), None),
            (changing(2, None), Life::Over, changing(2, None), None),
        ];
        for (before, life, after, todo) in table {
            let mut s = at(before.clone());
            assert_eq!(s.wanted(1, size(3), life), todo.map(size), "{before:?} {life:?}");
            assert_eq!(s.change, after, "{before:?} {life:?}");
            assert_eq!(s.wanted(3, size(3), life), None, "it has that already");
        }
    }

    /// Every cell: state and part of life.
    #[test]
    fn its_life_in_every_state() {
        let table = [
            (Change::Settled, Life::Before, Change::Settled, None),
            (Change::Settled, Life::Running, Change::Settled, None),
            (Change::Settled, Life::Over, Change::Settled, None),
            (Change::Waiting(size(2)), Life::Before, Change::Waiting(size(2)), None),
            (Change::Waiting(size(2)), Life::Running, changing(2, None), Some(2)),
            (Change::Waiting(size(2)), Life::Over, Change::Settled, None),
            (changing(2, Some(3)), Life::Before, changing(2, Some(3)), None),
            (changing(2, Some(3)), Life::Running, changing(2, Some(3)), None),
            (changing(2, Some(3)), Life::Over, changing(2, None), None),
        ];
        for (before, life, after, todo) in table {
            let mut s = at(before.clone());
            assert_eq!((s.lives(life), s.change), (todo.map(size), after), "{before:?} {life:?}");
        }
    }

    #[test]
    fn a_refused_size_is_not_tried_again_but_another_is() {
        let mut s = at(changing(2, None));
        assert_eq!(s.done(2, Err("no".into())), Some(Done { has: None, next: None }));
        assert_eq!(s.wanted(1, size(2), Life::Running), None);
        let other = Size { version: 2, ..size(9) };
        assert_eq!(s.wanted(1, other.clone(), Life::Running), Some(other), "counted again by another life");
        assert_eq!(s.done(2, Ok(())).and_then(|d| d.has).map(|h| h.resource), Some(size(9).resource));
        assert_eq!(s.refused, None, "what it has is later than what it was refused");
    }

    #[test]
    fn what_was_ordered_meanwhile_comes_next_and_late_results_are_dropped() {
        let mut s = at(changing(2, Some(3)));
        assert_eq!(s.done(1, Ok(())), None);
        assert_eq!(s.done(2, Ok(())), Some(Done { has: Some(size(2)), next: Some(size(3)) }));
        assert_eq!(s.done(2, Ok(())), None);
        assert_eq!(s.done(3, Err("no".into())), Some(Done { has: None, next: None }));
        assert_eq!(s.refused.map(|r| r.size), Some(size(3)));
    }
}
