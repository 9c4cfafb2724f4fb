//! Arguments of `rmctl operator`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{LogLevel, NodeId, StoreBackend};

use crate::complete;

/// Verbs for operators of the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorSubcommand {
    /// Show the state of the resource manager itself: version, loop, disk, calls, log
    Status,
    /// Show all resource managers and which of them leads; exit code 6 if none does
    Leader,
    /// Reload the configuration of the resource manager; a file with a mistake changes nothing
    Reload,
    /// Show or set the log level of the resource manager; it lasts until the configuration is
    /// reloaded
    Loglevel {
        /// error, warn, info, debug or trace [default: show the present level]
        #[arg(value_name = "LEVEL")]
        level: Option<LogLevel>,
    },
    /// Print the metrics of the resource manager or of a node agent, as a scraper reads them
    Metrics(OperatorMetricsArgs),
    /// Write a support bundle without secrets: state of the cluster, events, checks of this host
    Debug(DebugBundleArgs),
    /// Check, back up, restore or move the state of stopped resource managers
    #[command(subcommand)]
    State(StateSubcommand),
}

/// Arguments of `rmctl operator metrics`.
#[derive(Debug, Args)]
pub(crate) struct OperatorMetricsArgs {
    /// Only metrics whose name contains this
    #[arg(long, value_name = "NAME")]
    pub(crate) filter: Option<String>,
    /// Metrics of this node's agent, from its own address
    #[arg(long, add = Completer::new(complete::nodes))]
    pub(crate) node: Option<NodeId>,
}

/// Arguments of `rmctl operator debug`.
#[derive(Debug, Args)]
pub(crate) struct DebugBundleArgs {
    /// New file [default: headroom-debug-TIME.tgz]
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

/// Verbs about a state.
#[derive(Debug, Subcommand)]
pub(crate) enum StateSubcommand {
    /// Check its contents
    Check(StatePlaceArgs),
    /// Write a backup into one file
    Backup {
        #[command(flatten)]
        place: StatePlaceArgs,
        /// New file
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Restore it from a backup, or from a snapshot of another state directory
    Restore {
        #[command(flatten)]
        place: StatePlaceArgs,
        /// The backup, or a snapshot-….jsonl
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Database to create: sled or redb [default: the present one, else sled]
        #[arg(long, value_name = "STORE", conflicts_with = "config")]
        store: Option<StoreBackend>,
        /// Move the present contents aside instead of refusing
        #[arg(long)]
        replace: bool,
    },
    /// Move it from a state directory into etcd, or with --store back
    Migrate {
        /// resourcemanager.toml, whose table [etcd] names the state in etcd
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// State directory [default: that of the configuration]
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Move it from etcd into this database of the state directory: sled or redb
        #[arg(long, value_name = "STORE")]
        store: Option<StoreBackend>,
    },
}

/// A state: a directory, or what a configuration names.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatePlaceArgs {
    /// State directory, as `state` in resourcemanager.toml
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    pub(crate) state: Option<PathBuf>,
    /// resourcemanager.toml: the state in etcd that it names, or its state directory
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    pub(crate) config: Option<PathBuf>,
}
