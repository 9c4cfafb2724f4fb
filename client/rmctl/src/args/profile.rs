//! `rmctl profile`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Bytes, Cpus, Name, NodeId, QueuePath};

use super::{Rows, duration, variable};
use crate::complete;

/// About profiles of the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileVerb {
    /// All of them
    #[command(visible_alias = "ls")]
    List(Rows),
    /// One of them, and how a job file names it
    Show {
        /// The profile
        #[arg(add = Completer::new(complete::profiles))]
        name: Name,
    },
    /// Give a name a size, new or in the place of the one it has; what was submitted before keeps its own
    Set(SetProfile),
    /// Take one away; what was submitted with it keeps its size
    Unset {
        /// The profile
        #[arg(add = Completer::new(complete::profiles))]
        name: Name,
        /// Only if it still has this revision; `profile show` tells it
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// What stages of earlier jobs asked for, needed and should begin with; of all, of one job, or of those that asked for a profile's size
    Suggest {
        /// A job's name, or a profile of the cluster
        #[arg(add = Completer::new(complete::profiles))]
        name: Option<Name>,
        /// Of this user's jobs only
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Run one command once at the size of a profile, and tell what it needed of it. Exit 0: enough, 9: killed for memory, 1: it failed
    Test(TestProfile),
    /// Set every [profiles.NAME] of a file: a job file, or one with nothing else; others stay as they are
    Import {
        /// TOML; - for standard input
        file: PathBuf,
        /// Only say what would change
        #[arg(long)]
        dry_run: bool,
    },
}

/// `rmctl profile test`.
#[derive(Debug, Args)]
pub(crate) struct TestProfile {
    /// The profile
    #[arg(add = Completer::new(complete::profiles))]
    pub(crate) name: Name,
    /// Only on this node; as often as needed
    #[arg(long = "node", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) nodes: Vec<NodeId>,
    /// A variable of its environment, NAME=VALUE; as often as needed
    #[arg(short = 'e', long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<String>,
    /// Longest it may run, such as 10m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// The queue it goes to
    #[arg(long, value_name = "QUEUE", add = Completer::new(complete::queues))]
    pub(crate) queue: Option<QueuePath>,
    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// `rmctl profile set`.
#[derive(Debug, Args)]
pub(crate) struct SetProfile {
    /// What job files call it
    #[arg(add = Completer::new(complete::profiles))]
    pub(crate) name: Name,
    /// TOML with the keys of a profile, such as overhead = { factor = 0.1, min = "384MiB" }; - for standard input
    #[arg(required_unless_present_any = ["memory", "heap"], conflicts_with_all = ["memory", "heap", "overhead", "cpus"])]
    pub(crate) file: Option<PathBuf>,
    /// All its memory, for a program that has one quantity, such as 1GiB
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["heap", "overhead"])]
    pub(crate) memory: Option<Bytes>,
    /// Memory of a runtime that manages its own
    #[arg(long, value_name = "SIZE")]
    pub(crate) heap: Option<Bytes>,
    /// All else that counts against the limit [default: 0]
    #[arg(long, value_name = "SIZE", requires = "heap")]
    pub(crate) overhead: Option<Bytes>,
    /// Processors, such as 2 or 0.5 [default: 1]
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<Cpus>,
    /// What it is for, in a few words
    #[arg(long, value_name = "TEXT")]
    pub(crate) about: Option<String>,
    /// Only if it still has this revision; `profile show` tells it
    #[arg(long, value_name = "N")]
    pub(crate) revision: Option<u64>,
    /// Only say what would be
    #[arg(long)]
    pub(crate) dry_run: bool,
}
