//! What can be typed. Pure declarations; nothing here does anything.

mod job;
mod operator;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
#[cfg(feature = "dev")]
use headroom_types::EnforcerKind;
use headroom_types::{Bytes, ContainerId, Cpus, NodeId, QueuePath};
use headroom_wire::v1::job::Mode;
use headroom_wire::v1::queues::Gate;

pub(crate) use job::JobVerb;
#[cfg(feature = "dev")]
pub(crate) use job::Replay;
pub(crate) use operator::{OperatorVerb, StateVerb};

/// Where a resource manager is looked for when nothing else is said.
pub(crate) const DEFAULT_ADDR: &str = "http://127.0.0.1:7070";

const AFTER: &str = "\
A TARGET is a job, a task or one attempt at it: wordcount.7, wordcount.7/map/7, wordcount.7/map/7@2.
A job may be shortened to any beginning that only one job has, and `last` is the newest one.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 unreachable,
7 can never be scheduled, 8 wait timed out, 9 failed for memory with no larger size left,
10 works and could be better (doctor).";

/// The command line of Headroom: memory as the thing to schedule, enforce, explain and repair.
#[derive(Debug, Parser)]
#[command(name = "rmctl", version, about, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Address of the resource manager
    #[arg(long, global = true, env = "HEADROOM_ADDR", default_value = DEFAULT_ADDR, value_name = "URL")]
    pub(crate) addr: String,
    /// How to print; JSON has the schema of the REST interface
    #[arg(short = 'o', long = "format", global = true, env = "HEADROOM_OUTPUT", default_value = "table", value_name = "FORMAT")]
    pub(crate) format: Format,
    /// When to use colour; nothing is told by colour alone
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For people with wide screens: more columns, every row
    Wide,
    /// One JSON document
    Json,
    /// One JSON object a line
    Jsonl,
    /// Ids only
    Name,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The cluster on one screen
    Status,
    /// Submit a job file
    Submit(Submit),
    /// List jobs, or the tasks of one
    Ps {
        /// The job; all jobs when left out
        job: Option<String>,
    },
    /// Why does it wait?
    Why {
        /// A job or a task
        target: String,
    },
    /// Why did it end as it did, and what would cure it?
    Diagnose {
        /// A job, a task, or one attempt at it
        target: String,
    },
    /// What a job, a task or a container printed
    Logs(Logs),
    /// Wait until a job has ended; the exit code tells how
    Wait {
        /// The job
        job: String,
        /// Longest to wait, such as 90s, 10m or 2h
        #[arg(long, value_parser = duration, value_name = "TIME")]
        timeout: Option<Duration>,
    },
    /// End a job and all its containers
    Kill {
        /// The job
        job: String,
        /// Kept with the job
        #[arg(long)]
        reason: Option<String>,
        /// Only tell what would end
        #[arg(long)]
        dry_run: bool,
    },
    /// What happened in the cluster
    Events {
        /// Only of this job
        job: Option<String>,
        /// Go on as things happen
        #[arg(short = 'w', long)]
        watch: bool,
        /// Only warnings
        #[arg(long)]
        warnings: bool,
        /// Only the last N
        #[arg(long, value_name = "N")]
        tail: Option<usize>,
    },
    /// Nodes
    Node {
        #[command(subcommand)]
        what: NodeVerb,
    },
    /// What is done to a cluster's own files, while it does not run
    Operator {
        #[command(subcommand)]
        what: OperatorVerb,
    },
    /// Tasks of a job as a record, and what other sizes would have done for them
    Job {
        #[command(subcommand)]
        what: JobVerb,
    },
    /// Queues
    Queue {
        #[command(subcommand)]
        what: QueueVerb,
    },
    /// Move a job to another queue, or change its priority or the end of its time
    App {
        #[command(subcommand)]
        what: AppVerb,
    },
    /// Containers
    #[command(visible_alias = "ctr")]
    Container {
        #[command(subcommand)]
        what: ContainerVerb,
    },
    /// What this host offers to a node agent and what it lacks, with what to do about it; needs no daemon
    #[cfg(feature = "dev")]
    Doctor(Doctor),
    /// Versions of this program and of the resource manager
    Version,
    /// Run a whole cluster in this process until Ctrl-C
    #[cfg(feature = "dev")]
    Dev(Dev),
    /// Group a skewed data set under tight memory: see escalation repair a job that plain retry loses
    #[cfg(feature = "dev")]
    Demo(Demo),
    /// Programs that tasks can run
    #[command(hide = true)]
    Sample {
        #[command(subcommand)]
        program: Sample,
    },
}

/// About nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// All nodes, with what is granted on each
    #[command(visible_alias = "ls")]
    List,
    /// Give a node no new work, and wait until what is on it has ended
    Drain(Drain),
    /// Let a node take work again
    Undrain {
        /// The node
        node: NodeId,
    },
}

/// `rmctl node drain`.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The node
    pub(crate) node: NodeId,
    /// What is left then is stopped, such as 10m; without it, whatever runs may run to its end
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) deadline: Option<Duration>,
    /// Kept with the node
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// It leaves the cluster once it is empty
    #[arg(long)]
    pub(crate) decommission: bool,
    /// Return at once
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Only tell what is on it
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// About queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueVerb {
    /// The tree, with what each queue has
    #[command(visible_alias = "ls")]
    List,
    /// One queue
    Show {
        /// The queue, such as etl.nightly
        queue: QueuePath,
    },
    /// Put the tree of a file in the place of the one there is, all of it or nothing
    Set {
        /// TOML with [queues.NAME] tables as in resourcemanager.toml, or JSON; - for standard input
        file: PathBuf,
        /// Only if the tree is still of this generation; `queue list` shows it
        #[arg(long, value_name = "N")]
        generation: Option<u64>,
        /// Only check the file
        #[arg(long)]
        dry_run: bool,
    },
    /// Say what a queue takes in and gives out
    Gate {
        /// The queue
        queue: QueuePath,
        /// open, paused (nothing is granted), draining (no new applications) or closed (neither)
        #[arg(value_parser = gate)]
        gate: Gate,
    },
}

/// About one application.
#[derive(Debug, Subcommand)]
pub(crate) enum AppVerb {
    /// Move it to another queue
    Move {
        /// The job
        job: String,
        /// The leaf it goes on in
        queue: QueuePath,
    },
    /// Give it another priority
    Priority {
        /// The job
        job: String,
        /// Higher goes first within its queue
        #[arg(allow_negative_numbers = true)]
        priority: i32,
    },
    /// Give it another end of its time
    Lifetime {
        /// The job
        job: String,
        /// How long it may live, counted from its submission, such as 2h; `none` for as long as it likes
        #[arg(value_parser = life)]
        time: Life,
    },
}

/// How long an application may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// As long as it likes.
    Unbounded,
    /// So long.
    AtMost(Duration),
}

/// About containers.
#[derive(Debug, Subcommand)]
pub(crate) enum ContainerVerb {
    /// Give a container that runs another size
    Resize(Resize),
    /// Its memory over time, drawn
    Timeline {
        /// The container
        container: ContainerId,
    },
}

/// `rmctl container resize`.
#[derive(Debug, Args)]
pub(crate) struct Resize {
    /// The container
    pub(crate) container: ContainerId,
    /// All its memory, such as 2GiB; as it is when left out
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["cpus", "heap"])]
    pub(crate) memory: Option<Bytes>,
    /// Its processors; as they are when left out
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// The heap budget in it; as it is when left out
    #[arg(long, value_name = "SIZE")]
    pub(crate) heap: Option<Bytes>,
    /// Only if its size is still of this version; the one it has now when left out
    #[arg(long = "if-version", value_name = "N")]
    pub(crate) version: Option<u32>,
    /// Return before the node has confirmed it
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Only tell whether it could have that size
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `rmctl doctor`.
#[cfg(feature = "dev")]
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The configuration of the node agent; its other places count then
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the node agent would keep its containers
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// The cgroup directory it would work in
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup_root: Option<PathBuf>,
}

/// `rmctl submit`.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// The job file
    pub(crate) file: PathBuf,
    /// Stay and print what happens; the exit code tells how the job ended
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// How memory failures are answered, instead of what the file says: headroom, pinterest, uber, databricks, tovar or fixed
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// Run the application master in this process instead of in a container
    #[arg(long)]
    pub(crate) unmanaged: bool,
    /// Only check the file and print the plan
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `rmctl logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// A job, a task, an attempt, or a container
    pub(crate) target: String,
    /// Go on as more is printed, until it has ended
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Standard error instead of standard output
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Only the last N lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Those of the job's application master
    #[arg(long)]
    pub(crate) master: bool,
}

/// `rmctl dev`.
#[cfg(feature = "dev")]
#[derive(Clone, Debug, Args)]
pub(crate) struct Dev {
    /// How many nodes to pretend
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) nodes: u32,
    /// Memory each node offers, such as 2GiB; a share of what is free when left out
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// What holds containers to their limits: cgroup2, cgroup1 or poll; the best there is when left out
    #[arg(long, value_parser = enforcer, value_name = "KIND")]
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Where the resource manager listens
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDR:PORT")]
    pub(crate) listen: std::net::SocketAddr,
    /// Keep all state here instead of in a temporary directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// `rmctl demo`.
#[cfg(feature = "dev")]
#[derive(Clone, Debug, Args)]
pub(crate) struct Demo {
    /// A CSV file with a header instead of the generated data set
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// The column to group by; the first one when left out
    #[arg(long, value_name = "COLUMN", requires = "input")]
    pub(crate) key: Option<String>,
    /// The column with the numbers; the first other one that holds numbers when left out
    #[arg(long, value_name = "COLUMN", requires = "input")]
    pub(crate) value: Option<String>,
    /// Into how many files the keys are spread
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=512))]
    pub(crate) partitions: u32,
    /// How memory failures are answered: headroom, pinterest, uber, databricks or tovar
    #[arg(long, default_value = "headroom", value_name = "MODE")]
    pub(crate) mode: Mode,
    /// Memory of one slot; 32MiB, or fitted to the median partition of --input
    #[arg(long, value_name = "SIZE")]
    pub(crate) share: Option<Bytes>,
    /// Keep data, job file and results here instead of in a temporary directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// What holds containers to their limits: cgroup2, cgroup1 or poll; the best there is when left out
    #[arg(long, value_parser = enforcer, value_name = "KIND")]
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Leave out the second run in mode `fixed`
    #[arg(long)]
    pub(crate) no_fixed: bool,
}

/// Programs that tasks can run.
#[derive(Debug, Subcommand)]
pub(crate) enum Sample {
    /// Count, sum and median of a CSV file's values by key, all of it in memory
    GroupBy {
        /// CSV with a header
        #[arg(long)]
        input: PathBuf,
        /// Written under another name first, then renamed
        #[arg(long)]
        output: PathBuf,
        /// The column to group by
        #[arg(long, default_value = "key")]
        key: String,
        /// The column with the numbers
        #[arg(long, default_value = "value")]
        value: String,
    },
    /// The demonstration's data set and its parts, to build a job of one's own upon
    #[cfg(feature = "dev")]
    Skewed {
        /// Where `data.csv` and `part-N.csv` go
        #[arg(long)]
        dir: PathBuf,
        /// Memory of the slot that the light parts fit in
        #[arg(long, default_value = "32MiB")]
        share: Bytes,
        /// Into how many files the keys are spread
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=512))]
        partitions: u32,
    },
}

#[cfg(feature = "dev")]
fn enforcer(text: &str) -> Result<EnforcerKind, String> {
    let all = [EnforcerKind::Cgroup2, EnforcerKind::Cgroup1, EnforcerKind::Poll];
    all.into_iter().find(|k| k.as_str() == text).ok_or_else(|| "use cgroup2, cgroup1 or poll".to_owned())
}

fn gate(text: &str) -> Result<Gate, String> {
    Gate::ALL.into_iter().find(|g| g.as_str() == text).ok_or_else(|| "use open, paused, draining or closed".to_owned())
}

fn life(text: &str) -> Result<Life, String> {
    if text == "none" { Ok(Life::Unbounded) } else { duration(text).map(Life::AtMost) }
}

/// Reads `90s`, `10m`, `2h`; a bare number counts seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time such as 90s, 10m or 2h".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit = match &text[split..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_declarations_agree_with_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_read() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert!(duration("soon").is_err() && duration("5d").is_err() && duration("99999999999999999999h").is_err());
    }

    #[test]
    fn a_life_has_an_end_or_none() {
        assert_eq!((life("none"), life("2h")), (Ok(Life::Unbounded), Ok(Life::AtMost(Duration::from_secs(7200)))));
        assert!(life("never").is_err() && gate("shut").is_err());
    }

    #[test]
    fn flags_may_follow_the_verb() {
        let cli = Cli::try_parse_from(["rmctl", "ps", "last", "-o", "json", "--addr", "http://h:1"]).expect("parses");
        assert_eq!((cli.global.format, cli.global.addr.as_str()), (Format::Json, "http://h:1"));
    }
}
