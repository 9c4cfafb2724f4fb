//! Notifications to systemd. Without a service manager they have no effect.

use std::time::Duration;

use headroom_types::Tick;
use sd_notify::NotifyState;

/// The systemd watchdog, notified by the loop itself: systemd restarts an agent whose loop hangs.
#[derive(Debug)]
pub(crate) struct AgentWatchdog {
    every: Option<Duration>,
    next: Tick,
}

impl AgentWatchdog {
    /// The watchdog as configured in the unit. Without one it does nothing.
    pub(crate) fn from_environment() -> Self {
        AgentWatchdog {
            every: sd_notify::watchdog_enabled().map(|d| d / 3),
            next: Tick(0),
        }
    }
    /// Notifies systemd if the interval has passed.
    pub(crate) fn feed(&mut self, now: Tick) {
        if let Some(every) = self.every
            && self.next <= now
        {
            self.next = now.plus(every);
            say(&[NotifyState::Watchdog]);
        }
    }
}

/// Reports that the agent is ready.
pub(crate) fn ready(status: &str) {
    say(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the agent is stopping.
pub(crate) fn stopping() {
    say(&[NotifyState::Stopping]);
}

fn say(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        tracing::debug!(%error, "the service manager cannot be notified, ignoring");
    }
}
