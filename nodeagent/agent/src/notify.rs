//! Words to systemd. Without a service manager they go nowhere.

use std::time::Duration;

use headroom_types::Tick;
use sd_notify::NotifyState;

/// The service manager's dog, fed by the loop itself: a loop that hangs is restarted.
#[derive(Debug)]
pub(crate) struct Watchdog {
    every: Option<Duration>,
    next: Tick,
}

impl Watchdog {
    /// As configured in the unit; does nothing without one.
    pub(crate) fn from_environment() -> Self {
        Watchdog { every: sd_notify::watchdog_enabled().map(|d| d / 3), next: Tick(0) }
    }
    /// Feeds it when it is time.
    pub(crate) fn feed(&mut self, now: Tick) {
        if let Some(every) = self.every
            && self.next <= now
        {
            self.next = now.plus(every);
            say(&[NotifyState::Watchdog]);
        }
    }
}

/// The agent is up.
pub(crate) fn ready(status: &str) {
    say(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The agent is on its way out.
pub(crate) fn stopping() {
    say(&[NotifyState::Stopping]);
}

fn say(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        tracing::debug!(%error, "the service manager does not listen, ignoring");
    }
}
