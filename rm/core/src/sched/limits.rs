//! What keeps an application from its next container although there may be room: gates and limits of its queue.
//!
//! Reads the tree and the ledger. One function decides, and the same one is asked for the sentence, so that both agree.

use headroom_types::{AppId, QueuePath, Resource};

use crate::app::App;
use crate::cluster::Cluster;
use crate::ledger::Part;
use crate::queue::QueueIx;
use crate::queue::bound::{Bound, Passed};
use crate::queue::spec::Gate;

/// A limit that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A queue grants nothing.
    Gate(QueuePath, Gate),
    /// A queue has all it may have.
    Maximum(QueuePath),
    /// The user has all that one user may have in this queue.
    User(QueuePath),
    /// Masters have all that they may have in this queue.
    Masters(QueuePath),
    /// As many applications run in this queue as may.
    Running(QueuePath),
}

impl Cluster {
    /// The limit that keeps an application from a container of this size. `None` when none does.
    pub(crate) fn limit(&self, app: &App, part: Part, size: &Resource) -> Option<Limit> {
        let leaf = self.queue.leaf_of(&app.id)?;
        if let Some((path, gate)) = self.queue.barred(leaf) {
            return Some(Limit::Gate(path.clone(), gate));
        }
        let path = |queue: QueueIx| self.queue.slot(queue).map_or_else(QueuePath::root, |slot| slot.path.clone());
        if !self.queue.is_running(&app.id) && self.queue.is_full(leaf) {
            return Some(Limit::Running(path(leaf)));
        }
        for (queue, slot) in self.queue.path_of(leaf) {
            if !slot.maximum.is_open()
                && self.ledger.queue(queue).is_some_and(|account| !slot.maximum.admits(&account.used, size))
            {
                return Some(Limit::Maximum(slot.path.clone()));
            }
        }
        let (slot, account) = (self.queue.slot(leaf)?, self.ledger.queue(leaf)?);
        let user = || account.users.get(app.spec.user.as_str());
        if !slot.user.is_open() && user().is_some_and(|user| !slot.user.admits(&user.used, size)) {
            return Some(Limit::User(slot.path.clone()));
        }
        // one master may always go, or a small queue would never run anything
        let none = account.masters == Resource::default();
        if part == Part::Master && !none && !slot.masters.admits(&account.masters, size) {
            return Some(Limit::Masters(slot.path.clone()));
        }
        None
    }

    /// The same in a sentence with figures.
    pub(crate) fn limit_sentence(&self, app: &App, part: Part, size: &Resource) -> Option<String> {
        let limit = self.limit(app, part, size)?;
        let of = |path: &QueuePath| self.queue.find(path).and_then(|ix| Some((self.queue.slot(ix)?, self.ledger.queue(ix)?)));
        Some(match &limit {
            Limit::Gate(path, gate) => format!("queue {} is {}, and grants nothing", path.short(), gate.as_str()),
            Limit::Running(path) => {
                let (slot, _) = of(path)?;
                format!("{} applications run in queue {}, and no more may", slot.running, path.short())
            }
            Limit::Maximum(path) => {
                let (slot, account) = of(path)?;
                full(&format!("queue {} is at its maximum", path.short()), &slot.maximum, &account.used, size)?
            }
            Limit::User(path) => {
                let (slot, account) = of(path)?;
                let user = app.spec.user.as_str();
                full(
                    &format!("user {user} is at the limit of one user in queue {}", path.short()),
                    &slot.user,
                    &account.users.get(user)?.used,
                    size,
                )?
            }
            Limit::Masters(path) => {
                let (slot, account) = of(path)?;
                full(&format!("masters in queue {} are at their limit", path.short()), &slot.masters, &account.masters, size)?
            }
        })
    }

    /// How far the fullest queue on the way to the root is, where one has a maximum: "queue etl is at 80 % of its maximum".
    pub(crate) fn fill_sentence(&self, app: &AppId) -> Option<String> {
        let leaf = self.queue.leaf_of(app)?;
        let bounded = self.queue.path_of(leaf).filter(|(_, slot)| !slot.maximum.is_open());
        let fill = |ix, maximum: &Bound| {
            let used = &self.ledger.queue(ix)?.used;
            Some(crate::queue::bound::Dominant::of_bound(used, maximum).thousandths() / 10)
        };
        let (percent, slot) =
            bounded.filter_map(|(ix, slot)| Some((fill(ix, &slot.maximum)?, slot))).max_by_key(|(fill, _)| *fill)?;
        Some(format!("queue {} is at {percent} % of its maximum", slot.path.short()))
    }

    /// That a queue's limits could never give this, when that is certain: its name, what it could give at most, and the sentence.
    pub(crate) fn never_in_queue(&self, leaf: QueueIx, part: Part, size: &Resource) -> Option<(String, Resource)> {
        let nothing = Resource::default();
        for (_, slot) in self.queue.path_of(leaf) {
            if let Some(passed) = slot.maximum.passed(&nothing, size) {
                let Passed { needs, most, .. } = passed;
                let sentence = format!("needs {needs}, and queue {} may never have more than {most}", slot.path.short());
                return Some((sentence, slot.maximum.over(self.ledger.total())));
            }
        }
        let slot = self.queue.slot(leaf)?;
        let passed = slot.user.passed(&nothing, size).filter(|_| part == Part::Work)?;
        let (needs, most) = (passed.needs, passed.most);
        let sentence = format!("needs {needs}, and one user may never have more than {most} in queue {}", slot.path.short());
        Some((sentence, slot.user.over(self.ledger.total())))
    }
}

/// "queue etl is at its maximum: 80 GiB of 80 GiB", or what is left is too little.
fn full(who: &str, bound: &Bound, used: &Resource, size: &Resource) -> Option<String> {
    let Passed { used, most, needs } = bound.passed(used, size)?;
    let rest = if used == most { String::new() } else { format!(", and this needs {needs}") };
    Some(format!("{who}: {used} of {most}{rest}"))
}
