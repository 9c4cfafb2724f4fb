//! What the daemons are told: values that cannot hold nonsense.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use headroom_types::{Bytes, Cpus, EnforcerKind, LogLevel, Name, NodeId, StoreBackend};
use headroom_wire::v1::queues::QueueSpec;

use crate::node::{Cache, HealthChecks, Isolation, Logs};
use crate::raw::parse_duration;
use crate::telemetry::{HistoryBounds, Kept, Telemetry};

/// Configuration of `resourcemanager`. [`Default`] is what an empty file means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceManagerConfig {
    /// Where it answers.
    pub listen: SocketAddr,
    /// A socket of the host at which it answers too; the kernel says who calls there.
    pub socket: Option<PathBuf>,
    /// What those may who do not say who they are.
    pub anonymous: Anonymous,
    /// Directory of its certificate: `ca.pem`, `cert.pem`, `key.pem`. It speaks plain HTTP without.
    pub tls: Option<PathBuf>,
    /// Directory of an authority that signs for hosts which join by a token: `ca.pem`, `ca.key`.
    pub authority: Option<PathBuf>,
    /// Where it keeps what must survive.
    pub state: PathBuf,
    /// The database it keeps it in.
    pub store: StoreBackend,
    /// How much it says.
    pub log: LogLevel,
    /// Silence after which a node gets no new work until it is heard again.
    pub suspect: Duration,
    /// Silence after which a node is shown as unreachable.
    pub unreachable: Duration,
    /// Silence after which a node's containers are given up.
    pub lost: Duration,
    /// Silence after which a run of an application master has failed.
    pub master_silence: Duration,
    /// When nodes are kept for those who wait, and containers taken back for them.
    pub scheduling: Scheduling,
    /// How much one caller may have.
    pub limits: Limits,
    /// What it tells of itself.
    pub telemetry: Telemetry,
    /// Where masters send the traces of their jobs: the address of a collector for OTLP over HTTP, without `/v1/traces`.
    pub traces: Option<String>,
    /// How much of the event log is kept on the disk.
    pub events: Kept,
    /// How much is kept of who changed what.
    pub audit: Kept,
    /// How much is kept of what is over.
    pub history: HistoryBounds,
    /// The tree of queues; one queue, `default`, when there is none. Its keys are right each by itself.
    pub queues: Option<QueueSpec>,
}

/// What somebody may who comes in by the port and does not say who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Everything: whoever reaches the port is trusted.
    #[default]
    All,
    /// Look at the cluster and its applications.
    Read,
    /// Ask whether it lives.
    Nothing,
}

impl Anonymous {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Anonymous::All => "all",
            Anonymous::Read => "read",
            Anonymous::Nothing => "nothing",
        }
    }
}

impl FromStr for Anonymous {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Anonymous::All, Anonymous::Read, Anonymous::Nothing];
        let found = all.into_iter().find(|a| a.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is none of \"all\", \"read\", \"nothing\""))
    }
}

/// What is done for requests that wait although their queue has a claim to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// How long a request waits before a node is kept for it.
    pub reserve_after: Duration,
    /// How long a master is warned before one of its containers is taken back.
    pub preempt_warning: Duration,
    /// How often containers may be taken back at all.
    pub preempt_every: Duration,
    /// Most of the cluster's memory that is taken back each time, in thousandths. With 0 nothing is ever taken back.
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

/// How much one caller of the interface may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls that change something, in the long run. Of each peer, per second.
    pub calls_per_second: u32,
    /// Calls that change something, all at once. Of each peer.
    pub calls_at_once: u32,
    /// Connections of each peer.
    pub connections_per_peer: u32,
    /// Event streams and waiting queries, of all peers together.
    pub streams: u32,
    /// Whether programs on the same machine are counted too.
    pub loopback: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { calls_per_second: 200, calls_at_once: 2000, connections_per_peer: 2000, streams: 4000, loopback: false }
    }
}

impl Default for ResourceManagerConfig {
    fn default() -> Self {
        ResourceManagerConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            socket: None,
            anonymous: Anonymous::default(),
            tls: None,
            authority: None,
            state: PathBuf::from("/var/lib/headroom/resourcemanager"),
            store: StoreBackend::default(),
            log: LogLevel::default(),
            suspect: Duration::from_secs(3),
            unreachable: Duration::from_secs(10),
            lost: Duration::from_secs(30),
            master_silence: Duration::from_secs(30),
            scheduling: Scheduling::default(),
            limits: Limits::default(),
            telemetry: Telemetry::default(),
            traces: None,
            events: Kept::default(),
            audit: Kept::default(),
            history: HistoryBounds::default(),
            queues: None,
        }
    }
}

/// Configuration of `nodeagent`. [`Default`] is what an empty file means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAgentConfig {
    /// The resource manager: `http://127.0.0.1:7070`.
    pub rm: String,
    /// Its name; the host's when left out.
    pub name: Option<NodeId>,
    /// Where it keeps containers and their logs.
    pub state: PathBuf,
    /// Where it answers.
    pub listen: SocketAddr,
    /// Directory of its certificate: `ca.pem`, `cert.pem`, `key.pem`. It speaks plain HTTP without.
    pub tls: Option<PathBuf>,
    /// The name or address of this host by which others reach it; the address it listens at when left out.
    pub advertise: Option<String>,
    /// Memory to offer; all but the reserve when left out.
    pub memory: Option<Bytes>,
    /// Processors to offer; all when left out.
    pub cpus: Option<Cpus>,
    /// Memory kept for the host when `memory` is left out.
    pub reserve: Bytes,
    /// What must hold the limits; the best that works when left out.
    pub enforcer: Option<EnforcerKind>,
    /// The cgroup directory to work in; found when left out.
    pub cgroup_root: Option<PathBuf>,
    /// Where the sibling programs are; beside this one when left out.
    pub bin_dir: Option<PathBuf>,
    /// When it ends its containers for want of a resource manager.
    pub self_fence: SelfFence,
    /// Nodes of one rack fail together.
    pub rack: Option<Name>,
    /// Words a request can insist on.
    pub labels: BTreeSet<Name>,
    /// Only requests that insist on one of its labels come here. Never without labels.
    pub exclusive: bool,
    /// Named values a request can compare.
    pub attributes: BTreeMap<Name, String>,
    /// What programs may do on the host.
    pub isolation: Isolation,
    /// How much of what they say is kept.
    pub logs: Logs,
    /// When the node says that it cannot take work.
    pub health: HealthChecks,
    /// What may be fetched, and how much of it is kept.
    pub cache: Cache,
    /// What it tells of itself.
    pub telemetry: Telemetry,
}

/// When a node that hears nothing of its resource manager ends its containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfFence {
    /// Never.
    Never,
    /// After so long a silence.
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
            isolation: Isolation::default(),
            logs: Logs::default(),
            health: HealthChecks::default(),
            cache: Cache::default(),
            telemetry: Telemetry::default(),
        }
    }
}
