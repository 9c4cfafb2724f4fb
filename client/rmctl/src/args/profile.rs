//! `rmctl profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Bytes, Cpus, Name};

use super::Rows;
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
    /// Set every [profiles.NAME] of a file: a job file, or one with nothing else; others stay as they are
    Import {
        /// TOML; - for standard input
        file: PathBuf,
        /// Only say what would change
        #[arg(long)]
        dry_run: bool,
    },
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
