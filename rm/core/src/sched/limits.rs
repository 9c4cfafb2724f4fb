//! Limits and states of queues that prevent a grant even when a node has enough free resources.
//!
//! Reads the queue tree and the ledger. The sentence uses the same function as the decision, so
//! that both agree.

use headroom_types::spelling::counted_noun;
use headroom_types::{AppId, QueuePath, Resource};

use crate::app::ClusterApplication;
use crate::ledger::{ContainerRole, ResourceLedger};
use crate::queue::bound::{ExceededLimit, ResourceBound};
use crate::queue::spec::QueueState;
use crate::queue::tree::QueueEntry;
use crate::queue::{QueueNumber, SchedulerQueues};

/// Limit that prevents a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantLimit {
    /// The state of the queue forbids grants.
    QueueState(QueuePath, QueueState),
    /// The queue has reached its maximum.
    Maximum(QueuePath),
    /// The user has reached the user limit of the queue.
    User(QueuePath),
    /// Masters have reached their limit in the queue.
    Masters(QueuePath),
    /// The queue has reached `max_running`.
    Running(QueuePath),
}

impl SchedulerQueues {
    /// Limit that prevents a container of this size. `None` when there is none.
    pub(crate) fn limit(
        &self,
        app: &ClusterApplication,
        part: ContainerRole,
        size: &Resource,
        ledger: &ResourceLedger,
    ) -> Option<GrantLimit> {
        let (leaf, running) = self.leaf_and_run_of(&app.id)?;
        if let Some((path, state)) = self.barred(leaf) {
            return Some(GrantLimit::QueueState(path.clone(), state));
        }
        let path = |queue: QueueNumber| {
            self.slot(queue)
                .map_or_else(QueuePath::root, |slot| slot.path.clone())
        };
        if !running && self.is_full(leaf) {
            return Some(GrantLimit::Running(path(leaf)));
        }
        for (queue, slot) in self.path_of(leaf) {
            if !slot.maximum.is_open()
                && ledger
                    .queue(queue)
                    .is_some_and(|account| !slot.maximum.admits(&account.used, size))
            {
                return Some(GrantLimit::Maximum(slot.path.clone()));
            }
        }
        let (slot, account) = (self.slot(leaf)?, ledger.queue(leaf)?);
        let user = || account.users.get(app.spec.user.as_str());
        if !slot.user.is_open() && user().is_some_and(|user| !slot.user.admits(&user.used, size)) {
            return Some(GrantLimit::User(slot.path.clone()));
        }
        // the first master is always allowed, or a small queue would never run anything
        let none = account.masters == Resource::default();
        if part == ContainerRole::Master && !none && !slot.masters.admits(&account.masters, size) {
            return Some(GrantLimit::Masters(slot.path.clone()));
        }
        None
    }

    /// Limit that prevents a container of this size, as a sentence with numbers.
    pub(crate) fn limit_sentence(
        &self,
        app: &ClusterApplication,
        part: ContainerRole,
        size: &Resource,
        ledger: &ResourceLedger,
    ) -> Option<String> {
        let limit = self.limit(app, part, size, ledger)?;
        let of = |path: &QueuePath| {
            self.find(path)
                .and_then(|ix| Some((self.slot(ix)?, ledger.queue(ix)?)))
        };
        Some(match &limit {
            GrantLimit::QueueState(path, state) => format!(
                "queue {} is {} and grants no containers",
                path.short(),
                state.as_str()
            ),
            GrantLimit::Running(path) => {
                let (slot, _) = of(path)?;
                format!(
                    "queue {} runs {}, as many as max_running allows",
                    path.short(),
                    counted_noun(slot.running as usize, "application")
                )
            }
            GrantLimit::Maximum(path) => {
                let (slot, account) = of(path)?;
                full(
                    &format!("queue {} is at its maximum", path.short()),
                    &slot.maximum,
                    &account.used,
                    size,
                )?
            }
            GrantLimit::User(path) => {
                let (slot, account) = of(path)?;
                let user = app.spec.user.as_str();
                full(
                    &format!("user {user} is at the user limit of queue {}", path.short()),
                    &slot.user,
                    &account.users.get(user)?.used,
                    size,
                )?
            }
            GrantLimit::Masters(path) => {
                let (slot, account) = of(path)?;
                full(
                    &format!("masters in queue {} are at their limit", path.short()),
                    &slot.masters,
                    &account.masters,
                    size,
                )?
            }
        })
    }

    /// Fill level of the fullest queue with a maximum on the path to the root: "queue etl is at 80
    /// % of its maximum".
    pub(crate) fn fill_sentence(&self, app: &AppId, ledger: &ResourceLedger) -> Option<String> {
        let leaf = self.leaf_of(app)?;
        let bounded = self
            .path_of(leaf)
            .filter(|(_, slot)| !slot.maximum.is_open());
        let fill = |ix, maximum: &ResourceBound| {
            let used = &ledger.queue(ix)?.used;
            Some(crate::queue::bound::DominantShare::of_bound(used, maximum).thousandths() / 10)
        };
        let (percent, slot) = bounded
            .filter_map(|(ix, slot)| Some((fill(ix, &slot.maximum)?, slot)))
            .max_by_key(|(fill, _)| *fill)?;
        Some(format!(
            "queue {} is at {percent} % of its maximum",
            slot.path.short()
        ))
    }

    /// Checks whether the limits of the queues make a container infeasible. Returns the reason and
    /// the largest possible size. Limits that are parts of the cluster count only if
    /// `has_all_nodes`: while nodes still register, a part of their total says nothing.
    pub(crate) fn never_in_queue(
        &self,
        leaf: QueueNumber,
        size: &Resource,
        ledger: &ResourceLedger,
        has_all_nodes: bool,
    ) -> Option<(String, Resource)> {
        let nothing = Resource::default();
        let counts = |slot: &&QueueEntry| has_all_nodes || slot.spec.maximum.is_absolute();
        for slot in self.path_of(leaf).map(|(_, slot)| slot).filter(counts) {
            if let Some(passed) = slot.maximum.passed(&nothing, size) {
                let ExceededLimit { needs, most, .. } = passed;
                let sentence = format!(
                    "needs {needs}, and queue {} may never have more than {most}",
                    slot.path.short()
                );
                return Some((sentence, slot.maximum.over(ledger.total())));
            }
        }
        let slot = self.slot(leaf).filter(|_| has_all_nodes)?;
        let passed = slot.user.passed(&nothing, size)?;
        let (needs, most) = (passed.needs, passed.most);
        let sentence = format!(
            "needs {needs}, and one user may never have more than {most} in queue {}",
            slot.path.short()
        );
        Some((sentence, slot.user.over(ledger.total())))
    }
}

/// Sentence such as "queue etl is at its maximum: 80 GiB of 80 GiB"; below the limit, with the
/// needed amount.
fn full(who: &str, bound: &ResourceBound, used: &Resource, size: &Resource) -> Option<String> {
    let ExceededLimit { used, most, needs } = bound.passed(used, size)?;
    let rest = if used == most {
        String::new()
    } else {
        format!(", and this needs {needs}")
    };
    Some(format!("{who}: {used} of {most}{rest}"))
}
