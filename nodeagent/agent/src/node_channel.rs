//! The stream of the node's desired state as a task: lines become inputs of the loop, and reports
//! leave on the same connection where the resource manager supports it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headroom_client::{
    AnswerDefect, Client, ClientError, ClientResult, JsonLineStream, NodeReportSender, NodeStream,
};
use headroom_transport::deadline;
use headroom_types::{Epoch, NodeId};
use headroom_wire::v1::node_channel::{NodeChannelLine, NodeChannelReport, NodeReportOutcome};
use headroom_wire::v1::nodes::{DesiredStateLine, NodeReport};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::agent_input::AgentInput;
use crate::node_link_event::{NodeLinkEvent, RegistrationNumber};

/// Timeout of the reply to a report.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A report of the registration with this number.
type NumberedReport = (RegistrationNumber, NodeReport);

/// The reports of one stream, once it is open and if it takes any.
#[derive(Clone, Debug, Default)]
struct ReportQueue(Arc<OnceLock<mpsc::Sender<NumberedReport>>>);

/// Handle of the task. Dropping it closes the stream.
#[derive(Debug)]
pub(crate) struct NodeStreamTask {
    reports: ReportQueue,
    _task: AbortOnDropHandle<()>,
}

/// A report whose reply has not arrived.
#[derive(Clone, Copy, Debug)]
struct AwaitedReply {
    number: u64,
    generation: RegistrationNumber,
    deadline: Instant,
}

/// A report on its way to the connection.
type ReportWrite = Pin<Box<dyn Future<Output = (NodeReportSender, ClientResult<()>)> + Send>>;

impl NodeStreamTask {
    /// Reads a stream that is open, or opens it before. Its events have the number of this
    /// registration.
    pub(crate) fn start(
        opened: Option<NodeStream>,
        (client, node): (Client, NodeId),
        (generation, epoch): (RegistrationNumber, Epoch),
        inputs: mpsc::Sender<AgentInput>,
    ) -> Self {
        let reports = ReportQueue::default();
        let queue = reports.clone();
        let task = tokio::spawn(async move {
            let opened = match opened {
                Some(stream) => Ok(stream),
                None => client.node_stream(&node, epoch).await,
            };
            let end = match opened {
                Err(error) => Some(error),
                Ok(NodeStream::Lines(lines)) => read(lines, generation, &inputs).await,
                Ok(NodeStream::Channel(lines, sender)) => {
                    let (send, receive) = mpsc::channel(1);
                    // Cannot fail: this task sets it once.
                    let _ = queue.0.set(send);
                    NodeChannel::new(lines, sender, receive)
                        .run(generation, &inputs)
                        .await
                }
            };
            // Fails only if the loop has ended.
            let _ = inputs
                .send(AgentInput::Link(NodeLinkEvent::StreamEnded(
                    generation, end,
                )))
                .await;
        });
        NodeStreamTask {
            reports,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Queues a report, whose answer becomes an input. Returns the report if the stream takes none.
    pub(crate) fn report(&self, report: NumberedReport) -> Result<(), NumberedReport> {
        match self.reports.0.get() {
            None => Err(report),
            Some(queue) => queue.try_send(report).map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(report)
                | mpsc::error::TrySendError::Closed(report) => report,
            }),
        }
    }
}

/// Reads a stream that takes no reports, until it ends.
async fn read(
    mut lines: JsonLineStream<DesiredStateLine>,
    generation: RegistrationNumber,
    inputs: &mpsc::Sender<AgentInput>,
) -> Option<ClientError> {
    while let Some(line) = lines.next().await {
        match line {
            Ok(desired) => send(inputs, NodeLinkEvent::Line(generation, desired)).await?,
            Err(error) => return Some(error),
        }
    }
    None
}

/// Passes an event to the loop. `None` if the loop has ended.
async fn send(inputs: &mpsc::Sender<AgentInput>, event: NodeLinkEvent) -> Option<()> {
    inputs.send(AgentInput::Link(event)).await.ok()
}

/// A stream that takes reports.
struct NodeChannel {
    lines: JsonLineStream<NodeChannelLine>,
    /// None while a report is written.
    sender: Option<NodeReportSender>,
    reports: mpsc::Receiver<NumberedReport>,
    writing: Option<ReportWrite>,
    awaited: Option<AwaitedReply>,
    /// Number of the latest report.
    last: u64,
}

headroom_types::debug_fields!(NodeChannel { awaited, last });

impl NodeChannel {
    fn new(
        lines: JsonLineStream<NodeChannelLine>,
        sender: NodeReportSender,
        reports: mpsc::Receiver<NumberedReport>,
    ) -> Self {
        NodeChannel {
            lines,
            sender: Some(sender),
            reports,
            writing: None,
            awaited: None,
            last: 0,
        }
    }

    /// Runs until the stream ends. Reports without a reply then have failed.
    async fn run(
        mut self,
        generation: RegistrationNumber,
        inputs: &mpsc::Sender<AgentInput>,
    ) -> Option<ClientError> {
        let end = loop {
            match self.turn(generation).await {
                Ok(None) => {}
                Ok(Some(event)) => send(inputs, event).await?,
                Err(end) => break end,
            }
        };
        self.reports.close();
        let mut failed: Vec<RegistrationNumber> = Vec::new();
        failed.extend(self.awaited.map(|awaited| awaited.generation));
        while let Ok((generation, _)) = self.reports.try_recv() {
            failed.push(generation);
        }
        for generation in failed {
            let error = lost("the connection ended before the reply");
            send(inputs, NodeLinkEvent::Reported(generation, Err(error))).await?;
        }
        end
    }

    /// Waits for one thing. An error is the end of the stream, with its cause.
    async fn turn(
        &mut self,
        generation: RegistrationNumber,
    ) -> Result<Option<NodeLinkEvent>, Option<ClientError>> {
        let deadline = self.awaited.map(|awaited| awaited.deadline);
        tokio::select! {
            line = self.lines.next() => match line {
                None => Err(None),
                Some(Err(error)) => Err(Some(error)),
                Some(Ok(NodeChannelLine::Desired(desired))) => {
                    Ok(Some(NodeLinkEvent::Line(generation, desired)))
                }
                Some(Ok(NodeChannelLine::Reply { number, outcome })) => {
                    Ok(self.replied(number, outcome))
                }
                // The answer to a registration is read before the stream is.
                Some(Ok(NodeChannelLine::Registered(_))) => {
                    Err(Some(lost("a second answer to the registration")))
                }
            },
            Some(report) = self.reports.recv(), if self.awaited.is_none() && self.sender.is_some() => {
                self.write(report);
                Ok(None)
            }
            written = completed(&mut self.writing) => {
                let (sender, result) = written;
                (self.writing, self.sender) = (None, Some(sender));
                result.map(|()| None).map_err(Some)
            }
            () = deadline::reached(deadline) => Err(Some(lost(&format!(
                "no reply to a report within {} s",
                REPLY_TIMEOUT.as_secs()
            )))),
        }
    }

    fn write(&mut self, (generation, report): NumberedReport) {
        let Some(mut sender) = self.sender.take() else {
            return;
        };
        self.last += 1;
        self.awaited = Some(AwaitedReply {
            number: self.last,
            generation,
            deadline: Instant::now() + REPLY_TIMEOUT,
        });
        let line = NodeChannelReport {
            number: self.last,
            report,
        };
        self.writing = Some(Box::pin(async move {
            let result = sender.send(&line).await;
            (sender, result)
        }));
    }

    /// The event of a reply. A reply to another report than the awaited one is ignored.
    fn replied(&mut self, number: u64, outcome: NodeReportOutcome) -> Option<NodeLinkEvent> {
        let awaited = self.awaited.take_if(|awaited| awaited.number == number)?;
        let answer = match outcome {
            NodeReportOutcome::Received(reply) => Ok(reply),
            NodeReportOutcome::Refused(problem) => Err(ClientError::Problem(Box::new(problem))),
        };
        Some(NodeLinkEvent::Reported(awaited.generation, answer))
    }
}

/// Completes the write; never without one.
async fn completed(writing: &mut Option<ReportWrite>) -> (NodeReportSender, ClientResult<()>) {
    match writing {
        Some(write) => write.await,
        None => std::future::pending().await,
    }
}

fn lost(what: &str) -> ClientError {
    ClientError::Answer {
        url: "the resource manager".to_owned(),
        defect: AnswerDefect::Malformed(what.to_owned()),
    }
}
