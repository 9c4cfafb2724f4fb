//! The connection to the resource manager: sequential calls, and the stream of updates.
//!
//! Three tasks only move messages. The session decides on calls and their times, and on the
//! position of the stream. A failed call and the end of a stream are reported to the session, which
//! retries them.

use headroom_client::{Client, ClientError, DryRunMode};
use headroom_types::{AppId, ContainerId};
use headroom_wire::v1::apps::ResizeContainer;
use tokio::sync::{mpsc, watch};

use crate::session::{ManagerCall, SessionInput, StreamNumber, StreamPosition, UnacceptedReport};

/// Maximum number of waiting calls of one kind.
const MAX_QUEUED_CALLS: usize = 4;

/// The loop's handle of the connection.
#[derive(Debug)]
pub struct RmLink {
    calls: mpsc::Sender<ManagerCall>,
    stream: watch::Sender<Option<(StreamNumber, StreamPosition)>>,
    resizes: mpsc::Sender<(ContainerId, ResizeContainer)>,
}

impl RmLink {
    /// Starts the three tasks. They end when the link, or the receiver of `events`, is dropped.
    pub fn start(client: Client, app: AppId, events: mpsc::Sender<SessionInput>) -> Self {
        let (calls, waiting) = mpsc::channel(MAX_QUEUED_CALLS);
        let (stream, from) = watch::channel(None);
        tokio::spawn(make_calls(
            client.clone(),
            app.clone(),
            waiting,
            events.clone(),
        ));
        let (resizes, wanted) = mpsc::channel(MAX_QUEUED_CALLS);
        tokio::spawn(resize(client.clone(), wanted, events.clone()));
        tokio::spawn(follow(client, app, from, events));
        RmLink {
            calls,
            stream,
            resizes,
        }
    }

    /// Queues a call. The session has at most one call in progress, so the queue always has space.
    pub fn call(&self, call: ManagerCall) {
        if self.calls.try_send(call).is_err() {
            tracing::error!("dropped a call to the resource manager because its queue is full");
        }
    }

    /// Requests another size of a container. The session has at most one such request in progress,
    /// so the queue always has space.
    pub fn resize(&self, container: ContainerId, body: ResizeContainer) {
        if self.resizes.try_send((container, body)).is_err() {
            tracing::error!("dropped the resize of a container because its queue is full");
        }
    }

    /// Reads the stream from this position, instead of any other stream.
    pub fn listen(&self, number: StreamNumber, from: StreamPosition) {
        self.stream.send_replace(Some((number, from)));
    }
}

/// Sends size requests in a separate task, because other calls may be slow while a task is frozen.
async fn resize(
    client: Client,
    mut wanted: mpsc::Receiver<(ContainerId, ResizeContainer)>,
    events: mpsc::Sender<SessionInput>,
) {
    while let Some((container, body)) = wanted.recv().await {
        let answer = client.resize(&container, DryRunMode::Really, &body).await;
        let event = SessionInput::Resized(answer.map(|_| ()));
        if events.send(event).await.is_err() {
            return;
        }
    }
}

async fn make_calls(
    client: Client,
    app: AppId,
    mut calls: mpsc::Receiver<ManagerCall>,
    events: mpsc::Sender<SessionInput>,
) {
    while let Some(call) = calls.recv().await {
        let event = match call {
            ManagerCall::Register(body) => {
                SessionInput::Registered(client.register_master(&app, &body).await)
            }
            ManagerCall::Sync(body) => {
                let answer = client.sync_master(&app, &body).await;
                SessionInput::Synced(answer.map_err(|error| UnacceptedReport {
                    error,
                    patch: body.job.map(Box::new),
                }))
            }
            ManagerCall::Finish(body) => {
                let answer = client.finish(&app, &body).await;
                SessionInput::Finished(answer.map(|_| ()).map_err(|error| UnacceptedReport {
                    error,
                    patch: body.job.map(Box::new),
                }))
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// Reads one stream after the other. After the end of a stream, it waits for the next one.
async fn follow(
    client: Client,
    app: AppId,
    mut wanted: watch::Receiver<Option<(StreamNumber, StreamPosition)>>,
    events: mpsc::Sender<SessionInput>,
) {
    loop {
        let Some((number, from)) = *wanted.borrow_and_update() else {
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        };
        let closed = tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            error = read(&client, &app, (number, from), &events) => error,
        };
        let event = SessionInput::StreamClosed(number, closed);
        if events.send(event).await.is_err() || wanted.changed().await.is_err() {
            return;
        }
    }
}

/// Reads a stream until it ends; `None` if it ends without an error.
async fn read(
    client: &Client,
    app: &AppId,
    (number, from): (StreamNumber, StreamPosition),
    events: &mpsc::Sender<SessionInput>,
) -> Option<ClientError> {
    let mut lines = match client.updates(app, from.epoch, from.cursor).await {
        Ok(lines) => lines,
        Err(error) => return Some(error),
    };
    loop {
        match lines.next().await {
            Some(Ok(update)) => {
                let event = SessionInput::Update(number, Box::new(update));
                if events.send(event).await.is_err() {
                    return None;
                }
            }
            Some(Err(error)) => return Some(error),
            None => return None,
        }
    }
}
