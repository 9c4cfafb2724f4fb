//! Settings of the cluster that an operator configures.
//!
//! Plain data. The cluster owns the settings in effect, and `configure` changes them.

use std::time::Duration;

use headroom_types::UnixMillis;

use crate::queue::QueueTree;

/// Settings of an operator. The defaults are those of the shipped configuration.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Shortest interval between heartbeats of a node.
    pub heartbeat: Duration,
    /// Longest interval between heartbeats that follows from the number of nodes.
    pub max_scaled_heartbeat: Duration,
    /// Time without a heartbeat after which a node gets no more work.
    pub suspect: Duration,
    /// Time without a heartbeat after which a node is unreachable.
    pub unreachable: Duration,
    /// Time without a heartbeat after which a node is lost.
    pub lost: Duration,
    /// Time without a heartbeat after which an attempt has failed.
    pub master_silence: Duration,
    /// Longest time after a restart in which grants wait for nodes to register again.
    pub recovery_wait: Duration,
    /// Time that a finished master has to end by itself.
    pub master_linger: Duration,
    /// Wall-clock time at tick 0.
    pub unix_at_zero: UnixMillis,
    /// Most ended applications that are kept.
    pub keep_apps: usize,
    /// Longest time that ended applications are kept.
    pub keep_age: Duration,
    /// Most ended containers that are kept.
    pub keep_containers: usize,
    /// Configured queue tree; a tree that was set at run time overrides it.
    pub queues: QueueTree,
    /// Time between the warning of a master and the preemption of its container.
    pub preempt_warning: Duration,
    /// Interval between two rounds of preemption.
    pub preempt_every: Duration,
    /// Largest part of the cluster's memory that one round of preemption takes. Thousandths.
    pub preempt_part: u32,
    /// Waiting time of a request before a node is reserved for it.
    pub reserve_after: Duration,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            heartbeat: Duration::from_secs(1),
            max_scaled_heartbeat: Duration::from_secs(10),
            suspect: Duration::from_secs(3),
            unreachable: Duration::from_secs(10),
            lost: Duration::from_secs(30),
            master_silence: Duration::from_secs(30),
            recovery_wait: Duration::from_secs(10),
            master_linger: Duration::from_secs(5),
            unix_at_zero: UnixMillis(0),
            keep_apps: 500,
            keep_age: Duration::from_secs(30 * 86_400),
            keep_containers: 5000,
            queues: QueueTree::default(),
            preempt_warning: Duration::from_secs(15),
            preempt_every: Duration::from_secs(3),
            preempt_part: 100,
            reserve_after: Duration::from_secs(2),
        }
    }
}
