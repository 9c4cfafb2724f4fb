//! The connection to the resource manager: sequential calls, and the stream of updates.
//!
//! Three tasks only move messages. The loop decides on calls and their times. A failed call is
//! reported to the loop, which retries it. The stream resumes at its cursor after an interruption.

use std::time::Duration;

use headroom_client::retry::Backoff;
use headroom_client::{CallFailureKind, Client, ClientError, DryRunMode};
use headroom_types::{AppId, ContainerId, Epoch, Resource};
use headroom_wire::v1::application_master::{
    ApplicationUpdate, FinishApp, MasterRegistered, MasterSync, MasterSyncReply, RegisterMaster,
};
use headroom_wire::v1::apps::ResizeContainer;
use headroom_wire::v1::job::JobPatch;
use tokio::sync::{mpsc, watch};

use crate::event::SizeRefusal;

/// Maximum number of waiting calls.
const MAX_QUEUED_CALLS: usize = 4;
/// Maximum number of waiting size requests.
const MAX_QUEUED_RESIZES: usize = 256;

/// A call that the loop requests.
#[derive(Debug)]
pub enum ManagerCall {
    /// Registers this master.
    Register(RegisterMaster),
    /// Sends the heartbeat and the requests.
    Sync(Box<MasterSync>),
    /// Reports the end of the job.
    Finish(Box<FinishApp>),
}

/// An event for the loop.
#[derive(Debug)]
pub enum RmEvent {
    /// The answer to a registration.
    Registered(Result<MasterRegistered, ClientError>),
    /// The answer to a synchronisation; contains the patch if the resource manager did not accept
    /// it.
    Synced(Result<MasterSyncReply, (ClientError, Option<Box<JobPatch>>)>),
    /// The answer to the report of the end.
    Finished(Result<(), ClientError>),
    /// An update of the stream.
    Update(Epoch, Box<ApplicationUpdate>),
    /// A container keeps its size; contains the refusal.
    NotResized(ContainerId, SizeRefusal),
    /// The stream belongs to an earlier epoch of the resource manager, or its start is no longer
    /// available.
    Stale(Epoch),
}

/// The position from which the stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// Epoch of the resource manager.
    pub epoch: Epoch,
    /// Cursor of the last update that was read.
    pub cursor: u64,
}

/// The loop's handle of the connection.
#[derive(Debug)]
pub struct RmLink {
    calls: mpsc::Sender<ManagerCall>,
    stream: watch::Sender<Option<StreamPosition>>,
    resizes: mpsc::Sender<(ContainerId, ResizeContainer)>,
}

impl RmLink {
    /// Starts the three tasks. They end when the link, or the receiver of `events`, is dropped.
    pub fn start(client: Client, app: AppId, events: mpsc::Sender<RmEvent>) -> Self {
        let (calls, waiting) = mpsc::channel(MAX_QUEUED_CALLS);
        let (stream, from) = watch::channel(None);
        tokio::spawn(make_calls(
            client.clone(),
            app.clone(),
            waiting,
            events.clone(),
        ));
        let (resizes, wanted) = mpsc::channel(MAX_QUEUED_RESIZES);
        tokio::spawn(resize(client.clone(), wanted, events.clone()));
        tokio::spawn(follow(client, app, from, events));
        RmLink {
            calls,
            stream,
            resizes,
        }
    }

    /// Queues a call. The loop has at most one call in progress, so the queue always has space.
    pub fn call(&self, call: ManagerCall) {
        if self.calls.try_send(call).is_err() {
            tracing::error!("dropped a call to the resource manager because its queue is full");
        }
    }

    /// Requests another size of a container. The core repeats a request that does not fit into the
    /// queue.
    pub fn resize(&self, container: ContainerId, resource: Resource) {
        let body = ResizeContainer {
            version: None,
            resource,
            heap: None,
        };
        if self.resizes.try_send((container, body)).is_err() {
            tracing::warn!("the queue of resizes is full; the resize of this container waits");
        }
    }

    /// Reads the stream from this position.
    pub fn listen(&self, from: StreamPosition) {
        self.stream.send_replace(Some(from));
    }
}

/// Sends size requests in a separate task, because other calls may be slow while a task is frozen.
async fn resize(
    client: Client,
    mut wanted: mpsc::Receiver<(ContainerId, ResizeContainer)>,
    events: mpsc::Sender<RmEvent>,
) {
    while let Some((container, body)) = wanted.recv().await {
        match client.resize(&container, DryRunMode::Really, &body).await {
            Ok(_) => {} // an update reports the new size
            Err(error) => {
                let words = error.to_string();
                let refusal = if error.code().is_some() {
                    SizeRefusal::Manager(words)
                } else {
                    SizeRefusal::NoAnswer(words)
                };
                if events
                    .send(RmEvent::NotResized(container, refusal))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
    }
}

async fn make_calls(
    client: Client,
    app: AppId,
    mut calls: mpsc::Receiver<ManagerCall>,
    events: mpsc::Sender<RmEvent>,
) {
    while let Some(call) = calls.recv().await {
        let event = match call {
            ManagerCall::Register(body) => {
                RmEvent::Registered(client.register_master(&app, &body).await)
            }
            ManagerCall::Sync(body) => match client.sync_master(&app, &body).await {
                Ok(reply) => RmEvent::Synced(Ok(reply)),
                Err(error) => RmEvent::Synced(Err((error, body.job.map(Box::new)))),
            },
            ManagerCall::Finish(body) => {
                RmEvent::Finished(client.finish(&app, &body).await.map(|_| ()))
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// Reads the stream from the position that the loop sets, over any number of connections.
async fn follow(
    client: Client,
    app: AppId,
    mut wanted: watch::Receiver<Option<StreamPosition>>,
    events: mpsc::Sender<RmEvent>,
) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    loop {
        let Some(mut from) = *wanted.borrow_and_update() else {
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        };
        let end = loop {
            tokio::select! {
                changed = wanted.changed() => break changed.is_err(),
                lost = read(&client, &app, &mut from, &events, &mut backoff) => match lost {
                    UpdateStreamEnd::Listener => return,
                    UpdateStreamEnd::Stale => {
                        if events.send(RmEvent::Stale(from.epoch)).await.is_err() || wanted.changed().await.is_err() {
                            return;
                        }
                        break false;
                    }
                    UpdateStreamEnd::Line => tokio::time::sleep(backoff.wait()).await,
                },
            }
        };
        if end {
            return;
        }
    }
}

enum UpdateStreamEnd {
    Line,
    Stale,
    Listener,
}

async fn read(
    client: &Client,
    app: &AppId,
    from: &mut StreamPosition,
    events: &mpsc::Sender<RmEvent>,
    backoff: &mut Backoff,
) -> UpdateStreamEnd {
    let mut lines = match client.updates(app, from.epoch, from.cursor).await {
        Ok(lines) => lines,
        Err(error) => return lost(&error),
    };
    loop {
        match lines.next().await {
            Some(Ok(update)) => {
                backoff.reset();
                from.cursor = from.cursor.max(update.cursor);
                if events
                    .send(RmEvent::Update(from.epoch, Box::new(update)))
                    .await
                    .is_err()
                {
                    return UpdateStreamEnd::Listener;
                }
            }
            Some(Err(error)) => return lost(&error),
            None => return UpdateStreamEnd::Line,
        }
    }
}

fn lost(error: &ClientError) -> UpdateStreamEnd {
    match error.failure_kind() {
        CallFailureKind::Stale | CallFailureKind::TooOld => UpdateStreamEnd::Stale,
        CallFailureKind::Gone | CallFailureKind::Refused | CallFailureKind::Silent => {
            tracing::debug!(%error, "lost the update stream, reconnecting");
            UpdateStreamEnd::Line
        }
    }
}
