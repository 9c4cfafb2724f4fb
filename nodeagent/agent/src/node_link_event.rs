//! The results of calls to the resource manager, as inputs of the loop, and the membership of the
//! node that follows from them. The link owns the calls.

use headroom_client::ClientError;
use headroom_wire::v1::nodes::{DesiredStateLine, NodeRegistered, NodeReportReply};
use serde::Serialize;

/// Membership of the node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeMembership {
    /// The node is registered.
    Registered,
    /// The node is registering, or the resource manager does not answer.
    Searching,
    /// The resource manager refuses the node as decommissioned.
    Decommissioned,
}

/// A result of a call to the resource manager.
#[derive(Debug)]
pub enum NodeLinkEvent {
    /// Answer to a registration.
    Registered(Result<NodeRegistered, ClientError>),
    /// One message of the desired-state stream.
    Line(RegistrationNumber, DesiredStateLine),
    /// The desired-state stream ended.
    StreamEnded(RegistrationNumber, Option<ClientError>),
    /// Answer to a report.
    Reported(RegistrationNumber, Result<NodeReportReply, ClientError>),
}

/// The number of a registration. Answers that belong to an earlier one are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrationNumber(u64);

impl RegistrationNumber {
    /// The number of the next registration.
    pub(crate) fn next(self) -> Self {
        RegistrationNumber(self.0 + 1)
    }
}
