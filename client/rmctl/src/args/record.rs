//! Arguments of `rmctl events` and `rmctl audit`.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::reason::{EventTopic, Reason};
use headroom_wire::v1::events::EventLevel;

use super::output::ListOptions;
use crate::complete;

/// Arguments of `rmctl events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only of this job
    #[arg(add = Completer::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// Print new events as they occur
    #[arg(short = 'w', long)]
    pub(crate) watch: bool,
    /// Only of this topic: cluster, node, queue, job, request, container or task
    #[arg(long)]
    pub(crate) topic: Option<EventTopic>,
    /// Only of this level: normal or warning
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) level: Option<EventLevel>,
    /// Only with this reason: OomKilled, Escalated, NodeLost …
    #[arg(long)]
    pub(crate) reason: Option<Reason>,
    /// Only about this object: a job, a task, an attempt, a container, a node, a queue
    #[arg(long = "for", value_name = "OBJECT", conflicts_with = "job", add = Completer::new(complete::jobs))]
    pub(crate) about: Option<String>,
    /// Only warnings, as --type warning
    #[arg(long, conflicts_with = "level")]
    pub(crate) warnings: bool,
    /// Only the last N
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    #[command(flatten)]
    pub(crate) rows: ListOptions,
}

/// Verbs about the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditSubcommand {
    /// List calls that change something, the oldest first
    #[command(visible_alias = "ls")]
    List(AuditListArgs),
}

/// Arguments of `rmctl audit list`.
#[derive(Debug, Args)]
pub(crate) struct AuditListArgs {
    /// Print new calls as they occur
    #[arg(short = 'w', long)]
    pub(crate) watch: bool,
    /// Only of this caller
    #[arg(long)]
    pub(crate) who: Option<String>,
    /// Only verbs that contain this: kill, drain, PATCH …
    #[arg(long)]
    pub(crate) verb: Option<String>,
    /// Only objects that contain this: apps/job.1, queues …
    #[arg(long = "for", value_name = "OBJECT")]
    pub(crate) about: Option<String>,
    /// Only refused calls
    #[arg(long)]
    pub(crate) refused: bool,
    /// Only the last N
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    #[command(flatten)]
    pub(crate) rows: ListOptions,
}
