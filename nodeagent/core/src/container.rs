//! The state machine of one container.
//!
//! [`crate::agent::Agent`] owns it. The machine never acts: each transition returns the effects
//! that the driver has to carry out, and their results return as events. Effects may repeat and
//! results may be late; the tables below name each case and ignore it.
//!
//! ```text
//!          launch             prepared            started
//!   New ───────────► Preparing ──────► Starting ──────────► Running
//!    │                │  failed │        │ failed, ended       │ stop            ┌ deadline ┐
//!    │ stop           │         │        │                     ▼                 │  (kill)  │
//!    │                │         │        │            Stopping: grace ──────► Stopping: killing
//!    │                ▼         ▼        ▼                     │ ended             │ ended
//!    └──────────────────► Stopping: collecting ◄───────────────┴──────────────────┘
//!                                 │ reported
//!                                 ▼         forget
//!                              Exited ─────────────► Acked
//! ```
//!
//! A `forget` before the end comes from a resource manager that had declared the node lost. The
//! node reports the running container again, and the resource manager then orders `stop`. A stop
//! that arrives before the program runs is kept until the next step. An earlier kill could miss a
//! child that has not entered its cgroup yet.

use std::time::Duration;

use headroom_types::{ExitReport, RequestId, Resource, StopCause, Tick, UnixMillis};

use crate::size::Size;

/// Interval at which a kill is repeated until the end is observed.
pub const KILL_AGAIN: Duration = Duration::from_secs(1);

/// The part of the granted container that the core needs. The driver keeps the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The request; `None` for an application master.
    pub request: Option<RequestId>,
    /// The attempt of its application master in which it was granted; 1 for the first.
    pub attempt: u32,
    /// Its size, which is its limit.
    pub resource: Resource,
    /// The version of that size.
    pub version: u32,
    /// When it was granted.
    pub granted: UnixMillis,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl Order {
    /// The order of a container that this node never had and that is stopped elsewhere.
    pub fn unknown() -> Self {
        Order {
            request: None,
            attempt: 1,
            resource: Resource::default(),
            version: 1,
            granted: UnixMillis::default(),
            grace: Duration::ZERO,
        }
    }
}

/// The phase of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Ordered; not prepared yet.
    New,
    /// The driver makes the directory, files and cgroup.
    Preparing {
        /// A stop that arrived in this phase.
        stop: Option<StopCause>,
    },
    /// The shim was started and has not reported the program's start.
    Starting {
        /// A stop that arrived in this phase.
        stop: Option<StopCause>,
    },
    /// Its program runs.
    Running,
    /// The container is being ended, or its remains are being collected.
    Stopping {
        /// The cause of the stop; `None` when it ended by itself.
        asked: Option<StopCause>,
        /// The step of the stop.
        step: Step,
    },
    /// The exit report exists and waits for an acknowledgement.
    Exited {
        /// The verdict with its evidence.
        report: Box<ExitReport>,
        /// Whether the current incarnation of the resource manager has received it.
        received: bool,
    },
    /// The resource manager has acknowledged the report with `forget`. The state can be deleted.
    Acked,
}

/// The step of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// SIGTERM was sent.
    Grace {
        /// The time of the kill.
        kill_at: Tick,
    },
    /// SIGKILL was sent to all its processes.
    Killing {
        /// The time of the next kill.
        again_at: Tick,
    },
    /// The container ended; the driver reads counters and logs.
    Collecting,
}

/// An event of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An order to run it.
    Launch,
    /// Directory, files and cgroup exist, and the limit was read back.
    Prepared,
    /// The shim reported that the program runs.
    Started {
        /// The present time.
        now: Tick,
    },
    /// The driver could not prepare or start it.
    Failed {
        /// The reason in one sentence.
        why: String,
    },
    /// An order to stop it.
    Stop {
        /// The cause.
        cause: StopCause,
        /// The present time.
        now: Tick,
    },
    /// A deadline may have passed.
    Deadline {
        /// The present time.
        now: Tick,
    },
    /// The shim has ended.
    Ended,
    /// The exit report is written.
    Reported(Box<ExitReport>),
    /// The resource manager has received the report.
    Received,
    /// The agent registered with another incarnation of the resource manager, which has no reports
    /// yet.
    NewPeer,
    /// All readers have the report.
    Forget,
}

/// The kind of end, as the exit report needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program ran, or at least its shim was started.
    Ended {
        /// The cause of the stop; `None` when it ended by itself.
        asked: Option<StopCause>,
    },
    /// It could not be prepared or started.
    Failed {
        /// The reason in one sentence.
        why: String,
    },
    /// A stop came before it was started.
    Never {
        /// The cause of the stop.
        cause: StopCause,
    },
}

/// An action of the driver. Each can be carried out twice without harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make the directory, files and cgroup.
    Prepare,
    /// Stop waiting for the files of the launch, because the container will not run.
    /// [`Event::Failed`] or [`Event::Prepared`] still follows.
    Abandon,
    /// Start the shim.
    Spawn,
    /// Write the cause of the stop to disk. It always precedes the signal that it explains.
    RecordStop(StopCause),
    /// Ask the program to end: SIGTERM.
    Terminate,
    /// Send SIGKILL to all its processes.
    Kill,
    /// Read the remains and write the exit report.
    Collect(End),
    /// Report the new phase to the resource manager soon.
    Changed,
    /// Report the end to the resource manager now.
    Tell,
    /// Mark its directory as unused.
    Forget,
    /// Change its size. The driver returns the result to the agent's state.
    Resize(Size),
}

/// An event that this state does not accept. The state does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// The state's name.
    pub state: &'static str,
    /// The event's name.
    pub event: &'static str,
}
impl std::fmt::Display for Illegal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a container that is {} does not take `{}`", self.state, self.event)
    }
}
impl std::error::Error for Illegal {}

/// The answer of a state to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The state changes to this one.
    To(State),
    /// The state does not change: the event repeats, or it is too late.
    Stay,
}

/// Applies an event. It is the only place where the state of a container changes.
pub fn on(state: &State, event: Event, grace: Duration, out: &mut Vec<Effect>) -> Result<Answer, Illegal> {
    let refused = Illegal { state: state.name(), event: event.name() };
    let answer = match state {
        State::New => new(event, out),
        State::Preparing { stop } => preparing(*stop, event, out),
        State::Starting { stop } => starting(*stop, event, grace, out),
        State::Running => running(event, grace, out),
        State::Stopping { asked, step } => stopping(*asked, *step, event, out),
        State::Exited { report, received } => exited(report, *received, event, out),
        State::Acked => acked(&event),
    };
    answer.ok_or(refused)
}

fn new(event: Event, out: &mut Vec<Effect>) -> Option<Answer> {
    match event {
        Event::Launch => {
            out.push(Effect::Prepare);
            Some(Answer::To(State::Preparing { stop: None }))
        }
        Event::Stop { cause, .. } => Some(never(cause, out)),
        Event::Deadline { .. } | Event::NewPeer | Event::Forget => Some(Answer::Stay),
        Event::Prepared | Event::Started { .. } | Event::Failed { .. } | Event::Ended => None,
        Event::Reported(_) | Event::Received => None,
    }
}

fn preparing(stop: Option<StopCause>, event: Event, out: &mut Vec<Effect>) -> Option<Answer> {
    match event {
        Event::Prepared => Some(match stop {
            Some(cause) => never(cause, out),
            None => {
                out.extend([Effect::Spawn, Effect::Changed]);
                Answer::To(State::Starting { stop: None })
            }
        }),
        Event::Failed { why } => Some(match stop {
            Some(cause) => never(cause, out),
            None => failed(stop, why, out),
        }),
        Event::Stop { cause, .. } => {
            out.extend(stop.is_none().then_some(Effect::Abandon));
            Some(Answer::To(State::Preparing { stop: stop.or(Some(cause)) }))
        }
        Event::Launch | Event::Deadline { .. } | Event::NewPeer | Event::Forget => Some(Answer::Stay),
        Event::Started { .. } | Event::Ended | Event::Reported(_) | Event::Received => None,
    }
}

fn starting(stop: Option<StopCause>, event: Event, grace: Duration, out: &mut Vec<Effect>) -> Option<Answer> {
    match event {
        Event::Started { now } => Some(match stop {
            // The grace period begins when the program runs.
            Some(cause) => stop_running(cause, now, grace, out),
            None => {
                out.push(Effect::Changed);
                Answer::To(State::Running)
            }
        }),
        Event::Failed { why } => Some(failed(stop, why, out)),
        Event::Ended => Some(collect(stop, out)),
        Event::Stop { cause, .. } => Some(Answer::To(State::Starting { stop: stop.or(Some(cause)) })),
        Event::Launch | Event::Prepared | Event::Deadline { .. } | Event::NewPeer | Event::Forget => Some(Answer::Stay),
        Event::Reported(_) | Event::Received => None,
    }
}

fn running(event: Event, grace: Duration, out: &mut Vec<Effect>) -> Option<Answer> {
    match event {
        Event::Stop { cause, now } => Some(stop_running(cause, now, grace, out)),
        Event::Ended => Some(collect(None, out)),
        Event::Launch | Event::Prepared | Event::Started { .. } | Event::Deadline { .. } => Some(Answer::Stay),
        Event::NewPeer | Event::Forget => Some(Answer::Stay),
        Event::Failed { .. } | Event::Reported(_) | Event::Received => None,
    }
}

fn stopping(asked: Option<StopCause>, step: Step, event: Event, out: &mut Vec<Effect>) -> Option<Answer> {
    match event {
        Event::Ended if step == Step::Collecting => Some(Answer::Stay),
        Event::Ended => Some(collect(asked, out)),
        Event::Reported(report) => {
            out.push(Effect::Tell);
            Some(Answer::To(State::Exited { report, received: false }))
        }
        Event::Deadline { now } => Some(kill_when_due(asked, step, now, out)),
        // The first cause is kept. A later stop without grace ends the grace period of the first.
        Event::Stop { cause, now } => match step {
            Step::Grace { .. } if !is_graceful(cause) => Some(kill(asked, now, out)),
            Step::Grace { .. } | Step::Killing { .. } | Step::Collecting => Some(Answer::Stay),
        },
        Event::Launch | Event::Prepared | Event::Started { .. } | Event::Failed { .. } => Some(Answer::Stay),
        Event::NewPeer | Event::Forget => Some(Answer::Stay),
        Event::Received => None,
    }
}

fn exited(report: &ExitReport, received: bool, event: Event, out: &mut Vec<Effect>) -> Option<Answer> {
    let again = |received| Answer::To(State::Exited { report: Box::new(report.clone()), received });
    match event {
        Event::Received => Some(if received { Answer::Stay } else { again(true) }),
        Event::NewPeer => Some(if received { again(false) } else { Answer::Stay }),
        Event::Forget => {
            out.push(Effect::Forget);
            Some(Answer::To(State::Acked))
        }
        Event::Launch | Event::Prepared | Event::Started { .. } | Event::Failed { .. } => Some(Answer::Stay),
        Event::Stop { .. } | Event::Deadline { .. } | Event::Ended | Event::Reported(_) => Some(Answer::Stay),
    }
}

fn acked(event: &Event) -> Option<Answer> {
    match event {
        Event::Launch | Event::Stop { .. } | Event::Deadline { .. } | Event::Ended => Some(Answer::Stay),
        Event::Received | Event::NewPeer | Event::Forget => Some(Answer::Stay),
        Event::Prepared | Event::Started { .. } | Event::Failed { .. } | Event::Reported(_) => None,
    }
}

fn is_graceful(cause: StopCause) -> bool {
    match cause {
        StopCause::Asked | StopCause::Preempted | StopCause::Timeout | StopCause::Fenced => true,
        StopCause::OverLimit | StopCause::Stalled => false,
    }
}

fn stop_running(cause: StopCause, now: Tick, grace: Duration, out: &mut Vec<Effect>) -> Answer {
    // These effects stay adjacent: the driver carries out adjacent effects as one job, in this
    // order.
    out.push(Effect::RecordStop(cause));
    let answer = if is_graceful(cause) {
        out.push(Effect::Terminate);
        Answer::To(State::Stopping { asked: Some(cause), step: Step::Grace { kill_at: now.plus(grace) } })
    } else {
        kill(Some(cause), now, out)
    };
    out.push(Effect::Changed);
    answer
}

fn kill(asked: Option<StopCause>, now: Tick, out: &mut Vec<Effect>) -> Answer {
    out.push(Effect::Kill);
    Answer::To(State::Stopping { asked, step: Step::Killing { again_at: now.plus(KILL_AGAIN) } })
}

fn kill_when_due(asked: Option<StopCause>, step: Step, now: Tick, out: &mut Vec<Effect>) -> Answer {
    match step {
        Step::Grace { kill_at } if kill_at <= now => kill(asked, now, out),
        Step::Killing { again_at } if again_at <= now => kill(asked, now, out),
        Step::Grace { .. } | Step::Killing { .. } | Step::Collecting => Answer::Stay,
    }
}

fn collect(asked: Option<StopCause>, out: &mut Vec<Effect>) -> Answer {
    out.push(Effect::Collect(End::Ended { asked }));
    Answer::To(State::Stopping { asked, step: Step::Collecting })
}

fn failed(stop: Option<StopCause>, why: String, out: &mut Vec<Effect>) -> Answer {
    out.push(Effect::Collect(End::Failed { why }));
    Answer::To(State::Stopping { asked: stop, step: Step::Collecting })
}

fn never(cause: StopCause, out: &mut Vec<Effect>) -> Answer {
    out.push(Effect::Collect(End::Never { cause }));
    Answer::To(State::Stopping { asked: Some(cause), step: Step::Collecting })
}

impl State {
    /// The name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            State::New => "new",
            State::Preparing { .. } => "preparing",
            State::Starting { .. } => "starting",
            State::Running => "running",
            State::Stopping { .. } => "stopping",
            State::Exited { .. } => "exited",
            State::Acked => "acked",
        }
    }
    /// The time at which the state needs a [`Event::Deadline`].
    pub fn deadline(&self) -> Option<Tick> {
        match self {
            State::Stopping { step: Step::Grace { kill_at }, .. } => Some(*kill_at),
            State::Stopping { step: Step::Killing { again_at }, .. } => Some(*again_at),
            State::Stopping { step: Step::Collecting, .. } => None,
            State::New | State::Preparing { .. } | State::Starting { .. } | State::Running => None,
            State::Exited { .. } | State::Acked => None,
        }
    }
}

impl Event {
    /// The name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Launch => "launch",
            Event::Prepared => "prepared",
            Event::Started { .. } => "started",
            Event::Failed { .. } => "failed",
            Event::Stop { .. } => "stop",
            Event::Deadline { .. } => "deadline",
            Event::Ended => "ended",
            Event::Reported(_) => "reported",
            Event::Received => "received",
            Event::NewPeer => "new peer",
            Event::Forget => "forget",
        }
    }
}

#[cfg(test)]
#[path = "container_tests.rs"]
mod tests;
