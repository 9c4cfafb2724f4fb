//! Why something waits, or never will be: sentences with names and figures.
//!
//! Reads the cluster, changes nothing. The short sentence comes from the indexes; only [`Cluster::why`] looks at every node.

use std::time::Duration;

use headroom_types::{AppId, NodeId, RequestId, Resource, Tick};

use crate::app::App;
use crate::cluster::{Cluster, MAX_UNACKED};
use crate::event::Verdict;
use crate::node;
use crate::queue::Waiter;
use crate::sched::Held;
use crate::sched::fit::{self, Need};

/// Most nodes named for one request.
const MAX_NODES: usize = 50;

/// Why one request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The request.
    pub request: RequestId,
    /// Size of one container.
    pub asks: Resource,
    /// Containers still to come.
    pub missing: u32,
    /// How long it has waited.
    pub waiting: Duration,
    /// Requests served before it.
    pub ahead: usize,
    /// The whole reason.
    pub sentence: String,
    /// Each node, closest first.
    pub nodes: Vec<WhyNode>,
}

/// Why not on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNode {
    /// The node.
    pub node: NodeId,
    /// Free on it.
    pub free: Resource,
    /// Offered by it.
    pub offers: Resource,
    /// The reason.
    pub verdict: String,
}

impl Cluster {
    /// Why each request of an application waits.
    pub fn why(&self, app: &AppId, now: Tick) -> Option<Vec<Why>> {
        let app = self.apps.get(app)?;
        let waiting = app.requests.keys().filter(|r| app.missing(r) > 0);
        Some(waiting.filter_map(|request| self.why_request(app, request, now)).collect())
    }

    /// Why one request waits, in one sentence. `None` when it does not.
    pub fn sentence(&self, app: &App, request: &RequestId, now: Tick) -> Option<String> {
        let need = Need::of(app, Some(request)).filter(|_| app.missing(request) > 0)?;
        Some(self.held_sentence(app, now).unwrap_or_else(|| self.place_sentence(need)))
    }

    /// Why a managed master waits for its container. `None` when it does not.
    pub fn master_sentence(&self, app: &App, now: Tick) -> Option<String> {
        if !self.queue.contains(&Waiter { app: app.id.clone(), request: None }) {
            return None;
        }
        let need = Need::of(app, None)?;
        Some(self.held_sentence(app, now).unwrap_or_else(|| self.place_sentence(need)))
    }

    /// What becomes of a request that was taken in.
    pub(crate) fn verdict(&self, app: &AppId, request: &RequestId, now: Tick) -> Verdict {
        let sentence = self.apps.get(app).and_then(|app| self.sentence(app, request, now));
        sentence.map_or(Verdict::Fits, |sentence| Verdict::Waits { sentence })
    }

    /// That no node could ever give this, when that is certain: with no node known, or after a restart, nothing is.
    pub(crate) fn never(&self, size: &Resource, only: &[NodeId]) -> Option<(String, Resource)> {
        if self.recovery.is_some() || self.offers.is_empty() {
            return None;
        }
        if only.is_empty() {
            if self.offers_down().any(|(_, offers)| size.fits(offers)) {
                return None;
            }
            let (node, largest) = self.largest()?;
            return Some((format!("needs {size} on one node; the largest node is {node} with {largest}"), largest.clone()));
        }
        let offers = |node: &NodeId| self.nodes.get(node).and_then(|_| self.ledger.node(node)).map(|a| &a.offers);
        if only.iter().any(|node| offers(node).is_none_or(|offers| size.fits(offers))) {
            return None;
        }
        let (largest, node) = only.iter().filter_map(|n| Some((offers(n)?, n))).max_by_key(|(o, n)| (o.memory, *n))?;
        let sentence =
            format!("needs {size} on one of the {} nodes it names; the largest of them is {node} with {largest}", only.len());
        Some((sentence, largest.clone()))
    }

    /// After a restart: for whom an application has to wait. `None` when it has not.
    pub(crate) fn recovery_sentence(&self, app: &App, now: Tick) -> Option<String> {
        if self.held(app) != Some(Held::Recovery) {
            return None;
        }
        let recovery = self.recovery.as_ref()?;
        let names: Vec<&str> = recovery.waiting.iter().take(3).map(NodeId::as_str).collect();
        let more = recovery.waiting.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let left = recovery.until.since(now).as_secs_f64().ceil();
        let names = names.join(", ");
        Some(format!(
            "the resource manager has restarted and waits for {names}{more} to tell of its containers, at most {left} s more"
        ))
    }

    fn held_sentence(&self, app: &App, now: Tick) -> Option<String> {
        match self.held(app)? {
            Held::Recovery => self.recovery_sentence(app, now),
            Held::Unacknowledged => {
                Some(format!("its master has not acknowledged {MAX_UNACKED} updates, and gets nothing more until it does"))
            }
        }
    }

    fn place_sentence(&self, need: Need<'_>) -> String {
        if !need.place.nodes.is_empty() {
            return self.only_sentence(need);
        }
        let Some((most, room)) = self.index.most_memory() else { return self.nobody_sentence() };
        let size = need.size;
        if self.offers_down().all(|(_, offers)| !size.fits(offers))
            && let Some((node, largest)) = self.largest()
        {
            return format!("needs {size} on one node, and the largest node that is left, {node}, has only {largest} in all");
        }
        if room.memory < size.memory {
            return format!("needs {} on one node; best is {most} with {} free", size.memory, room.memory);
        }
        if self.index.best_fit(size).is_some() {
            return "there is room; it is about to be placed".into();
        }
        let (node, room) = self.index.most_cpus(size.memory).unwrap_or((most, room));
        format!("needs {size} on one node; best is {node} with {room} free")
    }

    fn only_sentence(&self, need: Need<'_>) -> String {
        let rooms = need.place.nodes.iter().filter_map(|n| Some((self.index.room(self.index.ix(n)?)?, n)));
        match rooms.max_by_key(|(room, n)| (room.memory, *n)) {
            Some((room, node)) => format!(
                "needs {} on one of the {} nodes it names; best of them is {node} with {room} free",
                need.size,
                need.place.nodes.len()
            ),
            None => format!("none of the {} nodes it names takes work now", need.place.nodes.len()),
        }
    }

    fn nobody_sentence(&self) -> String {
        let Some(node) = self.nodes.values().find(|n| n.state.is_member()) else {
            return "no node has registered".into();
        };
        let reason = node.state.reason().map(|r| format!(": {r}")).unwrap_or_default();
        let members = self.nodes.values().filter(|n| n.state.is_member()).count();
        format!("none of {members} nodes takes work now; {} is {}{reason}", node.id, self.standing(node))
    }

    fn why_request(&self, app: &App, request: &RequestId, now: Tick) -> Option<Why> {
        let asked = app.requests.get(request)?;
        let need = Need::of(app, Some(request))?;
        Some(Why {
            request: request.clone(),
            asks: asked.ask.resource.clone(),
            missing: app.missing(request),
            waiting: now.since(asked.waiting),
            ahead: self.queue.ahead(&Waiter { app: app.id.clone(), request: Some(request.clone()) }),
            sentence: self.sentence(app, request, now)?,
            nodes: self.why_nodes(need),
        })
    }

    fn why_nodes(&self, need: Need<'_>) -> Vec<WhyNode> {
        let members = self.nodes.values().filter(|n| n.state.is_member());
        let mut rows: Vec<WhyNode> = members.filter_map(|n| self.why_node(n, need)).collect();
        rows.sort_by(|a, b| (b.free.memory, b.free.cpus, &a.node).cmp(&(a.free.memory, a.free.cpus, &b.node)));
        rows.truncate(MAX_NODES);
        rows
    }

    fn why_node(&self, node: &node::Node, need: Need<'_>) -> Option<WhyNode> {
        let account = self.ledger.node(&node.id)?;
        let (free, offers) = (account.free(), account.offers.clone());
        let verdict = if !need.place.nodes.is_empty() && !need.place.nodes.contains(&node.id) {
            "not among the nodes it names".into()
        } else if !node.state.takes_work() {
            let reason = node.state.reason().map(|r| format!(": {r}")).unwrap_or_default();
            format!("{}{reason}", node.state.as_str())
        } else if !need.size.fits(&offers) {
            format!("too small: offers {offers} in all")
        } else if account.overdrawn {
            format!("has granted {} and offers only {offers} now", account.allocated)
        } else if !need.size.fits(&free) {
            shortfall(need.size, &free)
        } else {
            "has the room".into()
        };
        Some(WhyNode { node: node.id.clone(), free, offers, verdict })
    }

    /// True when a pass would find a place for it now; the invariants say that nobody is left so.
    pub(crate) fn could_place(&self, need: Need<'_>) -> bool {
        fit::choose(&self.index, need).is_some()
    }
}

/// What is missing on a node that is large enough in all.
fn shortfall(need: &Resource, free: &Resource) -> String {
    let mut short = Vec::new();
    if need.memory > free.memory {
        short.push(format!("{} of memory short", need.memory.saturating_sub(free.memory)));
    }
    if let Some(cpus) = need.cpus.checked_sub(free.cpus).filter(|c| c.milli() > 0) {
        short.push(format!("{cpus} cpus short"));
    }
    for (name, n) in &need.extra {
        let have = free.extra.get(name).copied().unwrap_or(0);
        if *n > have {
            short.push(format!("{} {name} short", n - have));
        }
    }
    short.join(", ")
}
