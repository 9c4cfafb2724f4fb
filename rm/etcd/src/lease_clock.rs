//! How long a leader can be sure that it leads, and how long it waits when it is not.
//!
//! The clock is the kernel's time since boot, which continues while the process is stopped and
//! while the host sleeps. It cannot be set.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time until which a lease is certain. Threads share it.
#[derive(Debug)]
pub struct LeaseClock {
    /// Milliseconds since boot.
    until: AtomicU64,
    /// The time until which the leader's key certainly exists. Milliseconds since boot.
    key_until: AtomicU64,
    /// Time for which the leader waits after that for a renewal. Milliseconds.
    grace_period: u64,
    ended: AtomicBool,
}

impl LeaseClock {
    /// A lease that is certain until `until`, in milliseconds since boot.
    pub fn until(until: u64) -> Self {
        LeaseClock {
            until: AtomicU64::new(until),
            key_until: AtomicU64::new(u64::MAX),
            grace_period: 0,
            ended: AtomicBool::new(false),
        }
    }

    /// A leader that is not certain any more waits for a renewal for this time. It is certain again
    /// after one: a renewal fails when a standby has ended the lease.
    #[must_use]
    pub fn with_grace_period(self, grace_period: Duration) -> Self {
        let grace_period = u64::try_from(grace_period.as_millis()).unwrap_or(u64::MAX / 4);
        LeaseClock {
            grace_period,
            ..self
        }
    }

    /// The leader's key ends with a lease of etcd, which is certain until this time, in milliseconds
    /// since boot.
    #[must_use]
    pub fn with_key_until(self, until: u64) -> Self {
        let key_until = AtomicU64::new(until);
        LeaseClock { key_until, ..self }
    }

    /// Extends the time of the leader's key after a renewal of its lease of etcd, of length `time`,
    /// that was sent at `sent`, in milliseconds since boot.
    pub fn keep_key(&self, sent: u64, time: Duration) {
        let until = certain_until(sent, time);
        self.key_until.fetch_max(until, Ordering::AcqRel);
    }

    /// Extends the lease after a renewal that was sent at `sent`, in milliseconds since boot.
    pub fn renew(&self, sent: u64, lease: Duration) {
        self.until
            .fetch_max(certain_until(sent, lease), Ordering::AcqRel);
    }

    /// Ends the lease for good.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Time for which the lease is still certain; zero once it is not.
    pub fn remaining(&self) -> Duration {
        self.remaining_at(now())
    }

    /// Time for which the lease is certain at `now`, in milliseconds since boot.
    pub fn remaining_at(&self, now: u64) -> Duration {
        if self.ended.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        Duration::from_millis(self.certain_until().saturating_sub(now))
    }

    fn certain_until(&self) -> u64 {
        let key = self.key_until.load(Ordering::Acquire);
        self.until.load(Ordering::Acquire).min(key)
    }

    /// Time until the leader gives up, also while it is not certain; zero at the end.
    pub fn remaining_grace(&self) -> Duration {
        self.remaining_grace_at(now())
    }

    /// [`Self::remaining_grace`] at `now`, in milliseconds since boot.
    pub fn remaining_grace_at(&self, now: u64) -> Duration {
        if self.ended.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let until = self.certain_until();
        Duration::from_millis(until.saturating_add(self.grace_period).saturating_sub(now))
    }

    /// Whether no other manager can lead now.
    pub fn is_certain(&self) -> bool {
        !self.remaining().is_zero()
    }
}

/// Milliseconds since the boot of the host, with the time that it slept.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0);
    seconds * 1000 + millis
}

/// The time until which a lease is certain whose renewal was sent at `sent`, both in milliseconds
/// since boot. A standby counts from its arrival at etcd or later. A tenth less bounds the difference
/// between two clocks.
pub fn certain_until(sent: u64, lease: Duration) -> u64 {
    let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX / 4);
    sent.saturating_add(lease - lease / 10)
}

/// Time for which an uncertain leader waits for a renewal, and for which etcd keeps the keys of a
/// manager that no standby replaces: four leases, at least 5 s. It outlasts an election inside etcd.
pub fn grace_period(lease: Duration) -> Duration {
    (lease * 4).max(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_certain_for_less_than_its_time_and_never_again_after_its_end() {
        let clock = LeaseClock::until(certain_until(1_000, Duration::from_secs(3)));
        assert_eq!(clock.remaining_at(1_000), Duration::from_millis(2_700));
        assert_eq!(clock.remaining_at(3_700), Duration::ZERO);
        clock.renew(2_000, Duration::from_secs(3));
        assert_eq!(clock.remaining_at(3_700), Duration::from_millis(1_000));
        clock.renew(500, Duration::from_secs(3));
        assert_eq!(
            clock.remaining_at(3_700),
            Duration::from_millis(1_000),
            "a late answer to an earlier renewal shortens nothing"
        );
        clock.end();
        clock.renew(4_000, Duration::from_secs(3));
        assert_eq!(clock.remaining_at(3_700), Duration::ZERO);
    }

    #[test]
    fn an_uncertain_leader_waits_and_is_certain_after_a_renewal() {
        let lease = Duration::from_secs(3);
        let clock = LeaseClock::until(certain_until(1_000, lease)).with_grace_period(lease);
        let at = |now| (clock.remaining_at(now), clock.remaining_grace_at(now));
        assert_eq!(
            at(3_600),
            (Duration::from_millis(100), Duration::from_millis(3_100))
        );
        assert_eq!(at(4_700), (Duration::ZERO, Duration::from_secs(2)));
        assert_eq!(at(6_700), (Duration::ZERO, Duration::ZERO));
        clock.renew(4_000, lease);
        assert_eq!(clock.remaining_at(4_700), Duration::from_secs(2));
        clock.end();
        assert_eq!(at(4_700), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn a_lease_is_not_certain_without_its_key() {
        let (lease, key) = (Duration::from_secs(1), Duration::from_secs(5));
        let clock =
            LeaseClock::until(certain_until(0, lease)).with_key_until(certain_until(0, key));
        clock.renew(4_000, lease);
        assert_eq!(clock.remaining_at(4_400), Duration::from_millis(100));
        assert_eq!(clock.remaining_at(4_500), Duration::ZERO);
        clock.keep_key(4_300, key);
        assert_eq!(clock.remaining_at(4_500), Duration::from_millis(400));
    }

    #[test]
    fn the_clock_runs() {
        let before = now();
        assert!(before > 0);
        while now() == before {
            std::thread::yield_now();
        }
    }
}
