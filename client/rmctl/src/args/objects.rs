//! Arguments of verbs about one kind of object: nodes, queues, requests, tasks, applications,
//! containers.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Bytes, ContainerId, Cpus, Name, NodeId, QueuePath, RequestId};
use headroom_wire::v1::queues::QueueRunState;

use super::acl::NodeJoinArgs;
use super::confirm::ConfirmOptions;
use super::container_access::{ContainerExecArgs, FilesSubcommand, SignalArgs, TaskExecArgs};
use super::launch::LaunchArgs;
use super::logs::LogsArgs;
use super::ordered::{TaskOrderArgs, TaskSetArgs};
use super::output::{ListOptions, WatchedListOptions};
use super::tags::{
    NodeBenchArgs, NodeCordonArgs, NodeLabelArgs, NodeTaintArgs, NodeUncordonArgs, taint,
};
use super::value_parser::duration;
use crate::complete;

/// Verbs about nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeSubcommand {
    /// Join this host to the cluster: create a key and get a certificate for it
    Join(NodeJoinArgs),
    /// List all nodes with their allocated resources
    #[command(visible_alias = "ls")]
    List(WatchedListOptions),
    /// Show one node with its containers
    Show {
        /// The node
        #[arg(add = Completer::new(complete::nodes))]
        node: NodeId,
    },
    /// Show the events of a node
    Events {
        /// The node
        #[arg(add = Completer::new(complete::nodes))]
        node: NodeId,
        /// Print new events as they occur
        #[arg(short = 'w', long)]
        watch: bool,
    },
    /// Drain a node: no new containers, and wait until its containers have ended
    Drain(NodeDrainArgs),
    /// Cordon a node: no new containers; running ones continue
    Cordon(NodeCordonArgs),
    /// Uncordon a node: it gets new containers again
    Uncordon(NodeUncordonArgs),
    /// Set labels and attributes of a node, in addition to those of its configuration: gpu, zone=b;
    /// gpu- removes one
    Label(NodeLabelArgs),
    /// Set taints, which keep containers away that do not tolerate them: etl, team=etl; etl-
    /// removes one. Running containers stay
    Taint(NodeTaintArgs),
    /// Benchmark a node with a job: container starts, tasks, memory, and the report of a memory
    /// kill
    Bench(NodeBenchArgs),
    /// End the drain of a node
    Undrain {
        /// The node
        #[arg(add = Completer::new(complete::nodes))]
        node: NodeId,
    },
}

/// Arguments of `rmctl node drain`.
#[derive(Debug, Args)]
pub(crate) struct NodeDrainArgs {
    /// The node
    #[arg(add = Completer::new(complete::nodes))]
    pub(crate) node: NodeId,
    /// Stop the remaining containers after this time, such as 10m [default: wait for their end]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) deadline: Option<Duration>,
    /// Reason, stored with the node
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Remove the node from the cluster once it is empty
    #[arg(long)]
    pub(crate) decommission: bool,
    /// Return without waiting for the end of its containers
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) sure: ConfirmOptions,
}

/// Arguments of `rmctl request create`.
#[derive(Debug, Args)]
#[command(mut_arg("command", |command| command.required(false).required_unless_present("file")))]
pub(crate) struct RequestCreateArgs {
    /// The job; its master must be registered
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: String,
    /// The whole request as JSON or TOML, with the names of the interface, instead of the options
    /// below; - for standard input
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["name", "memory", "command"])]
    pub(crate) file: Option<PathBuf>,
    /// Name of the request; an existing name changes that request
    #[arg(long, value_name = "NAME", required_unless_present = "file")]
    pub(crate) name: Option<RequestId>,
    /// Memory of each container, such as 2GiB
    #[arg(
        short = 'm',
        long,
        value_name = "SIZE",
        required_unless_present = "file"
    )]
    pub(crate) memory: Option<Bytes>,
    /// Heap budget of a runtime, as a part of the memory
    #[arg(long, value_name = "SIZE")]
    pub(crate) heap: Option<Bytes>,
    /// Processors of each container
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) cpus: Cpus,
    /// Total number of containers
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) count: u32,
    /// Priority within the job; higher first
    #[arg(
        long,
        default_value_t = 0,
        allow_negative_numbers = true,
        value_name = "N"
    )]
    pub(crate) priority: i32,
    /// Only on this node; can be repeated
    #[arg(long = "node", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) nodes: Vec<NodeId>,
    /// Not on this node while another fits; can be repeated
    #[arg(long = "avoid", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) avoid: Vec<NodeId>,
    /// Only on nodes with this label; can be repeated
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<Name>,
    /// Tolerate this taint: etl, or team=etl for one value; can be repeated
    #[arg(long = "tolerate", value_name = "TAINT", value_parser = taint)]
    pub(crate) tolerate: Vec<(Name, Option<String>)>,
    /// Drop the containers that are missing after this time, such as 10m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) deadline: Option<Duration>,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    /// Only validate the request
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Verbs about queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueSubcommand {
    /// Show the tree of queues with their use
    #[command(visible_alias = "ls")]
    List(WatchedListOptions),
    /// Show one queue
    Show {
        /// The queue, such as etl.nightly
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Replace the whole tree by that of a file
    Set {
        /// TOML with [queues.NAME] tables as in resourcemanager.toml, or JSON; - for standard input
        file: PathBuf,
        /// Only if the tree still has this generation; `queue list` shows it
        #[arg(long, value_name = "N")]
        generation: Option<u64>,
        /// Only check the file
        #[arg(long)]
        dry_run: bool,
    },
    /// Pause a queue: no grants until it is resumed; running containers continue
    Pause {
        /// The queue
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Resume a queue
    Resume {
        /// The queue
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Move a job to another queue
    Move {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Target queue, a leaf
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Set the state of a queue
    State {
        /// The queue
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
        /// running, paused (no grants), draining (no new applications) or stopped (neither)
        state: QueueRunState,
    },
}

/// Verbs about container requests.
#[derive(Debug, Subcommand)]
pub(crate) enum RequestSubcommand {
    /// List the open requests of a job's master
    #[command(visible_alias = "ls")]
    List {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        rows: ListOptions,
    },
    /// Show one request as its master sent it
    Show {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// The request, or a unique prefix
        request: String,
    },
    /// Request containers for a job; the answer is whether they fit, wait (exit code 10 with
    /// --dry-run) or never fit (7)
    Create(Box<RequestCreateArgs>),
    /// Withdraw a request; containers that it already has stay
    Cancel {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// The request
        request: String,
        #[command(flatten)]
        sure: ConfirmOptions,
    },
    /// Explain why a request waits
    Why {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// The request [default: all waiting requests]
        request: Option<String>,
    },
}

/// Verbs about tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskSubcommand {
    /// List the tasks of a job
    #[command(visible_alias = "ls")]
    List {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        rows: ListOptions,
    },
    /// Show one task with all its attempts
    Show {
        /// The task, such as last/map/7; or several: last/map/1-3,7, map/all, map/last
        #[arg(add = Completer::new(complete::jobs))]
        task: String,
    },
    /// Draw the sizes of a task's attempts
    Ladder {
        /// The task, or several: map/1-3,7, map/all, map/last
        #[arg(add = Completer::new(complete::jobs))]
        task: String,
    },
    /// List all attempts of a task
    Attempts {
        /// The task, or several: map/1-3,7, map/all, map/last; or a job for all its tasks
        #[arg(add = Completer::new(complete::jobs))]
        task: String,
        #[command(flatten)]
        rows: ListOptions,
    },
    /// End a task for good; the other tasks of its job continue
    Kill(TaskOrderArgs),
    /// Replace the running attempt by a new one; not charged
    Retry(TaskOrderArgs),
    /// Set the size or the priority of a waiting task
    Set(TaskSetArgs),
    /// Run a program in the container of the running attempt, as `rmctl container exec`
    Exec(TaskExecArgs),
}

/// Verbs about one application.
#[derive(Debug, Subcommand)]
pub(crate) enum AppSubcommand {
    /// Move a job to another queue
    Move {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Target queue, a leaf
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Set the priority of a job
    Priority {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Priority within its queue; higher first
        #[arg(allow_negative_numbers = true)]
        priority: i32,
    },
    /// Show the users that may view or change a job; with an option, replace them
    Share {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// User, or @group of the resource manager's host, that may view the job; can be repeated
        #[arg(long, value_name = "WHO")]
        view: Vec<String>,
        /// User or @group that may also change and end the job; can be repeated
        #[arg(long, value_name = "WHO")]
        change: Vec<String>,
        /// Stop sharing the job
        #[arg(long, conflicts_with_all = ["view", "change"])]
        nobody: bool,
    },
    /// Set the lifetime of a job
    Lifetime {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Lifetime from its submission, such as 2h; `none` for no limit
        #[arg(value_parser = life)]
        time: LifetimeArgument,
    },
}

/// Lifetime of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifetimeArgument {
    /// No limit.
    Unbounded,
    /// Maximum lifetime.
    AtMost(Duration),
}

/// Verbs about containers.
#[derive(Debug, Subcommand)]
pub(crate) enum ContainerSubcommand {
    /// Change the size of a running container
    Resize(ContainerResizeArgs),
    /// List containers
    #[command(visible_alias = "ls")]
    List {
        /// Only of this job
        #[arg(add = Completer::new(complete::jobs))]
        job: Option<String>,
        /// Only on this node
        #[arg(long)]
        node: Option<NodeId>,
        /// Include containers that have ended
        #[arg(short = 'a', long)]
        all: bool,
        #[command(flatten)]
        list: WatchedListOptions,
    },
    /// Show one container
    Show {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
    },
    /// Show its memory now and in the last minute
    Stats {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
        /// Print new values until it ends
        #[arg(short = 'f', long)]
        follow: bool,
    },
    /// Print its logs
    Logs(LogsArgs),
    /// End a container and notify its master
    Kill {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
        #[command(flatten)]
        sure: ConfirmOptions,
    },
    /// Send a signal to its program
    Signal(SignalArgs),
    /// Access the files of its program: its directories work, tmp and tasks, its logs stdout and
    /// stderr
    #[command(subcommand)]
    Files(FilesSubcommand),
    /// Run a program in a container, with its output and exit code
    ///
    /// The program runs in the container's cgroup, as its user, with its environment and working
    /// directory. Its memory counts in the container: if both together reach the container's limit,
    /// the container is killed. Exit code: that of the program, 128+N for signal N, 125 for a
    /// failure of rmctl, 126 if the program cannot be started, 127 if there is no such program
    Exec(ContainerExecArgs),
    /// Show its events and its memory over time
    History {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
    },
    /// Draw its memory over time
    Timeline {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
    },
}

/// Arguments of `rmctl top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only containers of this job
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// Print once, also on a terminal
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) rows: ListOptions,
}

/// Arguments of `rmctl container resize`.
#[derive(Debug, Args)]
pub(crate) struct ContainerResizeArgs {
    /// The container
    #[arg(add = Completer::new(complete::containers))]
    pub(crate) container: ContainerId,
    /// Memory, such as 2GiB [default: unchanged]
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["cpus", "heap"])]
    pub(crate) memory: Option<Bytes>,
    /// Processors [default: unchanged]
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// Heap budget [default: unchanged]
    #[arg(long, value_name = "SIZE")]
    pub(crate) heap: Option<Bytes>,
    /// Only if its size still has this version [default: the present version]
    #[arg(long = "if-version", value_name = "N")]
    pub(crate) version: Option<u32>,
    /// Return without waiting for the confirmation of the node
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Only check whether the size is possible
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn life(text: &str) -> Result<LifetimeArgument, String> {
    if text == "none" {
        Ok(LifetimeArgument::Unbounded)
    } else {
        duration(text).map(LifetimeArgument::AtMost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_duration_or_unlimited() {
        assert_eq!(
            (life("none"), life("2h")),
            (
                Ok(LifetimeArgument::Unbounded),
                Ok(LifetimeArgument::AtMost(Duration::from_secs(7200)))
            )
        );
        assert!(life("never").is_err() && "open".parse::<QueueRunState>().is_err());
    }
}
