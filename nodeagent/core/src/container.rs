//! The state machine of one container.
//!
//! [`crate::agent::AgentCore`] owns it. The machine never acts: each transition returns the effects
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

use crate::launch_failure::LaunchFailure;
use crate::size::OrderedSize;

/// Interval at which a kill is repeated until the end is observed.
pub const KILL_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The part of the granted container that the core needs. The driver keeps the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerOrder {
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

impl ContainerOrder {
    /// The order of a container that this node never had and that is stopped elsewhere.
    pub fn unknown() -> Self {
        ContainerOrder {
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
pub enum LifecyclePhase {
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
        step: StopProgress,
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
pub enum StopProgress {
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
pub enum LifecycleEvent {
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
    Failed(LaunchFailure),
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
pub enum ContainerEnd {
    /// The program ran, or at least its shim was started.
    Ended {
        /// The cause of the stop; `None` when it ended by itself.
        asked: Option<StopCause>,
    },
    /// It could not be prepared or started.
    Failed(LaunchFailure),
    /// A stop came before it was started.
    Never {
        /// The cause of the stop.
        cause: StopCause,
    },
}

/// An action of the driver. Each can be carried out twice without harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerEffect {
    /// Make the directory, files and cgroup.
    Prepare,
    /// Stop waiting for the files of the launch, because the container will not run.
    /// [`LifecycleEvent::Failed`] or [`LifecycleEvent::Prepared`] still follows.
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
    Collect(ContainerEnd),
    /// Report the new phase to the resource manager soon.
    Changed,
    /// Report the end to the resource manager now.
    ReportEnd,
    /// Mark its directory as unused.
    Forget,
    /// Change its size. The driver returns the result to the agent's state.
    Resize(OrderedSize),
}

/// An event that this state does not accept. The state does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a container in the state {state} does not accept the event `{event}`")]
pub struct IllegalEvent {
    /// The state's name.
    pub state: &'static str,
    /// The event's name.
    pub event: &'static str,
}

/// The answer of a state to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseTransition {
    /// The state changes to this one.
    To(LifecyclePhase),
    /// The state does not change: the event repeats, or it is too late.
    Stay,
}

/// Applies an event. It is the only place where the state of a container changes.
pub fn apply_event(
    state: &LifecyclePhase,
    event: LifecycleEvent,
    grace: Duration,
    out: &mut Vec<ContainerEffect>,
) -> Result<PhaseTransition, IllegalEvent> {
    let refused = IllegalEvent {
        state: state.name(),
        event: event.name(),
    };
    let answer = match state {
        LifecyclePhase::New => new(event, out),
        LifecyclePhase::Preparing { stop } => preparing(*stop, event, out),
        LifecyclePhase::Starting { stop } => starting(*stop, event, grace, out),
        LifecyclePhase::Running => running(event, grace, out),
        LifecyclePhase::Stopping { asked, step } => stopping(*asked, *step, event, out),
        LifecyclePhase::Exited { report, received } => exited(report, *received, event, out),
        LifecyclePhase::Acked => acked(&event),
    };
    answer.ok_or(refused)
}

fn new(event: LifecycleEvent, out: &mut Vec<ContainerEffect>) -> Option<PhaseTransition> {
    match event {
        LifecycleEvent::Launch => {
            out.push(ContainerEffect::Prepare);
            Some(PhaseTransition::To(LifecyclePhase::Preparing {
                stop: None,
            }))
        }
        LifecycleEvent::Stop { cause, .. } => Some(never(cause, out)),
        LifecycleEvent::Deadline { .. } | LifecycleEvent::NewPeer | LifecycleEvent::Forget => {
            Some(PhaseTransition::Stay)
        }
        LifecycleEvent::Prepared
        | LifecycleEvent::Started { .. }
        | LifecycleEvent::Failed { .. }
        | LifecycleEvent::Ended => None,
        LifecycleEvent::Reported(_) | LifecycleEvent::Received => None,
    }
}

fn preparing(
    stop: Option<StopCause>,
    event: LifecycleEvent,
    out: &mut Vec<ContainerEffect>,
) -> Option<PhaseTransition> {
    match event {
        LifecycleEvent::Prepared => Some(match stop {
            Some(cause) => never(cause, out),
            None => {
                out.extend([ContainerEffect::Spawn, ContainerEffect::Changed]);
                PhaseTransition::To(LifecyclePhase::Starting { stop: None })
            }
        }),
        LifecycleEvent::Failed(failure) => Some(match stop {
            Some(cause) => never(cause, out),
            None => failed(stop, failure, out),
        }),
        LifecycleEvent::Stop { cause, .. } => {
            out.extend(stop.is_none().then_some(ContainerEffect::Abandon));
            Some(PhaseTransition::To(LifecyclePhase::Preparing {
                stop: stop.or(Some(cause)),
            }))
        }
        LifecycleEvent::Launch
        | LifecycleEvent::Deadline { .. }
        | LifecycleEvent::NewPeer
        | LifecycleEvent::Forget => Some(PhaseTransition::Stay),
        LifecycleEvent::Started { .. }
        | LifecycleEvent::Ended
        | LifecycleEvent::Reported(_)
        | LifecycleEvent::Received => None,
    }
}

fn starting(
    stop: Option<StopCause>,
    event: LifecycleEvent,
    grace: Duration,
    out: &mut Vec<ContainerEffect>,
) -> Option<PhaseTransition> {
    match event {
        LifecycleEvent::Started { now } => Some(match stop {
            // The grace period begins when the program runs.
            Some(cause) => stop_running(cause, now, grace, out),
            None => {
                out.push(ContainerEffect::Changed);
                PhaseTransition::To(LifecyclePhase::Running)
            }
        }),
        LifecycleEvent::Failed(failure) => Some(failed(stop, failure, out)),
        LifecycleEvent::Ended => Some(collect(stop, out)),
        LifecycleEvent::Stop { cause, .. } => Some(PhaseTransition::To(LifecyclePhase::Starting {
            stop: stop.or(Some(cause)),
        })),
        LifecycleEvent::Launch
        | LifecycleEvent::Prepared
        | LifecycleEvent::Deadline { .. }
        | LifecycleEvent::NewPeer
        | LifecycleEvent::Forget => Some(PhaseTransition::Stay),
        LifecycleEvent::Reported(_) | LifecycleEvent::Received => None,
    }
}

fn running(
    event: LifecycleEvent,
    grace: Duration,
    out: &mut Vec<ContainerEffect>,
) -> Option<PhaseTransition> {
    match event {
        LifecycleEvent::Stop { cause, now } => Some(stop_running(cause, now, grace, out)),
        LifecycleEvent::Ended => Some(collect(None, out)),
        LifecycleEvent::Launch
        | LifecycleEvent::Prepared
        | LifecycleEvent::Started { .. }
        | LifecycleEvent::Deadline { .. } => Some(PhaseTransition::Stay),
        LifecycleEvent::NewPeer | LifecycleEvent::Forget => Some(PhaseTransition::Stay),
        LifecycleEvent::Failed { .. } | LifecycleEvent::Reported(_) | LifecycleEvent::Received => {
            None
        }
    }
}

fn stopping(
    asked: Option<StopCause>,
    step: StopProgress,
    event: LifecycleEvent,
    out: &mut Vec<ContainerEffect>,
) -> Option<PhaseTransition> {
    match event {
        LifecycleEvent::Ended if step == StopProgress::Collecting => Some(PhaseTransition::Stay),
        LifecycleEvent::Ended => Some(collect(asked, out)),
        LifecycleEvent::Reported(report) => {
            out.push(ContainerEffect::ReportEnd);
            Some(PhaseTransition::To(LifecyclePhase::Exited {
                report,
                received: false,
            }))
        }
        LifecycleEvent::Deadline { now } => Some(kill_when_due(asked, step, now, out)),
        // The first cause is kept. A later stop without grace ends the grace period of the first.
        LifecycleEvent::Stop { cause, now } => match step {
            StopProgress::Grace { .. } if !is_graceful(cause) => Some(kill(asked, now, out)),
            StopProgress::Grace { .. }
            | StopProgress::Killing { .. }
            | StopProgress::Collecting => Some(PhaseTransition::Stay),
        },
        LifecycleEvent::Launch
        | LifecycleEvent::Prepared
        | LifecycleEvent::Started { .. }
        | LifecycleEvent::Failed { .. } => Some(PhaseTransition::Stay),
        LifecycleEvent::NewPeer | LifecycleEvent::Forget => Some(PhaseTransition::Stay),
        LifecycleEvent::Received => None,
    }
}

fn exited(
    report: &ExitReport,
    received: bool,
    event: LifecycleEvent,
    out: &mut Vec<ContainerEffect>,
) -> Option<PhaseTransition> {
    let again = |received| {
        PhaseTransition::To(LifecyclePhase::Exited {
            report: Box::new(report.clone()),
            received,
        })
    };
    match event {
        LifecycleEvent::Received => Some(if received {
            PhaseTransition::Stay
        } else {
            again(true)
        }),
        LifecycleEvent::NewPeer => Some(if received {
            again(false)
        } else {
            PhaseTransition::Stay
        }),
        LifecycleEvent::Forget => {
            out.push(ContainerEffect::Forget);
            Some(PhaseTransition::To(LifecyclePhase::Acked))
        }
        LifecycleEvent::Launch
        | LifecycleEvent::Prepared
        | LifecycleEvent::Started { .. }
        | LifecycleEvent::Failed { .. } => Some(PhaseTransition::Stay),
        LifecycleEvent::Stop { .. }
        | LifecycleEvent::Deadline { .. }
        | LifecycleEvent::Ended
        | LifecycleEvent::Reported(_) => Some(PhaseTransition::Stay),
    }
}

fn acked(event: &LifecycleEvent) -> Option<PhaseTransition> {
    match event {
        LifecycleEvent::Launch
        | LifecycleEvent::Stop { .. }
        | LifecycleEvent::Deadline { .. }
        | LifecycleEvent::Ended => Some(PhaseTransition::Stay),
        LifecycleEvent::Received | LifecycleEvent::NewPeer | LifecycleEvent::Forget => {
            Some(PhaseTransition::Stay)
        }
        LifecycleEvent::Prepared
        | LifecycleEvent::Started { .. }
        | LifecycleEvent::Failed { .. }
        | LifecycleEvent::Reported(_) => None,
    }
}

fn is_graceful(cause: StopCause) -> bool {
    match cause {
        StopCause::Asked | StopCause::Preempted | StopCause::Timeout | StopCause::Fenced => true,
        StopCause::OverLimit | StopCause::Stalled => false,
    }
}

fn stop_running(
    cause: StopCause,
    now: Tick,
    grace: Duration,
    out: &mut Vec<ContainerEffect>,
) -> PhaseTransition {
    // These effects stay adjacent: the driver carries out adjacent effects as one job, in this
    // order.
    out.push(ContainerEffect::RecordStop(cause));
    let answer = if is_graceful(cause) {
        out.push(ContainerEffect::Terminate);
        PhaseTransition::To(LifecyclePhase::Stopping {
            asked: Some(cause),
            step: StopProgress::Grace {
                kill_at: now.plus(grace),
            },
        })
    } else {
        kill(Some(cause), now, out)
    };
    out.push(ContainerEffect::Changed);
    answer
}

fn kill(asked: Option<StopCause>, now: Tick, out: &mut Vec<ContainerEffect>) -> PhaseTransition {
    out.push(ContainerEffect::Kill);
    PhaseTransition::To(LifecyclePhase::Stopping {
        asked,
        step: StopProgress::Killing {
            again_at: now.plus(KILL_RETRY_INTERVAL),
        },
    })
}

fn kill_when_due(
    asked: Option<StopCause>,
    step: StopProgress,
    now: Tick,
    out: &mut Vec<ContainerEffect>,
) -> PhaseTransition {
    match step {
        StopProgress::Grace { kill_at } if kill_at <= now => kill(asked, now, out),
        StopProgress::Killing { again_at } if again_at <= now => kill(asked, now, out),
        StopProgress::Grace { .. } | StopProgress::Killing { .. } | StopProgress::Collecting => {
            PhaseTransition::Stay
        }
    }
}

fn collect(asked: Option<StopCause>, out: &mut Vec<ContainerEffect>) -> PhaseTransition {
    out.push(ContainerEffect::Collect(ContainerEnd::Ended { asked }));
    PhaseTransition::To(LifecyclePhase::Stopping {
        asked,
        step: StopProgress::Collecting,
    })
}

fn failed(
    stop: Option<StopCause>,
    failure: LaunchFailure,
    out: &mut Vec<ContainerEffect>,
) -> PhaseTransition {
    out.push(ContainerEffect::Collect(ContainerEnd::Failed(failure)));
    PhaseTransition::To(LifecyclePhase::Stopping {
        asked: stop,
        step: StopProgress::Collecting,
    })
}

fn never(cause: StopCause, out: &mut Vec<ContainerEffect>) -> PhaseTransition {
    out.push(ContainerEffect::Collect(ContainerEnd::Never { cause }));
    PhaseTransition::To(LifecyclePhase::Stopping {
        asked: Some(cause),
        step: StopProgress::Collecting,
    })
}

impl LifecyclePhase {
    /// The name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            LifecyclePhase::New => "new",
            LifecyclePhase::Preparing { .. } => "preparing",
            LifecyclePhase::Starting { .. } => "starting",
            LifecyclePhase::Running => "running",
            LifecyclePhase::Stopping { .. } => "stopping",
            LifecyclePhase::Exited { .. } => "exited",
            LifecyclePhase::Acked => "acked",
        }
    }
    /// The time at which the state needs a [`LifecycleEvent::Deadline`].
    pub fn deadline(&self) -> Option<Tick> {
        match self {
            LifecyclePhase::Stopping {
                step: StopProgress::Grace { kill_at },
                ..
            } => Some(*kill_at),
            LifecyclePhase::Stopping {
                step: StopProgress::Killing { again_at },
                ..
            } => Some(*again_at),
            LifecyclePhase::Stopping {
                step: StopProgress::Collecting,
                ..
            } => None,
            LifecyclePhase::New
            | LifecyclePhase::Preparing { .. }
            | LifecyclePhase::Starting { .. }
            | LifecyclePhase::Running => None,
            LifecyclePhase::Exited { .. } | LifecyclePhase::Acked => None,
        }
    }
}

impl LifecycleEvent {
    /// The name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            LifecycleEvent::Launch => "launch",
            LifecycleEvent::Prepared => "prepared",
            LifecycleEvent::Started { .. } => "started",
            LifecycleEvent::Failed { .. } => "failed",
            LifecycleEvent::Stop { .. } => "stop",
            LifecycleEvent::Deadline { .. } => "deadline",
            LifecycleEvent::Ended => "ended",
            LifecycleEvent::Reported(_) => "reported",
            LifecycleEvent::Received => "received",
            LifecycleEvent::NewPeer => "new peer",
            LifecycleEvent::Forget => "forget",
        }
    }
}

#[cfg(test)]
mod tests;
