//! The life of one task as a machine: pure. What to do to its processes, and who is to be named as the cause of its end.
//!
//! ```text
//!            Stop(cause)                GraceOver
//!  Running ───────────────► Asked ───────────────► Killed
//!     │      SIGTERM            │      kill group      ▲ ▲
//!     │                         └─ Enforce, VictimSeen ┘ │
//!     └─────────────────────────── Enforce, VictimSeen ──┘
//!
//!  Every state ends when the task's own process ends; that is not an event here but the end of the machine.
//! ```
//!
//! The first cause stands: a task that was asked to stop and then killed for its size was stopped.

use headroom_types::StopCause;

/// Where a task is between its first instruction and the end of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Nobody wants it to end.
    Running,
    /// Asked to end, by SIGTERM.
    Asked {
        /// By whom.
        cause: StopCause,
    },
    /// All its processes were sent SIGKILL.
    Killed {
        /// By whom; `None` when the kernel had already killed one of them for memory.
        cause: Option<StopCause>,
    },
}

/// What can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody of ours wants it to end.
    Stop(StopCause),
    /// It had its time to end by itself.
    GraceOver,
    /// The executor itself ends it: beyond its limit where no kernel holds it, or stuck at it.
    Enforce(StopCause),
    /// The kernel killed one of its processes for memory and left the others.
    VictimSeen,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// SIGTERM to its main process, and grant it its grace.
    Terminate,
    /// SIGKILL to all its processes.
    Kill,
}

impl Life {
    /// The only place where a task's life changes.
    #[must_use]
    pub fn on(self, event: Event) -> (Life, Action) {
        match self {
            Life::Running => match event {
                Event::Stop(cause) => (Life::Asked { cause }, Action::Terminate),
                Event::Enforce(cause) => (Life::Killed { cause: Some(cause) }, Action::Kill),
                Event::VictimSeen => (Life::Killed { cause: None }, Action::Kill),
                Event::GraceOver => (self, Action::Nothing), // nobody asked: no grace runs
            },
            Life::Asked { cause } => match event {
                Event::Stop(_) => (self, Action::Nothing), // already asked
                Event::GraceOver | Event::Enforce(_) | Event::VictimSeen => (Life::Killed { cause: Some(cause) }, Action::Kill),
            },
            Life::Killed { .. } => match event {
                Event::Stop(_) | Event::GraceOver | Event::Enforce(_) | Event::VictimSeen => (self, Action::Nothing), // too late
            },
        }
    }

    /// Who of ours wanted the end.
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
