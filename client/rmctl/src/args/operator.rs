//! `rmctl operator`: what only whoever runs the cluster needs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{LogLevel, NodeId, StoreBackend};

use crate::complete;

/// For whoever runs the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorVerb {
    /// How the resource manager itself stands: its life, its loop, its disk, its calls, its log
    Status,
    /// Have the resource manager read its configuration again; a file with a mistake changes nothing
    Reload,
    /// How much the resource manager says in its log, or from now on; until its configuration is read again
    Loglevel {
        /// error, warn, info, debug or trace; without it, how much it is now
        #[arg(value_name = "LEVEL")]
        level: Option<LogLevel>,
    },
    /// The metrics of the resource manager, or of a node agent, as a scraper reads them
    Metrics(Metrics),
    /// Write a bundle for somebody who looks at it elsewhere: how the cluster stands, what happened, what this host offers; no secrets
    Debug(DebugBundle),
    /// The state directory of a resource manager that is not running
    State {
        #[command(subcommand)]
        what: StateVerb,
    },
}

/// `rmctl operator metrics`.
#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Only metrics with this in their name
    #[arg(long, value_name = "NAME")]
    pub(crate) filter: Option<String>,
    /// Those of the agent of this node, asked at its own address
    #[arg(long, add = Completer::new(complete::nodes))]
    pub(crate) node: Option<NodeId>,
}

/// `rmctl operator debug`.
#[derive(Debug, Args)]
pub(crate) struct DebugBundle {
    /// The file; it must not be there yet. headroom-debug-TIME.tgz when left out
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
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
