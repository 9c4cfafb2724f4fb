//! Arguments of `rmctl kill`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;

use super::confirm::ConfirmOptions;
use crate::complete;

/// Arguments of `rmctl kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The job
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: String,
    /// Reason, stored with the job
    #[arg(long)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) sure: ConfirmOptions,
}
