//! `rmctl job`: what is known of a job's tasks, and what other sizes would have done for them.

use std::path::PathBuf;

#[cfg(feature = "dev")]
use clap::Args;
use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter as Completer;
#[cfg(feature = "dev")]
use headroom_types::Bytes;
use headroom_types::Name;
#[cfg(feature = "dev")]
use headroom_wire::v1::job::Mode;

use super::{Kill, Rows, Sure, Watched};
use crate::complete;

/// About the tasks of jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// All jobs
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        list: Watched,
    },
    /// One job with its tasks
    Show {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        list: Watched,
    },
    /// Submit a job file, as `rmctl submit`
    Submit(super::Submit),
    /// End a job and all its containers, as `rmctl kill`
    Kill(Kill),
    /// Stay with a job and print what happens, as `rmctl attach`
    #[command(visible_alias = "attach")]
    Watch {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
    },
    /// Jobs that have ended, the latest first: how, with how many memory kills, and what they took. 20 unless --limit says otherwise
    History(Rows),
    /// Forget a job that has ended, with its tasks and containers; what was learned from it stays
    Purge {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        sure: Sure,
    },
    /// Give a running job another number of executors at most; of fewer, the newest leave when what they run has ended
    Scale {
        /// The job, with the name of a set in its file where it has several: sort.3, sort.3/main
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// How many containers of the set at most
        #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
        count: u32,
        /// Told in the event
        #[arg(long)]
        reason: Option<String>,
        /// Return when its master is told, without waiting for what it makes of it
        #[arg(long)]
        no_wait: bool,
    },
    /// Write a job file to begin with
    Init {
        /// Its name
        #[arg(default_value = "job")]
        name: Name,
        /// Into this file instead of standard output; it must not be there yet
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Whether a job file is right; asks nobody
    Validate {
        /// The job file
        file: PathBuf,
    },
    /// What would become of a job file; exit code 0: its executors fit now, 10: they would wait, 7: some never fit
    Plan {
        /// The job file
        file: PathBuf,
    },
    /// Run recorded tasks again on hosts that do not exist, under each way of giving them memory
    #[cfg(feature = "dev")]
    Replay(Replay),
    /// Families: jobs of one user and name of which something was learned
    Families {
        /// Of this user only
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// First sizes for the next job of a name, from what its tasks needed before
    Suggest {
        /// The name in its job file
        name: Name,
        /// Of this user's jobs instead of one's own
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// A job to keep: its finished tasks as a trace for `replay`, or all of it as a page
    Export {
        /// The job
        job: String,
        /// One HTML file that needs nothing else: tasks, ladders, timelines, verdicts, events
        #[arg(long)]
        html: bool,
        /// Into this file instead of standard output
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// `rmctl job replay`.
#[cfg(feature = "dev")]
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A trace, or a folder of them: CSV with dataset, task_type, seq, input_bytes, peak_mem_bytes, runtime_s, user_mem_bytes, cpus
    #[arg(long, value_name = "DIR", required_unless_present = "job")]
    pub(crate) traces: Option<PathBuf>,
    /// What the resource manager keeps of this job instead
    #[arg(long, value_name = "JOB", conflicts_with = "traces")]
    pub(crate) job: Option<String>,
    /// headroom, pinterest, uber, databricks, tovar, fixed, or all of them
    #[arg(long, default_value = "all", value_parser = modes, value_name = "MODE")]
    pub(crate) mode: Modes,
    /// Give tasks at their limit more memory where they run; the default in the modes that do so
    #[arg(long)]
    pub(crate) growth: bool,
    /// Kill tasks at their limit
    #[arg(long, conflicts_with = "growth")]
    pub(crate) no_growth: bool,
    /// Run on this many nodes; needs --node-memory. 8 when left out, or as many as --utilization needs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) nodes: Option<u16>,
    /// Memory of each node: 16GiB. 128 GiB when left out; with --utilization, 8 times the largest task of each trace
    #[arg(long, value_name = "SIZE")]
    pub(crate) node_memory: Option<Bytes>,
    /// Processors of each node
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) node_cpus: u32,
    /// Submit tasks at a pace at which they need this part of the memory of all nodes: 0.8, or several: 0.5,0.8,0.95. Compares runs with
    /// growth and without, unless --growth or --no-growth chooses
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = part)]
    pub(crate) utilization: Vec<f64>,
}

/// The modes to replay.
#[cfg(feature = "dev")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Modes(pub(crate) Vec<Mode>);

#[cfg(feature = "dev")]
fn modes(text: &str) -> Result<Modes, String> {
    if text == "all" {
        return Ok(Modes(Mode::ALL.to_vec()));
    }
    let unknown = |_| format!("use all, or one of: {}", Mode::ALL.map(Mode::as_str).join(", "));
    text.parse().map(|mode| Modes(vec![mode])).map_err(unknown)
}

/// A part of a whole: `0.8` or `80%`.
#[cfg(feature = "dev")]
fn part(text: &str) -> Result<f64, String> {
    let number = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>(),
    };
    let found = number.ok().filter(|part| (0.01..=1.0).contains(part));
    found.ok_or_else(|| "use a number between 0.01 and 1, such as 0.8, or 80%".to_owned())
}
