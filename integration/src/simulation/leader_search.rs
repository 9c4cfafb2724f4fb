//! Calls to several managers: each caller has their list, and the choice of the client library finds
//! the leader in it.

use std::collections::BTreeMap;

use headroom_client::addresses::{
    AddressChoice, CallRoute, CallStep, ManagerAddresses, Repetition, SendOutcome,
    UnlistedLeaderPolicy,
};
use headroom_rm_core::ClusterCall;

use super::call_result::SimCallResult;
use super::manager::{SimManagerEvent, SimManagerInput};
use super::network::Caller;
use super::{Simulation, SimulationEvent as Any};

/// Timeout of a call to one of several managers. Milliseconds.
const CALL: u64 = 3_000;
/// Timeout of a heartbeat. Milliseconds.
const HEARTBEAT: u64 = 1_500;
/// Timeout of a registration. Milliseconds.
const REGISTRATION: u64 = 10_000;
/// Timeout of a connection attempt. Milliseconds.
const CONNECT: u64 = 1_000;
/// Pause before all addresses are called again, while a leader is elected. Milliseconds.
const ELECTION: u64 = 100;

#[derive(Debug)]
pub(super) enum SimCallEvent {
    /// The call arrives at the host of a manager.
    Arrives {
        manager: usize,
        life: u64,
    },
    /// The outcome at one address.
    Outcome {
        attempt: u32,
        outcome: SendOutcome,
    },
    /// An answer that is not that of a standby.
    Answered(Box<SimCallResult>),
    /// The pause during an election is over.
    Again,
    TimedOut,
}

/// A call under way.
#[derive(Debug)]
struct SearchingCall {
    caller: Caller,
    input: SimManagerInput,
    route: CallRoute,
    /// Number of addresses to which it was sent.
    attempt: u32,
    electing: bool,
    deadline: u64,
}

/// The calls under way, and the addresses of the callers.
#[derive(Debug, Default)]
pub(super) struct LeaderSearch {
    calls: BTreeMap<u64, SearchingCall>,
    choices: BTreeMap<Caller, AddressChoice>,
}

fn url(manager: usize) -> String {
    format!("http://rm{manager}:1")
}

/// Whether a call is sent again after it may have been executed, and its timeout.
fn manner(input: &SimManagerInput) -> (Repetition, u64) {
    match input {
        SimManagerInput::WatchNode { .. } | SimManagerInput::WatchApp { .. } => {
            (Repetition::Allowed, CALL)
        }
        SimManagerInput::Call(call) => {
            let is_registration = matches!(
                **call,
                ClusterCall::RegisterNode { .. } | ClusterCall::RegisterMaster { .. }
            );
            let is_heartbeat = matches!(
                **call,
                ClusterCall::Report { .. } | ClusterCall::Sync(_) | ClusterCall::Finish { .. }
            );
            let most = match (is_registration, is_heartbeat) {
                (true, _) => REGISTRATION,
                (false, true) => HEARTBEAT,
                (false, false) => CALL,
            };
            (Repetition::Forbidden, most)
        }
    }
}

impl Simulation {
    /// Calls the leader. The response contains `number`.
    pub(super) fn search_leader(&mut self, caller: Caller, number: u64, input: SimManagerInput) {
        let managers = self.managers.len();
        let choice = self
            .search
            .choices
            .entry(caller.clone())
            .or_insert_with(|| {
                let list: Vec<String> = (0..managers).map(url).collect();
                let addresses = ManagerAddresses::parse(&list.join(","))
                    .unwrap_or_else(|error| unreachable!("{error}"));
                AddressChoice::new(addresses, UnlistedLeaderPolicy::Follow)
            });
        let (repetition, most) = manner(&input);
        let call = SearchingCall {
            caller,
            input,
            route: choice.begin(repetition),
            attempt: 0,
            electing: false,
            deadline: self.now + most,
        };
        self.search.calls.insert(number, call);
        self.later(most, Any::Call(number, SimCallEvent::TimedOut));
        self.search_sends(number);
    }

    fn search_sends(&mut self, number: u64) {
        let Some(call) = self.search.calls.get_mut(&number) else {
            return;
        };
        call.attempt += 1;
        let (caller, attempt) = (call.caller.clone(), call.attempt);
        let target = call.route.target().as_str().to_owned();
        let Some(manager) = (0..self.managers.len()).find(|m| url(*m) == target) else {
            return;
        };
        let (there, node) = (self.delay(), self.host_of(&caller));
        if self.is_cut(node.as_ref()) || self.managers[manager].caller_cuts > 0 {
            let outcome = SendOutcome::NotConnected;
            let event = SimCallEvent::Outcome { attempt, outcome };
            return self.later(CONNECT, Any::Call(number, event));
        }
        if self.is_lost() {
            return;
        }
        let life = self.managers[manager].life;
        self.repeat_late(manager, number, there);
        self.later(
            there,
            Any::Call(number, SimCallEvent::Arrives { manager, life }),
        );
    }

    /// A call may arrive a second time, and later.
    fn repeat_late(&mut self, m: usize, number: u64, there: u64) {
        let twice = self.scenario.weather.twice;
        if self.is_calm() || !self.chance.per_mille(twice) {
            return;
        }
        let again = there + self.chance.between(1, 4_000);
        let life = Some(self.managers[m].life);
        let Some(call) = self.search.calls.get(&number) else {
            return;
        };
        let event = SimManagerEvent::Call {
            caller: Caller::Nobody,
            number: 0,
            input: Box::new(call.input.clone()),
            life,
        };
        self.later(again, Any::Manager(m, event));
    }

    pub(super) fn search_thing(&mut self, number: u64, event: SimCallEvent) {
        let Some(call) = self.search.calls.get(&number) else {
            return;
        };
        match event {
            SimCallEvent::Arrives { manager, life } => {
                let is_there =
                    self.managers[manager].listens() && self.managers[manager].life == life;
                if !is_there {
                    let outcome = SendOutcome::NotConnected;
                    return self.search_outcome_later(number, outcome);
                }
                let event = SimManagerEvent::Call {
                    caller: call.caller.clone(),
                    number,
                    input: Box::new(call.input.clone()),
                    life: Some(life),
                };
                self.manager_thing(manager, event);
            }
            SimCallEvent::Outcome { attempt, outcome } => {
                if call.attempt == attempt {
                    self.search_continues(number, outcome);
                }
            }
            SimCallEvent::Answered(heard) => {
                self.search_continues(number, SendOutcome::Answered);
                self.search_ends(number, *heard);
            }
            SimCallEvent::Again => {
                let choice = self.search.choices.get(&call.caller);
                let route = choice.map(|choice| choice.begin(manner(&call.input).0));
                if let (Some(route), Some(call)) = (route, self.search.calls.get_mut(&number)) {
                    (call.route, call.electing) = (route, false);
                    self.search_sends(number);
                }
            }
            SimCallEvent::TimedOut => {
                self.search_continues(number, SendOutcome::Interrupted);
                self.search_ends(number, SimCallResult::Lost);
            }
        }
    }

    fn search_continues(&mut self, number: u64, outcome: SendOutcome) {
        let now = self.now;
        let Some(call) = self.search.calls.get_mut(&number) else {
            return;
        };
        let Some(choice) = self.search.choices.get_mut(&call.caller) else {
            return;
        };
        call.electing |= matches!(outcome, SendOutcome::Standby { .. });
        let step = choice.record(&mut call.route, outcome);
        let (electing, left) = (call.electing, call.deadline.saturating_sub(now));
        match step {
            CallStep::Done => {}
            CallStep::SendAgain if left > 0 => self.search_sends(number),
            CallStep::Exhausted if electing && left > ELECTION => {
                self.later(ELECTION, Any::Call(number, SimCallEvent::Again));
            }
            CallStep::SendAgain | CallStep::Fail | CallStep::Exhausted => {
                self.search_ends(number, SimCallResult::Lost);
            }
        }
    }

    fn search_ends(&mut self, number: u64, heard: SimCallResult) {
        if let Some(call) = self.search.calls.remove(&number) {
            self.reply_after(0, call.caller, number, heard);
        }
    }

    fn search_outcome_later(&mut self, number: u64, outcome: SendOutcome) {
        let back = self.delay();
        if let Some(call) = self.search.calls.get(&number) {
            let attempt = call.attempt;
            let event = SimCallEvent::Outcome { attempt, outcome };
            self.later(back, Any::Call(number, event));
        }
    }

    /// Answers a call as a standby does.
    pub(super) fn standby_replies(
        &mut self,
        m: usize,
        caller: &Caller,
        number: u64,
        leader: Option<usize>,
    ) {
        let node = self.host_of(caller);
        if self.is_cut(node.as_ref()) || self.managers[m].caller_cuts > 0 || self.is_lost() {
            return;
        }
        let leader = leader.filter(|leader| *leader != m).map(url);
        self.search_outcome_later(number, SendOutcome::Standby { leader });
    }

    /// Sends the answer of a leader to a call, or its connection breaks.
    pub(super) fn search_replies(&mut self, number: u64, heard: SimCallResult) {
        let Some(call) = self.search.calls.get(&number) else {
            return;
        };
        let (node, target) = (self.host_of(&call.caller), call.route.target().as_str());
        let is_cut = |m: usize| self.managers[m].caller_cuts > 0 && url(m) == target;
        let from_cut = (0..self.managers.len()).any(is_cut);
        if from_cut || self.is_cut(node.as_ref()) || self.is_lost() {
            return;
        }
        if matches!(heard, SimCallResult::Lost) {
            return self.search_outcome_later(number, SendOutcome::Interrupted);
        }
        let back = self.delay();
        self.later(
            back,
            Any::Call(number, SimCallEvent::Answered(Box::new(heard))),
        );
    }
}
