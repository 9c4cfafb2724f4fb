//! Counts of what happened to the managers of a run. They show that the faults struck.

use std::ops::AddAssign;

/// Elections and faults of several managers; all zero in a run with one manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerCounts {
    /// Runs with several managers.
    pub runs: u64,
    /// Managers that began to lead.
    pub leaders: u64,
    /// Leaders that handed their leadership over.
    pub hand_overs: u64,
    /// Managers that were killed.
    pub kills: u64,
    /// Times in which a leader was not certain, and waited.
    pub uncertain: u64,
    /// Leaders that ended by themselves, because their lease or a write was not certain.
    pub leaders_ended: u64,
    /// Pauses.
    pub pauses: u64,
    /// Pauses of leaders that were longer than their lease.
    pub pauses_beyond_lease: u64,
    /// Those of them between the check of the lease and the effects.
    pub sends_after_pause: u64,
    /// Partitions between a manager and etcd.
    pub etcd_cuts: u64,
    /// Partitions between a manager and its callers.
    pub caller_cuts: u64,
    /// Times without a quorum of etcd.
    pub quorum_losses: u64,
    /// Elections of a leader of etcd itself.
    pub etcd_elections: u64,
    /// Leases of leaders that expired.
    pub leases_expired: u64,
    /// Writes without an answer in time.
    pub unknown_outcomes: u64,
    /// Writes that took effect, and whose answer was lost.
    pub lost_answers: u64,
    /// Leaders that ended because they could not confirm a write.
    pub unconfirmed_writes: u64,
    /// Writes that etcd refused because another manager leads.
    pub writes_refused: u64,
    /// Writes that etcd refused because the fence had moved.
    pub late_writes_refused: u64,
}

impl ManagerCounts {
    pub(super) fn of(managers: usize) -> Self {
        ManagerCounts {
            runs: u64::from(managers > 1),
            ..ManagerCounts::default()
        }
    }

    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 19] {
        [
            ("runs with several managers", self.runs),
            ("leaders", self.leaders),
            ("hand-overs", self.hand_overs),
            ("kills", self.kills),
            ("waits of uncertain leaders", self.uncertain),
            ("leaders that ended by themselves", self.leaders_ended),
            ("pauses", self.pauses),
            ("pauses beyond the lease", self.pauses_beyond_lease),
            ("pauses between check and send", self.sends_after_pause),
            ("partitions from etcd", self.etcd_cuts),
            ("partitions from callers", self.caller_cuts),
            ("losses of the quorum", self.quorum_losses),
            ("elections of etcd", self.etcd_elections),
            ("expired leases of leaders", self.leases_expired),
            ("writes without an answer", self.unknown_outcomes),
            ("lost answers to writes", self.lost_answers),
            ("unconfirmed writes", self.unconfirmed_writes),
            ("writes of former leaders refused", self.writes_refused),
            ("late repetitions refused", self.late_writes_refused),
        ]
    }
}

impl AddAssign for ManagerCounts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.leaders += other.leaders;
        self.hand_overs += other.hand_overs;
        self.kills += other.kills;
        self.uncertain += other.uncertain;
        self.leaders_ended += other.leaders_ended;
        self.pauses += other.pauses;
        self.pauses_beyond_lease += other.pauses_beyond_lease;
        self.sends_after_pause += other.sends_after_pause;
        self.etcd_cuts += other.etcd_cuts;
        self.caller_cuts += other.caller_cuts;
        self.quorum_losses += other.quorum_losses;
        self.etcd_elections += other.etcd_elections;
        self.leases_expired += other.leases_expired;
        self.unknown_outcomes += other.unknown_outcomes;
        self.lost_answers += other.lost_answers;
        self.unconfirmed_writes += other.unconfirmed_writes;
        self.writes_refused += other.writes_refused;
        self.late_writes_refused += other.late_writes_refused;
    }
}
