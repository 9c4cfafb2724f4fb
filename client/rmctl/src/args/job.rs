//! `rmctl job`: what is known of a job's tasks, and what other sizes would have done for them.

use std::path::PathBuf;

#[cfg(feature = "dev")]
use clap::Args;
use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter as Completer;
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
    /// Tasks at their limit are given more where they run, in the modes that do so
    #[arg(long)]
    pub(crate) growth: bool,
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
