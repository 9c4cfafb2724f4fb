//! One container's life on this node: the machine, and nothing else.
//!
//! Owned by [`crate::agent::Agent`]. It never acts: every transition says what the shell has to do, and the result comes back as
//! an event. Actions may be repeated and results may come late; both are swallowed here by name.
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
//! A `forget` before the end comes from a resource manager that had given the node up: what lives is shown to it again, and it
//! will say `stop`. A stop that arrives before the program runs is kept and carried out at the next step, because a kill could miss a child that
//! has not yet entered its cgroup.

use std::time::Duration;

use headroom_types::{ExitReport, RequestId, Resource, StopCause, Tick, UnixMillis};

use crate::size::Size;

/// How often a kill is repeated until the end is seen.
pub const KILL_AGAIN: Duration = Duration::from_secs(1);

/// What was granted: the part that the core needs. The launch itself stays with the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The request; `None` for an application master.
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in; 1 for the first.
    pub attempt: u32,
    /// Its size: the limit.
    pub resource: Resource,
    /// The version of that size.
    pub version: u32,
    /// When it was granted.
    pub granted: UnixMillis,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl Order {
    /// Of something that never came here and was stopped elsewhere.
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

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Ordered, nothing done.
    New,
    /// Directory, files and cgroup are being made.
    Preparing {
        /// A stop that came meanwhile.
        stop: Option<StopCause>,
    },
    /// Its shim was started; no word from it yet.
    Starting {
        /// A stop that came meanwhile.
        stop: Option<StopCause>,
    },
    /// Its program runs.
    Running,
    /// It is being ended, or its remains are being collected.
    Stopping {
        /// Who asked; `None` when it ended by itself.
        asked: Option<StopCause>,
        /// How far that is.
        step: Step,
    },
    /// Its report is there and waits for an acknowledgement.
    Exited {
        /// The verdict with its evidence.
        report: Box<ExitReport>,
        /// Whether the resource manager of this life has taken it in.
        received: bool,
    },
    /// Everybody has the report. Nothing of it matters any more.
    Acked,
}

/// How far a stop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// SIGTERM was sent.
    Grace {
        /// When patience ends.
        kill_at: Tick,
    },
    /// SIGKILL was sent to all of it.
    Killing {
        /// When to do it again.
        again_at: Tick,
    },
    /// It ended; counters and logs are being read.
    Collecting,
}

/// What happened to one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It should run.
    Launch,
    /// Directory, files and cgroup are there, and the limit was read back.
    Prepared,
    /// The shim said that the program runs.
    Started {
        /// Now.
        now: Tick,
    },
    /// It could not be prepared or started.
    Failed {
        /// Why, in one sentence.
        why: String,
    },
    /// Somebody wants it to end.
    Stop {
        /// Who and why.
        cause: StopCause,
        /// Now.
        now: Tick,
    },
    /// Time has passed.
    Deadline {
        /// Now.
        now: Tick,
    },
    /// Its shim is gone.
    Ended,
    /// Its report is written.
    Reported(Box<ExitReport>),
    /// The resource manager has taken the report in.
    Received,
    /// Another resource manager, which knows nothing yet.
    NewPeer,
    /// Everybody has the report.
    Forget,
}

/// How its life on this node came to an end, for whoever writes the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program ran, or its shim at least was started.
    Ended {
        /// Who asked for it.
        asked: Option<StopCause>,
    },
    /// It could not be started.
    Failed {
        /// Why, in one sentence.
        why: String,
    },
    /// A stop came before it was started.
    Never {
        /// Who asked for it.
        cause: StopCause,
    },
}

/// What the shell has to do. Each may be done twice without harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make directory, files and cgroup.
    Prepare,
    /// Wait no longer for what has to come from elsewhere: it is not going to run. [`Event::Failed`] or [`Event::Prepared`] still follows.
    Abandon,
    /// Start the shim.
    Spawn,
    /// Make the cause of the stop durable. Always comes before the signal it explains.
    RecordStop(StopCause),
    /// Ask the program to end: SIGTERM.
    Terminate,
    /// End every process of it.
    Kill,
    /// Read what is left of it and write the report.
    Collect(End),
    /// Tell the resource manager soon: its phase changed.
    Changed,
    /// Tell the resource manager now: its report is there.
    Tell,
    /// Mark its directory as no longer needed.
    Forget,
    /// Give it another size; the agent's state hears of it when it is so, or cannot be.
    Resize(Size),
}

/// An event that this state does not take. The state stays as it was.
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

/// What a state says to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on to this state.
    To(State),
    /// It stays: already so, or too late to matter.
    Stay,
}

/// The only place where a container's state changes.
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
            // Grace begins when there is somebody to be graceful to.
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
        // The first cause stands; one that knows no grace ends the patience of one that does.
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
    // Side by side: the shell carries out as one job, one after the other, what is not parted by anything else.
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
    /// Its name in logs.
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
    /// When it wants to hear of the time.
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
    /// Its name in logs.
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
