//! Application record and its state machine.
//!
//! The cluster owns applications. This module never changes containers or nodes: it returns the
//! required actions as [`Act`]s.
//!
//! ```text
//!            registered                 end(outcome)               empty
//!  Accepted ───────────────► Running ───────────────────► Finishing ─────────► Ended
//!     │                                                      ▲
//!     └──────────────────── end(outcome) ────────────────────┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use headroom_types::{AppId, AttemptId, Bytes, ContainerId, NodeId, QueuePath, RequestId, Resource, UnixMillis};

use crate::ask::{Request, Tally};
use crate::attempt;
use crate::cluster::Ctx;
use crate::event::{Master, NewApp, Outcome, Update, UpdateKind};
use crate::explain::Ring;
use crate::holding::Holding;
use crate::runs::Runs;
use crate::save::{SavedStage, SavedState};
use crate::sched::locality::Whereabouts;
use crate::table::Sorted;

/// State of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Saved durably; its master has not registered.
    Accepted,
    /// Its master has registered at least once.
    Running,
    /// Its containers are being stopped.
    Finishing {
        /// Outcome after its last container is gone.
        outcome: Outcome,
    },
    /// Final state.
    Ended {
        /// Outcome.
        outcome: Outcome,
    },
}

/// Input of the application state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its master registered.
    MasterThere,
    /// Its master finished, its attempts are used up, or a user killed it.
    End(Outcome),
    /// Its last container is gone.
    Empty,
}

/// Action that follows a state change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Its master registered for the first time.
    Started,
    /// Drop its requests and stop its containers.
    WindDown,
    /// The application has ended.
    Over,
}

/// Error for an event that is not allowed in a state; the state does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("application in state {state:?} cannot take {event:?}")]
pub struct Illegal {
    /// State before the event.
    pub state: State,
    /// Rejected event.
    pub event: Event,
}

/// The only place where an application's state changes.
pub fn on(state: State, event: Event, out: &mut Vec<Act>) -> Result<State, Illegal> {
    match state {
        State::Accepted => match event {
            Event::MasterThere => {
                out.push(Act::Started);
                Ok(State::Running)
            }
            Event::End(outcome) => Ok(wind_down(outcome, out)),
            Event::Empty => Err(Illegal { state, event }),
        },
        State::Running => match event {
            Event::MasterThere => Ok(state), // a later attempt, or the same one after a restart
            Event::End(outcome) => Ok(wind_down(outcome, out)),
            Event::Empty => Err(Illegal { state, event }),
        },
        State::Finishing { outcome } => match event {
            Event::MasterThere | Event::End(_) => Ok(state), // late: the end is decided
            Event::Empty => {
                out.push(Act::Over);
                Ok(State::Ended { outcome })
            }
        },
        State::Ended { .. } => match event {
            // late events are allowed
            Event::MasterThere | Event::End(_) | Event::Empty => Ok(state),
        },
    }
}

fn wind_down(outcome: Outcome, out: &mut Vec<Act>) -> State {
    out.push(Act::WindDown);
    State::Finishing { outcome }
}

impl State {
    /// State name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Accepted => "accepted",
            State::Running => "running",
            State::Finishing { .. } => "finishing",
            State::Ended { outcome: Outcome::Succeeded } => "finished",
            State::Ended { outcome: Outcome::Failed } => "failed",
            State::Ended { outcome: Outcome::Killed } => "killed",
        }
    }
    /// True when the application is finishing or has ended.
    pub fn is_ending(self) -> bool {
        match self {
            State::Accepted | State::Running => false,
            State::Finishing { .. } | State::Ended { .. } => true,
        }
    }
    /// True when the application has ended.
    pub fn is_over(self) -> bool {
        match self {
            State::Accepted | State::Running | State::Finishing { .. } => false,
            State::Ended { .. } => true,
        }
    }
}

/// Source of an application's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Submitted in this incarnation of the resource manager.
    New,
    /// Loaded from the store: nodes may still run containers of it that they have not reported.
    Restored,
}

/// Size of a master; it grows after a memory failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterSize {
    /// Size of its container.
    pub resource: Resource,
    /// Heap budget. Bytes.
    pub heap: Option<Bytes>,
}

/// One application.
#[derive(Clone, Debug)]
pub struct App {
    /// Its id.
    pub id: AppId,
    /// Application as submitted.
    pub spec: Arc<NewApp>,
    /// Submission time.
    pub submitted: UnixMillis,
    /// Time of its end.
    pub ended: Option<UnixMillis>,
    /// End of its lifetime, on the wall clock.
    pub until: Option<UnixMillis>,
    /// State of the application.
    pub state: State,
    /// Diagnostics about its end, for users.
    pub diagnostics: String,
    /// Number of the current attempt.
    pub attempt: u32,
    /// State of the current attempt.
    pub run: attempt::State,
    /// The latest attempts, the current one last.
    pub runs: Runs,
    /// Failed attempts that count against `max_attempts`.
    pub charged: u32,
    /// Failed attempts that are not charged.
    pub uncharged: u32,
    /// Size of a managed master; `None` when the master is unmanaged.
    pub master: Option<MasterSize>,
    /// Node of the latest attempt; the next attempt starts there if possible.
    pub master_node: Option<NodeId>,
    /// Node that the next attempt avoids if possible.
    pub master_avoid: Option<NodeId>,
    /// URL where its master listens for executors.
    pub master_url: Option<String>,
    /// Its container requests.
    pub requests: Sorted<RequestId, Request>,
    /// Granted containers per request; kept after a request is withdrawn.
    pub tallies: Sorted<RequestId, Tally>,
    /// Its containers in the cluster's table.
    pub containers: Holding,
    /// Nodes of the live containers of its requests; maintained from the first request that needs
    /// it.
    pub spots: Option<Whereabouts>,
    /// Reasons why recent requests were not granted.
    pub undecided: Ring,
    /// Updates that its master has not acknowledged.
    pub updates: Updates,
    /// User who submitted the application.
    pub(crate) user: Arc<str>,
    /// Source of this record.
    pub origin: Origin,
    /// Leaf queue.
    pub queue: QueuePath,
    /// Priority within its leaf; higher goes first.
    pub priority: i32,
}

impl App {
    /// Creates an application with its first attempt.
    pub fn new(id: AppId, spec: Arc<NewApp>, submitted: UnixMillis) -> Self {
        let (run, master) = match &spec.master {
            Master::Unmanaged => (attempt::State::Awaited, None),
            Master::Managed { resource, launch, .. } => {
                (attempt::State::Scheduled, Some(MasterSize { resource: resource.clone(), heap: launch.heap }))
            }
        };
        let (queue, priority) = (spec.queue.clone(), spec.priority);
        let user = spec.user.as_str().into();
        App {
            id,
            spec,
            submitted,
            ended: None,
            until: None,
            state: State::Accepted,
            diagnostics: String::new(),
            attempt: 1,
            run,
            runs: Runs::new(),
            charged: 0,
            uncharged: 0,
            master,
            master_node: None,
            master_avoid: None,
            master_url: None,
            requests: Sorted::default(),
            tallies: Sorted::default(),
            containers: Holding::default(),
            spots: None,
            undecided: Ring::default(),
            updates: Updates::default(),
            user,
            origin: Origin::New,
            queue,
            priority,
        }
    }

    /// Restores an application from the state that was saved before a restart.
    pub fn restored(id: AppId, spec: Arc<NewApp>, submitted: UnixMillis, saved: SavedState) -> Self {
        let mut app = App::new(id, spec, submitted);
        let managed = app.is_managed();
        app.state = match saved.stage {
            SavedStage::Accepted => State::Accepted,
            SavedStage::Running => State::Running,
            SavedStage::Finishing(outcome) => State::Finishing { outcome },
            SavedStage::Ended(outcome) => State::Ended { outcome },
        };
        app.runs = Runs::restored(saved.runs, saved.attempt, saved.master.as_ref());
        app.run = match (app.state.is_ending(), managed, saved.master) {
            (true, _, _) => attempt::State::Over,
            (false, true, None) => attempt::State::Scheduled,
            (false, true, Some(container)) => attempt::State::Recovering { container: Some(container), found: false },
            (false, false, _) => attempt::State::Recovering { container: None, found: false },
        };
        if let (Some(size), Some(resource)) = (&mut app.master, saved.master_size) {
            *size = MasterSize { resource, heap: saved.master_heap };
        }
        app.diagnostics = saved.diagnostics;
        app.attempt = saved.attempt;
        app.charged = saved.charged;
        app.uncharged = saved.uncharged;
        app.master_node = saved.master_node;
        app.ended = saved.ended;
        app.until = saved.until;
        app.queue = saved.queue.unwrap_or(app.queue);
        app.priority = saved.priority.unwrap_or(app.priority);
        app.origin = Origin::Restored;
        app
    }

    /// State to save for a restart.
    pub fn saved(&self) -> SavedState {
        SavedState {
            stage: match self.state {
                State::Accepted => SavedStage::Accepted,
                State::Running => SavedStage::Running,
                State::Finishing { outcome } => SavedStage::Finishing(outcome),
                State::Ended { outcome } => SavedStage::Ended(outcome),
            },
            diagnostics: self.diagnostics.clone(),
            attempt: self.attempt,
            charged: self.charged,
            uncharged: self.uncharged,
            master: self.run.container().cloned(),
            master_node: self.master_node.clone(),
            master_size: self.master.as_ref().map(|m| m.resource.clone()),
            master_heap: self.master.as_ref().and_then(|m| m.heap),
            ended: self.ended,
            queue: Some(&self.queue).filter(|queue| **queue != self.spec.queue).cloned(),
            priority: Some(self.priority).filter(|priority| *priority != self.spec.priority),
            until: self.until,
            runs: self.runs.iter().cloned().collect(),
        }
    }

    /// True when the resource manager launches its master.
    pub fn is_managed(&self) -> bool {
        match self.spec.master {
            Master::Managed { .. } => true,
            Master::Unmanaged => false,
        }
    }

    /// Id of the current attempt.
    pub fn attempt_id(&self) -> AttemptId {
        AttemptId { app: self.id.clone(), attempt: self.attempt }
    }

    /// Containers of all requests that are still to be granted.
    pub fn pending(&self) -> u32 {
        self.requests.keys().map(|r| self.missing(r)).fold(0, u32::saturating_add)
    }

    /// Containers of one request that are still to be granted.
    pub fn missing(&self, request: &RequestId) -> u32 {
        self.requests.get(request).map_or(0, |asked| self.missing_of(request, asked))
    }

    /// Like [`App::missing`], for a request that the caller has looked up.
    pub(crate) fn missing_of(&self, request: &RequestId, asked: &Request) -> u32 {
        if asked.expired.is_some() || asked.ask.count == 0 {
            return 0;
        }
        asked.ask.count.saturating_sub(self.tallies.get(request).map_or(0, Tally::granted))
    }

    /// Queues an update for its master, unless the application is ending.
    pub(crate) fn tell(&mut self, what: UpdateKind, ctx: &mut Ctx<'_>) {
        if !self.state.is_ending() {
            ctx.update(&self.id, self.updates.push(what));
        }
    }

    /// True when `container` runs the current attempt.
    pub fn is_current_master(&self, container: &ContainerId) -> bool {
        self.run.container() == Some(container)
    }
}

/// Updates that a master has not acknowledged, in order.
#[derive(Clone, Debug, Default)]
pub struct Updates {
    acked: u64,
    log: VecDeque<Update>,
}

impl Updates {
    /// Appends an update and returns it with its cursor.
    pub fn push(&mut self, what: UpdateKind) -> Update {
        let update = Update { cursor: self.last() + 1, what };
        self.log.push_back(update.clone());
        update
    }
    /// Cursor of the latest update.
    pub fn last(&self) -> u64 {
        self.log.back().map_or(self.acked, |u| u.cursor)
    }
    /// Cursor of the latest acknowledged update.
    pub fn acked(&self) -> u64 {
        self.acked
    }
    /// Acknowledges all updates up to `cursor` and returns them. A cursor beyond the latest update
    /// counts as the latest.
    pub fn ack(&mut self, cursor: u64) -> Vec<Update> {
        std::iter::from_fn(|| self.take_acked(cursor)).collect()
    }
    /// Acknowledges the first update if `cursor` covers it.
    pub(crate) fn take_acked(&mut self, cursor: u64) -> Option<Update> {
        let done = self.log.pop_front_if(|first| first.cursor <= cursor)?;
        self.acked = done.cursor;
        Some(done)
    }
    /// Kept updates after `cursor`.
    pub fn after(&self, cursor: u64) -> impl Iterator<Item = &Update> {
        self.log.iter().filter(move |u| u.cursor > cursor)
    }
    /// Number of kept updates.
    pub fn len(&self) -> usize {
        self.log.len()
    }
    /// True when all are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Outcome = Outcome::Failed;

    #[test]
    fn every_cell() {
        let (fin, end) = (State::Finishing { outcome: FAILED }, State::Ended { outcome: FAILED });
        let rows: [(State, Event, Option<State>, &[Act]); 12] = [
            (State::Accepted, Event::MasterThere, Some(State::Running), &[Act::Started]),
            (State::Accepted, Event::End(FAILED), Some(fin), &[Act::WindDown]),
            (State::Accepted, Event::Empty, None, &[]),
            (State::Running, Event::MasterThere, Some(State::Running), &[]),
            (State::Running, Event::End(FAILED), Some(fin), &[Act::WindDown]),
            (State::Running, Event::Empty, None, &[]),
            (fin, Event::MasterThere, Some(fin), &[]),
            (fin, Event::End(Outcome::Killed), Some(fin), &[]),
            (fin, Event::Empty, Some(end), &[Act::Over]),
            (end, Event::MasterThere, Some(end), &[]),
            (end, Event::End(Outcome::Killed), Some(end), &[]),
            (end, Event::Empty, Some(end), &[]),
        ];
        for (state, event, next, acts) in rows {
            let mut out = Vec::new();
            let got = on(state, event, &mut out);
            assert_eq!(got.ok(), next, "{state:?} × {event:?}");
            assert_eq!(out, acts, "{state:?} × {event:?}");
        }
    }

    #[test]
    fn updates_count_without_gaps_over_acknowledgements() {
        let mut updates = Updates::default();
        let container = "job.1.e1.c1".parse::<ContainerId>().expect("id");
        let push = |u: &mut Updates| u.push(UpdateKind::Running { container: container.clone() }).cursor;
        assert_eq!((push(&mut updates), push(&mut updates)), (1, 2));
        assert_eq!(updates.ack(1).len(), 1);
        assert_eq!(updates.ack(1).len(), 0, "acknowledging twice changes nothing");
        assert_eq!(push(&mut updates), 3);
        assert_eq!(updates.ack(99).len(), 2);
        assert_eq!((updates.acked(), updates.last(), push(&mut updates)), (3, 3, 4));
    }
}
