//! Arguments of `rmctl job`.

use std::path::PathBuf;

#[cfg(feature = "dev")]
use clap::Args;
use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter as Completer;
#[cfg(feature = "dev")]
use headroom_types::Bytes;
use headroom_types::Name;
#[cfg(feature = "dev")]
use headroom_wire::v1::job::MemoryFailureMode;

use super::confirm::ConfirmOptions;
use super::kill::KillArgs;
use super::live_job::JobAddArgs;
use super::output::{ListOptions, WatchedListOptions};
use super::submission::SubmitArgs;
use crate::complete;

/// Verbs about jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobSubcommand {
    /// List all jobs
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        list: WatchedListOptions,
    },
    /// Show one job with its tasks
    Show {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        list: WatchedListOptions,
    },
    /// Submit a job file, as `rmctl submit`
    Submit(SubmitArgs),
    /// End a job and all its containers, as `rmctl kill`
    Kill(KillArgs),
    /// Follow a job and print its events, as `rmctl attach`
    #[command(visible_alias = "attach")]
    Watch {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
    },
    /// List ended jobs, the latest first, with results, memory kills and cost; 20 unless --limit is
    /// given
    History(ListOptions),
    /// Delete an ended job with its tasks and containers; its job history stays
    Purge {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        sure: ConfirmOptions,
    },
    /// Change the maximum number of executors of a running job; with fewer, the newest executors
    /// drain
    Scale {
        /// The job, with the executor set if it has several: sort.3, sort.3/main
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Maximum number of containers of the set
        #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
        count: u32,
        /// Reason, stored with the event
        #[arg(long)]
        reason: Option<String>,
        /// Return without waiting for the answer of the job's master
        #[arg(long)]
        no_wait: bool,
    },
    /// Add tasks to a live job
    Add(JobAddArgs),
    /// Close a live job: it accepts no more tasks, and ends when all its tasks have ended
    Close {
        /// The live job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
    },
    /// Cancel tasks of a live job by their keys, and wait for their end
    CancelTasks {
        /// The live job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Keys of the tasks
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Write a new job file
    Init {
        /// Name of the job
        #[arg(default_value = "job")]
        name: Name,
        /// Write to this new file instead of standard output
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Check a job file; needs no server unless the file names profiles of the cluster
    Validate {
        /// The job file
        file: PathBuf,
    },
    /// Print the plan of a job file; exit code 0: its executors fit now, 10: they would wait, 7:
    /// some never fit
    Plan {
        /// The job file
        file: PathBuf,
    },
    /// Replay recorded tasks on simulated nodes in several sizing modes
    #[cfg(feature = "dev")]
    Replay(JobReplayArgs),
    /// List job names with a job history
    Families {
        /// Only of this user
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Suggest first sizes for a job, from its job history
    Suggest {
        /// Name in the job file
        name: Name,
        /// Job history of this user [default: the caller]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Export a job: its finished tasks as a trace for `replay`, or all of it as a page
    Export {
        /// The job
        job: String,
        /// One self-contained HTML file: tasks, ladders, timelines, verdicts, events
        #[arg(long)]
        html: bool,
        /// Write to this file instead of standard output
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// Arguments of `rmctl job replay`.
#[cfg(feature = "dev")]
#[derive(Debug, Args)]
pub(crate) struct JobReplayArgs {
    /// A trace, or a directory of traces: CSV with dataset, task_type, seq, input_bytes,
    /// peak_mem_bytes, runtime_s, user_mem_bytes, cpus
    #[arg(long, value_name = "DIR", required_unless_present = "job")]
    pub(crate) traces: Option<PathBuf>,
    /// Replay this job of the resource manager
    #[arg(long, value_name = "JOB", conflicts_with = "traces")]
    pub(crate) job: Option<String>,
    /// headroom, pinterest, uber, databricks, tovar, fixed, or all of them
    #[arg(long, default_value = "all", value_parser = modes, value_name = "MODE")]
    pub(crate) mode: ReplayModes,
    /// Let tasks grow in place at their limit; the default in the modes with growth
    #[arg(long)]
    pub(crate) growth: bool,
    /// Kill tasks at their limit
    #[arg(long, conflicts_with = "growth")]
    pub(crate) no_growth: bool,
    /// Number of nodes; needs --node-memory [default: 8, or as many as --utilization needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) nodes: Option<u16>,
    /// Memory of each node, such as 16GiB [default: 128GiB; with --utilization, 8 times the largest
    /// task of each trace]
    #[arg(long, value_name = "SIZE")]
    pub(crate) node_memory: Option<Bytes>,
    /// Processors of each node
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) node_cpus: u32,
    /// Submit tasks at a rate at which they use this share of the memory of all nodes: 0.8, or
    /// several: 0.5,0.8,0.95. Compares runs with and without growth, unless --growth or --no-growth
    /// is given
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = part)]
    pub(crate) utilization: Vec<f64>,
}

/// The modes to replay.
#[cfg(feature = "dev")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayModes(pub(crate) Vec<MemoryFailureMode>);

#[cfg(feature = "dev")]
fn modes(text: &str) -> Result<ReplayModes, String> {
    if text == "all" {
        return Ok(ReplayModes(MemoryFailureMode::ALL.to_vec()));
    }
    let unknown = |_| {
        format!(
            "use all, or one of: {}",
            MemoryFailureMode::ALL
                .map(MemoryFailureMode::as_str)
                .join(", ")
        )
    };
    text.parse()
        .map(|mode| ReplayModes(vec![mode]))
        .map_err(unknown)
}

/// Parses a share: `0.8` or `80%`.
#[cfg(feature = "dev")]
fn part(text: &str) -> Result<f64, String> {
    let number = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>(),
    };
    let found = number.ok().filter(|part| (0.01..=1.0).contains(part));
    found.ok_or_else(|| "use a number between 0.01 and 1, such as 0.8, or 80%".to_owned())
}
