//! Operator commands to the resource manager process, and the managers of a cluster.

use headroom_types::{Epoch, LogLevel, UnixMillis, word_enum};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/operator/reload`: the result of a configuration reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadResult {
    /// Changed keys that are in force: `history.apps: 500 → 7`.
    pub holds: Vec<String>,
    /// Changed keys that wait for a restart.
    pub waits: Vec<String>,
    /// Settings that override the file.
    pub notes: Vec<String>,
}

/// `GET /v1/operator/log`: the log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLevelView {
    /// Current level.
    pub level: LogLevel,
    /// Level after the next reload or restart, from the configuration.
    pub configured: LogLevel,
    /// True if `HEADROOM_LOG` in the environment of the daemon overrides both.
    pub by_environment: bool,
}

/// `PUT /v1/operator/log`: set the log level until the next reload or restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLogLevelRequest {
    /// New level.
    pub level: LogLevel,
}

word_enum! {
    /// The role of a resource manager among the managers of its cluster.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ManagerRole: "is not a role of a resource manager; use" {
        /// Holds the lease and serves the cluster.
        Leader = "leader",
        /// Waits for the lease and answers calls with HR0421 or HR0503.
        Standby = "standby",
        /// Serves its cluster without an election: no standbys are configured.
        Single = "single";
        /// A role of a later version.
        #[serde(other)]
        Unknown = "unknown"
    }
}

/// `GET /v1/leader`: the managers of the cluster, as one of them sees them. Leaders and standbys
/// answer it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderView {
    /// Advertised address of the manager that answers: `https://rm1:7070`.
    #[serde(rename = "self")]
    pub own: String,
    /// Its role.
    pub state: ManagerRole,
    /// Advertised address of the leader; absent while none is known.
    pub leader: Option<String>,
    /// Epoch of the leader; absent while none is known.
    pub epoch: Option<Epoch>,
    /// Time for which the leader's lease is certain, if the leader answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Reason why this manager cannot follow or lead, such as an etcd without quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// All managers that take part, the one that answers among them.
    #[serde(default)]
    pub managers: Vec<ManagerView>,
}

/// One resource manager of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ManagerView {
    /// Its advertised address.
    pub url: String,
    /// Its role.
    pub state: ManagerRole,
    /// Start of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<UnixMillis>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
