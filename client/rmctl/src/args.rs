//! The arguments of the command line, as declarations without behaviour.

mod acl;
mod ca;
mod confirm;
mod container_access;
mod dev;
#[cfg(feature = "dev")]
mod doctor;
mod frequent;
mod global;
mod job;
mod kill;
mod launch;
mod live_job;
mod logs;
mod objects;
mod operator;
mod ordered;
mod output;
mod profile;
mod record;
mod settings;
mod spark;
mod submission;
mod tags;
mod value_parser;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter as Completer;

use crate::complete;
use value_parser::duration;

pub(crate) use acl::{
    AclSubcommand, JoinTokenCreateArgs, JoinTokenSubcommand, NodeJoinArgs, PolicySubcommand,
    TokenCreateArgs, TokenSubcommand,
};
pub(crate) use ca::{AuthorityDirectory, CaIssueArgs, CaSubcommand};
pub(crate) use confirm::ConfirmOptions;
pub(crate) use container_access::{
    ByteRange, ContainerExecArgs, ExecOptions, FilesSubcommand, SignalArgs, TaskExecArgs,
};
pub(crate) use dev::SampleProgram;
#[cfg(feature = "dev")]
pub(crate) use dev::{DemoArgs, DevClusterArgs};
#[cfg(feature = "dev")]
pub(crate) use doctor::DoctorArgs;
pub(crate) use frequent::parse as parse_frequent;
pub(crate) use global::{ColorMode, GlobalOptions, TrustArgs};
#[cfg(feature = "dev")]
pub(crate) use job::JobReplayArgs;
pub(crate) use job::JobSubcommand;
pub(crate) use kill::KillArgs;
pub(crate) use live_job::JobAddArgs;
pub(crate) use logs::LogsArgs;
pub(crate) use objects::{
    AppSubcommand, ContainerResizeArgs, ContainerSubcommand, LifetimeArgument, NodeDrainArgs,
    NodeSubcommand, QueueSubcommand, RequestCreateArgs, RequestSubcommand, TaskSubcommand, TopArgs,
};
pub(crate) use operator::{
    DebugBundleArgs, OperatorMetricsArgs, OperatorSubcommand, StatePlaceArgs, StateSubcommand,
};
pub(crate) use ordered::{TaskOrderArgs, TaskSetArgs};
pub(crate) use output::{ListOptions, OutputFormat, OutputOptions, WatchedListOptions};
pub(crate) use profile::{ProfileSetArgs, ProfileSubcommand, ProfileTestArgs};
pub(crate) use record::{AuditListArgs, AuditSubcommand, EventsArgs};
pub(crate) use settings::{ConfigSubcommand, ContextSubcommand};
pub(crate) use spark::{SparkInstallation, SparkSubcommand, SparkSubmitArgs};
pub(crate) use submission::{RunArgs, SubmitArgs};
pub(crate) use tags::{
    NodeBenchArgs, NodeCordonArgs, NodeLabelArgs, NodeMarkEdit, NodeTaintArgs, NodeUncordonArgs,
};

const AFTER: &str = "\
A TARGET is a job, a task or one attempt at it: wordcount.7, wordcount.7/map/7, wordcount.7/map/7@2.
A job may be shortened to a unique prefix; `last` is the newest job.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 unreachable,
7 can never be scheduled, 8 wait timed out, 9 failed for memory with no larger size left,
10 works with findings (doctor), or would have to wait (plan).";

/// The command line of Headroom: schedules, enforces, explains and repairs memory.
#[derive(Debug, Parser)]
#[command(name = "rmctl", version, about, after_help = AFTER, max_term_width = 100)]
pub(crate) struct RmctlArguments {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) verb: RootSubcommand,
}

/// Shells with command completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum RootSubcommand {
    /// Show a summary of the cluster
    Status {
        /// Update the output when the cluster changes
        #[arg(short = 'w', long)]
        watch: bool,
    },
    /// Submit a job file
    Submit(SubmitArgs),
    /// Run one command in a container as if it ran here; exit code: that of the command, 9 after a
    /// memory kill, 125 for a failure of rmctl, 126 if the command cannot be started, 127 if there
    /// is no such program, 141 if the reader of its output has gone, which ends the job
    Run(RunArgs),
    /// Run Apache Spark applications
    #[command(subcommand)]
    Spark(SparkSubcommand),
    /// List jobs, or the tasks of one job
    Ps {
        /// The job [default: all jobs]
        #[arg(add = Completer::new(complete::jobs))]
        job: Option<String>,
        #[command(flatten)]
        list: WatchedListOptions,
    },
    /// Show containers by memory use; keys: q quits, s sorts, k kills, enter diagnoses
    Top(TopArgs),
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
    Logs(LogsArgs),
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
    Kill(KillArgs),
    /// Show the event log
    Events(EventsArgs),
    /// Show the audit log
    #[command(subcommand)]
    Audit(AuditSubcommand),
    /// Manage nodes
    #[command(subcommand)]
    Node(NodeSubcommand),
    /// Operate the cluster: state of the daemon, metrics, support bundle, state directory
    #[command(subcommand)]
    Operator(OperatorSubcommand),
    /// Manage jobs and job files: history, first sizes, traces and replays
    #[command(subcommand)]
    Job(JobSubcommand),
    /// Manage profiles of the cluster: sizes that job files name
    #[command(subcommand)]
    Profile(ProfileSubcommand),
    /// Manage queues
    #[command(subcommand)]
    Queue(QueueSubcommand),
    /// Change the queue, the priority or the lifetime of a job, or share it
    #[command(subcommand)]
    App(AppSubcommand),
    /// Manage containers
    #[command(visible_alias = "ctr")]
    #[command(subcommand)]
    Container(ContainerSubcommand),
    /// Check this host, or a node, for a node agent, with a remedy for each finding; needs no
    /// daemon
    #[cfg(feature = "dev")]
    Doctor(DoctorArgs),
    /// Manage container requests of application masters
    #[command(subcommand)]
    Request(RequestSubcommand),
    /// Manage the tasks of a job
    #[command(subcommand)]
    Task(TaskSubcommand),
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
    #[command(subcommand)]
    Context(ContextSubcommand),
    /// Manage access: tokens and policies
    #[command(subcommand)]
    Acl(AclSubcommand),
    /// Manage certificates: the authority of a cluster, and certificates of daemons and users
    #[command(subcommand)]
    Ca(CaSubcommand),
    /// Show the effective settings and their sources
    #[command(subcommand)]
    Config(ConfigSubcommand),
    /// Open the web page of the resource manager
    Ui {
        /// Only print its address
        #[arg(long)]
        print_url: bool,
    },
    /// Print a script for command completion, including ids of the cluster
    Completion {
        /// bash, zsh or fish
        shell: CompletionShell,
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
    Dev(DevClusterArgs),
    /// Group a skewed data set under tight memory: escalation repairs a job that plain retry loses
    #[cfg(feature = "dev")]
    Demo(DemoArgs),
    /// Run a sample program, as tasks do
    #[command(hide = true)]
    Sample {
        #[command(subcommand)]
        program: SampleProgram,
    },
}

impl RootSubcommand {
    /// True for verbs that run daemons or masters in this process.
    pub(crate) fn is_long(&self) -> bool {
        #[cfg(feature = "dev")]
        let daemons = matches!(
            self,
            RootSubcommand::Dev(_)
                | RootSubcommand::Demo(_)
                | RootSubcommand::Submit(SubmitArgs {
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
            RootSubcommand::Sample { .. }
                | RootSubcommand::Context { .. }
                | RootSubcommand::Config { .. }
                | RootSubcommand::Ca { .. }
                | RootSubcommand::Explain { .. }
                | RootSubcommand::Completion { .. }
                | RootSubcommand::Man { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_declarations_agree_with_each_other() {
        RmctlArguments::command().debug_assert();
    }

    #[test]
    fn flags_may_follow_the_verb() {
        let cli = RmctlArguments::try_parse_from([
            "rmctl",
            "ps",
            "last",
            "-o",
            "json",
            "--addr",
            "http://h:1",
        ])
        .expect("parses");
        assert_eq!(
            cli.global.output,
            Some(OutputOptions::plain(OutputFormat::Json))
        );
        assert_eq!(cli.global.addr.as_deref(), Some("http://h:1"));
    }
}
