//! The network between the managers and etcd: requests and answers are delayed, overtake each other,
//! and are lost. etcd loses its quorum, and elects leaders of its own.

use super::election::SimElectionEvent;
use super::etcd::{EtcdAnswer, EtcdRequest, LeaderKey, SimEtcd};
use super::manager::SimManagerEvent;
use super::{Simulation, SimulationEvent as Any};

/// Longest time after the end of a lease until etcd removes its keys. Milliseconds.
const EXPIRY_CHECK: u64 = 500;
/// Longest time until a request takes effect whose answer is lost. Milliseconds.
const LATEST: u64 = 15_000;

#[derive(Debug)]
pub(super) enum SimEtcdEvent {
    Arrives(Box<EtcdCall>),
    /// A lease may have expired.
    LeaseDue(i64),
    /// It has a quorum again.
    Continues,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct EtcdCall {
    manager: usize,
    life: u64,
    number: u64,
    request: EtcdRequest,
    answer: AnswerFate,
}

/// Whether a fault takes the answer of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AnswerFate {
    #[default]
    Arrives,
    Lost,
}

/// etcd and its network.
#[derive(Debug, Default)]
pub(super) struct EtcdService {
    pub(super) store: SimEtcd,
    /// Number of faults that take its quorum at this time.
    pub(super) stopped: u32,
    /// Requests that take effect when it has a quorum again.
    waiting: Vec<EtcdCall>,
}

impl Simulation {
    /// Sends a request. Its answer has the returned number.
    pub(super) fn etcd_calls(&mut self, m: usize, request: EtcdRequest, answer: AnswerFate) -> u64 {
        let number = self.number();
        let late = answer == AnswerFate::Lost && self.chance.percent(50);
        let there = if late {
            // A member was stopped meanwhile.
            self.chance.between(1_000, LATEST)
        } else {
            self.etcd_delay()
        };
        let call = EtcdCall {
            manager: m,
            life: self.managers[m].life,
            number,
            request,
            answer,
        };
        if self.managers[m].etcd_cuts > 0 || self.is_lost() {
            return number;
        }
        self.later(there, Any::Etcd(SimEtcdEvent::Arrives(Box::new(call))));
        number
    }

    pub(super) fn etcd_thing(&mut self, thing: SimEtcdEvent) {
        match thing {
            SimEtcdEvent::Arrives(call) => self.etcd_takes(*call),
            SimEtcdEvent::LeaseDue(lease) => self.lease_is_due(lease),
            SimEtcdEvent::Continues => {
                self.etcd.stopped = self.etcd.stopped.saturating_sub(1);
                if self.etcd.stopped > 0 {
                    return;
                }
                self.note(|| "etcd has a quorum".to_owned());
                self.etcd.store.extend_leases(self.now);
                for lease in self.etcd.store.leases().collect::<Vec<_>>() {
                    self.watch_lease(lease);
                }
                for call in std::mem::take(&mut self.etcd.waiting) {
                    self.etcd_takes(call);
                }
            }
        }
    }

    /// etcd decides nothing for a while.
    pub(super) fn etcd_stops(&mut self, for_ms: u64) {
        self.etcd.stopped += 1;
        self.later(for_ms, Any::Etcd(SimEtcdEvent::Continues));
    }

    fn etcd_takes(&mut self, call: EtcdCall) {
        if self.managers[call.manager].etcd_cuts > 0 && call.answer == AnswerFate::Arrives {
            // The connection broke before the request had arrived.
            return;
        }
        if self.etcd.stopped > 0 {
            // A proposal is dropped, or it waits for a quorum.
            if self.chance.percent(50) {
                self.etcd.waiting.push(call);
            } else {
                self.etcd_answers(&call, EtcdAnswer::NoQuorum);
            }
            return;
        }
        let before = self.etcd.store.leader();
        let answer = self.etcd.store.execute(self.now, &call.request);
        self.on_executed(&call.request, &answer);
        if let EtcdAnswer::State(read) = &answer
            && before.is_some_and(|key| key.manager == call.manager)
            && self.managers[call.manager].life == call.life
            && let Err(broken) = self.leadership.on_opened(read)
        {
            self.oracle.fail(broken);
        }
        if let EtcdAnswer::LeaseGranted(lease) = answer {
            self.watch_lease(lease);
        }
        if let EtcdRequest::RenewLease(lease) = call.request {
            self.watch_lease(lease);
        }
        if let EtcdAnswer::LeaderDeposed = answer {
            self.counts.leases_expired += 1;
            self.note(|| format!("manager {} deposes a silent leader", call.manager));
        }
        self.etcd_answers(&call, answer);
        self.tell_leader(before);
    }

    fn on_executed(&mut self, request: &EtcdRequest, answer: &EtcdAnswer) {
        if let (EtcdRequest::Write(_, batch), EtcdAnswer::Written) = (request, answer) {
            let leads = self.etcd.store.leader();
            if let Err(broken) = self.leadership.on_written(batch, leads) {
                self.oracle.fail(broken);
            }
            for app in batch.states() {
                self.oracle.saved(app);
            }
        }
        if let (EtcdRequest::Write(Some(condition), _), EtcdAnswer::ConditionFailed(key)) =
            (request, answer)
        {
            if key.is_some_and(|key| key.created == condition.created) {
                self.counts.late_writes_refused += 1;
            } else {
                self.counts.writes_refused += 1;
            }
        }
    }

    fn etcd_answers(&mut self, call: &EtcdCall, answer: EtcdAnswer) {
        let back = self.etcd_delay();
        if call.answer == AnswerFate::Lost
            || self.managers[call.manager].etcd_cuts > 0
            || self.is_lost()
        {
            if matches!(answer, EtcdAnswer::Written) {
                self.counts.lost_answers += 1;
            }
            return;
        }
        let event = SimElectionEvent::Answer {
            number: call.number,
            answer: Box::new(answer),
        };
        self.etcd_tells(call.manager, call.life, back, event);
    }

    fn etcd_delay(&mut self) -> u64 {
        let (slow, usual) = (
            self.scenario.weather.slow,
            self.scenario.managers.etcd_delay_ms,
        );
        if !self.is_calm() && self.chance.per_mille(slow) {
            return self.chance.between(usual, 6_000);
        }
        self.chance.between(1, usual)
    }

    /// Sets the timer of a lease. The removal of an expired lease takes a moment.
    fn watch_lease(&mut self, lease: i64) {
        let Some(until) = self.etcd.store.lease_until(lease) else {
            return;
        };
        let at = until + self.chance.below(EXPIRY_CHECK);
        self.at(at, Any::Etcd(SimEtcdEvent::LeaseDue(lease)));
    }

    fn lease_is_due(&mut self, lease: i64) {
        let until = self.etcd.store.lease_until(lease);
        if self.etcd.stopped > 0 || until.is_none_or(|until| until > self.now) {
            return;
        }
        let before = self.etcd.store.leader();
        self.etcd.store.end_lease(lease);
        if self.etcd.store.leader() != before {
            self.counts.leases_expired += 1;
            self.note(|| "etcd ends the lease of the leader".to_owned());
        }
        self.tell_leader(before);
    }

    /// Notifies the managers of another leader.
    fn tell_leader(&mut self, before: Option<LeaderKey>) {
        let leader = self.etcd.store.leader();
        if leader.map(|key| key.created) == before.map(|key| key.created) {
            return;
        }
        let revision = self.number();
        for m in 0..self.managers.len() {
            let (delay, life) = (self.etcd_delay(), self.managers[m].life);
            // A manager that is cut off reads it when it is connected again.
            if self.managers[m].etcd_cuts == 0 {
                self.etcd_tells(
                    m,
                    life,
                    delay,
                    SimElectionEvent::Leader { revision, leader },
                );
            }
        }
    }

    fn etcd_tells(&mut self, m: usize, life: u64, after: u64, event: SimElectionEvent) {
        let event = SimManagerEvent::Election { life, event };
        self.later(after, Any::Manager(m, event));
    }
}
