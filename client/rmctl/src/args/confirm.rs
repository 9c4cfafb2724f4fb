//! Options of verbs that end or delete objects.

use clap::Args;

/// Options of verbs that end or delete something.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ConfirmOptions {
    /// Only print the affected objects
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation; rmctl never asks without a terminal
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}
