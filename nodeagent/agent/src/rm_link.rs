//! The line to the resource manager: register, listen for what is wanted, report what is there.
//!
//! Owned by the loop, which asks what is due and hands in the bodies; every call runs as a task of its own and its answer comes
//! back as an input. Nothing is polled: what is wanted is pushed down one long answer, an end goes up at once.
//!
//! ```text
//!            due            registered            HR0410, HR0404
//!   Down ──────────► Registering ──────────► Up ──────────────────► Down
//!     ▲                   │ failed            │ report or stream failed
//!     └───────────────────┘                   └──► again after a wait, still Up
//! ```
//!
//! A node that was decommissioned is refused at registration. That is no fault of the line: it is said once, and asked again
//! slowly, for the node may be taken back.

use std::time::Duration;

use headroom_client::retry::Backoff;
use headroom_client::{Client, ClientError};
use headroom_node_core::sync::{Due, Scope, Sync};
use headroom_types::{ContainerId, Epoch, NodeId, Tick, UnixMillis};
use headroom_wire::v1::error::Code;
use headroom_wire::v1::nodes::{Desired, NodeRegistered, NodeReport, NodeReportReply, RegisterNode};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use crate::run::Input;

/// The most a lost resource manager is left alone.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long a decommissioned node waits before it asks again.
const DISMISSED: Duration = Duration::from_secs(30);

/// How the node stands with the resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// It is a member.
    Registered,
    /// It is about to be, or nobody answers.
    Searching,
    /// It was told that it is none any more.
    Decommissioned,
}

/// What came back.
#[derive(Debug)]
pub(crate) enum Event {
    /// Of a registration.
    Registered(Result<NodeRegistered, ClientError>),
    /// A line of what is wanted.
    Line(Generation, Desired),
    /// The lines ended.
    StreamEnded(Generation, Option<ClientError>),
    /// Of a report.
    Reported(Generation, Result<NodeReportReply, ClientError>),
}

/// One registration; answers that belong to an earlier one are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// What the loop should do for the line.
#[derive(Debug)]
pub(crate) enum Want {
    /// Hand in a registration.
    Registration,
    /// Hand in a report.
    Report(Epoch, Scope),
    /// Nothing until then, or until something comes in.
    Nothing(Option<Tick>),
}

/// What the loop should tell the core.
#[derive(Debug)]
pub(crate) enum News {
    /// Another life of the resource manager, or the same one after a gap.
    Peer(NodeRegistered),
    /// What it wants.
    Desired(Desired),
    /// Reports it has taken in.
    Received(Vec<ContainerId>),
    /// Nothing for the core.
    Nothing,
}

/// The line.
#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    node: NodeId,
    inputs: mpsc::Sender<Input>,
    phase: Phase,
    generation: Generation,
    backoff: Backoff,
    /// Whether the last call went well, so that a loss is logged once.
    well: bool,
    /// The resource manager does not want this node.
    dismissed: bool,
    /// Of the latest registration.
    serial: u64,
}

#[derive(Debug)]
enum Phase {
    Down { retry_at: Tick },
    Registering,
    Up { epoch: Epoch, sync: Sync, stream: Stream },
}

#[derive(Debug)]
enum Stream {
    Open { _task: AbortOnDropHandle<()> },
    Closed { retry_at: Tick },
}

impl Link {
    /// A line that is down.
    pub(crate) fn new(client: Client, node: NodeId, inputs: mpsc::Sender<Input>) -> Self {
        let backoff = Backoff::new(Duration::from_millis(50), LONGEST_WAIT);
        let phase = Phase::Down { retry_at: Tick(0) };
        Link { client, node, inputs, phase, generation: Generation(0), backoff, well: true, dismissed: false, serial: 0 }
    }

    /// How it stands with the resource manager.
    pub(crate) fn standing(&self) -> Standing {
        match &self.phase {
            Phase::Up { .. } => Standing::Registered,
            Phase::Down { .. } | Phase::Registering if self.dismissed => Standing::Decommissioned,
            Phase::Down { .. } | Phase::Registering => Standing::Searching,
        }
    }

    /// A container's phase changed.
    pub(crate) fn changed(&mut self, id: &ContainerId) {
        if let Phase::Up { sync, .. } = &mut self.phase {
            sync.changed(id);
        }
    }

    /// Something about the node itself changed that cannot wait for the next sign of life.
    pub(crate) fn node_changed(&mut self) {
        if let Phase::Up { sync, .. } = &mut self.phase {
            sync.node_changed();
        }
    }

    /// An exit report is there.
    pub(crate) fn ended(&mut self, id: &ContainerId) {
        if let Phase::Up { sync, .. } = &mut self.phase {
            sync.ended(id);
        }
    }

    /// What is due now. A stream that is due is opened on the way.
    pub(crate) fn due(&mut self, now: Tick) -> Want {
        match &mut self.phase {
            Phase::Registering => Want::Nothing(None),
            Phase::Down { retry_at } if now < *retry_at => Want::Nothing(Some(*retry_at)),
            Phase::Down { .. } => {
                self.phase = Phase::Registering;
                Want::Registration
            }
            Phase::Up { epoch, sync, stream } => {
                let epoch = *epoch;
                let stream_at = match stream {
                    Stream::Open { .. } => None,
                    Stream::Closed { retry_at } if now < *retry_at => Some(*retry_at),
                    Stream::Closed { .. } => {
                        let task = listen(self.client.clone(), self.node.clone(), epoch, self.generation, self.inputs.clone());
                        *stream = Stream::Open { _task: task };
                        None
                    }
                };
                match sync.due(now) {
                    Due::Send(scope) => Want::Report(epoch, scope),
                    Due::At(at) => Want::Nothing(Some(stream_at.map_or(at, |s| s.min(at)))),
                    Due::Wait => Want::Nothing(stream_at),
                }
            }
        }
    }

    /// Sends a registration. Its number is that of the time, and above those of this agent before; earlier agents had an earlier time.
    pub(crate) fn register(&mut self, body: RegisterNode, now: UnixMillis) {
        self.serial = self.serial.saturating_add(1).max(now.0);
        let body = RegisterNode { serial: self.serial, ..body };
        let (client, node, inputs) = (self.client.clone(), self.node.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let answer = client.register_node(&node, &body).await;
            inputs.send(Input::Link(Event::Registered(answer))).await.ok();
        });
    }

    /// Sends a report.
    pub(crate) fn report(&self, body: NodeReport) {
        let (client, node, inputs, generation) = (self.client.clone(), self.node.clone(), self.inputs.clone(), self.generation);
        tokio::spawn(async move {
            let answer = client.report(&node, &body).await;
            inputs.send(Input::Link(Event::Reported(generation, answer))).await.ok();
        });
    }

    /// Takes in what came back.
    pub(crate) fn take(&mut self, now: Tick, event: Event) -> News {
        match event {
            Event::Registered(Ok(answer)) => self.registered(now, answer),
            Event::Registered(Err(error)) if is_dismissal(&error) => {
                if !self.dismissed {
                    warn!(%error, rm = self.client.base(), "this node takes no work until it is undrained; asking again every 30 s");
                }
                self.dismissed = true;
                self.phase = Phase::Down { retry_at: now.plus(DISMISSED) };
                News::Nothing
            }
            Event::Registered(Err(error)) => {
                // The clock was set back, or another agent has this node's name.
                self.serial = self.serial.max(above(&error));
                let retry_at = now.plus(self.failed("registration", &error));
                self.phase = Phase::Down { retry_at };
                News::Nothing
            }
            Event::Line(generation, desired) if generation == self.generation => self.line(now, desired),
            Event::StreamEnded(generation, error) if generation == self.generation => {
                self.stream_ended(now, error.as_ref());
                News::Nothing
            }
            Event::Reported(generation, answer) if generation == self.generation => self.reported(now, answer),
            Event::Line(..) | Event::StreamEnded(..) | Event::Reported(..) => News::Nothing,
        }
    }

    fn registered(&mut self, now: Tick, answer: NodeRegistered) -> News {
        info!(epoch = %answer.epoch, rm = self.client.base(), "registered with the resource manager");
        self.well = true;
        self.dismissed = false;
        self.backoff.reset();
        self.generation = Generation(self.generation.0 + 1);
        self.phase = Phase::Up { epoch: answer.epoch, sync: Sync::registered(now), stream: Stream::Closed { retry_at: now } };
        News::Peer(answer)
    }

    fn line(&mut self, now: Tick, desired: Desired) -> News {
        self.went_well();
        match &self.phase {
            Phase::Up { epoch, .. } if *epoch == desired.epoch => News::Desired(desired),
            // Somebody else answers there now.
            Phase::Up { .. } => {
                self.phase = Phase::Down { retry_at: now };
                News::Nothing
            }
            Phase::Down { .. } | Phase::Registering => News::Nothing,
        }
    }

    fn stream_ended(&mut self, now: Tick, error: Option<&ClientError>) {
        if error.is_some_and(is_stranger) {
            self.phase = Phase::Down { retry_at: now };
            return;
        }
        let wait = match error {
            Some(error) => self.failed("stream", error),
            None => self.backoff.wait(),
        };
        if let Phase::Up { stream, .. } = &mut self.phase {
            *stream = Stream::Closed { retry_at: now.plus(wait) };
        }
    }

    fn reported(&mut self, now: Tick, answer: Result<NodeReportReply, ClientError>) -> News {
        match answer {
            Ok(reply) => {
                self.went_well();
                if let Phase::Up { sync, .. } = &mut self.phase {
                    sync.answered();
                }
                News::Received(reply.received)
            }
            Err(error) if is_stranger(&error) => {
                info!(%error, "the resource manager does not know this node any more, registering again");
                self.phase = Phase::Down { retry_at: now };
                News::Nothing
            }
            Err(error) => {
                let wait = self.failed("report", &error);
                if let Phase::Up { sync, .. } = &mut self.phase {
                    sync.failed(now, wait);
                }
                News::Nothing
            }
        }
    }

    fn went_well(&mut self) {
        if !self.well {
            info!(rm = self.client.base(), "the resource manager answers again");
        }
        self.well = true;
        self.backoff.reset();
    }

    /// Says so once, and tells how long to wait.
    fn failed(&mut self, what: &str, error: &ClientError) -> Duration {
        if self.well {
            let cause = error.root_cause();
            warn!(what, %error, cause, rm = self.client.base(), "the resource manager does not answer; containers run on, trying again");
        } else {
            debug!(what, %error, cause = error.root_cause(), "still no answer");
        }
        self.well = false;
        self.backoff.wait()
    }
}

/// The other side knows neither this node nor this epoch.
fn is_stranger(error: &ClientError) -> bool {
    matches!(error.code(), Some(Code::HR0410 | Code::HR0404))
}

/// A decommissioned node is refused by name; other conflicts at registration are faults.
fn is_dismissal(error: &ClientError) -> bool {
    match error {
        ClientError::Problem(problem) => problem.code == Code::HR0409 && problem.detail.contains("decommissioned"),
        ClientError::Address { .. }
        | ClientError::Trust { .. }
        | ClientError::Unreachable { .. }
        | ClientError::NotSent
        | ClientError::Answer { .. } => false,
    }
}

/// What a registration's number has to be above, as far as it was refused for that.
fn above(error: &ClientError) -> u64 {
    match error {
        ClientError::Problem(problem) => problem.above.unwrap_or_default(),
        ClientError::Address { .. }
        | ClientError::Trust { .. }
        | ClientError::Unreachable { .. }
        | ClientError::NotSent
        | ClientError::Answer { .. } => 0,
    }
}

fn listen(
    client: Client,
    node: NodeId,
    epoch: Epoch,
    generation: Generation,
    inputs: mpsc::Sender<Input>,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let error = match client.desired(&node, epoch).await {
            Err(error) => Some(error),
            Ok(mut lines) => loop {
                match lines.next().await {
                    None => break None,
                    Some(Err(error)) => break Some(error),
                    Some(Ok(desired)) => {
                        if inputs.send(Input::Link(Event::Line(generation, desired))).await.is_err() {
                            return;
                        }
                    }
                }
            },
        };
        inputs.send(Input::Link(Event::StreamEnded(generation, error))).await.ok();
    }))
}
