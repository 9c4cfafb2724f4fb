//! Notifications to systemd. Without a service manager they do nothing.

use std::time::Duration;

use headroom_types::Tick;
use sd_notify::NotifyState;

/// Interval of the status line.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// Watchdog of the service manager. The main loop itself notifies it, so that a hanging loop is
/// restarted.
#[derive(Debug)]
pub(crate) struct ManagerWatchdog {
    every: Option<Duration>,
    listens: bool,
    next: Tick,
    next_status: Tick,
    status: String,
}

impl ManagerWatchdog {
    /// Watchdog as configured in the unit; without one it does nothing.
    pub(crate) fn from_environment() -> Self {
        let every = sd_notify::watchdog_enabled().map(|d| d / 3);
        let listens = std::env::var_os("NOTIFY_SOCKET").is_some();
        ManagerWatchdog {
            every,
            listens,
            next: Tick(0),
            next_status: Tick(0),
            status: String::new(),
        }
    }
    /// Notifies the watchdog when it is due, and the status when it has changed.
    pub(crate) fn feed(&mut self, now: Tick, status: impl FnOnce() -> String) {
        if let Some(every) = self.every
            && self.next <= now
        {
            self.next = now.plus(every);
            say(&[NotifyState::Watchdog]);
        }
        if self.listens && self.next_status <= now {
            self.next_status = now.plus(STATUS_EVERY);
            let status = status();
            if status != self.status {
                say(&[NotifyState::Status(&status)]);
                self.status = status;
            }
        }
    }
}

/// Notifies the watchdog while this manager is a standby, whose main loop does not run yet.
pub(crate) async fn keep_standby() -> std::convert::Infallible {
    say(&[NotifyState::Status(
        "standby: another resource manager leads",
    )]);
    let every = sd_notify::watchdog_enabled().map(|d| d / 3);
    loop {
        tokio::time::sleep(every.unwrap_or(STATUS_EVERY)).await;
        if every.is_some() {
            say(&[NotifyState::Watchdog]);
        }
    }
}

/// Notifies systemd that the daemon is ready.
pub(crate) fn ready() {
    say(&[NotifyState::Ready]);
}

/// Notifies systemd that the daemon stops.
pub(crate) fn stopping() {
    say(&[NotifyState::Stopping]);
}

fn say(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}
