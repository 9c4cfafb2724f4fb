//! Calls of masters: register, heartbeat, request, withdraw and finish.

use std::collections::BTreeSet;

use headroom_types::{AppId, AttemptId, Epoch, NodeId, Reason, RequestId, Resource, StopCause};

use crate::app::ClusterApplication;
use crate::attempt;
use crate::cluster::{Cluster, MAX_REQUESTS, PendingReply, PendingVerdict};
use crate::event::{
    ApplicationOutcome, CallAnswer, CallRefusal, DryRun, FinalRows, LogSeverity, MasterHeartbeat,
    RequestVerdict,
};
use crate::queue::QueueNumber;
use crate::request::{ContainerRequest, CountAccuracy, PendingRequest};
use crate::sched::QueueAttempt;
use crate::sched::locality::looks_around;
use crate::step_context::StepContext;
use crate::table::RowPosition;

impl Cluster {
    pub(crate) fn register_master(
        &mut self,
        attempt: &AttemptId,
        (url, nodes): (Option<String>, Option<&BTreeSet<NodeId>>),
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let app = self.apps.live(&attempt.app)?;
        current(app, attempt)?;
        // The answer lists all live containers, and the master treats every other container as
        // lost; so the list must have all that the master knows.
        if let Some(sentence) = self.recovery_sentence(app, ctx.now)
            && !self.is_complete(app, nodes)
        {
            return Err(CallRefusal::Recovering(sentence));
        }
        match app.run {
            attempt::AttemptState::Scheduled | attempt::AttemptState::Over => {
                return Err(CallRefusal::NotLaunched(attempt.clone()));
            }
            attempt::AttemptState::Launched { .. }
            | attempt::AttemptState::Awaited
            | attempt::AttemptState::Registered { .. }
            | attempt::AttemptState::Recovering { .. } => {}
        }
        self.attempt_event(&attempt.app, attempt::AttemptEvent::Registered, ctx);
        self.expect_master(&attempt.app, ctx.now);
        if let Some(app) = self.apps.get_mut(&attempt.app) {
            app.master_url = url;
            app.origin = app.origin.registered();
        }
        if self
            .queue
            .leaf_of(&attempt.app)
            .is_some_and(|leaf| !self.queue.is_full(leaf))
        {
            self.queue.run(&attempt.app);
        }
        let largest = self
            .nodes
            .largest()
            .map(|(_, largest)| largest.clone())
            .unwrap_or_default();
        let app = self.apps.live(&attempt.app)?;
        Ok(CallAnswer::Master {
            largest,
            containers: self.allocations.granted(app),
            cursor: app.updates.acked(),
        })
    }

    /// Processes a master's heartbeat. The acknowledgement is processed first, because the requests
    /// depend on its counts.
    pub(crate) fn sync(
        &mut self,
        sync: MasterHeartbeat,
        ctx: &mut StepContext<'_>,
    ) -> Result<PendingReply, CallRefusal> {
        let id = sync.attempt.app.clone();
        let app = self.apps.known(&id)?;
        if app.state.is_ending() {
            let late = || RequestVerdict::Waits {
                sentence: format!("{id} is {}", app.state.as_str()).into(),
            };
            let verdicts = sync
                .asks
                .into_iter()
                .map(|ask| (ask.request, late()))
                .collect();
            return Ok(PendingReply::Ready(CallAnswer::Synced {
                verdicts,
                stop: true,
            }));
        }
        check_heartbeat(self.epoch, app, &sync)?;
        // a heartbeat that a later one has overtaken contains older counts
        let accuracy = if sync.ack >= app.updates.acked() {
            CountAccuracy::Exactly
        } else {
            CountAccuracy::AtLeast
        };
        self.expect_master(&id, ctx.now);
        self.ack_updates(&id, sync.ack, ctx);
        // A later heartbeat takes precedence for the requests that it knew. New requests of this
        // one are accepted, because the master has no answer to them.
        let holds = |app: Option<&ClusterApplication>, request: &RequestId| {
            accuracy == CountAccuracy::AtLeast
                && app.is_some_and(|app| app.requests.contains_key(request))
        };
        if accuracy == CountAccuracy::Exactly {
            sync.withdraw
                .iter()
                .for_each(|request| self.drop_request(&id, request));
        }
        for container in &sync.release {
            if self
                .allocations
                .get(container)
                .is_some_and(|c| c.id.app == id && c.request.is_some())
            {
                self.stop(container, StopCause::Asked, ctx);
            }
        }
        let Some(home) = self.apps.row_of(&id) else {
            return Err(CallRefusal::NoSuchApp(id));
        };
        self.prefetch_requests(home, &sync.asks);
        let mut verdicts = Vec::with_capacity(sync.asks.len());
        for ask in sync.asks {
            let request = ask.request.clone();
            let verdict = if holds(self.apps.at(home), &request) {
                let app = self.apps.at(home);
                let row = app.and_then(|app| app.requests.row_of(&request));
                let fits = PendingVerdict::Known(RequestVerdict::Fits);
                row.map_or(fits, PendingVerdict::Row)
            } else {
                self.take_ask(home, ask, accuracy, ctx)?
            };
            verdicts.push((request, verdict));
        }
        Ok(PendingReply::Verdicts(home, verdicts))
    }

    /// Reads the records of these requests; see [`Cluster::prefetch_containers`].
    fn prefetch_requests(&self, home: RowPosition, asks: &[ContainerRequest]) {
        let Some(app) = self.apps.at(home) else {
            return;
        };
        let touch = |ask: &ContainerRequest| {
            let asked = app.requests.get(&ask.request)?;
            let counts = app.tallies.at(asked.counts)?;
            Some(asked.arrival ^ asked.served ^ u64::from(asked.ask.count ^ counts.live))
        };
        let all = asks.iter().filter_map(touch);
        std::hint::black_box(all.fold(0, |all, one| all ^ one));
    }

    /// Whether all containers are reported that the master of a restored application knows: on
    /// `nodes`, and its own.
    fn is_complete(&self, app: &ClusterApplication, nodes: Option<&BTreeSet<NodeId>>) -> bool {
        let Some((nodes, recovery)) = nodes.zip(self.nodes.recovery()) else {
            return false;
        };
        let masters = self.allocations.in_order(&app.containers);
        let is_found = !app.is_managed() || masters.into_iter().any(|c| c.request.is_none());
        is_found && nodes.is_disjoint(&recovery.waiting)
    }

    pub(crate) fn ask(
        &mut self,
        id: &AppId,
        ask: ContainerRequest,
        how: DryRun,
        ctx: &mut StepContext<'_>,
    ) -> Result<PendingReply, CallRefusal> {
        let app = self.apps.live(id)?;
        if !app.run.is_registered() {
            return Err(CallRefusal::MasterNotRegistered(id.clone()));
        }
        match how {
            DryRun::Really => {}
            DryRun::DryRun => return self.dry_run_request(id, ask, ctx).map(PendingReply::Ready),
        }
        let Some(home) = self.apps.row_of(id) else {
            return Err(CallRefusal::NoSuchApp(id.clone()));
        };
        match self.take_ask(home, ask, CountAccuracy::AtLeast, ctx)? {
            PendingVerdict::Known(RequestVerdict::Never { sentence, largest }) => {
                Err(CallRefusal::NeverFits { sentence, largest })
            }
            verdict @ (PendingVerdict::Known(
                RequestVerdict::Fits | RequestVerdict::Waits { .. },
            )
            | PendingVerdict::Row(_)) => Ok(PendingReply::Verdict(home, verdict)),
        }
    }

    /// Dry run of a request: accepts and places it in a copy of the cluster, which is then dropped.
    fn dry_run_request(
        &self,
        id: &AppId,
        ask: ContainerRequest,
        ctx: &StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let (mut trial, mut out) = (self.clone(), Vec::new());
        let mut ctx = StepContext {
            now: ctx.now,
            wall: ctx.wall,
            out: &mut out,
        };
        let request = ask.request.clone();
        let Some(home) = trial.apps.row_of(id) else {
            return Err(CallRefusal::NoSuchApp(id.clone()));
        };
        let verdict = match trial.take_ask(home, ask, CountAccuracy::AtLeast, &mut ctx)? {
            PendingVerdict::Known(verdict) => verdict,
            PendingVerdict::Row(_) => {
                trial.schedule(&mut ctx);
                trial.verdict(id, &request, ctx.now)
            }
        };
        Ok(CallAnswer::Asked { verdict })
    }

    pub(crate) fn withdraw(
        &mut self,
        id: &AppId,
        request: &RequestId,
    ) -> Result<CallAnswer, CallRefusal> {
        let app = self.apps.known(id)?;
        if !app.requests.contains_key(request) {
            return Err(CallRefusal::NoSuchRequest {
                app: id.clone(),
                request: request.clone(),
            });
        }
        self.drop_request(id, request);
        Ok(CallAnswer::Done)
    }

    pub(crate) fn finish(
        &mut self,
        attempt: &AttemptId,
        outcome: ApplicationOutcome,
        (diagnostics, rows): (String, FinalRows),
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let id = &attempt.app;
        let app = self.apps.known_mut(id)?;
        current(app, attempt)?;
        if app.state.is_ending() {
            return Ok(CallAnswer::Done);
        }
        // An earlier incarnation received the other rows; the master reports all of them when it has
        // registered.
        if rows == FinalRows::Changed && !app.run.is_registered() {
            return Err(CallRefusal::MasterNotRegistered(id.clone()));
        }
        app.diagnostics = diagnostics;
        self.end_app(id, outcome, ctx);
        Ok(CallAnswer::Done)
    }

    /// The reason why a request can never be granted, on any node or in its leaf, with the largest
    /// possible container. `None` if it can be granted.
    pub(crate) fn never_granted(
        &mut self,
        leaf: Option<QueueNumber>,
        ask: &ContainerRequest,
    ) -> Option<(String, Resource)> {
        self.nodes
            .never_fits(ask)
            .or_else(|| self.never_in_queue(leaf?, &ask.resource))
    }

    /// The reason why a container can never be granted in a leaf, with the largest possible one.
    pub(crate) fn never_in_queue(
        &self,
        leaf: QueueNumber,
        size: &Resource,
    ) -> Option<(String, Resource)> {
        let has_all_nodes = self.nodes.has_all_nodes();
        self.queue
            .never_in_queue(leaf, size, self.ledger(), has_all_nodes)
    }

    /// Accepts the request that came with the submission. Its containers start along with the
    /// master, which takes them over when it registers. If it can never be granted, the master
    /// receives the reason when it sends the request itself.
    pub(crate) fn take_first_request(&mut self, home: RowPosition, ctx: &mut StepContext<'_>) {
        let first = self
            .apps
            .at_mut(home)
            .and_then(|app| app.first_request.take());
        if let Some(ask) = first
            && let Err(refusal) = self.take_ask(home, *ask, CountAccuracy::AtLeast, ctx)
        {
            ctx.illegal(format!("a first request is refused: {refusal}"));
        }
    }

    /// Accepts a request. A known verdict means that it was not accepted.
    fn take_ask(
        &mut self,
        home: RowPosition,
        ask: ContainerRequest,
        accuracy: CountAccuracy,
        ctx: &mut StepContext<'_>,
    ) -> Result<PendingVerdict, CallRefusal> {
        let Some(app) = self.apps.at(home) else {
            return Ok(PendingVerdict::Known(RequestVerdict::Fits));
        };
        let leaf = self.queue.leaf_of(&app.id);
        let never = self.never_granted(leaf, &ask);
        let Some(app) = self.apps.at_mut(home) else {
            return Ok(PendingVerdict::Known(RequestVerdict::Fits));
        };
        if let Some((sentence, largest)) = never {
            let message = format!("{}: {sentence}", ask.request);
            let reason = Reason::RequestRefused;
            ctx.log_app(LogSeverity::Warning, reason, &app.id, message);
            let verdict = RequestVerdict::Never { sentence, largest };
            return Ok(PendingVerdict::Known(verdict));
        }
        let Some(row) = app.requests.row_of(&ask.request) else {
            return self.take_new_ask(home, ask, accuracy, ctx);
        };
        let ClusterApplication {
            requests, tallies, ..
        } = app;
        let Some(known) = requests.at_mut(row) else {
            return Ok(PendingVerdict::Row(row));
        };
        let granted = tallies.at_mut(known.counts).map_or(0, |counts| {
            counts.apply_reported_ends(ask.ended, accuracy);
            counts.granted()
        });
        let idle = known.expired.is_some() || known.ask.count <= granted;
        let (placed, deadline) = (
            known.ask.place != ask.place,
            known.ask.deadline != ask.deadline,
        );
        let same =
            !placed && (known.ask.priority, &known.ask.resource) == (ask.priority, &ask.resource);
        // without a deadline before and now, there is no timer
        let timed = deadline || ask.deadline.is_some();
        known.ask = ask;
        if same && !idle && !deadline {
            // only the count has changed: the request keeps its position
            self.requeue_at(home, row, QueueAttempt::IfNew);
            return Ok(PendingVerdict::Row(row));
        }
        if idle {
            self.want_again(home, row, ctx.now);
        } else if placed {
            self.begin_wait(home, row, ctx.now);
        }
        if timed && (idle || deadline) {
            self.arm_deadline(home, row);
        }
        self.try_ask(home, row);
        Ok(PendingVerdict::Row(row))
    }

    /// Accepts a request whose id is new.
    fn take_new_ask(
        &mut self,
        home: RowPosition,
        ask: ContainerRequest,
        accuracy: CountAccuracy,
        ctx: &mut StepContext<'_>,
    ) -> Result<PendingVerdict, CallRefusal> {
        let Some(app) = self.apps.at_mut(home) else {
            return Ok(PendingVerdict::Known(RequestVerdict::Fits));
        };
        if app.requests.len() >= MAX_REQUESTS {
            return Err(CallRefusal::TooMany {
                what: format!("requests of {}", app.id),
                most: MAX_REQUESTS,
            });
        }
        let request = ask.request.clone();
        let counts = app.tallies.row_or_default(&request);
        if let Some(counts) = app.counts_at(Some(counts)) {
            counts.apply_reported_ends(ask.ended, accuracy);
        }
        let arrival = self.queue.next_arrival();
        let message = format!("{request}: {} × {}", ask.count, ask.resource);
        let reason = Reason::RequestCreated;
        ctx.log_app(LogSeverity::Normal, reason, &app.id, message);
        let asked = PendingRequest::new(ask, counts, arrival, ctx.now);
        let row = app.requests.add(request, asked);
        self.begin_wait(home, row, ctx.now);
        self.arm_deadline(home, row);
        self.try_ask(home, row);
        Ok(PendingVerdict::Row(row))
    }

    /// Updates the placement data of an accepted request, and lets the next pass try it.
    fn try_ask(&mut self, home: RowPosition, row: RowPosition) {
        let Some(app) = self.apps.at(home) else {
            return;
        };
        let asked = app.requests.entry_at(row);
        if let Some((request, asked)) = asked
            && (app.spots.is_some() || looks_around(&asked.ask.place))
        {
            let (app, request) = (app.id.clone(), request.clone());
            self.place_changed(&app, &request);
        }
        self.requeue_at(home, row, QueueAttempt::Always);
    }

    fn drop_request(&mut self, id: &AppId, request: &RequestId) {
        if let Some(app) = self.apps.get_mut(id)
            && let Some(row) = app.requests.row_of(request)
        {
            self.queue.remove(id, Some(row));
            app.requests.remove(request);
        }
        self.place_changed(id, request);
        self.scheduler.reservations.mark_request_dirty(id, request);
    }
}

fn current(app: &ClusterApplication, attempt: &AttemptId) -> Result<(), CallRefusal> {
    if app.attempt != attempt.attempt {
        return Err(CallRefusal::StaleAttempt {
            given: attempt.clone(),
            current: app.attempt,
        });
    }
    Ok(())
}

/// Checks a heartbeat of a live application before any part of it is applied.
fn check_heartbeat(
    epoch: Epoch,
    app: &ClusterApplication,
    sync: &MasterHeartbeat,
) -> Result<(), CallRefusal> {
    if sync.epoch != epoch {
        return Err(CallRefusal::StaleEpoch {
            given: sync.epoch,
            current: epoch,
        });
    }
    current(app, &sync.attempt)?;
    if !app.run.is_registered() {
        return Err(CallRefusal::MasterNotRegistered(app.id.clone()));
    }
    let fresh = || {
        sync.asks
            .iter()
            .filter(|ask| !app.requests.contains_key(&ask.request))
            .count()
    };
    if app.requests.len() + sync.asks.len() > MAX_REQUESTS
        && app.requests.len() + fresh() > MAX_REQUESTS
    {
        return Err(CallRefusal::TooMany {
            what: format!("requests of {}", app.id),
            most: MAX_REQUESTS,
        });
    }
    Ok(())
}
