//! Arguments of `rmctl logs`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;

use crate::complete;

/// Arguments of `rmctl logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// A job, a task, an attempt, or a container; or several tasks: map/1-3,7, map/all, map/last
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) target: String,
    /// Print new output until the target has ended
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Print standard error instead of standard output
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Print only the last N lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Print the log of the job's application master
    #[arg(long)]
    pub(crate) master: bool,
    /// Print lines without the task prefix
    #[arg(long)]
    pub(crate) no_prefix: bool,
}
