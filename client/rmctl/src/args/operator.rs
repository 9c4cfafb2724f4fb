//! `rmctl operator`: what is done to a cluster's own files, not through the resource manager.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headroom_types::StoreBackend;

/// For whoever runs the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorVerb {
    /// The state directory of a resource manager that is not running
    State {
        #[command(subcommand)]
        what: StateVerb,
    },
}

/// About a state directory.
#[derive(Debug, Subcommand)]
pub(crate) enum StateVerb {
    /// What is in it, and what is wrong with it
    Check(Place),
    /// Write all of it into one file
    Backup {
        #[command(flatten)]
        place: Place,
        /// The file; it must not be there yet
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Fill it from a backup, or from a snapshot of another state directory
    Restore {
        #[command(flatten)]
        place: Place,
        /// The backup, or a snapshot-….jsonl
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// The database to make: sled or redb; the one that is there, else sled, when left out
        #[arg(long, value_name = "STORE")]
        store: Option<StoreBackend>,
        /// Move what is in the directory aside instead of refusing
        #[arg(long)]
        replace: bool,
    },
}

/// Which state directory.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// The state directory, as in `state` of resourcemanager.toml
    #[arg(long, value_name = "DIR")]
    pub(crate) state: PathBuf,
}
