//! Verbs about one kind of thing each: nodes, queues, requests, tasks, applications, containers.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Bytes, ContainerId, Cpus, Name, NodeId, QueuePath, RequestId};
use headroom_wire::v1::queues::Gate;

use super::tags::taint;
use super::{
    Bench, CordonNode, Exec, ExecTask, FilesVerb, LabelNode, Logs, Ordered, Rows, SetTask, SignalArgs, TaintNode, UncordonNode,
    Watched, duration, variable,
};
use crate::complete;

/// About nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// Make this host a node: get it a certificate, for a key that is made here
    Join(super::JoinNode),
    /// All nodes, with what is granted on each
    #[command(visible_alias = "ls")]
    List(Watched),
    /// One node with what is on it
    Show {
        /// The node
        #[arg(add = Completer::new(complete::nodes))]
        node: NodeId,
    },
    /// What happened on a node
    Events {
        /// The node
        #[arg(add = Completer::new(complete::nodes))]
        node: NodeId,
        /// Go on as things happen
        #[arg(short = 'w', long)]
        watch: bool,
    },
    /// Give a node no new work, and wait until what is on it has ended
    Drain(Drain),
    /// Give a node no new containers; those it has go on
    Cordon(CordonNode),
    /// Let a cordoned node get containers again
    Uncordon(UncordonNode),
    /// Labels and attributes of a node, on top of those of its own configuration: gpu, zone=b, gpu- to take one back
    Label(LabelNode),
    /// Keep a node for requests that tolerate it: etl, team=etl, etl- to take one back. What runs stays
    Taint(TaintNode),
    /// Measure a node with a job of its own: containers, tasks, memory, and whether a kill is told as one
    Bench(Bench),
    /// Let a node take work again
    Undrain {
        /// The node
        #[arg(add = Completer::new(complete::nodes))]
        node: NodeId,
    },
}

/// `rmctl node drain`.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The node
    #[arg(add = Completer::new(complete::nodes))]
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
    #[command(flatten)]
    pub(crate) sure: Sure,
}

/// What a verb takes that ends something.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Sure {
    /// Only tell what would end
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask; where there is no terminal nobody is asked anyway
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}

/// `rmctl request create`.
#[derive(Debug, Args)]
pub(crate) struct NewRequest {
    /// The job; its master must be there
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: String,
    /// The whole request as JSON or TOML, with the names of the interface, instead of the options below; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["name", "memory", "command"])]
    pub(crate) file: Option<PathBuf>,
    /// Its name; the same name again changes the request
    #[arg(long, value_name = "NAME", required_unless_present = "file")]
    pub(crate) name: Option<RequestId>,
    /// Memory of each container, such as 2GiB
    #[arg(short = 'm', long, value_name = "SIZE", required_unless_present = "file")]
    pub(crate) memory: Option<Bytes>,
    /// Of that, the heap budget of a runtime in it
    #[arg(long, value_name = "SIZE")]
    pub(crate) heap: Option<Bytes>,
    /// Processors of each container
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) cpus: Cpus,
    /// How many containers in all
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) count: u32,
    /// Higher goes first within the job
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N")]
    pub(crate) priority: i32,
    /// Only on this node; as often as needed
    #[arg(long = "node", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) nodes: Vec<NodeId>,
    /// Not on this node while another fits; as often as needed
    #[arg(long = "avoid", value_name = "NODE", add = Completer::new(complete::nodes))]
    pub(crate) avoid: Vec<NodeId>,
    /// Only on nodes with this label; as often as needed
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<Name>,
    /// On nodes with this taint too, etl, or team=etl for one value; as often as needed
    #[arg(long = "tolerate", value_name = "TAINT", value_parser = taint)]
    pub(crate) tolerate: Vec<(Name, Option<String>)>,
    /// What is missing after this time will not come, such as 10m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) deadline: Option<Duration>,
    /// A variable of the environment, NAME=VALUE; as often as needed
    #[arg(short = 'e', long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<String>,
    /// Only ask what would become of it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The command with its arguments
    #[arg(last = true, required_unless_present = "file", value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// About queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueVerb {
    /// The tree, with what each queue has
    #[command(visible_alias = "ls")]
    List(Watched),
    /// One queue
    Show {
        /// The queue, such as etl.nightly
        #[arg(add = Completer::new(complete::queues))]
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
    /// Grant nothing in a queue until it is resumed; what runs goes on
    Pause {
        /// The queue
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Open a queue again
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
        /// The leaf it goes on in
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Say what a queue takes in and gives out
    Gate {
        /// The queue
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
        /// open, paused (nothing is granted), draining (no new applications) or closed (neither)
        #[arg(value_parser = gate)]
        gate: Gate,
    },
}

/// About container requests.
#[derive(Debug, Subcommand)]
pub(crate) enum RequestVerb {
    /// All that a job's master has asked for and not let go
    #[command(visible_alias = "ls")]
    List {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// One request, as it was asked
    Show {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// The request, or a beginning that only one has
        request: String,
    },
    /// Ask for containers in the name of a job; the answer says at once whether they fit, wait (exit code 10 with --dry-run) or never fit (7)
    Create(Box<NewRequest>),
    /// It is worth nothing any more; containers it already has stay
    Cancel {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// The request
        request: String,
        #[command(flatten)]
        sure: Sure,
    },
    /// Why it waits
    Why {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// The request; all that wait when left out
        request: Option<String>,
    },
}

/// About tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskVerb {
    /// The tasks of a job
    #[command(visible_alias = "ls")]
    List {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// One task with every attempt at it
    Show {
        /// The task, such as last/map/7; or several: last/map/1-3,7, map/all, map/last
        #[arg(add = Completer::new(complete::jobs))]
        task: String,
    },
    /// The sizes it was tried at, drawn
    Ladder {
        /// The task, or several: map/1-3,7, map/all, map/last
        #[arg(add = Completer::new(complete::jobs))]
        task: String,
    },
    /// Every attempt at it
    Attempts {
        /// The task, or several: map/1-3,7, map/all, map/last; or a job, for those of all its tasks
        #[arg(add = Completer::new(complete::jobs))]
        task: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// End it for good; the others of its job go on
    Kill(Ordered),
    /// End the attempt that runs and begin another, charged to no budget
    Retry(Ordered),
    /// Another size for a task that waits
    Set(SetTask),
    /// Run a program in the container of the attempt that runs, beside the task; as `rmctl container exec`
    Exec(ExecTask),
}

/// About one application.
#[derive(Debug, Subcommand)]
pub(crate) enum AppVerb {
    /// Move it to another queue
    Move {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// The leaf it goes on in
        #[arg(add = Completer::new(complete::queues))]
        queue: QueuePath,
    },
    /// Give it another priority
    Priority {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// Higher goes first within its queue
        #[arg(allow_negative_numbers = true)]
        priority: i32,
    },
    /// Whom its owner lets come near it; with an option, these from now on and nobody else
    Share {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
        job: String,
        /// An account, or a group of the manager's host written @etl, that may look at it; as often as needed
        #[arg(long, value_name = "WHO")]
        view: Vec<String>,
        /// An account or a group that may change and end it too; as often as needed
        #[arg(long, value_name = "WHO")]
        change: Vec<String>,
        /// With nobody any more
        #[arg(long, conflicts_with_all = ["view", "change"])]
        nobody: bool,
    },
    /// Give it another end of its time
    Lifetime {
        /// The job
        #[arg(add = Completer::new(complete::jobs))]
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
    /// All containers, those that ended a while ago included
    #[command(visible_alias = "ls")]
    List {
        /// Only of this job
        #[arg(add = Completer::new(complete::jobs))]
        job: Option<String>,
        /// Only on this node
        #[arg(long)]
        node: Option<NodeId>,
        /// Those that have ended too
        #[arg(short = 'a', long)]
        all: bool,
        #[command(flatten)]
        list: Watched,
    },
    /// One container
    Show {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
    },
    /// Its memory now and in the last minute
    Stats {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
        /// Go on until it ends
        #[arg(short = 'f', long)]
        follow: bool,
    },
    /// What it printed
    Logs(Logs),
    /// End it; its master is told that it was asked for
    Kill {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
        #[command(flatten)]
        sure: Sure,
    },
    /// Send a signal to its program
    Signal(SignalArgs),
    /// What its program has written: its directories work, tmp and tasks, its logs stdout and stderr
    Files {
        #[command(subcommand)]
        what: FilesVerb,
    },
    /// Run a program in it, beside its own: its output, its exit code
    ///
    /// The program is in the container's cgroup, as its user, with its environment and working directory. Its memory counts in the
    /// container: if both together reach the container's limit, the container is killed. Exit code: that of the program, 128+N
    /// for signal N, 125 for a failure of ours, 126 when it could not be started, 127 when there is no such program
    Exec(Exec),
    /// What happened to it, and its memory over time
    History {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
    },
    /// Its memory over time, drawn
    Timeline {
        /// The container
        #[arg(add = Completer::new(complete::containers))]
        container: ContainerId,
    },
}

/// `rmctl top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only containers of this job
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// Print once also on a terminal
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) rows: Rows,
}

/// `rmctl container resize`.
#[derive(Debug, Args)]
pub(crate) struct Resize {
    /// The container
    #[arg(add = Completer::new(complete::containers))]
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

fn gate(text: &str) -> Result<Gate, String> {
    Gate::ALL.into_iter().find(|g| g.as_str() == text).ok_or_else(|| "use open, paused, draining or closed".to_owned())
}

fn life(text: &str) -> Result<Life, String> {
    if text == "none" { Ok(Life::Unbounded) } else { duration(text).map(Life::AtMost) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_has_an_end_or_none() {
        assert_eq!((life("none"), life("2h")), (Ok(Life::Unbounded), Ok(Life::AtMost(Duration::from_secs(7200)))));
        assert!(life("never").is_err() && gate("shut").is_err());
    }
}
