//! The arguments of the command line, as declarations without behaviour.

mod acl;
mod ca;
mod container_access;
mod job;
mod objects;
mod operator;
mod ordered;
mod output;
mod profile;
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
use headroom_wire::v1::job::MemoryFailureMode;

use crate::complete;

pub(crate) use acl::{
    AclVerb, CreateJoinToken, CreateToken, JoinNode, JoinTokenVerb, PolicyVerb, TokenVerb,
    TrustArgs,
};
pub(crate) use ca::{CaIssue, CaPlace, CaVerb};
pub(crate) use container_access::{ByteRange, Exec, ExecOptions, ExecTask, FilesVerb, SignalArgs};
pub(crate) use job::JobVerb;
#[cfg(feature = "dev")]
pub(crate) use job::Replay;
pub(crate) use objects::{
    AppVerb, ConfirmOptions, ContainerVerb, Drain, Life, NewRequest, NodeVerb, QueueVerb,
    RequestVerb, Resize, TaskVerb, Top,
};
pub(crate) use operator::{DebugBundle, Metrics, OperatorVerb, StateVerb};
pub(crate) use ordered::{SetTask, TaskOrderArgs};
pub(crate) use output::{Format, Output, Rows, Watched};
pub(crate) use profile::{ProfileVerb, SetProfile, TestProfile};
pub(crate) use record::{AuditList, AuditVerb, Events};
pub(crate) use settings::{ConfigVerb, ContextVerb};
pub(crate) use tags::{Bench, CordonNode, LabelNode, NodeMarkEdit, TaintNode, UncordonNode};

/// Default address of the resource manager.
pub(crate) const DEFAULT_ADDR: &str = "http://127.0.0.1:7070";

/// Socket of a resource manager on this host.
pub(crate) const DEFAULT_SOCKET: &str = "/run/headroom/resourcemanager.sock";

const AFTER: &str = "\
A TARGET is a job, a task or one attempt at it: wordcount.7, wordcount.7/map/7, wordcount.7/map/7@2.
A job may be shortened to a unique prefix; `last` is the newest job.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 unreachable,
7 can never be scheduled, 8 wait timed out, 9 failed for memory with no larger size left,
10 works with findings (doctor), or would have to wait (plan).";

/// The command line of Headroom: schedules, enforces, explains and repairs memory.
#[derive(Debug, Parser)]
#[command(name = "rmctl", version, about, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of every verb.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Address of the resource manager, or unix:PATH [default: of the context, else this host's
    /// socket, else http://127.0.0.1:7070]
    #[arg(long, global = true, env = "HEADROOM_ADDR", value_name = "URL")]
    pub(crate) addr: Option<String>,
    /// Take address, format and timeout from this context; `rmctl context list` shows them
    #[arg(long, global = true, env = "HEADROOM_CONTEXT", value_name = "NAME", add = Completer::new(complete::contexts))]
    pub(crate) context: Option<String>,
    /// Output format: table, wide, json, jsonl, yaml, csv, name, cols=A,B or tmpl='{{id}}'; JSON is
    /// that of the REST interface [default: table]
    #[arg(
        short = 'o',
        long = "format",
        id = "format",
        global = true,
        env = "HEADROOM_OUTPUT",
        value_name = "FORMAT"
    )]
    pub(crate) output: Option<Output>,
    /// Print ids only
    #[arg(short = 'q', long, global = true)]
    pub(crate) quiet: bool,
    /// Timeout of one call, such as 30s [default: 10s]
    #[arg(long, global = true, env = "HEADROOM_TIMEOUT", value_parser = duration, value_name = "TIME")]
    pub(crate) call_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Print requests as curl commands instead of results; only requests that change nothing are
    /// sent
    #[arg(long, global = true)]
    pub(crate) curl: bool,
    /// When to use colour; colour never carries information of its own
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,
}

/// Shells with command completion.
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
    /// On a terminal, unless NO_COLOR is set; always if CLICOLOR_FORCE is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show a summary of the cluster
    Status {
        /// Update the output when the cluster changes
        #[arg(short = 'w', long)]
        watch: bool,
    },
    /// Submit a job file
    Submit(Submit),
    /// Run one command in a container as if it ran here; exit code: that of the command, 9 after a
    /// memory kill, 125 for a failure of rmctl, 126 if the command cannot be started, 127 if there
    /// is no such program
    Run(Run),
    /// List jobs, or the tasks of one job
    Ps {
        /// The job [default: all jobs]
        #[arg(add = Completer::new(complete::jobs))]
        job: Option<String>,
        #[command(flatten)]
        list: Watched,
    },
    /// Show containers by memory use; keys: q quits, s sorts, k kills, enter diagnoses
    Top(Top),
    /// Explain why a job or a task waits
    Why {
        /// A job or a task
        #[arg(add = Completer::new(complete::jobs))]
        target: String,
    },
    /// Explain why a job, a task or an attempt ended, and how to repair it
    Diagnose {
        /// A job, a task, or one attempt; or several tasks: map/1-3,7, map/all, map/last
        #[arg(add = Completer::new(complete::jobs))]
        target: String,
    },
    /// Print the logs of a job, a task or a container
    Logs(Logs),
    /// Wait until a job has ended; the exit code is the result
    Wait {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Longest wait, such as 90s, 10m or 2h
        #[arg(long, value_parser = duration, value_name = "TIME")]
        timeout: Option<Duration>,
    },
    /// End a job and all its containers
    Kill(Kill),
    /// Show the event log
    Events(Events),
    /// Show the audit log
    Audit {
        #[command(subcommand)]
        what: AuditVerb,
    },
    /// Manage nodes
    Node {
        #[command(subcommand)]
        what: NodeVerb,
    },
    /// Operate the cluster: state of the daemon, metrics, support bundle, state directory
    Operator {
        #[command(subcommand)]
        what: OperatorVerb,
    },
    /// Manage jobs and job files: history, first sizes, traces and replays
    Job {
        #[command(subcommand)]
        what: JobVerb,
    },
    /// Manage profiles of the cluster: sizes that job files name
    Profile {
        #[command(subcommand)]
        what: ProfileVerb,
    },
    /// Manage queues
    Queue {
        #[command(subcommand)]
        what: QueueVerb,
    },
    /// Change the queue, the priority or the lifetime of a job, or share it
    App {
        #[command(subcommand)]
        what: AppVerb,
    },
    /// Manage containers
    #[command(visible_alias = "ctr")]
    Container {
        #[command(subcommand)]
        what: ContainerVerb,
    },
    /// Check this host, or a node, for a node agent, with a remedy for each finding; needs no
    /// daemon
    #[cfg(feature = "dev")]
    Doctor(Doctor),
    /// Manage container requests of application masters
    Request {
        #[command(subcommand)]
        what: RequestVerb,
    },
    /// Manage the tasks of a job
    Task {
        #[command(subcommand)]
        what: TaskVerb,
    },
    /// Follow a job and print its events; the exit code is the result of the job
    Attach {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
    },
    /// Explain a code, a verdict, an event, a field, or a key of a job file or a daemon's
    /// configuration
    Explain {
        /// HR0422, overhead_oom, 9, Escalated, AppView.until, retry.cap … [default: all codes and
        /// verdicts]
        word: Option<String>,
    },
    /// Manage contexts: named clusters
    Context {
        #[command(subcommand)]
        what: ContextVerb,
    },
    /// Manage access: tokens and policies
    Acl {
        #[command(subcommand)]
        what: AclVerb,
    },
    /// Manage certificates: the authority of a cluster, and certificates of daemons and users
    Ca {
        #[command(subcommand)]
        what: CaVerb,
    },
    /// Show the effective settings and their sources
    Config {
        #[command(subcommand)]
        what: ConfigVerb,
    },
    /// Open the web page of the resource manager
    Ui {
        /// Only print its address
        #[arg(long)]
        print_url: bool,
    },
    /// Print a script for command completion, including ids of the cluster
    Completion {
        /// bash, zsh or fish
        shell: Shell,
        /// Print a static script for a package: verbs and options only, without calls of rmctl
        #[arg(long = "static")]
        fixed: bool,
    },
    /// Write the manual pages, one for each verb
    Man {
        /// Target directory
        #[arg(value_name = "DIR", required_unless_present = "to")]
        dir: Option<PathBuf>,
        /// Target directory, as an option
        #[arg(long, value_name = "DIR", conflicts_with = "dir")]
        to: Option<PathBuf>,
    },
    /// Show the versions of this program and of the resource manager
    Version {
        /// Check that both versions are equal; exit code 4 if not, 6 without an answer
        #[arg(long)]
        check: bool,
    },
    /// Run a whole cluster until Ctrl-C
    #[cfg(feature = "dev")]
    Dev(Dev),
    /// Group a skewed data set under tight memory: escalation repairs a job that plain retry loses
    #[cfg(feature = "dev")]
    Demo(Demo),
    /// Run a sample program, as tasks do
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
        let daemons = matches!(
            self,
            Verb::Dev(_)
                | Verb::Demo(_)
                | Verb::Submit(Submit {
                    unmanaged: true,
                    ..
                })
        );
        #[cfg(not(feature = "dev"))]
        let daemons = false;
        daemons
    }
    /// True for verbs that must work although a settings file is invalid.
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

/// Arguments of `rmctl doctor`.
#[cfg(feature = "dev")]
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Configuration file of the node agent; it sets the directories that are checked
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory for containers of the node agent
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Cgroup directory of the node agent
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup_root: Option<PathBuf>,
    /// Show the checks of this node's agent at its start, from its own address, instead of checking
    /// this host
    #[arg(long, value_name = "NODE", conflicts_with_all = ["config", "state", "cgroup_root"], add = Completer::new(complete::nodes))]
    pub(crate) node: Option<headroom_types::NodeId>,
}

/// Arguments of `rmctl kill`.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// The job
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: String,
    /// Reason, stored with the job
    #[arg(long)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) sure: ConfirmOptions,
}

/// Arguments of `rmctl submit`.
#[derive(Debug, Args)]
pub(crate) struct Submit {
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
pub(crate) struct Run {
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
    /// Environment variable, NAME=VALUE; can be repeated
    #[arg(short = 'e', long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<String>,
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
    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// Arguments of `rmctl logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// A job, a task, an attempt, or a container; or several tasks: map/1-3,7, map/all, map/last
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) target: String,
    /// Print new output until the target has ended
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Print standard error instead of standard output
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Print only the last N lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Print the log of the job's application master
    #[arg(long)]
    pub(crate) master: bool,
    /// Print lines without the task prefix
    #[arg(long)]
    pub(crate) no_prefix: bool,
}

/// Arguments of `rmctl dev`.
#[cfg(feature = "dev")]
#[derive(Clone, Debug, Args)]
pub(crate) struct Dev {
    /// Number of simulated nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) nodes: u32,
    /// Memory of each node, such as 2GiB [default: a share of the free memory]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Enforcer of limits: cgroup2, cgroup1 or poll [default: the best that this host has]
    #[arg(long, value_parser = enforcer, value_name = "KIND")]
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
pub(crate) struct Demo {
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
    #[arg(long, value_parser = enforcer, value_name = "KIND")]
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Skip the second run in mode `fixed`
    #[arg(long)]
    pub(crate) no_fixed: bool,
}

/// Sample programs for tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum Sample {
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

#[cfg(feature = "dev")]
fn enforcer(text: &str) -> Result<EnforcerKind, String> {
    let all = [
        EnforcerKind::Cgroup2,
        EnforcerKind::Cgroup1,
        EnforcerKind::Poll,
    ];
    all.into_iter()
        .find(|k| k.as_str() == text)
        .ok_or_else(|| "use cgroup2, cgroup1 or poll".to_owned())
}

fn variable(text: &str) -> Result<String, String> {
    let named = text.split_once('=').is_some_and(|(name, _)| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word)
    });
    if named {
        Ok(text.to_owned())
    } else {
        Err("write NAME=VALUE".to_owned())
    }
}

/// Parses `500ms`, `90s`, `10m`, `2h`, `1d`; a bare number counts seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time such as 90s, 10m or 2h".to_owned();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[split..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
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
        assert!(
            duration("soon").is_err()
                && duration("5w").is_err()
                && duration("99999999999999999999h").is_err()
        );
    }

    #[test]
    fn flags_may_follow_the_verb() {
        let cli =
            Cli::try_parse_from(["rmctl", "ps", "last", "-o", "json", "--addr", "http://h:1"])
                .expect("parses");
        assert_eq!(cli.global.output, Some(Output::plain(Format::Json)));
        assert_eq!(cli.global.addr.as_deref(), Some("http://h:1"));
    }
}
