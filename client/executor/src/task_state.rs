//! State machine of one task: pure. It decides the actions on its processes and the recorded cause
//! of its end.
//!
//! ```text
//!            Stop(cause)                GraceOver
//!  Running ───────────────► Asked ───────────────► Killed
//!     │      SIGTERM            │      kill group      ▲ ▲
//!     │                         └─ Enforce, VictimSeen ┘ │
//!     └─────────────────────────── Enforce, VictimSeen ──┘
//!
//! Every state ends with the end of the task's main process, which is not an event of the machine.
//! ```
//!
//! The first cause stands: a task that received a stop request and was then killed for its size
//! counts as stopped.

use headroom_types::StopCause;

/// The phase of a task between its first instruction and the end of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskPhase {
    /// No stop request so far.
    Running,
    /// SIGTERM was sent.
    Asked {
        /// Cause of the stop request.
        cause: StopCause,
    },
    /// SIGKILL was sent to all its processes.
    Killed {
        /// Cause of the kill; `None` if the kernel had already killed one of its processes for
        /// memory.
        cause: Option<StopCause>,
    },
}

/// An event of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// A stop request.
    Stop(StopCause),
    /// The grace period is over.
    GraceOver,
    /// The executor ends the task: above its limit without kernel enforcement, or stalled at it.
    Enforce(StopCause),
    /// The kernel killed one of its processes for memory and left the others.
    VictimSeen,
}

/// The action that follows an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAction {
    /// No action.
    Nothing,
    /// Sends SIGTERM to the main process and starts the grace period.
    Terminate,
    /// Sends SIGKILL to all processes.
    Kill,
}

impl TaskPhase {
    /// The transition function of the machine.
    #[must_use]
    pub fn on(self, event: TaskEvent) -> (TaskPhase, TaskAction) {
        match self {
            TaskPhase::Running => match event {
                TaskEvent::Stop(cause) => (TaskPhase::Asked { cause }, TaskAction::Terminate),
                TaskEvent::Enforce(cause) => {
                    (TaskPhase::Killed { cause: Some(cause) }, TaskAction::Kill)
                }
                TaskEvent::VictimSeen => (TaskPhase::Killed { cause: None }, TaskAction::Kill),
                TaskEvent::GraceOver => (self, TaskAction::Nothing), // no stop request, so no grace period
            },
            TaskPhase::Asked { cause } => match event {
                TaskEvent::Stop(_) => (self, TaskAction::Nothing), // a stop request exists already
                TaskEvent::GraceOver | TaskEvent::Enforce(_) | TaskEvent::VictimSeen => {
                    (TaskPhase::Killed { cause: Some(cause) }, TaskAction::Kill)
                }
            },
            TaskPhase::Killed { .. } => match event {
                TaskEvent::Stop(_)
                | TaskEvent::GraceOver
                | TaskEvent::Enforce(_)
                | TaskEvent::VictimSeen => (self, TaskAction::Nothing), // ended
            },
        }
    }

    /// The recorded cause of the end, if Headroom requested it.
    pub fn cause(self) -> Option<StopCause> {
        match self {
            TaskPhase::Running => None,
            TaskPhase::Asked { cause } => Some(cause),
            TaskPhase::Killed { cause } => cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [TaskPhase; 4] = [
        TaskPhase::Running,
        TaskPhase::Asked {
            cause: StopCause::Asked,
        },
        TaskPhase::Killed {
            cause: Some(StopCause::OverLimit),
        },
        TaskPhase::Killed { cause: None },
    ];
    const EVENTS: [TaskEvent; 5] = [
        TaskEvent::Stop(StopCause::Asked),
        TaskEvent::Stop(StopCause::Timeout),
        TaskEvent::GraceOver,
        TaskEvent::Enforce(StopCause::OverLimit),
        TaskEvent::VictimSeen,
    ];

    #[test]
    fn every_event_in_every_state() {
        let asked = STATES[1];
        let killed = |cause| TaskPhase::Killed { cause };
        let table = [
            // Stop(Asked)              Stop(Timeout)                                               GraceOver
            [
                (asked, TaskAction::Terminate),
                (
                    TaskPhase::Asked {
                        cause: StopCause::Timeout,
                    },
                    TaskAction::Terminate,
                ),
                (TaskPhase::Running, TaskAction::Nothing),
                (killed(Some(StopCause::OverLimit)), TaskAction::Kill),
                (killed(None), TaskAction::Kill),
            ],
            [
                (asked, TaskAction::Nothing),
                (asked, TaskAction::Nothing),
                (killed(Some(StopCause::Asked)), TaskAction::Kill),
                (killed(Some(StopCause::Asked)), TaskAction::Kill),
                (killed(Some(StopCause::Asked)), TaskAction::Kill),
            ],
            [(STATES[2], TaskAction::Nothing); 5],
            [(STATES[3], TaskAction::Nothing); 5],
        ];
        for (state, row) in STATES.iter().zip(table) {
            for (event, cell) in EVENTS.iter().zip(row) {
                assert_eq!(state.on(*event), cell, "{state:?} on {event:?}");
            }
        }
    }

    #[test]
    fn the_first_cause_is_kept() {
        let (life, _) = TaskPhase::Running.on(TaskEvent::Stop(StopCause::Timeout));
        let (life, _) = life.on(TaskEvent::Stop(StopCause::Asked));
        let (life, action) = life.on(TaskEvent::Enforce(StopCause::OverLimit));
        assert_eq!(
            (life.cause(), action),
            (Some(StopCause::Timeout), TaskAction::Kill)
        );
    }
}
