//! Checked configuration types of the daemons. They contain valid values only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use headroom_types::{Bytes, Cpus, EnforcerKind, LogLevel, Name, NodeId, StoreBackend, word_enum};
use headroom_wire::v1::queues::QueueSpec;

use crate::aux_services::AuxServiceConfig;
use crate::etcd::EtcdConfig;
use crate::node_settings::{
    FileCacheLimits, HealthChecks, Isolation, LogRetention, MasterJournals,
};
use crate::telemetry::{HistoryBounds, JournalLimits, RetentionLimits, Telemetry, UploadLimits};
use crate::toml_reader::parse_duration;

/// Configuration of `resourcemanager`. [`Default`] is the meaning of an empty file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceManagerConfig {
    /// Address of the TCP listener.
    pub listen: SocketAddr,
    /// URL at which callers and other resource managers reach it; that of the listener if absent.
    pub advertise: Option<String>,
    /// Path of the Unix socket listener; the kernel reports the identity of its peers.
    pub socket: Option<PathBuf>,
    /// Permissions of unauthenticated TCP callers.
    pub anonymous: AnonymousAccess,
    /// Directory of its certificate: `ca.pem`, `cert.pem`, `key.pem`. Plain HTTP if absent.
    pub tls: Option<PathBuf>,
    /// Directory of the authority that signs certificates of joining hosts: `ca.pem`, `ca.key`.
    pub authority: Option<PathBuf>,
    /// Directory of durable state.
    pub state: PathBuf,
    /// Database of the durable state.
    pub store: StoreBackend,
    /// Log level.
    pub log: LogLevel,
    /// Shortest interval between heartbeats of a node.
    pub heartbeat: Duration,
    /// Time since the last heartbeat after which a node is suspect and gets no new work.
    pub suspect: Duration,
    /// Time since the last heartbeat after which a node is unreachable.
    pub unreachable: Duration,
    /// Time since the last heartbeat after which a node is lost, with its containers.
    pub lost: Duration,
    /// Time since the last heartbeat after which a run of an application master has failed.
    pub master_silence: Duration,
    /// Settings of reservations and preemption.
    pub scheduling: Scheduling,
    /// Limits per caller.
    pub limits: CallerLimits,
    /// Settings of metrics.
    pub telemetry: Telemetry,
    /// OTLP/HTTP address for traces of jobs, without `/v1/traces`.
    pub traces: Option<String>,
    /// Retention of the event log on disk.
    pub events: RetentionLimits,
    /// Retention of the audit log on disk.
    pub audit: RetentionLimits,
    /// Retention of ended applications and containers.
    pub history: HistoryBounds,
    /// Limits of uploaded files.
    pub uploads: UploadLimits,
    /// Limits of the journals of masters in the state.
    pub journals: JournalLimits,
    /// State of several resource managers.
    pub etcd: EtcdConfig,
    /// The tree of queues; `None` for the single queue `default`. Each key is valid by itself; the
    /// tree as a whole is not checked here.
    pub queues: Option<QueueSpec>,
}

word_enum! {
    /// Permissions of unauthenticated TCP callers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum AnonymousAccess: "is not one of" {
        /// Full access: every peer that reaches the listener is trusted.
        #[default]
        All = "all",
        /// Read access to the cluster and its applications.
        Read = "read",
        /// Health checks only.
        Nothing = "nothing",
    }
}

/// Settings of reservations and preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Waiting time of a request before a node is reserved for it.
    pub reserve_after: Duration,
    /// Time between the warning of a master and the preemption of its container.
    pub preempt_warning: Duration,
    /// Minimum interval between preemptions.
    pub preempt_every: Duration,
    /// Maximum share of the cluster's memory that one preemption takes, in thousandths. 0 disables
    /// preemption.
    pub preempt_part: u32,
}

impl Default for Scheduling {
    fn default() -> Self {
        Scheduling {
            reserve_after: Duration::from_secs(2),
            preempt_warning: Duration::from_secs(15),
            preempt_every: Duration::from_secs(3),
            preempt_part: 100,
        }
    }
}

/// Limits per caller of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// Sustained rate of changing calls. Per peer and second.
    pub calls_per_second: u32,
    /// Burst of changing calls. Per peer.
    pub calls_at_once: u32,
    /// Maximum number of connections. Per peer.
    pub connections_per_peer: u32,
    /// Maximum number of event streams and waiting queries, of all peers together.
    pub streams: u32,
    /// True if the limits apply to loopback peers too.
    pub loopback: bool,
}

impl Default for CallerLimits {
    fn default() -> Self {
        CallerLimits {
            calls_per_second: 200,
            calls_at_once: 2000,
            connections_per_peer: 2000,
            streams: 4000,
            loopback: false,
        }
    }
}

impl Default for ResourceManagerConfig {
    fn default() -> Self {
        ResourceManagerConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            advertise: None,
            socket: None,
            anonymous: AnonymousAccess::default(),
            tls: None,
            authority: None,
            state: PathBuf::from("/var/lib/headroom/resourcemanager"),
            store: StoreBackend::default(),
            log: LogLevel::default(),
            heartbeat: Duration::from_secs(1),
            suspect: Duration::from_secs(3),
            unreachable: Duration::from_secs(10),
            lost: Duration::from_secs(30),
            master_silence: Duration::from_secs(30),
            scheduling: Scheduling::default(),
            limits: CallerLimits::default(),
            telemetry: Telemetry::default(),
            traces: None,
            events: RetentionLimits::default(),
            audit: RetentionLimits::default(),
            history: HistoryBounds::default(),
            uploads: UploadLimits::default(),
            journals: JournalLimits::default(),
            etcd: EtcdConfig::default(),
            queues: None,
        }
    }
}

/// Configuration of `nodeagent`. [`Default`] is the meaning of an empty file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAgentConfig {
    /// URL of the resource manager: `http://127.0.0.1:7070`.
    pub rm: String,
    /// Node name; the host name if absent.
    pub name: Option<NodeId>,
    /// Directory of containers and their logs.
    pub state: PathBuf,
    /// Address of the listener.
    pub listen: SocketAddr,
    /// Directory of its certificate: `ca.pem`, `cert.pem`, `key.pem`. Plain HTTP if absent.
    pub tls: Option<PathBuf>,
    /// Host name or address under which other hosts reach this one; the listener's address if
    /// absent.
    pub advertise: Option<String>,
    /// Memory that the node offers; all but `reserve` if absent.
    pub memory: Option<Bytes>,
    /// Processors that the node offers; all if absent.
    pub cpus: Option<Cpus>,
    /// Memory reserved for the host if `memory` is absent.
    pub reserve: Bytes,
    /// Required enforcer; the best available one if absent.
    pub enforcer: Option<EnforcerKind>,
    /// cgroup directory to use; detected if absent.
    pub cgroup_root: Option<PathBuf>,
    /// Directory of the sibling programs; that of this program if absent.
    pub bin_dir: Option<PathBuf>,
    /// Self-fencing after lost contact to the resource manager.
    pub self_fence: SelfFence,
    /// Rack; nodes of one rack fail together.
    pub rack: Option<Name>,
    /// Labels that a request can require.
    pub labels: BTreeSet<Name>,
    /// True if only requests that require one of its labels are placed here. Never true without
    /// labels.
    pub exclusive: bool,
    /// Named values that a request can compare.
    pub attributes: BTreeMap<Name, String>,
    /// Auxiliary services by name.
    pub aux_services: BTreeMap<Name, AuxServiceConfig>,
    /// Isolation of programs on the host.
    pub isolation: Isolation,
    /// Retention of program logs.
    pub logs: LogRetention,
    /// Health checks of the node.
    pub health: HealthChecks,
    /// Limits of fetched files and their cache.
    pub cache: FileCacheLimits,
    /// Directory of the journals of application masters.
    pub masters: MasterJournals,
    /// Settings of metrics.
    pub telemetry: Telemetry,
}

/// Self-fencing: when a node without contact to its resource manager ends its containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfFence {
    /// Never.
    Never,
    /// After this time without contact.
    After(Duration),
}

impl FromStr for SelfFence {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "never" => Ok(SelfFence::Never),
            text => parse_duration(text).map(SelfFence::After),
        }
    }
}

impl Default for NodeAgentConfig {
    fn default() -> Self {
        NodeAgentConfig {
            rm: "http://127.0.0.1:7070".to_owned(),
            name: None,
            state: PathBuf::from("/var/lib/headroom/nodeagent"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7072)),
            tls: None,
            advertise: None,
            memory: None,
            cpus: None,
            reserve: Bytes::from_mib(512),
            enforcer: None,
            cgroup_root: None,
            bin_dir: None,
            self_fence: SelfFence::After(Duration::from_secs(600)),
            rack: None,
            labels: BTreeSet::new(),
            exclusive: false,
            attributes: BTreeMap::new(),
            aux_services: BTreeMap::new(),
            isolation: Isolation::default(),
            logs: LogRetention::default(),
            health: HealthChecks::default(),
            cache: FileCacheLimits::default(),
            masters: MasterJournals::default(),
            telemetry: Telemetry::default(),
        }
    }
}
