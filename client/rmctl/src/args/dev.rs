//! Arguments of verbs that run a cluster or sample programs on this host.

use std::path::PathBuf;

#[cfg(feature = "dev")]
use clap::Args;
use clap::Subcommand;
#[cfg(feature = "dev")]
use headroom_types::{Bytes, EnforcerKind};
#[cfg(feature = "dev")]
use headroom_wire::v1::job::MemoryFailureMode;

/// Arguments of `rmctl dev`.
#[cfg(feature = "dev")]
#[derive(Clone, Debug, Args)]
pub(crate) struct DevClusterArgs {
    /// Number of simulated nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) nodes: u32,
    /// Memory of each node, such as 2GiB [default: a share of the free memory]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Enforcer of limits: cgroup2, cgroup1 or poll [default: the best that this host has]
    #[arg(long, value_name = "KIND")]
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Address of the resource manager
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDR:PORT")]
    pub(crate) listen: std::net::SocketAddr,
    /// Keep all state in this directory instead of a temporary one
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// Arguments of `rmctl demo`.
#[cfg(feature = "dev")]
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// A CSV file with a header, instead of the generated data set
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Column to group by [default: the first one]
    #[arg(long, value_name = "COLUMN", requires = "input")]
    pub(crate) key: Option<String>,
    /// Column with the numbers [default: the first other one with numbers]
    #[arg(long, value_name = "COLUMN", requires = "input")]
    pub(crate) value: Option<String>,
    /// Number of partitions
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=512))]
    pub(crate) partitions: u32,
    /// Sizing mode: headroom, pinterest, uber, databricks or tovar
    #[arg(long, default_value = "headroom", value_name = "MODE")]
    pub(crate) mode: MemoryFailureMode,
    /// Memory of one slot [default: 32MiB, or fitted to the median partition of --input]
    #[arg(long, value_name = "SIZE")]
    pub(crate) share: Option<Bytes>,
    /// Keep data, job file and results in this directory instead of a temporary one
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Enforcer of limits: cgroup2, cgroup1 or poll [default: the best that this host has]
    #[arg(long, value_name = "KIND")]
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Skip the second run in mode `fixed`
    #[arg(long)]
    pub(crate) no_fixed: bool,
}

/// Sample programs for tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum SampleProgram {
    /// Count, sum and median of a CSV file's values by key, all of it in memory
    GroupBy {
        /// CSV file with a header
        #[arg(long)]
        input: PathBuf,
        /// Result file; written under a temporary name and then renamed
        #[arg(long)]
        output: PathBuf,
        /// Column to group by
        #[arg(long, default_value = "key")]
        key: String,
        /// Column with the numbers
        #[arg(long, default_value = "value")]
        value: String,
    },
    /// Generate the data set of the demonstration with its partitions, for a job of your own
    #[cfg(feature = "dev")]
    Skewed {
        /// Directory for `data.csv` and `part-N.csv`
        #[arg(long)]
        dir: PathBuf,
        /// Memory of a slot that a light partition fits in
        #[arg(long, default_value = "32MiB")]
        share: Bytes,
        /// Number of partitions
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=512))]
        partitions: u32,
    },
}
