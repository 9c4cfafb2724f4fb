//! Arguments of the verbs that start a job: `rmctl submit` and `rmctl run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;

use super::launch::LaunchArgs;
use super::value_parser::duration;
use crate::complete;

/// Arguments of `rmctl submit`.
#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// The job file
    pub(crate) file: PathBuf,
    /// Follow the job and print its events; the exit code is the result of the job
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Sizing mode, instead of that of the file: headroom, pinterest, uber, databricks, tovar or
    /// fixed
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<MemoryFailureMode>,
    /// Run the application master in this process instead of in a container
    #[arg(long)]
    pub(crate) unmanaged: bool,
    /// Only check the file and print the plan
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `rmctl run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Memory of the command, such as 1G; near this limit it grows in place, if the node has free
    /// memory
    #[arg(short = 'm', long, default_value = "256MiB", value_name = "SIZE")]
    pub(crate) memory: Bytes,
    /// Use the memory and processors of this profile of the cluster
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["memory", "cpus"], add = Completer::new(complete::profiles))]
    pub(crate) profile: Option<headroom_types::Name>,
    /// Only run on this node; can be repeated
    #[arg(long = "node", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) nodes: Vec<headroom_types::NodeId>,
    /// Largest memory after memory kills [default: that of the largest node]
    #[arg(long, value_name = "SIZE")]
    pub(crate) cap: Option<Bytes>,
    /// Do not retry with more memory after a memory kill
    #[arg(long)]
    pub(crate) no_escalate: bool,
    /// Processors of the command
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) cpus: headroom_types::Cpus,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    /// Name of the job [default: name of the program]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Queue of the job
    #[arg(long, value_name = "QUEUE", add = Completer::new(complete::queues))]
    pub(crate) queue: Option<headroom_types::QueuePath>,
    /// Longest run time, such as 10m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// Print the id of the job and return
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,
}
