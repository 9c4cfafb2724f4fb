//! Reasons why a request waits or is infeasible, as sentences with names and numbers.
//!
//! This module reads the cluster and changes nothing. Short sentences come from the indexes; only
//! [`Cluster::why`] inspects every node.

mod infeasible;
pub(crate) mod place;
mod sentence_cache;
mod undecided;
mod wait_reason;

pub(crate) use sentence_cache::SentenceCache;
pub use wait_reason::{WaitReason, WaitReasonLog};

use std::time::Duration;

use headroom_types::{AppId, NodeId, RequestId, Resource, Tick};

use crate::app::ClusterApplication;
use crate::cluster::{Cluster, MAX_UNACKED};
use crate::event::RequestVerdict;
use crate::ledger::ContainerRole;
use crate::node::ClusterNode;
use crate::node_table::NodeTable;
use crate::phrase::{left_words, shortfall};
use crate::placement::{LocalityLevel, RelaxationPolicy};
use crate::queue::PlacementWaiter;
use crate::sched::constraint::misfit;
use crate::sched::fit::PlacementNeed;
use crate::sched::reservation::Reservation;
use crate::sched::{GrantBlock, grant_block};
use crate::timer::{TimerKey, TimerQueue};

/// Most nodes that are listed for one request.
const MAX_NODES: usize = 50;

/// Reason why a managed master waits, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterWait {
    /// The last one was not started, and the next attempt has a backoff.
    NextAttempt(String),
    /// Memory, a limit or a block.
    Room(String),
}

impl MasterWait {
    /// The sentence.
    pub fn into_sentence(self) -> String {
        match self {
            MasterWait::NextAttempt(sentence) | MasterWait::Room(sentence) => sentence,
        }
    }
}

/// Reasons why one request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitExplanation {
    /// The request.
    pub request: RequestId,
    /// Size of one container.
    pub asks: Resource,
    /// Containers that are still to be granted.
    pub missing: u32,
    /// Waiting time.
    pub waiting: Duration,
    /// Requests of the same leaf that are scheduled before it.
    pub ahead: usize,
    /// Summary of all reasons.
    pub sentence: String,
    /// Nodes, closest first; nodes that cannot be used at all come last.
    pub nodes: Vec<NodeWaitReason>,
}

/// Reason why a container is not placed on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWaitReason {
    /// The node.
    pub node: NodeId,
    /// Free resources of the node.
    pub free: Resource,
    /// Offered resources of the node.
    pub offers: Resource,
    /// The reason.
    pub verdict: String,
    /// True when no end of a container on the node would help: it takes no work, or does not match
    /// the placement rules.
    pub out: bool,
}

impl Cluster {
    /// Reasons why the requests of an application wait.
    pub fn why(&self, app: &AppId, now: Tick) -> Option<Vec<WaitExplanation>> {
        let app = self.apps.get(app)?;
        let waiting = app.requests.keys().filter(|r| app.missing(r) > 0);
        Some(
            waiting
                .filter_map(|request| self.why_request(app, request, now))
                .collect(),
        )
    }

    /// Reason why a request waits, as one sentence. `None` when it does not wait.
    pub fn sentence(
        &self,
        app: &ClusterApplication,
        request: &RequestId,
        now: Tick,
    ) -> Option<String> {
        if let Some(at) = app.requests.get(request)?.expired {
            let ago = now.since(at).as_secs();
            return Some(format!(
                "its deadline expired {ago} s ago; the missing containers are not granted any more"
            ));
        }
        let need = PlacementNeed::of(app, Some(request)).filter(|_| app.missing(request) > 0)?;
        Some(self.wait_sentence(app, Some(request), need, now))
    }

    /// Reason why a managed master waits for its container. `None` when it does not wait.
    pub fn master_wait(&self, app: &ClusterApplication, now: Tick) -> Option<MasterWait> {
        let not_started = app.runs.previous().and_then(|run| run.not_started());
        if let Some(at) = self.timers.of(&TimerKey::Relaunch(app.id.clone())) {
            let left = at.since(now).as_millis().div_ceil(1000);
            let why = not_started.unwrap_or("its master could not be started");
            return Some(MasterWait::NextAttempt(format!(
                "{why}; the next attempt starts in {left} s"
            )));
        }
        if !self.queue.contains(&app.id, None) {
            return None;
        }
        let need = PlacementNeed::of(app, None)?;
        let waits = self.wait_sentence(app, None, need, now);
        Some(MasterWait::Room(match not_started {
            Some(why) => format!("{waits}; the last one was {why}"),
            None => waits,
        }))
    }

    /// The sentence about an application for users: the reason of its end, or the reason why its
    /// master waits. Empty while the master runs.
    pub fn application_sentence(&self, app: &ClusterApplication, now: Tick) -> String {
        if !app.diagnostics.is_empty() {
            return app.diagnostics.clone();
        }
        match self.master_wait(app, now) {
            Some(MasterWait::NextAttempt(sentence)) => sentence,
            Some(MasterWait::Room(why)) => format!("its master waits: {why}"),
            None => String::new(),
        }
    }

    /// Block or limit, progress of preemption, or else the missing capacity, with notes on the
    /// queue.
    fn wait_sentence(
        &self,
        app: &ClusterApplication,
        request: Option<&RequestId>,
        need: PlacementNeed<'_>,
        now: Tick,
    ) -> String {
        let role = ContainerRole::of(request);
        let limited = || {
            self.queue
                .limit_sentence(app, role, need.size, self.ledger())
        };
        if let Some(sentence) = self.held_sentence(app, now).or_else(limited) {
            return sentence;
        }
        let waiter = PlacementWaiter::new(&app.id, request);
        let place = self
            .claim_sentence(&waiter, now)
            .unwrap_or_else(|| self.place_sentence(need, now));
        let loss = self
            .loss_sentence(&app.id)
            .map(|loss| format!("; {loss}"))
            .unwrap_or_default();
        let fill = self.queue.fill_sentence(&app.id, self.ledger());
        place + &fill.map(|fill| format!("; {fill}")).unwrap_or_default() + &loss
    }

    /// Verdict on an accepted request.
    pub(crate) fn verdict(&self, app: &AppId, request: &RequestId, now: Tick) -> RequestVerdict {
        let sentence = self
            .apps
            .get(app)
            .and_then(|app| self.sentence(app, request, now));
        sentence.map_or(RequestVerdict::Fits, |sentence| RequestVerdict::Waits {
            sentence: sentence.into(),
        })
    }

    /// Nodes for which an application waits after a restart. `None` when it does not wait for them.
    pub(crate) fn recovery_sentence(&self, app: &ClusterApplication, now: Tick) -> Option<String> {
        if grant_block(app, &self.nodes) != Some(GrantBlock::Recovery) {
            return None;
        }
        let recovery = self.nodes.recovery()?;
        let names: Vec<&str> = recovery
            .waiting
            .iter()
            .take(3)
            .map(NodeId::as_str)
            .collect();
        let more = recovery.waiting.len().saturating_sub(names.len());
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let left = recovery.until.since(now).as_secs_f64().ceil();
        let names = names.join(", ");
        Some(format!(
            "the resource manager has restarted and waits for {names}{more} to report containers, at most {left} s more"
        ))
    }

    fn held_sentence(&self, app: &ClusterApplication, now: Tick) -> Option<String> {
        match grant_block(app, &self.nodes)? {
            GrantBlock::Recovery => self.recovery_sentence(app, now),
            GrantBlock::Unacknowledged => Some(format!(
                "its master has {MAX_UNACKED} unacknowledged updates, and gets no containers until it acknowledges them"
            )),
        }
    }

    fn why_request(
        &self,
        app: &ClusterApplication,
        request: &RequestId,
        now: Tick,
    ) -> Option<WaitExplanation> {
        let asked = app.requests.get(request)?;
        let need = PlacementNeed::of(app, Some(request))?;
        Some(WaitExplanation {
            request: request.clone(),
            asks: asked.ask.resource.clone(),
            missing: app.missing(request),
            waiting: now.since(asked.waiting),
            ahead: app
                .requests
                .row_of(request)
                .map_or(0, |row| self.queue.ahead(&app.id, row, self.ledger())),
            sentence: self.sentence(app, request, now)?,
            nodes: self.why_nodes(need, now),
        })
    }

    fn why_nodes(&self, need: PlacementNeed<'_>, now: Tick) -> Vec<NodeWaitReason> {
        let members = self.nodes.values().filter(|n| n.state.is_member());
        let mut rows: Vec<NodeWaitReason> = members
            .filter_map(|n| self.why_node(n, need, now))
            .collect();
        rows.sort_by(|a, b| {
            (a.out, b.free.memory, b.free.cpus, &a.node).cmp(&(
                b.out,
                a.free.memory,
                a.free.cpus,
                &b.node,
            ))
        });
        rows.truncate(MAX_NODES);
        rows
    }

    fn why_node(
        &self,
        node: &ClusterNode,
        need: PlacementNeed<'_>,
        now: Tick,
    ) -> Option<NodeWaitReason> {
        let account = self.ledger().node(&node.id)?;
        let slot = self.nodes.slot_of(&node.id)?;
        let (free, offers) = (account.free(), account.offers.clone());
        let misfit = misfit(need.place, slot);
        let out = misfit.is_some() || !self.nodes.is_open(node);
        let verdict = if let Some(misfit) = misfit {
            misfit.to_string()
        } else if !self.nodes.is_open(node) {
            self.nodes.standing_words(node)
        } else if !need.size.fits(&offers) {
            format!("too small: offers {offers} in all")
        } else if account.overdrawn {
            format!(
                "has granted {} and offers only {offers} now{}",
                account.allocated,
                left_words(self.ledger().unattributed(&node.id))
            )
        } else if let Some(barred) = place::barred(self.nodes.index(), need, slot) {
            barred
        } else {
            self.of_room(node, need, &free, now)
        };
        Some(NodeWaitReason {
            node: node.id.clone(),
            free,
            offers,
            verdict,
            out,
        })
    }

    /// Missing resources or reservation of a node that matches the placement rules.
    fn of_room(
        &self,
        node: &ClusterNode,
        need: PlacementNeed<'_>,
        free: &Resource,
        now: Tick,
    ) -> String {
        let ix = self.nodes.index().ix(&node.id);
        let kept = ix.and_then(|ix| self.scheduler.reservations.on(ix));
        let own = |kept: &&Reservation| {
            need.of
                .is_some_and(|(app, request)| app.id == kept.app && *request == kept.request)
        };
        let others = kept.filter(|kept| {
            !own(kept)
                && !self
                    .nodes
                    .room_for_others(&node.id)
                    .is_some_and(|room| need.size.fits(room))
        });
        match (kept.filter(own), others) {
            (Some(_), _) => format!("reserved for this request; {}", shortfall(need.size, free)),
            (None, Some(kept)) => place::reserved_for(kept, now),
            (None, None) if !need.size.fits(free) => {
                let left = if need.size.memory > free.memory {
                    left_words(self.ledger().unattributed(&node.id))
                } else {
                    String::new()
                };
                shortfall(need.size, free) + &left
            }
            (None, None) => self
                .claimed_sentence(&node.id, need.size)
                .unwrap_or_else(|| delay_sentence(&self.timers, need, now)),
        }
    }
}

impl NodeTable {
    /// State of a node that takes no work, with its reason if there is one.
    fn standing_words(&self, node: &ClusterNode) -> String {
        let decided = || {
            self.mark(&node.id)
                .map(|mark| mark.reason.as_str())
                .or_else(|| self.cordon(&node.id))
        };
        let reason = node
            .state
            .reason()
            .or_else(decided)
            .filter(|reason| !reason.is_empty());
        let reason = reason.map(|r| format!(": {r}")).unwrap_or_default();
        format!("{}{reason}", self.displayed_state(node))
    }
}

/// Reason why a node with enough free resources is not used yet.
fn delay_sentence(timers: &TimerQueue, need: PlacementNeed<'_>, now: Tick) -> String {
    match need.of.filter(|_| {
        need.reach != LocalityLevel::Anywhere && need.place.relax != RelaxationPolicy::Never
    }) {
        Some((app, request)) => {
            format!(
                "has enough free resources; waits {} s more for a preferred place",
                place::wait_left(timers, &app.id, request, now)
            )
        }
        None => "has enough free resources".into(),
    }
}
