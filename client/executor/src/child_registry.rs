//! Children of the executor, and the decision which ended children nothing else reaps: pure.
//!
//! The executor is the subreaper of its container, so processes whose parents have ended become its
//! children. Tasks and fork servers reap their own processes. All other ended children are orphans,
//! for example daemons of a task, and the executor has to reap them. A process that has just been
//! started is not registered yet: an open start protects every child that may belong to it.

use std::collections::{BTreeMap, BTreeSet};

/// The children of the executor.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildRegistry {
    next_start: u64,
    open_starts: BTreeSet<u64>,
    /// Number of registrations of each pid: an owner may give up a reaped child after its pid has
    /// been reused.
    registered: BTreeMap<i32, u32>,
    /// An ended child that is not registered, and the first start that cannot be its own.
    candidate: Option<(i32, u64)>,
}

impl ChildRegistry {
    /// Opens a start: a child may exist from now on before it is registered.
    pub(crate) fn open_start(&mut self) -> u64 {
        let start = self.next_start;
        self.next_start += 1;
        self.open_starts.insert(start);
        start
    }

    /// Ends a start: its child is registered, or there is none.
    pub(crate) fn close_start(&mut self, start: u64) {
        self.open_starts.remove(&start);
    }

    /// Registers a child, which its owner will reap.
    pub(crate) fn register(&mut self, pid: i32) {
        self.candidate = self.candidate.filter(|(candidate, _)| *candidate != pid);
        *self.registered.entry(pid).or_default() += 1;
    }

    /// True if the child has an owner.
    pub(crate) fn is_registered(&self, pid: i32) -> bool {
        self.registered.contains_key(&pid)
    }

    /// Removes a child that its owner has reaped or given up.
    pub(crate) fn forget(&mut self, pid: i32) {
        if let Some(count) = self.registered.get_mut(&pid) {
            *count -= 1;
            if *count == 0 {
                self.registered.remove(&pid);
            }
        }
    }

    /// True if the ended child `pid` is an orphan. A child that may belong to an open start is
    /// examined again later.
    pub(crate) fn is_orphan(&mut self, pid: i32) -> bool {
        if self.is_registered(pid) {
            return false;
        }
        let first_later_start = match self.candidate {
            Some((candidate, start)) if candidate == pid => start,
            Some(_) | None => {
                self.candidate = Some((pid, self.next_start));
                self.next_start
            }
        };
        self.open_starts
            .first()
            .is_none_or(|open| *open >= first_later_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_child_is_no_orphan_until_it_is_forgotten() {
        let mut children = ChildRegistry::default();
        children.register(7);
        children.register(7);
        children.forget(7);
        assert!(children.is_registered(7) && !children.is_orphan(7));
        children.forget(7);
        assert!(children.is_orphan(7));
    }

    #[test]
    fn a_child_that_may_belong_to_an_open_start_is_no_orphan() {
        let mut children = ChildRegistry::default();
        let first = children.open_start();
        assert!(!children.is_orphan(7), "the first start may own it");
        let second = children.open_start();
        children.close_start(first);
        assert!(
            children.is_orphan(7),
            "the second start began after its end, so it cannot own it"
        );
        assert!(!children.is_orphan(8), "the second start may own it");
        children.close_start(second);
        assert!(children.is_orphan(8));
    }

    #[test]
    fn a_reused_pid_is_a_new_child() {
        let mut children = ChildRegistry::default();
        assert!(children.is_orphan(7));
        children.register(7);
        children.forget(7);
        let start = children.open_start();
        assert!(!children.is_orphan(7), "the open start may own the new one");
        children.close_start(start);
    }
}
