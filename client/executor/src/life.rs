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
pub enum Life {
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
pub enum Event {
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
pub enum Action {
    /// No action.
    Nothing,
    /// Sends SIGTERM to the main process and starts the grace period.
    Terminate,
    /// Sends SIGKILL to all processes.
    Kill,
}

impl Life {
    /// The transition function of the machine.
    #[must_use]
    pub fn on(self, event: Event) -> (Life, Action) {
        match self {
            Life::Running => match event {
                Event::Stop(cause) => (Life::Asked { cause }, Action::Terminate),
                Event::Enforce(cause) => (Life::Killed { cause: Some(cause) }, Action::Kill),
                Event::VictimSeen => (Life::Killed { cause: None }, Action::Kill),
                Event::GraceOver => (self, Action::Nothing), // no stop request, so no grace period
            },
            Life::Asked { cause } => match event {
                Event::Stop(_) => (self, Action::Nothing), // a stop request exists already
                Event::GraceOver | Event::Enforce(_) | Event::VictimSeen => (Life::Killed { cause: Some(cause) }, Action::Kill),
            },
            Life::Killed { .. } => match event {
                Event::Stop(_) | Event::GraceOver | Event::Enforce(_) | Event::VictimSeen => (self, Action::Nothing), // ended
            },
        }
    }

    /// The recorded cause of the end, if Headroom requested it.
    pub fn cause(self) -> Option<StopCause> {
        match self {
            Life::Running => None,
            Life::Asked { cause } => Some(cause),
            Life::Killed { cause } => cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [Life; 4] = [
        Life::Running,
        Life::Asked { cause: StopCause::Asked },
        Life::Killed { cause: Some(StopCause::OverLimit) },
        Life::Killed { cause: None },
    ];
    const EVENTS: [Event; 5] = [
        Event::Stop(StopCause::Asked),
        Event::Stop(StopCause::Timeout),
        Event::GraceOver,
        Event::Enforce(StopCause::OverLimit),
        Event::VictimSeen,
    ];

    #[test]
    fn every_cell() {
        let asked = STATES[1];
        let killed = |cause| Life::Killed { cause };
        let table = [
            // Stop(Asked)              Stop(Timeout)                                               GraceOver
            [
                (asked, Action::Terminate),
                (Life::Asked { cause: StopCause::Timeout }, Action::Terminate),
                (Life::Running, Action::Nothing),
                (killed(Some(StopCause::OverLimit)), Action::Kill),
                (killed(None), Action::Kill),
            ],
            [
                (asked, Action::Nothing),
                (asked, Action::Nothing),
                (killed(Some(StopCause::Asked)), Action::Kill),
                (killed(Some(StopCause::Asked)), Action::Kill),
                (killed(Some(StopCause::Asked)), Action::Kill),
            ],
            [(STATES[2], Action::Nothing); 5],
            [(STATES[3], Action::Nothing); 5],
        ];
        for (state, row) in STATES.iter().zip(table) {
            for (event, cell) in EVENTS.iter().zip(row) {
                assert_eq!(state.on(*event), cell, "{state:?} on {event:?}");
            }
        }
    }

    #[test]
    fn the_first_cause_stands() {
        let (life, _) = Life::Running.on(Event::Stop(StopCause::Timeout));
        let (life, _) = life.on(Event::Stop(StopCause::Asked));
        let (life, action) = life.on(Event::Enforce(StopCause::OverLimit));
        assert_eq!((life.cause(), action), (Some(StopCause::Timeout), Action::Kill));
    }
}
