//! Liveness of nodes between heartbeats: a node holds its stream of desired state open.
//!
//! In a large cluster, nodes send heartbeats at longer intervals. An open stream then shows that the
//! host and the process of the agent run. The end of a stream, or a late heartbeat, begins the
//! silence of the node.

use std::time::Duration;

use headroom_types::{NodeId, Tick};

use crate::cluster::Cluster;
use crate::settings::ClusterSettings;
use crate::timer::TimerKey;

/// Number of nodes for each second of the interval between heartbeats.
const NODES_PER_SECOND: usize = 1000;
/// Delay after which a heartbeat is late.
const LATE: Duration = Duration::from_secs(2);

/// Interval between the heartbeats of each of `nodes` nodes.
fn scaled_interval(settings: &ClusterSettings, nodes: usize) -> Duration {
    let seconds = u64::try_from(nodes.div_ceil(NODES_PER_SECOND)).unwrap_or(u64::MAX);
    let scaled = Duration::from_secs(seconds).min(settings.max_scaled_heartbeat);
    settings.heartbeat.max(scaled)
}

impl Cluster {
    /// Interval at which each node sends heartbeats. It grows with the number of nodes, those
    /// included that a recovery waits for.
    pub fn heartbeat_interval(&self) -> Duration {
        let awaited = self.nodes.recovery().map_or(0, |r| r.waiting.len());
        let registered = self.nodes.index().members().len();
        scaled_interval(&self.settings, registered + awaited)
    }

    /// Whether an open stream shows that its node is alive, because heartbeats come too rarely.
    pub fn counts_streams(&self) -> bool {
        self.heartbeat_interval() * 2 > self.settings.suspect
    }

    /// Counts nodes with an open stream as alive if their heartbeat is not late. A node that is
    /// silent already needs a heartbeat.
    pub(crate) fn streams_are_open(&mut self, nodes: &[NodeId], now: Tick) {
        let late = self.heartbeat_interval() + LATE;
        for id in nodes {
            if self.nodes.note_stream(id, now, late) {
                let deadline = now.plus(self.settings.suspect);
                self.timers.set(TimerKey::Node(id.clone()), deadline);
            }
        }
    }

    /// Begins the silence of nodes whose stream ended: they are suspect until the next heartbeat.
    pub(crate) fn streams_ended(&mut self, nodes: &[NodeId], now: Tick) {
        if !self.counts_streams() {
            return;
        }
        for id in nodes {
            if self.nodes.note_stream_end(id, now, self.settings.suspect) {
                self.timers.set(TimerKey::Node(id.clone()), now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_grows_with_the_number_of_nodes_up_to_a_limit() {
        let mut settings = ClusterSettings::default();
        let sizes = [0, 1, 1000, 1001, 9000, 9001, 10_000, 100_000];
        let seconds = sizes.map(|nodes| scaled_interval(&settings, nodes).as_secs());
        assert_eq!(seconds, [1, 1, 1, 2, 9, 10, 10, 10]);
        settings.heartbeat = Duration::from_secs(30);
        assert_eq!(scaled_interval(&settings, 10_000), settings.heartbeat);
    }
}
