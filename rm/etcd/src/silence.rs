//! How a standby finds that the leader is silent. Pure.
//!
//! The leader writes a key with each renewal. A standby reads it again and again, and considers the
//! lease expired when it has not changed for the lease, by the clock of the standby's own host. The
//! key has the length of the lease, because the leader may be configured otherwise. The
//! leader counts from before its write and stops a tenth earlier ([`crate::LeaseClock`]), so it has
//! stopped by then.

use std::time::Duration;

/// A renewal of a leader, as etcd has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The creation revision of the leader's key.
    pub created: i64,
    /// The revision of the renewal.
    pub renewed: i64,
}

/// The last renewal that a standby has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderSilence {
    renewal: Option<Renewal>,
    /// When it was seen first. Milliseconds since boot.
    since: u64,
    /// The lease of the leader.
    lease: Duration,
}

impl LeaderSilence {
    /// Takes the renewal of an answer that arrived at `now`, in milliseconds since boot, with the
    /// lease of that leader; `None` if no manager leads.
    pub fn answered(&mut self, now: u64, found: Option<(Renewal, Duration)>) {
        let renewal = found.map(|(renewal, _)| renewal);
        if self.renewal != renewal {
            *self = LeaderSilence {
                renewal,
                since: now,
                lease: found.map_or(Duration::ZERO, |(_, lease)| lease),
            };
        }
    }

    /// etcd did not answer until `now`. It may not have answered the leader either, which then has
    /// half of its lease to renew it first.
    pub fn unanswered(&mut self, now: u64) {
        let half = millis(self.lease) / 2;
        self.since = self.since.max(now.saturating_sub(half));
    }

    /// The renewal after which the leader has been silent for its lease at `now`.
    pub fn expired(&self, now: u64) -> Option<Renewal> {
        self.renewal
            .filter(|_| now.saturating_sub(self.since) >= millis(self.lease))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    fn renewal(renewed: i64) -> Option<Renewal> {
        Some(Renewal {
            created: 7,
            renewed,
        })
    }

    fn led(renewed: i64) -> Option<(Renewal, Duration)> {
        renewal(renewed).map(|renewal| (renewal, LEASE))
    }

    #[test]
    fn a_leader_without_a_renewal_for_its_lease_is_silent() {
        let mut silence = LeaderSilence::default();
        assert_eq!(silence.expired(9_000), None, "no manager leads");
        silence.answered(10_000, led(8));
        silence.answered(10_700, led(8));
        assert_eq!(silence.expired(10_999), None);
        assert_eq!(silence.expired(11_000), renewal(8));
        silence.answered(11_000, led(9));
        assert_eq!(silence.expired(11_999), None, "it was renewed");
        silence.answered(12_000, None);
        assert_eq!(silence.expired(20_000), None);
    }

    #[test]
    fn after_an_outage_of_etcd_the_leader_may_renew_first() {
        let mut silence = LeaderSilence::default();
        silence.answered(10_000, led(8));
        silence.unanswered(10_200);
        assert_eq!(silence.expired(11_000), renewal(8), "it was short");
        silence.unanswered(13_000);
        silence.answered(13_100, led(8));
        assert_eq!(silence.expired(13_499), None);
        assert_eq!(silence.expired(13_500), renewal(8));
    }
}
