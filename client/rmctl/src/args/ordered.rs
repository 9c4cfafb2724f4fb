//! Arguments of the verbs that want something done with one task.

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::Bytes;

use super::Sure;
use crate::complete;

/// Which task, and how it is said.
#[derive(Clone, Debug, Args)]
pub(crate) struct Ordered {
    /// The task, such as last/map/7
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) task: String,
    /// Why; kept with the task
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Return before it is carried out
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) sure: Sure,
}

/// `rmctl task set`.
#[derive(Debug, Args)]
pub(crate) struct SetTask {
    #[command(flatten)]
    pub(crate) ordered: Ordered,
    /// Its heap and overhead together, such as 9.5GiB; of a task that waits
    #[arg(long, value_name = "SIZE", required_unless_present = "priority")]
    pub(crate) memory: Option<Bytes>,
    /// It begins before tasks of its job with a lower one; 0 is the usual
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    pub(crate) priority: Option<i32>,
}
