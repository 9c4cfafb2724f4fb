//! The log of a daemon: to the systemd journal if standard error leads there, otherwise as text to
//! standard error.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};

use crate::journal::SystemdJournal;

/// Environment variable with the log filter; it overrides the configuration.
const VARIABLE: &str = "HEADROOM_LOG";

/// The log level, which can change at run time.
#[derive(Debug)]
pub struct LogLevelHandle(Option<reload::Handle<EnvFilter, Registry>>);

impl LogLevelHandle {
    /// Sets the level, unless the environment variable sets it.
    pub fn set(&self, level: &str) {
        if let Some(handle) = &self.0
            && let Err(error) = handle.reload(EnvFilter::new(level))
        {
            tracing::warn!(%error, "the level of the log cannot be changed");
        }
    }

    /// True if [`LogLevelHandle::set`] has an effect: the environment variable is not set.
    pub fn is_free(&self) -> bool {
        self.0.is_some()
    }
}

/// Starts the log of `program`. Only the first call of a process has an effect.
pub fn begin(program: &'static str, level: &str) -> LogLevelHandle {
    let set = EnvFilter::try_from_env(VARIABLE).ok();
    let free = set.is_none();
    let (filter, handle) = reload::Layer::new(set.unwrap_or_else(|| EnvFilter::new(level)));
    let journal = SystemdJournal::behind_stderr(program);
    let text = journal.is_none().then(|| {
        fmt::layer()
            .with_ansi(io::stderr().is_terminal())
            .with_writer(io::stderr)
    });
    let initialized = tracing_subscriber::registry()
        .with(filter)
        .with(text)
        .with(journal)
        .try_init();
    LogLevelHandle((free && initialized.is_ok()).then_some(handle))
}
