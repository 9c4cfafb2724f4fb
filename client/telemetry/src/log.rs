//! The log of a daemon: to the journal where standard error is that, as text to standard error otherwise.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};

use crate::journal::Journal;

/// In the environment; goes before the configuration.
const VARIABLE: &str = "HEADROOM_LOG";

/// How much is said, while it is being said.
#[derive(Debug)]
pub struct Level(Option<reload::Handle<EnvFilter, Registry>>);

impl Level {
    /// Says as much as `level` from now on, unless the environment has set it.
    pub fn set(&self, level: &str) {
        if let Some(handle) = &self.0
            && let Err(error) = handle.reload(EnvFilter::new(level))
        {
            tracing::warn!(%error, "the level of the log stays as it is");
        }
    }

    /// Whether [`Level::set`] does anything: the environment has not set it.
    pub fn is_free(&self) -> bool {
        self.0.is_some()
    }
}

/// Begins the log of `program`. Only the first one of a process counts.
pub fn begin(program: &'static str, level: &str) -> Level {
    let set = EnvFilter::try_from_env(VARIABLE).ok();
    let free = set.is_none();
    let (filter, handle) = reload::Layer::new(set.unwrap_or_else(|| EnvFilter::new(level)));
    let journal = Journal::behind_stderr(program);
    let text = journal.is_none().then(|| fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(io::stderr));
    let begun = tracing_subscriber::registry().with(filter).with(text).with(journal).try_init();
    Level((free && begun.is_ok()).then_some(handle))
}
