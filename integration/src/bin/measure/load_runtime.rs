//! The runtime of simulated peers.

use anyhow::{Context as _, Result};
use tokio::runtime::{Builder, Runtime};

/// A runtime with two workers for simulated agents and masters.
pub(crate) fn load_runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the runtime of the load cannot be started")
}
