//! A manager in the election of the leader, as `rm/etcd/src/election.rs` has it: a standby tries to
//! create the leader's key, and removes the key of a leader that is silent for its lease by the
//! standby's clock; a leader renews its lease, and considers it over by its own clock before that.

use std::time::Duration;

use headroom_rm_core::RestoredCluster;
use headroom_rm_etcd::{LeaderSilence, LeaseClock, Renewal, certain_until, grace_period};

use super::commit::SimCommit;
use super::etcd::{EtcdAnswer, EtcdRequest, LeaderKey};
use super::etcd_link::AnswerFate;
use super::manager::SimManagerEvent;
use super::{Simulation, SimulationEvent as Any};
use crate::fault::LastWrite;

/// Longest wait for the answer of etcd to a call. Milliseconds.
pub(super) const CALL: u64 = 1_000;
/// Pause of a candidate after a failed call. Milliseconds.
const AGAIN: u64 = 300;
/// Pause of a leader after a failed renewal. Milliseconds.
const RENEW_AGAIN: u64 = 100;
/// Interval of the checks whether the lease is certain again. Milliseconds.
const UNCERTAIN: u64 = 50;
/// Time after which a candidate with a call under way looks again at the end of a process.
/// Milliseconds.
const LEARNS: u64 = 10;
/// Renewals of a lease in its time.
const RENEWALS: u64 = 4;
/// Renewals of a lease of etcd in its time.
const KEEPS: u64 = 4;
/// Looks of a standby at the leader in the time of a lease.
const LOOKS: u64 = 8;
/// Longest time between two turns of a leader's main loop. Milliseconds.
const TURN: u64 = 1_000;

#[derive(Debug)]
pub(super) enum SimElectionEvent {
    Answer {
        number: u64,
        answer: Box<EtcdAnswer>,
    },
    /// A call has no answer in time.
    Silent { number: u64 },
    /// The pause of a candidate is over.
    Timer { round: u64 },
    /// The renewal of the leader's lease is due.
    Renew,
    /// The renewal of the lease of etcd is due, to which the leader's key belongs.
    Keep,
    /// A leader looks whether its lease is certain.
    Certain,
    /// The same before it begins its work.
    Begin,
    /// The watch reports a change of the leader.
    Leader {
        revision: u64,
        leader: Option<LeaderKey>,
    },
    /// The connection to the process of this manager broke, and its host refuses another one.
    ProcessEnded(usize),
    /// The main loop of a leader turns.
    Turn,
    /// A write is sent again.
    CommitAgain,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ElectionStage {
    #[default]
    Off,
    /// It begins again after a pause.
    Pausing,
    Granting,
    Competing,
    /// It renews the lease of a key that an earlier try has created.
    Confirming,
    Waiting,
    Deposing,
    Revoking,
    /// It renews its lease of etcd.
    Renewing,
    /// The leader's key is its own. It reads the state.
    Reading,
    /// It has read the state. Its epoch begins.
    Leading,
}

/// The part of one manager in the election.
#[derive(Debug)]
pub(super) struct SimElection {
    /// Time of its clock in 1000 milliseconds of etcd's.
    rate: u64,
    stage: ElectionStage,
    round: u64,
    call: Option<u64>,
    /// Number and time of the renewal under way.
    renewal: Option<(u64, u64)>,
    /// The same of its lease of etcd.
    keeping: Option<(u64, u64)>,
    /// Time of the call under way, by its own clock.
    sent: u64,
    /// Time of the last renewal of its lease of etcd.
    kept: u64,
    silence: LeaderSilence,
    lease: i64,
    clock: Option<LeaseClock>,
    /// The key that an earlier try has created.
    found: Option<LeaderKey>,
    pub(super) key: Option<LeaderKey>,
    /// The leader that it knows.
    pub(super) view: Option<LeaderKey>,
    viewed: u64,
    /// The state that it has read, until its epoch is durable.
    pub(super) opened: Option<Box<RestoredCluster>>,
    pub(super) commit: Option<SimCommit>,
}

impl SimElection {
    pub(super) fn new(rate: u64) -> Self {
        SimElection {
            rate,
            stage: ElectionStage::Off,
            round: 0,
            call: None,
            renewal: None,
            keeping: None,
            sent: 0,
            kept: 0,
            silence: LeaderSilence::default(),
            lease: 0,
            clock: None,
            found: None,
            key: None,
            view: None,
            viewed: 0,
            opened: None,
            commit: None,
        }
    }

    /// Its clock at the time `now` of etcd.
    fn local(&self, now: u64) -> u64 {
        now * self.rate / 1_000
    }

    /// Time of etcd in which its clock runs `local`.
    pub(super) fn lasting(&self, local: u64) -> u64 {
        (local * 1_000).div_ceil(self.rate)
    }

    /// Time for which its lease is certain, by its own clock. Milliseconds.
    pub(super) fn remaining(&self, now: u64) -> u64 {
        let now = self.local(now);
        let left = self.clock.as_ref().map(|clock| clock.remaining_at(now));
        left.map_or(0, whole_millis)
    }

    /// Time until it gives up, also while its lease is not certain. Milliseconds.
    pub(super) fn remaining_grace(&self, now: u64) -> u64 {
        let now = self.local(now);
        let left = self.clock.as_ref();
        left.map_or(0, |clock| whole_millis(clock.remaining_grace_at(now)))
    }
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(0)
}

impl Simulation {
    /// The election of a manager. Only scenarios with several managers have one.
    pub(super) fn election(&mut self, m: usize) -> Option<&mut SimElection> {
        self.managers[m].election.as_mut()
    }

    /// Schedules an event of this incarnation of a manager.
    pub(super) fn election_later(&mut self, m: usize, after: u64, event: SimElectionEvent) {
        let life = self.managers[m].life;
        self.later(
            after,
            Any::Manager(m, SimManagerEvent::Election { life, event }),
        );
    }

    /// Calls etcd, and waits for its answer at most `most` by the clock of the manager.
    pub(super) fn election_calls(
        &mut self,
        m: usize,
        request: EtcdRequest,
        (most, answer): (u64, AnswerFate),
    ) -> u64 {
        let number = self.etcd_calls(m, request, answer);
        let most = self.election(m).map_or(most, |e| e.lasting(most));
        self.election_later(m, most, SimElectionEvent::Silent { number });
        number
    }

    fn lease_ms(&self) -> u64 {
        self.scenario.managers.lease_ms
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms())
    }

    /// Starts the process of a manager as a standby.
    pub(super) fn standby_starts(&mut self, m: usize) {
        let rate = self.scenario.managers.rates.get(m).copied();
        self.note(|| format!("manager {m} starts as a standby"));
        self.managers[m].election = Some(SimElection::new(rate.unwrap_or(1_000)));
        if self.managers[m].etcd_cuts == 0 {
            self.follow_leader(m);
        }
        self.candidate_calls(m, ElectionStage::Granting);
    }

    /// Reads the leader, as a watch does when it begins.
    pub(super) fn follow_leader(&mut self, m: usize) {
        let (revision, leader) = (self.number(), self.etcd.store.leader());
        self.election_later(m, 5, SimElectionEvent::Leader { revision, leader });
    }

    fn candidate_calls(&mut self, m: usize, stage: ElectionStage) {
        let (now, time) = (self.now, self.lease());
        let Some(e) = self.election(m) else {
            return;
        };
        let (lease, led) = (e.lease, e.view.map_or(0, |key| key.lease));
        let silent = e.silence.expired(e.local(now)).unwrap_or(Renewal {
            created: 0,
            renewed: 0,
        });
        let found = e.found.map_or(0, |key| key.created);
        e.stage = stage;
        e.sent = e.local(now);
        let request = match stage {
            ElectionStage::Granting => EtcdRequest::GrantLease(whole_millis(grace_period(time))),
            ElectionStage::Competing => EtcdRequest::CreateLeaderKey { manager: m, lease },
            ElectionStage::Confirming => EtcdRequest::RenewLeader { created: found },
            ElectionStage::Deposing => EtcdRequest::DeposeLeader(silent),
            ElectionStage::Revoking => EtcdRequest::RevokeLease(led),
            ElectionStage::Renewing => EtcdRequest::RenewLease(lease),
            ElectionStage::Reading => EtcdRequest::ReadState,
            ElectionStage::Off
            | ElectionStage::Pausing
            | ElectionStage::Waiting
            | ElectionStage::Leading => return,
        };
        let within = match stage {
            ElectionStage::Competing | ElectionStage::Confirming | ElectionStage::Deposing => {
                CALL.min(self.lease_ms() * 3 / 4)
            }
            ElectionStage::Off
            | ElectionStage::Pausing
            | ElectionStage::Granting
            | ElectionStage::Waiting
            | ElectionStage::Revoking
            | ElectionStage::Renewing
            | ElectionStage::Reading
            | ElectionStage::Leading => CALL,
        };
        let number = self.election_calls(m, request, (within, AnswerFate::Arrives));
        if let Some(e) = self.election(m) {
            e.call = Some(number);
        }
    }

    /// Waits in a stage, at most `most` milliseconds.
    fn candidate_waits(&mut self, m: usize, stage: ElectionStage, most: u64) {
        let Some(e) = self.election(m) else {
            return;
        };
        e.stage = stage;
        e.round += 1;
        let (round, after) = (e.round, e.lasting(most));
        self.election_later(m, after, SimElectionEvent::Timer { round });
    }

    pub(super) fn election_thing(&mut self, m: usize, event: SimElectionEvent) {
        match event {
            SimElectionEvent::Answer { number, answer } => {
                self.election_hears(m, number, Some(*answer));
            }
            SimElectionEvent::Silent { number } => self.election_hears(m, number, None),
            SimElectionEvent::Timer { round } => self.candidate_timer(m, round),
            SimElectionEvent::Renew => self.leader_renews(m),
            SimElectionEvent::Keep => self.leader_keeps_its_key(m),
            SimElectionEvent::Begin => self.leader_begins(m),
            SimElectionEvent::Certain => self.manager_is_durable(m),
            SimElectionEvent::Leader { revision, leader } => {
                self.leader_changed(m, revision, leader);
            }
            SimElectionEvent::ProcessEnded(other) => self.leader_process_ended(m, other),
            SimElectionEvent::Turn => {
                self.manager_turn(m);
                if self.managers[m].cluster.is_some() {
                    self.election_later(m, TURN, SimElectionEvent::Turn);
                }
            }
            SimElectionEvent::CommitAgain => self.commit_again(m),
        }
    }

    fn election_hears(&mut self, m: usize, number: u64, answer: Option<EtcdAnswer>) {
        let Some(e) = self.election(m) else {
            return;
        };
        if e.call.take_if(|waited| *waited == number).is_some() {
            self.candidate_hears(m, answer);
        } else if let Some((_, sent)) = e.renewal.take_if(|(waited, _)| *waited == number) {
            self.renewal_hears(m, sent, answer);
        } else if let Some((_, sent)) = e.keeping.take_if(|(waited, _)| *waited == number) {
            self.keeping_hears(m, sent, answer);
        } else {
            self.commit_hears(m, number, answer);
        }
    }

    fn candidate_hears(&mut self, m: usize, answer: Option<EtcdAnswer>) {
        let Some(e) = self.election(m) else {
            return;
        };
        let sent = e.sent;
        match e.stage {
            ElectionStage::Granting => {
                if let Some(EtcdAnswer::LeaseGranted(lease)) = answer {
                    (e.lease, e.kept, e.silence) = (lease, sent, LeaderSilence::default());
                    return self.candidate_calls(m, ElectionStage::Competing);
                }
            }
            ElectionStage::Competing => return self.candidate_competes(m, answer),
            ElectionStage::Confirming => {
                if let (Some(EtcdAnswer::LeaderRenewed), Some(key)) = (answer, e.found) {
                    return self.is_elected(m, key, sent);
                }
                return self.candidate_calls(m, ElectionStage::Competing);
            }
            // The next look decides.
            ElectionStage::Deposing => {
                e.silence = LeaderSilence::default();
                return self.candidate_calls(m, ElectionStage::Competing);
            }
            // A lease that was not ended expires.
            ElectionStage::Revoking => return self.candidate_calls(m, ElectionStage::Renewing),
            ElectionStage::Renewing => {
                if let Some(EtcdAnswer::LeaseRenewed) = answer {
                    e.kept = sent;
                    return self.candidate_calls(m, ElectionStage::Competing);
                }
            }
            ElectionStage::Reading => {
                if let Some(EtcdAnswer::State(state)) = answer {
                    e.stage = ElectionStage::Leading;
                    return self.begin_epoch(m, state);
                }
                return self.leader_ends(m, "the state cannot be read");
            }
            ElectionStage::Off
            | ElectionStage::Pausing
            | ElectionStage::Waiting
            | ElectionStage::Leading => return,
        }
        self.candidate_waits(m, ElectionStage::Pausing, AGAIN);
    }

    fn candidate_competes(&mut self, m: usize, answer: Option<EtcdAnswer>) {
        let (now, time) = (self.now, self.lease());
        let Some(e) = self.election(m) else {
            return;
        };
        let (local, sent) = (e.local(now), e.sent);
        match answer {
            Some(EtcdAnswer::LeaderKeyCreated(key)) => self.is_elected(m, key, sent),
            Some(EtcdAnswer::LeaderKey(key)) if key.lease == e.lease => {
                e.found = Some(key);
                self.candidate_calls(m, ElectionStage::Confirming);
            }
            Some(EtcdAnswer::LeaderKey(key)) => {
                e.silence.answered(local, Some((key.renewal(), time)));
                if e.silence.expired(local).is_some() {
                    return self.candidate_calls(m, ElectionStage::Deposing);
                }
                self.candidate_waits(m, ElectionStage::Waiting, whole_millis(time) / LOOKS);
            }
            Some(EtcdAnswer::NoQuorum) | None => {
                e.silence.unanswered(local);
                self.candidate_waits(m, ElectionStage::Waiting, RENEW_AGAIN);
            }
            Some(_) => self.candidate_waits(m, ElectionStage::Pausing, AGAIN),
        }
    }

    /// The leader's key is the manager's own. Its last renewal was sent at `sent`, by its clock.
    fn is_elected(&mut self, m: usize, key: LeaderKey, sent: u64) {
        let (lease, now) = (self.lease(), self.now);
        let Some(e) = self.election(m) else {
            return;
        };
        let until = certain_until(sent, lease);
        let clock = LeaseClock::until(until)
            .with_key_until(certain_until(e.kept, grace_period(lease)))
            .with_grace_period(grace_period(lease));
        (e.key, e.clock) = (Some(key), Some(clock));
        let left = e.remaining(now);
        self.note(|| format!("manager {m} is elected, its lease is certain for {left} ms"));
        self.leader_renews(m);
        self.leader_keeps_its_key(m);
        self.candidate_calls(m, ElectionStage::Reading);
    }

    fn candidate_timer(&mut self, m: usize, round: u64) {
        let Some(e) = self.election(m).filter(|e| e.round == round) else {
            return;
        };
        match e.stage {
            ElectionStage::Pausing => self.candidate_calls(m, ElectionStage::Granting),
            ElectionStage::Waiting => self.candidate_looks(m),
            ElectionStage::Off
            | ElectionStage::Granting
            | ElectionStage::Competing
            | ElectionStage::Confirming
            | ElectionStage::Deposing
            | ElectionStage::Revoking
            | ElectionStage::Renewing
            | ElectionStage::Reading
            | ElectionStage::Leading => {}
        }
    }

    /// Looks at the leader again. Before, it renews its own lease of etcd if that is due.
    fn candidate_looks(&mut self, m: usize) {
        let (now, time) = (self.now, self.lease());
        let Some(e) = self.election(m) else {
            return;
        };
        let is_due =
            e.local(now).saturating_sub(e.kept) >= whole_millis(grace_period(time)) / KEEPS;
        self.candidate_calls(
            m,
            if is_due {
                ElectionStage::Renewing
            } else {
                ElectionStage::Competing
            },
        );
    }

    fn leader_changed(&mut self, m: usize, revision: u64, leader: Option<LeaderKey>) {
        let Some(e) = self.election(m).filter(|e| e.viewed < revision) else {
            return;
        };
        e.viewed = revision;
        e.view = leader;
        if leader.is_none() && e.stage == ElectionStage::Waiting {
            e.round += 1;
            self.candidate_looks(m);
        }
    }

    /// Ends the lease of a leader whose process has ended.
    fn leader_process_ended(&mut self, m: usize, other: usize) {
        let listens = self.managers[other].listens();
        let Some(e) = self.election(m) else {
            return;
        };
        let led = e.view.is_some_and(|key| key.manager == other);
        if !led || listens {
            return;
        }
        match e.stage {
            ElectionStage::Waiting => {
                e.round += 1;
                self.note(|| format!("manager {m} ends the lease of manager {other}"));
                self.candidate_calls(m, ElectionStage::Revoking);
            }
            // It learns of it when its call has ended.
            ElectionStage::Pausing
            | ElectionStage::Granting
            | ElectionStage::Competing
            | ElectionStage::Confirming
            | ElectionStage::Deposing
            | ElectionStage::Revoking
            | ElectionStage::Renewing => {
                let event = SimElectionEvent::ProcessEnded(other);
                self.election_later(m, LEARNS, event);
            }
            ElectionStage::Off | ElectionStage::Reading | ElectionStage::Leading => {}
        }
    }

    fn leader_renews(&mut self, m: usize) {
        let (now, lease_ms) = (self.now, self.lease_ms());
        let Some(e) = self.election(m).filter(|e| e.clock.is_some()) else {
            return;
        };
        let (created, sent) = (e.key.map_or(0, |key| key.created), e.local(now));
        let most = (lease_ms * 3 / 4, AnswerFate::Arrives);
        let number = self.election_calls(m, EtcdRequest::RenewLeader { created }, most);
        if let Some(e) = self.election(m) {
            e.renewal = Some((number, sent));
        }
    }

    fn renewal_hears(&mut self, m: usize, sent: u64, answer: Option<EtcdAnswer>) {
        let (now, lease) = (self.now, self.lease());
        let Some(e) = self.election(m) else {
            return;
        };
        let Some(clock) = &e.clock else {
            return;
        };
        let mut wait = RENEW_AGAIN;
        match answer {
            Some(EtcdAnswer::LeaderRenewed) => {
                clock.renew(sent, lease);
                wait = whole_millis(lease) / RENEWALS;
            }
            Some(EtcdAnswer::ConditionFailed(_)) => clock.end(),
            Some(_) | None => {}
        }
        if clock.remaining_grace_at(e.local(now)).is_zero() {
            return clock.end();
        }
        let wait = e.lasting(wait);
        self.election_later(m, wait, SimElectionEvent::Renew);
    }

    /// Renews the lease of etcd to which the keys of a leader belong.
    fn leader_keeps_its_key(&mut self, m: usize) {
        let now = self.now;
        let Some(e) = self.election(m) else {
            return;
        };
        let (lease, sent) = (e.lease, e.local(now));
        let most = (CALL, AnswerFate::Arrives);
        let number = self.election_calls(m, EtcdRequest::RenewLease(lease), most);
        if let Some(e) = self.election(m) {
            e.keeping = Some((number, sent));
        }
    }

    fn keeping_hears(&mut self, m: usize, sent: u64, answer: Option<EtcdAnswer>) {
        let time = grace_period(self.lease());
        let Some(e) = self.election(m) else {
            return;
        };
        let Some(clock) = &e.clock else {
            return;
        };
        let mut wait = RENEW_AGAIN;
        match answer {
            Some(EtcdAnswer::LeaseRenewed) => {
                clock.keep_key(sent, time);
                wait = whole_millis(time) / KEEPS;
            }
            Some(EtcdAnswer::LeaseGone) => return clock.end(),
            Some(_) | None => {}
        }
        let wait = e.lasting(wait);
        self.election_later(m, wait, SimElectionEvent::Keep);
    }

    /// Looks again in a moment whether the lease of a leader is certain.
    pub(super) fn leader_waits(&mut self, m: usize) {
        self.counts.uncertain += 1;
        self.managers[m].writing = true;
        self.election_later(m, UNCERTAIN, SimElectionEvent::Certain);
    }

    /// Ends the process of a leader that is not sure to lead. Its service starts it again.
    pub(super) fn leader_ends(&mut self, m: usize, why: &str) {
        self.note(|| format!("manager {m} ends: {why}"));
        self.counts.leaders_ended += 1;
        self.manager_dies(m, LastWrite::Kept);
        let down = self.chance.between(100, 2_000);
        self.later(down, Any::Manager(m, SimManagerEvent::Start));
    }

    /// The standbys that watch the process of this manager notice its end.
    pub(super) fn process_end_is_noticed(&mut self, m: usize) {
        for other in 0..self.managers.len() {
            let silent = self.managers[m].caller_cuts > 0 || self.managers[other].caller_cuts > 0;
            if other != m && self.managers[other].election.is_some() && !silent {
                let after = self.chance.between(5, 400);
                self.election_later(other, after, SimElectionEvent::ProcessEnded(m));
            }
        }
    }

    /// Begins the work of a leader whose epoch is durable.
    pub(super) fn leader_begins(&mut self, m: usize) {
        let now = self.now;
        let Some(e) = self.election(m) else {
            return;
        };
        if e.remaining_grace(now) == 0 {
            return self.leader_ends(m, "its lease ended before it could begin");
        }
        if e.remaining(now) == 0 {
            self.counts.uncertain += 1;
            return self.election_later(m, UNCERTAIN, SimElectionEvent::Begin);
        }
        let Some(state) = self.election(m).and_then(|e| e.opened.take()) else {
            return;
        };
        self.counts.leaders += 1;
        if let Err(broken) = self.leadership.on_epoch(state.epoch) {
            self.oracle.fail(broken);
        }
        self.manager_leads(m, *state);
        self.election_later(m, TURN, SimElectionEvent::Turn);
    }
}
