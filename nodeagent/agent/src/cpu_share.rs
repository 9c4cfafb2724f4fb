//! The share of a container: its processor weight and bandwidth, and the weight of its disk
//! requests.

use headroom_config::IdleCpuBound;
use headroom_node_cgroup::{EnforcedGroup, shares};
use headroom_types::Cpus;

use crate::node_context::NodeContext;

/// The kernel's default weight of 100 per core. A container without a processor request gets 100
/// too: a master that seldom runs must not wait when it does.
pub(crate) fn weight(cpus: Cpus) -> u32 {
    if cpus.milli() == 0 {
        100
    } else {
        (cpus.milli() / 10).clamp(1, 10_000)
    }
}

/// Sets processor bandwidth and disk weight. An unavailable control is only logged.
pub(crate) fn share(site: &NodeContext, group: &EnforcedGroup, cpus: Cpus) {
    let wanted = shares::CpuIoShares {
        cpu_max: match site.isolation.cpu {
            IdleCpuBound::Share => None,
            IdleCpuBound::Limit => Some(cpus),
        },
        io_weight: Some(weight(cpus)),
    };
    for lacking in shares::set(group, &wanted) {
        tracing::debug!(
            container_id = group.name(),
            lacking,
            "a share cannot be set on this node, ignoring"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_weight_of_a_core_is_100() {
        assert_eq!(
            (
                weight(Cpus::from_cores(2)),
                weight(Cpus::from_milli(1)),
                weight(Cpus::from_cores(500))
            ),
            (200, 1, 10_000)
        );
        assert_eq!(weight(Cpus::from_milli(0)), 100);
    }
}
