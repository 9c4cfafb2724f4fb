//! Arguments of `rmctl profile`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Bytes, Cpus, Name, NodeId, QueuePath};

use super::launch::LaunchArgs;
use super::output::ListOptions;
use super::value_parser::duration;
use crate::complete;

/// Verbs about profiles of the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileSubcommand {
    /// List all profiles
    #[command(visible_alias = "ls")]
    List(ListOptions),
    /// Show one profile, and how a job file names it
    Show {
        /// The profile
        #[arg(add = Completer::new(complete::profiles))]
        name: Name,
    },
    /// Create or replace a profile; jobs that were submitted before keep their sizes
    Set(ProfileSetArgs),
    /// Delete a profile; jobs that were submitted with it keep their sizes
    Unset {
        /// The profile
        #[arg(add = Completer::new(complete::profiles))]
        name: Name,
        /// Only if it still has this revision; `profile show` prints it
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        /// Only print the profile, without deleting it
        #[arg(long)]
        dry_run: bool,
    },
    /// Show requested, used and suggested sizes of stages: of all jobs, of one job, or of jobs that
    /// requested a profile's size
    Suggest {
        /// Name of a job, or of a profile of the cluster
        #[arg(add = Completer::new(complete::profiles))]
        name: Option<Name>,
        /// Only jobs of this user
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Run one command once at the size of a profile and show the memory it used. Exit code 0:
    /// enough, 9: killed for memory, 1: it failed
    Test(ProfileTestArgs),
    /// Set every [profiles.NAME] of a job file or of a file with profiles only; other profiles stay
    Import {
        /// TOML file; - for standard input
        file: PathBuf,
        /// Only print the changes
        #[arg(long)]
        dry_run: bool,
    },
}

/// Arguments of `rmctl profile test`.
#[derive(Debug, Args)]
pub(crate) struct ProfileTestArgs {
    /// The profile
    #[arg(add = Completer::new(complete::profiles))]
    pub(crate) name: Name,
    /// Only on this node; can be repeated
    #[arg(long = "node", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) nodes: Vec<NodeId>,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    /// Longest run time, such as 10m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// Queue of the job
    #[arg(long, value_name = "QUEUE", add = Completer::new(complete::queues))]
    pub(crate) queue: Option<QueuePath>,
}

/// Arguments of `rmctl profile set`.
#[derive(Debug, Args)]
pub(crate) struct ProfileSetArgs {
    /// Name in job files
    #[arg(add = Completer::new(complete::profiles))]
    pub(crate) name: Name,
    /// TOML with the keys of a profile, such as overhead = { factor = 0.1, min = "384MiB" }; - for
    /// standard input
    #[arg(required_unless_present_any = ["memory", "heap"], conflicts_with_all = ["memory", "heap", "overhead", "cpus"])]
    pub(crate) file: Option<PathBuf>,
    /// Memory of a native program, one quantity, such as 1GiB
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["heap", "overhead"])]
    pub(crate) memory: Option<Bytes>,
    /// Heap of a runtime with managed memory
    #[arg(long, value_name = "SIZE")]
    pub(crate) heap: Option<Bytes>,
    /// All other memory that counts against the limit [default: 0]
    #[arg(long, value_name = "SIZE", requires = "heap")]
    pub(crate) overhead: Option<Bytes>,
    /// Processors, such as 2 or 0.5 [default: 1]
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<Cpus>,
    /// Short description
    #[arg(long, value_name = "TEXT")]
    pub(crate) about: Option<String>,
    /// Only if it still has this revision; `profile show` prints it
    #[arg(long, value_name = "N")]
    pub(crate) revision: Option<u64>,
    /// Only validate the profile
    #[arg(long)]
    pub(crate) dry_run: bool,
}
