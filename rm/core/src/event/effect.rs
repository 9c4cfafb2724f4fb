//! Output of the core: effects, and the answers to calls among them.
//!
//! Plain data. The daemon carries the effects out; the core never reads one back.

use headroom_types::{AppId, ContainerId, NodeId, RequestId, Resource};

use super::{
    CallId, CallRefusal, ContainerCommand, EventLogLine, GrantedContainer, MasterUpdate,
    QueuesFrom, RequestVerdict,
};
use crate::node_tags::TagChangeResult;
use crate::save::DurableRecord;

/// Output of the core. The daemon carries effects out in order, after all [`ClusterEffect::Save`]s
/// of the batch are durable.
#[derive(Clone, Debug)]
pub enum ClusterEffect {
    /// A record that must be durable before any later effect is carried out.
    Save(Box<DurableRecord>),
    /// The answer to a call.
    Answer {
        /// Number of the call.
        call: CallId,
        /// The answer.
        answer: CallResult,
    },
    /// Command for a node about one container.
    SendCommand {
        /// The node.
        node: NodeId,
        /// The container.
        container: ContainerId,
        /// The command.
        want: ContainerCommand,
    },
    /// Update for a master.
    Update {
        /// The application.
        app: AppId,
        /// The update.
        update: MasterUpdate,
    },
    /// End of the updates of an application.
    UpdatesEnd {
        /// The application.
        app: AppId,
    },
    /// Line for the event log.
    Log(EventLogLine),
    /// A state machine rejected an event; nothing was changed.
    Illegal {
        /// Object and event.
        what: String,
    },
}

/// Result of a call.
pub type CallResult = Result<CallAnswer, CallRefusal>;

/// Answer to an accepted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// The application exists.
    Submitted {
        /// Its id.
        app: AppId,
        /// Its current attempt.
        attempt: u32,
    },
    /// The number is reserved for the caller.
    Reserved {
        /// The number.
        number: u32,
    },
    /// The requested state holds.
    Done,
    /// The master is registered.
    Master {
        /// Largest container that any node could ever hold.
        largest: Resource,
        /// Live containers, without the master's own.
        containers: Vec<GrantedContainer>,
        /// Cursor before the first update that follows.
        cursor: u64,
    },
    /// The heartbeat was processed.
    Synced {
        /// One verdict per request of the heartbeat.
        verdicts: Vec<(RequestId, RequestVerdict)>,
        /// True when the application must stop.
        stop: bool,
    },
    /// The request was accepted.
    Asked {
        /// Verdict on the request.
        verdict: RequestVerdict,
    },
    /// The size was ordered from the node, or is already in effect.
    Resizing {
        /// Version that will confirm the size.
        version: u32,
    },
    /// The queue tree is in effect, or would be after a dry run.
    Queues {
        /// Generation of the tree.
        generation: u64,
    },
    /// The settings are in effect.
    Configured {
        /// Source of the queue tree in effect.
        queues: QueuesFrom,
    },
    /// The tags of the node are set, or would be after a dry run.
    Tagged(Box<TagChangeResult>),
    /// The node is registered.
    Node {
        /// Ended containers that the node may remove.
        acked: Vec<ContainerId>,
    },
    /// The heartbeat was processed.
    Received {
        /// Ended containers whose reports were processed.
        received: Vec<ContainerId>,
    },
}
