//! What can be typed. Pure declarations; nothing here does anything.

mod acl;
mod ca;
mod job;
mod objects;
mod operator;
mod ordered;
mod output;
mod profile;
mod reach;
mod record;
mod settings;
mod tags;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::Bytes;
#[cfg(feature = "dev")]
use headroom_types::EnforcerKind;
use headroom_wire::v1::job::Mode;

use crate::complete;

pub(crate) use acl::{AclVerb, CreateJoinToken, CreateToken, JoinNode, JoinTokenVerb, PolicyVerb, TokenVerb, TrustArgs};
pub(crate) use ca::{CaIssue, CaPlace, CaVerb};
pub(crate) use job::JobVerb;
#[cfg(feature = "dev")]
pub(crate) use job::Replay;
pub(crate) use objects::{
    AppVerb, ContainerVerb, Drain, Life, NewRequest, NodeVerb, QueueVerb, RequestVerb, Resize, Sure, TaskVerb, Top,
};
pub(crate) use operator::{DebugBundle, Metrics, OperatorVerb, StateVerb};
pub(crate) use ordered::{Ordered, SetTask};
pub(crate) use output::{Format, Output, Rows, Watched};
pub(crate) use profile::{ProfileVerb, SetProfile, TestProfile};
pub(crate) use reach::{Beside, ByteRange, Exec, ExecTask, FilesVerb, SignalArgs};
pub(crate) use record::{AuditList, AuditVerb, Events};
pub(crate) use settings::{ConfigVerb, ContextVerb};
pub(crate) use tags::{Bench, CordonNode, LabelNode, TaintNode, UncordonNode, Word};

/// Where a resource manager is looked for when nothing else is said.
pub(crate) const DEFAULT_ADDR: &str = "http://127.0.0.1:7070";

/// Where the socket of a resource manager of this host is.
pub(crate) const DEFAULT_SOCKET: &str = "/run/headroom/resourcemanager.sock";

const AFTER: &str = "\
A TARGET is a job, a task or one attempt at it: wordcount.7, wordcount.7/map/7, wordcount.7/map/7@2.
A job may be shortened to any beginning that only one job has, and `last` is the newest one.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 unreachable,
7 can never be scheduled, 8 wait timed out, 9 failed for memory with no larger size left,
10 works, not as it could (doctor, plan).";

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
    /// Address of the resource manager, or unix:PATH [default: of the context, else this host's socket, else http://127.0.0.1:7070]
    #[arg(long, global = true, env = "HEADROOM_ADDR", value_name = "URL")]
    pub(crate) addr: Option<String>,
    /// Take address, format and time from this context; `rmctl context list` shows them
    #[arg(long, global = true, env = "HEADROOM_CONTEXT", value_name = "NAME", add = Completer::new(complete::contexts))]
    pub(crate) context: Option<String>,
    /// How to print: table, wide, json, jsonl, yaml, csv, name, cols=A,B or tmpl='{{id}}'; JSON is that of the REST interface [default: table]
    #[arg(short = 'o', long = "format", id = "format", global = true, env = "HEADROOM_OUTPUT", value_name = "FORMAT")]
    pub(crate) output: Option<Output>,
    /// Ids only
    #[arg(short = 'q', long, global = true)]
    pub(crate) quiet: bool,
    /// How long one call may take, such as 30s [default: 10s]
    #[arg(long, global = true, env = "HEADROOM_TIMEOUT", value_parser = duration, value_name = "TIME")]
    pub(crate) call_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Print requests as curl instead of answers; what only reads is made, what changes something is not
    #[arg(long, global = true)]
    pub(crate) curl: bool,
    /// When to use colour; nothing is told by colour alone
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,
}

/// Shells that words are completed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set; always when CLICOLOR_FORCE is
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
    Status {
        /// Go on as things change
        #[arg(short = 'w', long)]
        watch: bool,
    },
    /// Submit a job file
    Submit(Submit),
    /// Run one command in a container with so much memory, as if it ran here; exit code: that of the command, 9 when it was killed
    /// for memory, 125 for a failure of ours, 126 when it could not be started, 127 when there is no such program
    Run(Run),
    /// List jobs, or the tasks of one
    Ps {
        /// The job; all jobs when left out
        #[arg(add = Completer::new(complete::jobs))]
        job: Option<String>,
        #[command(flatten)]
        list: Watched,
    },
    /// Containers by the memory they use, as they use it; q ends, s sorts, k kills, enter diagnoses
    Top(Top),
    /// Why does it wait?
    Why {
        /// A job or a task
        #[arg(add = Completer::new(complete::jobs))]
        target: String,
    },
    /// Why did it end as it did, and what would cure it?
    Diagnose {
        /// A job, a task, or one attempt at it; or several tasks: map/1-3,7, map/all, map/last
        #[arg(add = Completer::new(complete::jobs))]
        target: String,
    },
    /// What a job, a task or a container printed
    Logs(Logs),
    /// Wait until a job has ended; the exit code tells how
    Wait {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Longest to wait, such as 90s, 10m or 2h
        #[arg(long, value_parser = duration, value_name = "TIME")]
        timeout: Option<Duration>,
    },
    /// End a job and all its containers
    Kill(Kill),
    /// What happened in the cluster
    Events(Events),
    /// Who changed what
    Audit {
        #[command(subcommand)]
        what: AuditVerb,
    },
    /// Nodes
    Node {
        #[command(subcommand)]
        what: NodeVerb,
    },
    /// For whoever runs the cluster: its figures, a bundle to look at elsewhere, its own files
    Operator {
        #[command(subcommand)]
        what: OperatorVerb,
    },
    /// Tasks of a job as a record, and what other sizes would have done for them
    Job {
        #[command(subcommand)]
        what: JobVerb,
    },
    /// Profiles of the cluster: sizes that job files name
    Profile {
        #[command(subcommand)]
        what: ProfileVerb,
    },
    /// Queues
    Queue {
        #[command(subcommand)]
        what: QueueVerb,
    },
    /// Move a job to another queue, change its priority or the end of its time, or share it
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
    /// What this host, or a node, offers to a node agent and what it lacks, with what to do about it; needs no daemon
    #[cfg(feature = "dev")]
    Doctor(Doctor),
    /// Container requests: what an application master has asked for
    Request {
        #[command(subcommand)]
        what: RequestVerb,
    },
    /// Tasks of a job: all of them, one with every attempt at it
    Task {
        #[command(subcommand)]
        what: TaskVerb,
    },
    /// Stay with a job and print what happens; the exit code tells how it ended
    Attach {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
    },
    /// What a code, a verdict, an event, a field, a key of a job file or of a daemon's configuration means
    Explain {
        /// HR0422, overhead_oom, 9, Escalated, AppView.until, retry.cap …; codes and verdicts when left out
        word: Option<String>,
    },
    /// Clusters to speak to, by name
    Context {
        #[command(subcommand)]
        what: ContextVerb,
    },
    /// Who may come in: tokens, and what accounts may
    Acl {
        #[command(subcommand)]
        what: AclVerb,
    },
    /// Certificates of a cluster: an authority, and what it signs for daemons and users
    Ca {
        #[command(subcommand)]
        what: CaVerb,
    },
    /// What holds for a call, and who said so
    Config {
        #[command(subcommand)]
        what: ConfigVerb,
    },
    /// Open the page of the resource manager
    Ui {
        /// Only print its address
        #[arg(long)]
        print_url: bool,
    },
    /// What a shell needs to complete words, ids of the cluster among them
    Completion {
        /// bash, zsh or fish
        shell: Shell,
        /// A file for a package: verbs and options only, and no call of rmctl while a word is typed
        #[arg(long = "static")]
        fixed: bool,
    },
    /// Write the manual pages, one for each verb
    Man {
        /// Where they go
        #[arg(value_name = "DIR", required_unless_present = "to")]
        dir: Option<PathBuf>,
        /// The same
        #[arg(long, value_name = "DIR", conflicts_with = "dir")]
        to: Option<PathBuf>,
    },
    /// Versions of this program and of the resource manager
    Version {
        /// Only if both are of one version; the exit code tells (4 when not, 6 without an answer)
        #[arg(long)]
        check: bool,
    },
    /// Run a whole cluster until Ctrl-C
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

impl Verb {
    /// True for verbs that run daemons or masters in this process.
    pub(crate) fn is_long(&self) -> bool {
        #[cfg(feature = "dev")]
        let daemons = matches!(self, Verb::Dev(_) | Verb::Demo(_) | Verb::Submit(Submit { unmanaged: true, .. }));
        #[cfg(not(feature = "dev"))]
        let daemons = false;
        daemons
    }
    /// True for verbs that work, or mend, where the files with settings are wrong.
    pub(crate) fn needs_no_settings(&self) -> bool {
        matches!(
            self,
            Verb::Sample { .. }
                | Verb::Context { .. }
                | Verb::Config { .. }
                | Verb::Ca { .. }
                | Verb::Explain { .. }
                | Verb::Completion { .. }
                | Verb::Man { .. }
        )
    }
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
    /// What the agent of this node found at its start, asked at its own address, instead of a look at this host
    #[arg(long, value_name = "NODE", conflicts_with_all = ["config", "state", "cgroup_root"], add = Completer::new(complete::nodes))]
    pub(crate) node: Option<headroom_types::NodeId>,
}

/// `rmctl kill`.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// The job
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: String,
    /// Kept with the job
    #[arg(long)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) sure: Sure,
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

/// `rmctl run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Memory of the command, such as 1G; near its limit it is given more in place, where the node has it
    #[arg(short = 'm', long, default_value = "256MiB", value_name = "SIZE")]
    pub(crate) memory: Bytes,
    /// The size of this profile of the cluster instead, processors too
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["memory", "cpus"], add = Completer::new(complete::profiles))]
    pub(crate) profile: Option<headroom_types::Name>,
    /// Only on this node; as often as needed
    #[arg(long = "node", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) nodes: Vec<headroom_types::NodeId>,
    /// The most it is given after memory kills; what the largest node has when left out
    #[arg(long, value_name = "SIZE")]
    pub(crate) cap: Option<Bytes>,
    /// It is given no more than that: a memory kill is final
    #[arg(long)]
    pub(crate) no_escalate: bool,
    /// Its processors
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) cpus: headroom_types::Cpus,
    /// A variable of its environment, NAME=VALUE; as often as needed
    #[arg(short = 'e', long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<String>,
    /// Its name; that of the program when left out
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The queue it goes to
    #[arg(long, value_name = "QUEUE", add = Completer::new(complete::queues))]
    pub(crate) queue: Option<headroom_types::QueuePath>,
    /// Longest it may run, such as 10m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// Print its id and leave it alone
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,
    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// `rmctl logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// A job, a task, an attempt, or a container; or several tasks: map/1-3,7, map/all, map/last
    #[arg(add = Completer::new(complete::jobs))]
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
    /// Lines as they were printed, without the task before them
    #[arg(long)]
    pub(crate) no_prefix: bool,
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

fn variable(text: &str) -> Result<String, String> {
    let named = text.split_once('=').is_some_and(|(name, _)| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word)
    });
    if named { Ok(text.to_owned()) } else { Err("write NAME=VALUE".to_owned()) }
}

/// Reads `500ms`, `90s`, `10m`, `2h`, `1d`; a bare number counts seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time such as 90s, 10m or 2h".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[split..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
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
        assert!(duration("soon").is_err() && duration("5w").is_err() && duration("99999999999999999999h").is_err());
    }

    #[test]
    fn flags_may_follow_the_verb() {
        let cli = Cli::try_parse_from(["rmctl", "ps", "last", "-o", "json", "--addr", "http://h:1"]).expect("parses");
        assert_eq!(cli.global.output, Some(Output::plain(Format::Json)));
        assert_eq!(cli.global.addr.as_deref(), Some("http://h:1"));
    }
}
