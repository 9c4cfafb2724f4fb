//! Arguments of the verbs about live jobs: `rmctl job add`, `close` and `cancel-tasks`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Bytes, Name};

use super::value_parser::variable;
use crate::complete;

/// Arguments of `rmctl job add`.
#[derive(Debug, Args)]
pub(crate) struct JobAddArgs {
    /// The live job
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: String,
    /// Stage of the tasks: one of the job file, or one that a client has declared
    #[arg(long, value_name = "STAGE")]
    pub(crate) stage: Name,
    /// Memory of the first attempt, such as 1G [default: that of the stage]
    #[arg(short = 'm', long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Priority within the job; higher first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    pub(crate) priority: i32,
    /// Environment variable, NAME=VALUE; can be repeated
    #[arg(short = 'e', long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Key of the task; a repeated key adds no second task [default: a random key]
    #[arg(long, value_name = "KEY", conflicts_with = "from_file")]
    pub(crate) key: Option<String>,
    /// Add one task for each line of this file, with its arguments quoted as in a shell; - is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with = "arguments")]
    pub(crate) from_file: Option<PathBuf>,
    /// Wait until the tasks have ended, and print their results; exit code: 1 if one failed, 9 if
    /// one failed for memory
    #[arg(short = 'w', long)]
    pub(crate) wait: bool,
    /// Arguments of the task, after the command of its stage
    #[arg(last = true, value_name = "ARG")]
    pub(crate) arguments: Vec<String>,
}
