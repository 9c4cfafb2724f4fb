//! Lifecycle of one auxiliary service: a program that the containers of a node share.
//!
//! [`crate::aux_services::AuxServices`] owns one for each service of the configuration. The service
//! starts when it is needed: a launch waits for it, or a running container names it. Every start
//! has a number, and events of earlier starts are dropped.
//!
//! ```text
//!            needed              ready
//!  Stopped ─────────► Starting ─────────► Ready
//!     ▲                  │  │ deadline      │ ended
//!     │            ended,│  ▼               │
//!     │            failed│ Failing          │
//!     │                  ▼  │ ended         │
//!     └─────────────── Backoff ◄────────────┘        needed: Backoff ──► Starting
//!       not needed
//!
//!  Starting, Ready, Failing ── stop ──► Stopping ── ended ──► Stopped
//! ```

use std::time::Duration;

use headroom_types::Tick;

/// First wait before a new start.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest wait before a new start.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A service that was ready for this time counts as stable: its next wait is the first one again.
const STABLE_TIME: Duration = Duration::from_secs(60);
/// Interval between attempts to kill a service that does not end.
const KILL_AGAIN: Duration = Duration::from_secs(10);

/// Times of one service, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxServiceTimes {
    /// Maximum time from its start until it is ready.
    pub start_timeout: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub stop_grace: Duration,
}

/// The phase of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuxServicePhase {
    /// No process runs.
    Stopped,
    /// It was started and is not ready.
    Starting {
        /// Time at which the start counts as failed.
        deadline: Tick,
    },
    /// It is ready.
    Ready {
        /// Since this time.
        since: Tick,
    },
    /// It was not ready in time and is killed.
    Failing {
        /// Time of the next attempt to kill it.
        again_at: Tick,
    },
    /// It ended; it is started again at that time if it is still needed.
    Backoff {
        /// Time of the next start.
        until: Tick,
    },
    /// It is stopped for good.
    Stopping {
        /// Time at which it is killed.
        kill_at: Tick,
    },
}

impl AuxServicePhase {
    /// The word on screens and in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            AuxServicePhase::Stopped => "stopped",
            AuxServicePhase::Starting { .. } => "starting",
            AuxServicePhase::Ready { .. } => "ready",
            AuxServicePhase::Failing { .. } => "failing",
            AuxServicePhase::Backoff { .. } => "backoff",
            AuxServicePhase::Stopping { .. } => "stopping",
        }
    }
}

/// An event of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuxServiceEvent {
    /// A launch waits for it, or a running container names it.
    Needed,
    /// An earlier agent had started it, and it runs.
    Adopted,
    /// It is ready.
    Ready,
    /// It could not be started, or it ended. No process of it is left. The text is one sentence
    /// with the cause, and the end of its log.
    Ended(String),
    /// Its deadline may have passed.
    Time {
        /// Whether it is needed.
        needed: bool,
    },
    /// It is stopped for good.
    Stop,
}

/// An action that the driver carries out for one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuxServiceEffect {
    /// Start it. [`AuxServiceEvent::Ready`] or [`AuxServiceEvent::Ended`] follows.
    Start,
    /// Wait until it is ready, as after a start.
    AwaitReady,
    /// Send SIGTERM to its program.
    Terminate,
    /// Send SIGKILL to all its processes.
    Kill,
    /// It is ready: the waiting launches continue.
    Announce,
    /// Its start failed for this cause: the waiting launches fail.
    Refuse(String),
    /// It ended after it was ready, for this cause. For the log.
    Lost(String),
}

/// One service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxService {
    times: AuxServiceTimes,
    phase: AuxServicePhase,
    /// Number of the latest start; 0 before the first.
    run: u32,
    /// Ends since the service was last stable.
    failures: u32,
    /// True after a stop for good.
    closed: bool,
}

impl AuxService {
    /// A service that does not run.
    pub fn new(times: AuxServiceTimes) -> Self {
        AuxService {
            times,
            phase: AuxServicePhase::Stopped,
            run: 0,
            failures: 0,
            closed: false,
        }
    }

    /// The phase.
    pub fn phase(&self) -> &AuxServicePhase {
        &self.phase
    }

    /// Number of the latest start.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// Whether it is ready.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, AuxServicePhase::Ready { .. })
    }

    /// Whether no process of it runs.
    pub fn is_quiet(&self) -> bool {
        match self.phase {
            AuxServicePhase::Stopped | AuxServicePhase::Backoff { .. } => true,
            AuxServicePhase::Starting { .. }
            | AuxServicePhase::Ready { .. }
            | AuxServicePhase::Failing { .. }
            | AuxServicePhase::Stopping { .. } => false,
        }
    }

    /// Whether it is being stopped for good, or was.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The time at which [`AuxServiceEvent::Time`] is due.
    pub fn deadline(&self) -> Option<Tick> {
        match self.phase {
            AuxServicePhase::Stopped | AuxServicePhase::Ready { .. } => None,
            AuxServicePhase::Starting { deadline: at }
            | AuxServicePhase::Failing { again_at: at }
            | AuxServicePhase::Backoff { until: at }
            | AuxServicePhase::Stopping { kill_at: at } => Some(at),
        }
    }

    /// Applies an event. The only place where the phase changes.
    pub fn apply(&mut self, now: Tick, event: AuxServiceEvent, out: &mut Vec<AuxServiceEffect>) {
        self.phase = match event {
            AuxServiceEvent::Needed => self.needed(now, out),
            AuxServiceEvent::Adopted => self.adopted(now, out),
            AuxServiceEvent::Ready => self.ready(now, out),
            AuxServiceEvent::Ended(why) => self.ended(now, why, out),
            AuxServiceEvent::Time { needed } => self.time(now, needed, out),
            AuxServiceEvent::Stop => self.stop(now, out),
        };
    }

    fn needed(&mut self, now: Tick, out: &mut Vec<AuxServiceEffect>) -> AuxServicePhase {
        match self.phase {
            AuxServicePhase::Stopped if !self.closed => self.start(now, out),
            AuxServicePhase::Stopped
            | AuxServicePhase::Starting { .. }
            | AuxServicePhase::Ready { .. }
            | AuxServicePhase::Failing { .. }
            | AuxServicePhase::Backoff { .. }
            | AuxServicePhase::Stopping { .. } => self.phase,
        }
    }

    fn start(&mut self, now: Tick, out: &mut Vec<AuxServiceEffect>) -> AuxServicePhase {
        self.run = self.run.saturating_add(1);
        out.push(AuxServiceEffect::Start);
        AuxServicePhase::Starting {
            deadline: now.plus(self.times.start_timeout),
        }
    }

    fn adopted(&mut self, now: Tick, out: &mut Vec<AuxServiceEffect>) -> AuxServicePhase {
        match self.phase {
            AuxServicePhase::Stopped if self.run == 0 => {
                self.run = 1;
                out.push(AuxServiceEffect::AwaitReady);
                AuxServicePhase::Starting {
                    deadline: now.plus(self.times.start_timeout),
                }
            }
            // Adoption happens once, before every other event.
            AuxServicePhase::Stopped
            | AuxServicePhase::Starting { .. }
            | AuxServicePhase::Ready { .. }
            | AuxServicePhase::Failing { .. }
            | AuxServicePhase::Backoff { .. }
            | AuxServicePhase::Stopping { .. } => self.phase,
        }
    }

    fn ready(&mut self, now: Tick, out: &mut Vec<AuxServiceEffect>) -> AuxServicePhase {
        match self.phase {
            AuxServicePhase::Starting { .. } => {
                out.push(AuxServiceEffect::Announce);
                AuxServicePhase::Ready { since: now }
            }
            // Too late: the service is killed, or has ended.
            AuxServicePhase::Stopped
            | AuxServicePhase::Ready { .. }
            | AuxServicePhase::Failing { .. }
            | AuxServicePhase::Backoff { .. }
            | AuxServicePhase::Stopping { .. } => self.phase,
        }
    }

    fn ended(
        &mut self,
        now: Tick,
        why: String,
        out: &mut Vec<AuxServiceEffect>,
    ) -> AuxServicePhase {
        match self.phase {
            AuxServicePhase::Starting { .. } => {
                out.push(AuxServiceEffect::Refuse(why));
                self.back_off(now)
            }
            AuxServicePhase::Failing { .. } => {
                let timeout = self.times.start_timeout.as_secs_f64();
                out.push(AuxServiceEffect::Refuse(format!(
                    "it was not ready within {timeout} s and was killed; {why}"
                )));
                self.back_off(now)
            }
            AuxServicePhase::Ready { since } => {
                if now.since(since) >= STABLE_TIME {
                    self.failures = 0;
                }
                out.push(AuxServiceEffect::Lost(why));
                self.back_off(now)
            }
            AuxServicePhase::Stopping { .. } => AuxServicePhase::Stopped,
            // A start ends once.
            AuxServicePhase::Stopped | AuxServicePhase::Backoff { .. } => self.phase,
        }
    }

    fn back_off(&mut self, now: Tick) -> AuxServicePhase {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        AuxServicePhase::Backoff {
            until: now.plus(FIRST_BACKOFF.saturating_mul(factor).min(MAX_BACKOFF)),
        }
    }

    fn time(
        &mut self,
        now: Tick,
        needed: bool,
        out: &mut Vec<AuxServiceEffect>,
    ) -> AuxServicePhase {
        if self.deadline().is_none_or(|at| now < at) {
            return self.phase;
        }
        let again_at = now.plus(KILL_AGAIN);
        match self.phase {
            AuxServicePhase::Starting { .. } | AuxServicePhase::Failing { .. } => {
                out.push(AuxServiceEffect::Kill);
                AuxServicePhase::Failing { again_at }
            }
            AuxServicePhase::Stopping { .. } => {
                out.push(AuxServiceEffect::Kill);
                AuxServicePhase::Stopping { kill_at: again_at }
            }
            AuxServicePhase::Backoff { .. } if needed => self.start(now, out),
            AuxServicePhase::Backoff { .. } => AuxServicePhase::Stopped,
            // Without a deadline.
            AuxServicePhase::Stopped | AuxServicePhase::Ready { .. } => self.phase,
        }
    }

    fn stop(&mut self, now: Tick, out: &mut Vec<AuxServiceEffect>) -> AuxServicePhase {
        self.closed = true;
        match self.phase {
            AuxServicePhase::Starting { .. } | AuxServicePhase::Ready { .. } => {
                out.push(AuxServiceEffect::Terminate);
                AuxServicePhase::Stopping {
                    kill_at: now.plus(self.times.stop_grace),
                }
            }
            AuxServicePhase::Failing { again_at } => {
                AuxServicePhase::Stopping { kill_at: again_at }
            }
            AuxServicePhase::Backoff { .. } => AuxServicePhase::Stopped,
            AuxServicePhase::Stopped | AuxServicePhase::Stopping { .. } => self.phase,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: AuxServiceTimes = AuxServiceTimes {
        start_timeout: Duration::from_secs(30),
        stop_grace: Duration::from_secs(10),
    };

    fn step(s: &mut AuxService, at: u64, event: AuxServiceEvent) -> Vec<AuxServiceEffect> {
        let mut out = Vec::new();
        s.apply(Tick(at), event, &mut out);
        out
    }

    fn ended() -> AuxServiceEvent {
        AuxServiceEvent::Ended("exit 1".into())
    }

    fn ready_at(at: u64) -> AuxService {
        let mut s = AuxService::new(TIMES);
        assert_eq!(
            step(&mut s, at, AuxServiceEvent::Needed),
            [AuxServiceEffect::Start]
        );
        assert_eq!(
            step(&mut s, at, AuxServiceEvent::Ready),
            [AuxServiceEffect::Announce]
        );
        s
    }

    #[test]
    fn a_service_starts_once_when_it_is_needed() {
        let mut s = AuxService::new(TIMES);
        assert!(s.is_quiet() && s.deadline().is_none());
        assert_eq!(
            step(&mut s, 5, AuxServiceEvent::Needed),
            [AuxServiceEffect::Start]
        );
        assert!(step(&mut s, 6, AuxServiceEvent::Needed).is_empty());
        assert_eq!((s.deadline(), s.run()), (Some(Tick(30_005)), 1));
        step(&mut s, 7, AuxServiceEvent::Ready);
        assert!(s.is_ready() && s.deadline().is_none());
        assert!(step(&mut s, 8, AuxServiceEvent::Needed).is_empty());
    }

    #[test]
    fn a_service_that_is_not_ready_in_time_is_killed_and_refused_with_its_log() {
        let mut s = AuxService::new(TIMES);
        step(&mut s, 0, AuxServiceEvent::Needed);
        let time = AuxServiceEvent::Time { needed: true };
        assert!(step(&mut s, 29_999, time.clone()).is_empty());
        assert_eq!(step(&mut s, 30_000, time.clone()), [AuxServiceEffect::Kill]);
        assert!(
            step(&mut s, 30_001, AuxServiceEvent::Ready).is_empty(),
            "too late"
        );
        assert_eq!(step(&mut s, 40_000, time), [AuxServiceEffect::Kill]);
        let out = step(&mut s, 40_100, ended());
        let [AuxServiceEffect::Refuse(why)] = out.as_slice() else {
            panic!("{out:?}")
        };
        assert!(
            why.contains("within 30 s") && why.ends_with("exit 1"),
            "{why}"
        );
        assert_eq!(s.deadline(), Some(Tick(41_100)));
    }

    #[test]
    fn a_lost_service_starts_again_with_growing_waits_while_it_is_needed() {
        let mut s = ready_at(0);
        let (mut now, mut waits) = (1_000, Vec::new());
        for _ in 0..7 {
            assert!(matches!(
                step(&mut s, now, ended()).as_slice(),
                [AuxServiceEffect::Lost(_)]
            ));
            let until = s.deadline().expect("a wait").0;
            waits.push((until - now) / 1000);
            let out = step(&mut s, until, AuxServiceEvent::Time { needed: true });
            assert_eq!(out, [AuxServiceEffect::Start]);
            step(&mut s, until, AuxServiceEvent::Ready);
            now = until + 1_000;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        step(&mut s, now + 60_000, ended());
        assert_eq!(
            s.deadline(),
            Some(Tick(now + 61_000)),
            "it had been stable for a minute"
        );
    }

    #[test]
    fn a_lost_service_that_is_not_needed_stays_stopped() {
        let mut s = ready_at(0);
        step(&mut s, 1_000, ended());
        let out = step(&mut s, 2_000, AuxServiceEvent::Time { needed: false });
        assert!(out.is_empty() && *s.phase() == AuxServicePhase::Stopped);
        assert_eq!(
            step(&mut s, 3_000, AuxServiceEvent::Needed),
            [AuxServiceEffect::Start]
        );
        assert_eq!(s.run(), 2);
    }

    #[test]
    fn an_adopted_service_is_awaited_and_not_started() {
        let mut s = AuxService::new(TIMES);
        assert_eq!(
            step(&mut s, 0, AuxServiceEvent::Adopted),
            [AuxServiceEffect::AwaitReady]
        );
        assert!(step(&mut s, 0, AuxServiceEvent::Needed).is_empty());
        assert_eq!(
            step(&mut s, 1, AuxServiceEvent::Ready),
            [AuxServiceEffect::Announce]
        );
    }

    #[test]
    fn a_stop_is_final_and_ends_with_a_kill() {
        let mut s = ready_at(0);
        assert_eq!(
            step(&mut s, 100, AuxServiceEvent::Stop),
            [AuxServiceEffect::Terminate]
        );
        assert!(step(&mut s, 100, AuxServiceEvent::Stop).is_empty());
        let out = step(&mut s, 10_100, AuxServiceEvent::Time { needed: true });
        assert_eq!(out, [AuxServiceEffect::Kill]);
        assert!(step(&mut s, 10_200, ended()).is_empty());
        assert!(s.is_quiet() && s.is_closed() && s.deadline().is_none());
        assert!(step(&mut s, 10_300, AuxServiceEvent::Needed).is_empty());
    }

    /// Every phase accepts every event, and waits only where a deadline or an event follows.
    #[test]
    fn every_phase_accepts_every_event() {
        let phases = [
            AuxServicePhase::Stopped,
            AuxServicePhase::Starting { deadline: Tick(10) },
            AuxServicePhase::Ready { since: Tick(10) },
            AuxServicePhase::Failing { again_at: Tick(10) },
            AuxServicePhase::Backoff { until: Tick(10) },
            AuxServicePhase::Stopping { kill_at: Tick(10) },
        ];
        let events = [
            AuxServiceEvent::Needed,
            AuxServiceEvent::Adopted,
            AuxServiceEvent::Ready,
            ended(),
            AuxServiceEvent::Time { needed: true },
            AuxServiceEvent::Time { needed: false },
            AuxServiceEvent::Stop,
        ];
        for phase in &phases {
            for event in &events {
                let mut s = AuxService {
                    phase: *phase,
                    run: 1,
                    ..AuxService::new(TIMES)
                };
                let out = step(&mut s, 20, event.clone());
                let starts = out.contains(&AuxServiceEffect::Start);
                let started = AuxServicePhase::Starting {
                    deadline: Tick(30_020),
                };
                assert_eq!(starts, s.phase == started, "{phase:?} {event:?}");
                assert!(
                    s.is_ready() || s.phase == AuxServicePhase::Stopped || s.deadline().is_some(),
                    "{phase:?} {event:?}"
                );
            }
        }
    }
}
