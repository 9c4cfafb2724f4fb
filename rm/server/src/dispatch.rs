//! Mailboxes for messages to nodes and masters that hold a stream open.
//!
//! The main loop owns them. A mailbox is bounded, and the loop never waits for it. A reader that is
//! too slow loses its stream, and gets what it missed when it reconnects: numbered updates, and
//! commands for all containers that a node has not reported as the resource manager wants them.

use std::collections::BTreeMap;

use headroom_rm_core::{ContainerCommand, MasterUpdate};
use headroom_types::{AppId, ContainerId, Epoch, NodeId};
use headroom_wire::v1::nodes::DesiredStateLine;
use tokio::sync::mpsc;
use tracing::debug;

use crate::to_wire;

/// Capacity of a mailbox, in messages.
const LINES: usize = 1024;

/// All mailboxes.
#[derive(Debug)]
pub(crate) struct MailboxDispatcher {
    epoch: Epoch,
    nodes: BTreeMap<NodeId, mpsc::Sender<DesiredStateLine>>,
    apps: BTreeMap<AppId, mpsc::Sender<Vec<MasterUpdate>>>,
    to_nodes: BTreeMap<NodeId, Vec<(ContainerId, ContainerCommand)>>,
    /// Nodes whose stream was found ended since the last [`MailboxDispatcher::node_streams`].
    disconnected: Vec<NodeId>,
    to_apps: BTreeMap<AppId, Vec<MasterUpdate>>,
}

impl MailboxDispatcher {
    pub(crate) fn new(epoch: Epoch) -> Self {
        MailboxDispatcher {
            epoch,
            nodes: BTreeMap::new(),
            apps: BTreeMap::new(),
            to_nodes: BTreeMap::new(),
            disconnected: Vec::new(),
            to_apps: BTreeMap::new(),
        }
    }

    /// Opens the stream of a node: first all commands beyond what the node reported, then changes.
    /// It replaces an earlier stream of the node.
    pub(crate) fn open_node(
        &mut self,
        node: NodeId,
        missed: Vec<(ContainerId, ContainerCommand)>,
    ) -> mpsc::Receiver<DesiredStateLine> {
        let (send, receive) = mpsc::channel(LINES);
        // Cannot fail: the mailbox is new and empty.
        let _ = send.try_send(to_wire::desired(self.epoch, false, missed));
        self.nodes.insert(node, send);
        receive
    }

    /// Opens the stream of a master: first the updates that it missed, then new ones. It replaces
    /// an earlier stream of the application.
    pub(crate) fn open_app(
        &mut self,
        app: AppId,
        missed: Vec<MasterUpdate>,
    ) -> mpsc::Receiver<Vec<MasterUpdate>> {
        let (send, receive) = mpsc::channel(LINES);
        // Cannot fail: the mailbox is new and empty.
        let _ = send.try_send(missed);
        self.apps.insert(app, send);
        receive
    }

    /// Forgets the streams of nodes that ended. Returns the nodes with an open stream, and those
    /// whose stream ended.
    pub(crate) fn node_streams(&mut self) -> (Vec<NodeId>, Vec<NodeId>) {
        let mut ended = std::mem::take(&mut self.disconnected);
        let closed = self.nodes.extract_if(.., |_, mailbox| mailbox.is_closed());
        ended.extend(closed.map(|(node, _)| node));
        ended.retain(|node| !self.nodes.contains_key(node));
        (self.nodes.keys().cloned().collect(), ended)
    }

    /// Queues an order for a node, for the next [`MailboxDispatcher::send`].
    pub(crate) fn queue_order(
        &mut self,
        node: NodeId,
        container: ContainerId,
        want: ContainerCommand,
    ) {
        if self.nodes.contains_key(&node) {
            self.to_nodes
                .entry(node)
                .or_default()
                .push((container, want));
        }
    }

    /// Queues an update for a master, for the next [`MailboxDispatcher::send`].
    pub(crate) fn update(&mut self, app: AppId, update: MasterUpdate) {
        if self.apps.contains_key(&app) {
            self.to_apps.entry(app).or_default().push(update);
        }
    }

    /// Moves the queued messages into the mailboxes, as one message for each reader.
    pub(crate) fn send(&mut self) {
        for (node, wants) in std::mem::take(&mut self.to_nodes) {
            let line = to_wire::desired(self.epoch, false, wants);
            let sent = self.nodes.get(&node).map(|mailbox| mailbox.try_send(line));
            if let Some(Err(error)) = sent {
                debug!(%node, %error, "the order stream of a node ended");
                self.nodes.remove(&node);
                self.disconnected.push(node);
            }
        }
        for (app, updates) in std::mem::take(&mut self.to_apps) {
            let sent = self.apps.get(&app).map(|mailbox| mailbox.try_send(updates));
            if let Some(Err(error)) = sent {
                debug!(%app, %error, "the update stream of a master ended");
                self.apps.remove(&app);
            }
        }
    }

    /// Closes the stream of an application after the updates that are still queued.
    pub(crate) fn close_app(&mut self, app: &AppId) {
        if let (Some(updates), Some(mailbox)) = (self.to_apps.remove(app), self.apps.get(app)) {
            // A reader that is too slow learns of the end with its next sync.
            let _ = mailbox.try_send(updates);
        }
        self.apps.remove(app);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeId {
        "n1".parse().expect("id")
    }
    fn container(n: u64) -> ContainerId {
        ContainerId {
            app: "job.1".parse().expect("id"),
            epoch: Epoch(1),
            seq: n,
        }
    }

    #[test]
    fn each_batch_is_a_single_message() {
        let mut dispatch = MailboxDispatcher::new(Epoch(1));
        let mut line = dispatch.open_node(node(), vec![(container(1), ContainerCommand::Forget)]);
        dispatch.queue_order(node(), container(2), ContainerCommand::Forget);
        dispatch.queue_order(node(), container(3), ContainerCommand::Forget);
        dispatch.send();
        dispatch.send();
        let first = line.try_recv().expect("a message");
        assert!(!first.full && first.containers.len() == 1);
        let second = line.try_recv().expect("a message");
        assert!(!second.full && second.containers.len() == 2);
        assert!(line.try_recv().is_err());
    }

    #[test]
    fn a_reader_that_does_not_read_is_disconnected() {
        let mut dispatch = MailboxDispatcher::new(Epoch(1));
        let mut line = dispatch.open_node(node(), Vec::new());
        for n in 0..2000 {
            dispatch.queue_order(node(), container(n), ContainerCommand::Forget);
            dispatch.send();
        }
        let mut lines = 0;
        let ended = loop {
            match line.try_recv() {
                Ok(_) => lines += 1,
                Err(end) => break end,
            }
        };
        assert_eq!(
            (lines, ended),
            (LINES, mpsc::error::TryRecvError::Disconnected)
        );
    }

    #[test]
    fn a_stream_ends_after_the_last_update_of_its_application() {
        let mut dispatch = MailboxDispatcher::new(Epoch(1));
        let app: AppId = "job.1".parse().expect("id");
        let mut line = dispatch.open_app(app.clone(), Vec::new());
        let what = headroom_rm_core::UpdateKind::Running {
            container: container(1),
        };
        dispatch.update(app.clone(), MasterUpdate { cursor: 1, what });
        dispatch.close_app(&app);
        assert_eq!(line.try_recv().expect("the missed updates").len(), 0);
        assert_eq!(line.try_recv().expect("the last update").len(), 1);
        assert_eq!(
            line.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        );
    }

    #[test]
    fn an_ended_stream_is_reported_once() {
        let mut dispatch = MailboxDispatcher::new(Epoch(1));
        let other: NodeId = "n2".parse().expect("id");
        let stream = dispatch.open_node(node(), Vec::new());
        let _open = dispatch.open_node(other.clone(), Vec::new());
        assert_eq!(
            dispatch.node_streams(),
            (vec![node(), other.clone()], vec![])
        );
        drop(stream);
        // A message finds the end first.
        dispatch.queue_order(node(), container(1), ContainerCommand::Forget);
        dispatch.send();
        assert_eq!(dispatch.node_streams(), (vec![other.clone()], vec![node()]));
        let stream = dispatch.open_node(node(), Vec::new());
        drop(stream);
        assert_eq!(dispatch.node_streams(), (vec![other.clone()], vec![node()]));
        assert_eq!(dispatch.node_streams(), (vec![other], vec![]));
    }

    #[test]
    fn a_second_stream_ends_the_first() {
        let mut dispatch = MailboxDispatcher::new(Epoch(1));
        let mut first = dispatch.open_node(node(), Vec::new());
        let _second = dispatch.open_node(node(), Vec::new());
        assert_eq!(first.try_recv().expect("a line").epoch, Epoch(1));
        assert_eq!(
            first.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        );
    }
}
