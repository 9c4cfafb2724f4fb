//! The calls of the link to the resource manager. Owned by the loop, which provides the bodies.
//!
//! The link itself is a state machine, [`NodeLink`]. Every call runs as a task of its own, and its
//! answer comes back as an input of the loop.

use std::sync::{Arc, Mutex, PoisonError};

use headroom_client::{Client, NodeStream};
use headroom_node_core::agent::AgentCore;
use headroom_types::{ContainerId, Epoch, NodeId, Tick, UnixMillis};
use headroom_wire::v1::nodes::{NodeReport, RegisterNode};
use tokio::sync::mpsc;

use crate::agent_input::AgentInput;
use crate::node_channel::NodeStreamTask;
use crate::node_link::{NodeLink, NodeLinkNews, NodeLinkRequest};
use crate::node_link_event::{NodeLinkEvent, NodeMembership, RegistrationNumber};

/// The link with its calls.
#[derive(Debug)]
pub(crate) struct ResourceManagerLink {
    client: Client,
    node: NodeId,
    inputs: mpsc::Sender<AgentInput>,
    link: NodeLink,
    /// The stream that the latest registration opened, until it is read.
    opened: OpenedStream,
    /// Reads the stream of desired state, and sends reports on its connection.
    stream: Option<NodeStreamTask>,
}

/// A stream that a registration opened, with the epoch of the resource manager.
#[derive(Clone, Debug, Default)]
struct OpenedStream(Arc<Mutex<Option<(Epoch, NodeStream)>>>);

impl OpenedStream {
    fn put(&self, opened: Option<(Epoch, NodeStream)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = opened;
    }

    /// Takes the stream of this epoch, and drops any other.
    fn take(&self, epoch: Epoch) -> Option<NodeStream> {
        let opened = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        opened.and_then(|(of, stream)| (of == epoch).then_some(stream))
    }
}

impl ResourceManagerLink {
    /// A link that is down.
    pub(crate) fn new(client: Client, node: NodeId, inputs: mpsc::Sender<AgentInput>) -> Self {
        let link = NodeLink::new(client.base().to_owned());
        ResourceManagerLink {
            client,
            node,
            inputs,
            link,
            opened: OpenedStream::default(),
            stream: None,
        }
    }

    /// The membership of the node.
    pub(crate) fn standing(&self) -> NodeMembership {
        self.link.membership()
    }

    /// Marks a container whose phase changed.
    pub(crate) fn changed(&mut self, id: &ContainerId) {
        self.link.changed(id);
    }

    /// Marks a change of the node itself that cannot wait for the next heartbeat.
    pub(crate) fn node_changed(&mut self) {
        self.link.node_changed();
    }

    /// Marks a container with a new exit report.
    pub(crate) fn ended(&mut self, id: &ContainerId) {
        self.link.ended(id);
    }

    /// Makes a report due if exit reports remain that the resource manager has not received.
    pub(crate) fn send_remaining_reports(&mut self, core: &AgentCore) {
        self.link.send_remaining_reports(core);
    }

    /// The message that is due now.
    pub(crate) fn due(&mut self, now: Tick) -> NodeLinkRequest {
        self.link.due(now)
    }

    /// Reads the stream of desired state, instead of any other stream.
    pub(crate) fn read_stream(&mut self, generation: RegistrationNumber, epoch: Epoch) {
        self.stream = Some(NodeStreamTask::start(
            self.opened.take(epoch),
            (self.client.clone(), self.node.clone()),
            (generation, epoch),
            self.inputs.clone(),
        ));
    }

    /// Sends a registration.
    pub(crate) fn register(&mut self, body: RegisterNode, now: UnixMillis) {
        let body = self.link.numbered(body, now);
        let client = self.client.clone();
        let (node, inputs) = (self.node.clone(), self.inputs.clone());
        let opened = self.opened.clone();
        opened.put(None);
        tokio::spawn(async move {
            let answer = client.register_node_with_stream(&node, &body).await;
            let answer = answer.map(|(registered, stream)| {
                opened.put(stream.map(|stream| (registered.epoch, stream)));
                registered
            });
            inputs
                .send(AgentInput::Link(NodeLinkEvent::Registered(answer)))
                .await
                .ok();
        });
    }

    /// Sends a report: on the connection of the stream, or as a call if there is none that takes
    /// reports.
    pub(crate) fn report(&self, generation: RegistrationNumber, body: NodeReport) {
        let numbered = (generation, body);
        let refused = match &self.stream {
            Some(stream) => stream.report(numbered),
            None => Err(numbered),
        };
        let Err((generation, body)) = refused else {
            return;
        };
        let client = self.client.clone();
        let (node, inputs) = (self.node.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let answer = client.report(&node, &body).await;
            inputs
                .send(AgentInput::Link(NodeLinkEvent::Reported(
                    generation, answer,
                )))
                .await
                .ok();
        });
    }

    /// Processes a result. A stream that the link no longer reads is closed.
    pub(crate) fn take(&mut self, now: Tick, event: NodeLinkEvent) -> NodeLinkNews {
        let news = self.link.take(now, event);
        if !self.link.has_stream() {
            self.stream = None;
        }
        news
    }
}
