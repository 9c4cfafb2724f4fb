//! Arguments of verbs that send an order about one task.

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::Bytes;

use super::confirm::ConfirmOptions;
use crate::complete;

/// The task, and options of the order.
#[derive(Clone, Debug, Args)]
pub(crate) struct TaskOrderArgs {
    /// The task, such as last/map/7
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) task: String,
    /// Reason, stored with the task
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Return without waiting for its effect
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) sure: ConfirmOptions,
}

/// Arguments of `rmctl task set`.
#[derive(Debug, Args)]
pub(crate) struct TaskSetArgs {
    #[command(flatten)]
    pub(crate) ordered: TaskOrderArgs,
    /// Heap and overhead together, such as 9.5GiB; only of a waiting task
    #[arg(long, value_name = "SIZE", required_unless_present = "priority")]
    pub(crate) memory: Option<Bytes>,
    /// Priority within the job; higher first, 0 is the default
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    pub(crate) priority: Option<i32>,
}
