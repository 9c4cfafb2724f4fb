//! Unattributed memory: memory that ended containers leave charged to the node, and that no running
//! container holds.
//!
//! Runs in parallel to the loop and reports changes to it. It measures the cgroup around all
//! containers. The resource manager counts the memory as allocated; above a configured share, the
//! node takes no work. The containers that left it are recorded when their groups are removed.
//! Without cgroups no kernel counter exists, and nothing is reported.

use std::sync::Arc;
use std::time::Duration;

use headroom_config::HealthChecks;
use headroom_node_cgroup::CgroupError;
use headroom_types::Bytes;
use headroom_types::exit::{LeftoverOwner, Unattributed};
use headroom_types::unattributed::owners;
use tokio::sync::{mpsc, watch};

use crate::agent_input::AgentInput;
use crate::aux_service;
use crate::node_context::NodeContext;
use crate::unattributed_memory::{UnattributedFinding, floor};

/// Interval between measurements.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Measures periodically until the loop has ended.
pub(crate) async fn watch(
    site: Arc<NodeContext>,
    offers: Bytes,
    mut wanted: watch::Receiver<HealthChecks>,
    inputs: mpsc::Sender<AgentInput>,
) {
    let floor = floor(offers);
    let mut filter = UnattributedFilter::new(floor);
    let mut reported = UnattributedFinding::default();
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let at = Arc::clone(&site);
                let look = tokio::task::spawn_blocking(move || measure(&at, floor)).await;
                match look {
                    Ok(Ok(Some(memory))) => filter.take(memory),
                    // No kernel counter exists here.
                    Ok(Ok(None)) => return,
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "unattributed memory cannot be measured now");
                        continue;
                    }
                    // The panic is already in the log.
                    Err(_) => continue,
                }
            }
            changed = wanted.changed() => if changed.is_err() { return },
            () = inputs.closed() => return,
        }
        let max = wanted.borrow_and_update().max_unattributed;
        let Unattributed { memory, left_by } = site.leftovers.set(filter.shown);
        let ill = ill(memory, offers, max, &left_by);
        // Owners that are recorded later appear in the next report.
        if (memory, ill.is_some()) != (reported.memory, reported.ill.is_some()) {
            reported = UnattributedFinding {
                memory,
                left_by,
                ill,
            };
            if inputs
                .send(AgentInput::Unattributed(reported.clone()))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// The unattributed memory now; zero below `floor`. `None` without cgroups. Blocking.
///
/// While the samples of the containers already show that it is below `floor`, no group is read.
fn measure(site: &NodeContext, floor: Bytes) -> Result<Option<Bytes>, CgroupError> {
    match site.leftovers.bound() {
        Some(bound) if bound < floor => Ok(Some(Bytes::ZERO)),
        Some(_) | None => site.enforcer.unattributed(floor),
    }
}

/// An upper bound of the unattributed memory, which includes page cache: all memory but `held` by
/// containers and that of auxiliary services. `None` if it cannot be read. Blocking.
pub(crate) fn bound(site: &NodeContext, held: Bytes) -> Option<Bytes> {
    // The services are read before the level above them, as all groups are for the exact value.
    let services = site
        .aux_services
        .keys()
        .filter_map(|service| site.enforcer.usage(&aux_service::group_name(service)).ok());
    let held = services.fold(held, Bytes::saturating_add);
    let all = site.enforcer.fence_usage().ok().flatten()?;
    Some(all.saturating_sub(held))
}

/// Why the node takes no work. `max` is in thousandths of the node's offer.
fn ill(memory: Bytes, offers: Bytes, max: u32, left_by: &[LeftoverOwner]) -> Option<String> {
    let limit = offers.mul_ratio(u64::from(max), 1000);
    let exceeded = !memory.is_zero() && memory > limit;
    exceeded.then(|| {
        format!(
            "{memory} of {offers} are held by memory that no running container owns (limit {limit}); {}; remove it: ls -l /dev/shm, \
             ipcs -m, df -t tmpfs",
            owners(left_by)
        )
    })
}

/// Turns single measurements into the reported value. An increase takes effect when the smaller of
/// the last two measurements exceeds the reported value by a step. A decrease takes effect at once.
#[derive(Debug)]
struct UnattributedFilter {
    floor: Bytes,
    before: Bytes,
    shown: Bytes,
}

impl UnattributedFilter {
    fn new(floor: Bytes) -> Self {
        UnattributedFilter {
            floor,
            before: Bytes::ZERO,
            shown: Bytes::ZERO,
        }
    }

    fn take(&mut self, look: Bytes) {
        let sure = look.min(self.before);
        self.before = look;
        let sure = if sure < self.floor { Bytes::ZERO } else { sure };
        let rise = sure.saturating_sub(self.shown);
        let step = self.floor.mul_ratio(1, 2);
        if sure < self.shown || rise >= step {
            // Whole MiB: smaller changes are not worth a message.
            self.shown = Bytes::from_mib(sure.get() >> 20);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: fn(u64) -> Bytes = Bytes::from_mib;

    #[test]
    fn a_rise_needs_two_measurements_and_a_fall_one() {
        let mut filter = UnattributedFilter::new(MIB(30));
        let mut shown = |look: u64| {
            filter.take(MIB(look));
            filter.shown
        };
        assert_eq!(
            [300, 0, 0].map(&mut shown),
            [MIB(0); 3],
            "a single measurement does not count"
        );
        assert_eq!(
            [300, 290, 300].map(&mut shown),
            [MIB(0), MIB(290), MIB(290)],
            "the lower of two, then no full step"
        );
        assert_eq!([310, 310].map(&mut shown), [MIB(290), MIB(310)]);
        assert_eq!(
            [200, 20, 0].map(&mut shown),
            [MIB(200), MIB(0), MIB(0)],
            "a value below the floor is zero"
        );
    }

    #[test]
    fn above_the_limit_the_node_names_the_owners_of_the_memory() {
        let left_by = [LeftoverOwner {
            name: "etl.1.e1.c2".into(),
            memory: MIB(800),
        }];
        assert_eq!(
            ill(MIB(256), MIB(1024), 250, &left_by),
            None,
            "a quarter is allowed"
        );
        let why = ill(MIB(257), MIB(1024), 250, &left_by).expect("too much");
        assert!(
            why.starts_with(
                "257 MiB of 1 GiB are held by memory that no running container owns (limit 256 MiB)"
            ),
            "{why}"
        );
        assert!(why.contains("left by etl.1.e1.c2 (800 MiB)"), "{why}");
        assert_eq!(
            ill(MIB(1024), MIB(1024), 1000, &left_by),
            None,
            "100 % is no limit"
        );
    }
}
