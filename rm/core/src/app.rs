//! Application record and its state machine.
//!
//! The table of applications owns the records. This module never changes containers or nodes: it
//! returns the required actions as [`ApplicationAction`]s.
//!
//! ```text
//!            registered                 end(outcome)               empty
//!  Accepted ───────────────► Running ───────────────────► Finishing ─────────► Ended
//!     │                                                      ▲
//!     └──────────────────── end(outcome) ────────────────────┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, LaunchSpec, NodeId, QueuePath, RequestId, Resource,
    UnixMillis,
};

use crate::attempt;
use crate::container_set::ContainerSet;
use crate::event::{AppSubmission, ApplicationOutcome, MasterKind, MasterUpdate, UpdateKind};
use crate::explain::WaitReasonLog;
use crate::request::{ContainerRequest, GrantCounts, PendingRequest};
use crate::runs::AttemptHistory;
use crate::save::{SavedStage, SavedState};
use crate::sched::container_locations::ContainerLocations;
use crate::step_context::StepContext;
use crate::table::{RowPosition, SortedTable};

/// State of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationState {
    /// Saved durably; its master has not registered.
    Accepted,
    /// Its master has registered at least once.
    Running,
    /// Its containers are being stopped.
    Finishing {
        /// Outcome after its last container is gone.
        outcome: ApplicationOutcome,
    },
    /// Final state.
    Ended {
        /// Outcome.
        outcome: ApplicationOutcome,
    },
}

/// Input of the application state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationEvent {
    /// Its master registered.
    MasterThere,
    /// Its master finished, its attempts are used up, or a user killed it.
    End(ApplicationOutcome),
    /// Its last container is gone.
    Empty,
}

/// Action that follows a state change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationAction {
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
pub struct InvalidAppEvent {
    /// State before the event.
    pub state: ApplicationState,
    /// Rejected event.
    pub event: ApplicationEvent,
}

/// The only place where an application's state changes.
pub fn next_app_state(
    state: ApplicationState,
    event: ApplicationEvent,
    out: &mut Vec<ApplicationAction>,
) -> Result<ApplicationState, InvalidAppEvent> {
    match state {
        ApplicationState::Accepted => match event {
            ApplicationEvent::MasterThere => {
                out.push(ApplicationAction::Started);
                Ok(ApplicationState::Running)
            }
            ApplicationEvent::End(outcome) => Ok(wind_down(outcome, out)),
            ApplicationEvent::Empty => Err(InvalidAppEvent { state, event }),
        },
        ApplicationState::Running => match event {
            ApplicationEvent::MasterThere => Ok(state), // a later attempt, or the same one after a restart
            ApplicationEvent::End(outcome) => Ok(wind_down(outcome, out)),
            ApplicationEvent::Empty => Err(InvalidAppEvent { state, event }),
        },
        ApplicationState::Finishing { outcome } => match event {
            ApplicationEvent::MasterThere | ApplicationEvent::End(_) => Ok(state), // late: the end is decided
            ApplicationEvent::Empty => {
                out.push(ApplicationAction::Over);
                Ok(ApplicationState::Ended { outcome })
            }
        },
        ApplicationState::Ended { .. } => match event {
            // late events are allowed
            ApplicationEvent::MasterThere | ApplicationEvent::End(_) | ApplicationEvent::Empty => {
                Ok(state)
            }
        },
    }
}

fn wind_down(outcome: ApplicationOutcome, out: &mut Vec<ApplicationAction>) -> ApplicationState {
    out.push(ApplicationAction::WindDown);
    ApplicationState::Finishing { outcome }
}

impl ApplicationState {
    /// State name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            ApplicationState::Accepted => "accepted",
            ApplicationState::Running => "running",
            ApplicationState::Finishing { .. } => "finishing",
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Succeeded,
            } => "finished",
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Failed,
            } => "failed",
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Killed,
            } => "killed",
        }
    }
    /// True when the application is finishing or has ended.
    pub fn is_ending(self) -> bool {
        match self {
            ApplicationState::Accepted | ApplicationState::Running => false,
            ApplicationState::Finishing { .. } | ApplicationState::Ended { .. } => true,
        }
    }
    /// True when the application has ended.
    pub fn is_over(self) -> bool {
        match self {
            ApplicationState::Accepted
            | ApplicationState::Running
            | ApplicationState::Finishing { .. } => false,
            ApplicationState::Ended { .. } => true,
        }
    }
}

/// Source of an application's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationOrigin {
    /// Submitted in this incarnation of the resource manager.
    New,
    /// Loaded from the store: nodes may still run containers of it that they have not reported.
    Restored,
    /// Loaded from the store, and its master has registered: its nodes have reported all containers
    /// that the master knows.
    Registered,
}

impl ApplicationOrigin {
    /// The origin after a registration of the master.
    pub(crate) fn registered(self) -> Self {
        match self {
            ApplicationOrigin::New => ApplicationOrigin::New,
            ApplicationOrigin::Restored | ApplicationOrigin::Registered => {
                ApplicationOrigin::Registered
            }
        }
    }
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
pub struct ClusterApplication {
    /// Its id.
    pub id: AppId,
    /// Application as submitted.
    pub spec: Arc<AppSubmission>,
    /// Submission time.
    pub submitted: UnixMillis,
    /// Time of its end.
    pub ended: Option<UnixMillis>,
    /// End of its lifetime, on the wall clock.
    pub until: Option<UnixMillis>,
    /// State of the application.
    pub state: ApplicationState,
    /// Diagnostics about its end, for users.
    pub diagnostics: String,
    /// Number of the current attempt.
    pub attempt: u32,
    /// State of the current attempt.
    pub run: attempt::AttemptState,
    /// The latest attempts, the current one last.
    pub runs: AttemptHistory,
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
    pub requests: SortedTable<RequestId, PendingRequest>,
    /// Granted containers per request. A row is never removed, also when the request is withdrawn.
    pub tallies: SortedTable<RequestId, GrantCounts>,
    /// Its containers in the table of allocations.
    pub containers: ContainerSet,
    /// Nodes of the live containers of its requests; maintained from the first request that needs
    /// it.
    pub spots: Option<ContainerLocations>,
    /// Reasons why recent requests were not granted.
    pub undecided: WaitReasonLog,
    /// Updates that its master has not acknowledged.
    pub updates: UpdateQueue,
    /// User who submitted the application.
    pub(crate) user: Arc<str>,
    /// Source of this record.
    pub origin: ApplicationOrigin,
    /// Leaf queue.
    pub queue: QueuePath,
    /// Priority within its leaf; higher goes first.
    pub priority: i32,
    /// Request that is accepted when its first master is placed.
    pub(crate) first_request: Option<Box<ContainerRequest>>,
}

impl ClusterApplication {
    /// Creates an application with its first attempt.
    pub fn new(id: AppId, spec: Arc<AppSubmission>, submitted: UnixMillis) -> Self {
        let (run, master) = match &spec.master {
            MasterKind::Unmanaged => (attempt::AttemptState::Awaited, None),
            MasterKind::Managed {
                resource, launch, ..
            } => (
                attempt::AttemptState::Scheduled,
                Some(MasterSize {
                    resource: resource.clone(),
                    heap: launch.heap,
                }),
            ),
        };
        let (queue, priority) = (spec.queue.clone(), spec.priority);
        let user = spec.user.as_str().into();
        ClusterApplication {
            id,
            spec,
            submitted,
            ended: None,
            until: None,
            state: ApplicationState::Accepted,
            diagnostics: String::new(),
            attempt: 1,
            run,
            runs: AttemptHistory::new(),
            charged: 0,
            uncharged: 0,
            master,
            master_node: None,
            master_avoid: None,
            master_url: None,
            requests: SortedTable::default(),
            tallies: SortedTable::default(),
            containers: ContainerSet::default(),
            spots: None,
            undecided: WaitReasonLog::default(),
            updates: UpdateQueue::default(),
            user,
            origin: ApplicationOrigin::New,
            queue,
            priority,
            first_request: None,
        }
    }

    /// Restores an application from the state that was saved before a restart.
    pub fn restored(
        id: AppId,
        spec: Arc<AppSubmission>,
        submitted: UnixMillis,
        saved: SavedState,
    ) -> Self {
        let mut app = ClusterApplication::new(id, spec, submitted);
        let managed = app.is_managed();
        app.state = match saved.stage {
            SavedStage::Accepted => ApplicationState::Accepted,
            SavedStage::Running => ApplicationState::Running,
            SavedStage::Finishing(outcome) => ApplicationState::Finishing { outcome },
            SavedStage::Ended(outcome) => ApplicationState::Ended { outcome },
        };
        app.runs = AttemptHistory::restored(saved.runs, saved.attempt, saved.master.as_ref());
        app.run = match (app.state.is_ending(), managed, saved.master) {
            (true, _, _) => attempt::AttemptState::Over,
            (false, true, None) => attempt::AttemptState::Scheduled,
            (false, true, Some(container)) => attempt::AttemptState::Recovering {
                container: Some(container),
                found: false,
            },
            (false, false, _) => attempt::AttemptState::Recovering {
                container: None,
                found: false,
            },
        };
        if let (Some(size), Some(resource)) = (&mut app.master, saved.master_size) {
            *size = MasterSize {
                resource,
                heap: saved.master_heap,
            };
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
        app.origin = ApplicationOrigin::Restored;
        app
    }

    /// State to save for a restart.
    pub fn saved(&self) -> SavedState {
        SavedState {
            stage: match self.state {
                ApplicationState::Accepted => SavedStage::Accepted,
                ApplicationState::Running => SavedStage::Running,
                ApplicationState::Finishing { outcome } => SavedStage::Finishing(outcome),
                ApplicationState::Ended { outcome } => SavedStage::Ended(outcome),
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
            queue: Some(&self.queue)
                .filter(|queue| **queue != self.spec.queue)
                .cloned(),
            priority: Some(self.priority).filter(|priority| *priority != self.spec.priority),
            until: self.until,
            runs: self.runs.iter().cloned().collect(),
        }
    }

    /// True when the resource manager launches its master.
    pub fn is_managed(&self) -> bool {
        match self.spec.master {
            MasterKind::Managed { .. } => true,
            MasterKind::Unmanaged => false,
        }
    }

    /// Longest time from the start of the master's container to its registration; `None` for the
    /// heartbeat timeout.
    pub fn start_timeout(&self) -> Option<Duration> {
        match self.spec.master {
            MasterKind::Managed { start_timeout, .. } => start_timeout,
            MasterKind::Unmanaged => None,
        }
    }

    /// Id of the current attempt.
    pub fn attempt_id(&self) -> AttemptId {
        AttemptId {
            app: self.id.clone(),
            attempt: self.attempt,
        }
    }

    /// Launches of its master, of its requests, and of the request that is accepted with its first
    /// master.
    pub fn launches(&self) -> impl Iterator<Item = &Arc<LaunchSpec>> {
        let master = match &self.spec.master {
            MasterKind::Managed { launch, .. } => Some(launch),
            MasterKind::Unmanaged => None,
        };
        let first = self.first_request.as_deref().map(|ask| &ask.launch);
        let asked = self.requests.values().map(|asked| &asked.ask.launch);
        master.into_iter().chain(first).chain(asked)
    }

    /// Containers of all requests that are still to be granted.
    pub fn pending(&self) -> u32 {
        self.requests
            .values()
            .map(|asked| self.missing_of(asked))
            .fold(0, u32::saturating_add)
    }

    /// Containers of one request that are still to be granted.
    pub fn missing(&self, request: &RequestId) -> u32 {
        self.requests
            .get(request)
            .map_or(0, |asked| self.missing_of(asked))
    }

    /// Counts of a request, by row; `None` for a master.
    pub(crate) fn counts_at(&mut self, row: Option<RowPosition>) -> Option<&mut GrantCounts> {
        self.tallies.at_mut(row?)
    }

    /// Like [`ClusterApplication::missing`], for a request that the caller has looked up.
    pub(crate) fn missing_of(&self, asked: &PendingRequest) -> u32 {
        if asked.expired.is_some() || asked.ask.count == 0 {
            return 0;
        }
        asked.ask.count.saturating_sub(
            self.tallies
                .at(asked.counts)
                .map_or(0, GrantCounts::granted),
        )
    }

    /// Queues an update for its master, unless the application is ending.
    pub(crate) fn queue_update(&mut self, what: UpdateKind, ctx: &mut StepContext<'_>) {
        if !self.state.is_ending() {
            let cursor = self.updates.push(KeptUpdate::Other(Box::new(what.clone())));
            ctx.update(&self.id, MasterUpdate { cursor, what });
        }
    }

    /// Queues an update about a container whose record contains the whole content of the update
    /// until its acknowledgement.
    #[inline]
    pub(crate) fn queue_container_update(
        &mut self,
        kept: KeptUpdate,
        what: UpdateKind,
        ctx: &mut StepContext<'_>,
    ) {
        if !self.state.is_ending() {
            let cursor = self.updates.push(kept);
            ctx.update(&self.id, MasterUpdate { cursor, what });
        }
    }

    /// True when `container` runs the current attempt.
    pub fn is_current_master(&self, container: &ContainerId) -> bool {
        self.run.container() == Some(container)
    }
}

/// Update that is kept until its acknowledgement. The usual updates are read again from the record
/// of the container, which stays in the table until its end is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeptUpdate {
    /// The container in this row was granted, with its current size.
    Allocated(RowPosition),
    /// The program of the container in this row runs.
    Running(RowPosition),
    /// The container in this row ended.
    Exited(RowPosition),
    /// Any other update.
    Other(Box<UpdateKind>),
}

/// Updates that a master has not acknowledged, in order.
#[derive(Clone, Debug, Default)]
pub struct UpdateQueue {
    acked: u64,
    /// The first one has the cursor after `acked`; the cursors have no gaps.
    log: VecDeque<KeptUpdate>,
}

impl UpdateQueue {
    /// Appends an update and returns its cursor.
    pub(crate) fn push(&mut self, update: KeptUpdate) -> u64 {
        self.log.push_back(update);
        self.last()
    }
    /// Cursor of the latest update.
    pub fn last(&self) -> u64 {
        self.acked + self.log.len() as u64
    }
    /// Cursor of the latest acknowledged update.
    pub fn acked(&self) -> u64 {
        self.acked
    }
    /// Acknowledges the first update if `cursor` covers it.
    pub(crate) fn take_acked(&mut self, cursor: u64) -> Option<KeptUpdate> {
        if self.acked >= cursor {
            return None;
        }
        let done = self.log.pop_front()?;
        self.acked += 1;
        Some(done)
    }
    /// Reads the cursor and the latest update; see `Cluster::prefetch_containers`.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        self.acked
            ^ u64::from(
                self.log
                    .back()
                    .is_some_and(|kept| matches!(kept, KeptUpdate::Other(_))),
            )
    }
    /// Rows of the containers whose end an acknowledgement up to `cursor` covers.
    pub(crate) fn ended_until(&self, cursor: u64) -> impl Iterator<Item = RowPosition> {
        let count = usize::try_from(cursor.saturating_sub(self.acked)).unwrap_or(usize::MAX);
        let ended = |kept: &KeptUpdate| match kept {
            KeptUpdate::Exited(row) => Some(*row),
            KeptUpdate::Allocated(_) | KeptUpdate::Running(_) | KeptUpdate::Other(_) => None,
        };
        self.log.iter().take(count).filter_map(ended)
    }
    /// Kept updates after `cursor`, with their cursors.
    pub(crate) fn after(&self, cursor: u64) -> impl Iterator<Item = (u64, &KeptUpdate)> {
        let all = (self.acked + 1..).zip(&self.log);
        all.filter(move |(at, _)| *at > cursor)
    }
    /// Replaces the grant of a container, whose record is about to change, by its whole content.
    pub(crate) fn keep_grant(&mut self, row: RowPosition, what: impl Fn() -> UpdateKind) {
        for kept in &mut self.log {
            if *kept == KeptUpdate::Allocated(row) {
                *kept = KeptUpdate::Other(Box::new(what()));
            }
        }
    }
    /// True when the end of a container is not acknowledged.
    #[cfg(any(test, feature = "testkit"))]
    pub(crate) fn has_exit(&self, row: RowPosition) -> bool {
        self.log.contains(&KeptUpdate::Exited(row))
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

    const FAILED: ApplicationOutcome = ApplicationOutcome::Failed;

    #[test]
    fn each_state_accepts_its_events() {
        let (fin, end) = (
            ApplicationState::Finishing { outcome: FAILED },
            ApplicationState::Ended { outcome: FAILED },
        );
        let rows: [(
            ApplicationState,
            ApplicationEvent,
            Option<ApplicationState>,
            &[ApplicationAction],
        ); 12] = [
            (
                ApplicationState::Accepted,
                ApplicationEvent::MasterThere,
                Some(ApplicationState::Running),
                &[ApplicationAction::Started],
            ),
            (
                ApplicationState::Accepted,
                ApplicationEvent::End(FAILED),
                Some(fin),
                &[ApplicationAction::WindDown],
            ),
            (
                ApplicationState::Accepted,
                ApplicationEvent::Empty,
                None,
                &[],
            ),
            (
                ApplicationState::Running,
                ApplicationEvent::MasterThere,
                Some(ApplicationState::Running),
                &[],
            ),
            (
                ApplicationState::Running,
                ApplicationEvent::End(FAILED),
                Some(fin),
                &[ApplicationAction::WindDown],
            ),
            (
                ApplicationState::Running,
                ApplicationEvent::Empty,
                None,
                &[],
            ),
            (fin, ApplicationEvent::MasterThere, Some(fin), &[]),
            (
                fin,
                ApplicationEvent::End(ApplicationOutcome::Killed),
                Some(fin),
                &[],
            ),
            (
                fin,
                ApplicationEvent::Empty,
                Some(end),
                &[ApplicationAction::Over],
            ),
            (end, ApplicationEvent::MasterThere, Some(end), &[]),
            (
                end,
                ApplicationEvent::End(ApplicationOutcome::Killed),
                Some(end),
                &[],
            ),
            (end, ApplicationEvent::Empty, Some(end), &[]),
        ];
        for (state, event, next, acts) in rows {
            let mut out = Vec::new();
            let got = next_app_state(state, event, &mut out);
            assert_eq!(got.ok(), next, "{state:?} × {event:?}");
            assert_eq!(out, acts, "{state:?} × {event:?}");
        }
    }

    #[test]
    fn update_cursors_have_no_gaps_across_acknowledgements() {
        let mut updates = UpdateQueue::default();
        let push = |u: &mut UpdateQueue| u.push(KeptUpdate::Running(RowPosition::new(7)));
        assert_eq!((push(&mut updates), push(&mut updates)), (1, 2));
        assert!(updates.take_acked(1).is_some());
        assert!(updates.take_acked(1).is_none(), "it is acknowledged once");
        assert_eq!(push(&mut updates), 3);
        assert!(updates.take_acked(99).is_some() && updates.take_acked(99).is_some());
        assert_eq!(
            (updates.acked(), updates.last(), push(&mut updates)),
            (3, 3, 4)
        );
    }
}
