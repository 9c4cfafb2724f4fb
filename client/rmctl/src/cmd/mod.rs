//! The verbs, one file for each. A verb calls the server, renders the answer, prints it, and
//! returns the exit code.

mod acl;
mod app;
mod attach;
mod audit;
mod bench;
mod ca;
mod container;
mod container_access;
mod container_chart;
mod container_usage;
mod container_views;
mod contexts;
mod daemon;
mod debug;
#[cfg(feature = "dev")]
mod demo;
#[cfg(feature = "dev")]
pub(crate) mod dev;
mod diagnose;
#[cfg(feature = "dev")]
mod doctor;
mod documents;
mod drafts;
mod events;
mod exit_code;
mod explain;
mod feasibility;
mod follow;
mod history;
mod job;
mod job_file;
mod job_trace;
mod kill;
mod leader;
mod live_job;
mod log_source;
mod logs;
mod metrics;
mod newrequest;
mod node;
mod operator;
mod orders;
mod profile;
mod profile_test;
mod ps;
mod queue;
#[cfg(feature = "dev")]
mod replay;
mod request;
mod run;
pub(crate) mod sample;
mod scale;
mod spark;
mod status;
mod submission;
mod submit;
mod tags;
mod task;
mod top;
mod topscreen;
mod ui;
mod upload;
mod version;
mod wait;
mod why;

use crate::args::{AuditSubcommand, RootSubcommand};
use crate::context::CommandContext;
use crate::exit::CommandResult;

/// Runs one verb.
pub(crate) async fn run(verb: RootSubcommand, context: &mut CommandContext) -> CommandResult {
    match verb {
        RootSubcommand::Status { watch } => status::run(context, watch).await,
        RootSubcommand::Submit(args) => submit::run(context, args).await,
        RootSubcommand::Run(args) => run::run(context, args).await,
        RootSubcommand::Spark(what) => spark::run(context, what).await,
        RootSubcommand::Ps { job, list } => ps::run(context, job.as_deref(), list).await,
        RootSubcommand::Top(args) => top::run(context, args).await,
        RootSubcommand::Why { target } => why::run(context, &target).await,
        RootSubcommand::Diagnose { target } => diagnose::run(context, &target).await,
        RootSubcommand::Logs(args) => logs::run(context, args).await,
        RootSubcommand::Wait { job, timeout } => wait::run(context, &job, timeout).await,
        RootSubcommand::Kill(args) => kill::run(context, args).await,
        RootSubcommand::Events(args) => {
            events::run(context, events::EventSelection::of(args)).await
        }
        RootSubcommand::Audit(AuditSubcommand::List(args)) => audit::list(context, args).await,
        RootSubcommand::Node(what) => node::run(context, what).await,
        RootSubcommand::Operator(what) => operator::run(context, what).await,
        RootSubcommand::Job(what) => job::run(context, what).await,
        RootSubcommand::Profile(what) => profile::run(context, what).await,
        RootSubcommand::Queue(what) => queue::run(context, what).await,
        RootSubcommand::App(what) => app::run(context, what).await,
        RootSubcommand::Container(what) => container::run(context, what).await,
        #[cfg(feature = "dev")]
        RootSubcommand::Doctor(args) => doctor::run(context, args).await,
        RootSubcommand::Version { check } => version::run(context, check).await,
        RootSubcommand::Request(what) => request::run(context, what).await,
        RootSubcommand::Task(what) => task::run(context, what).await,
        RootSubcommand::Attach { job } => attach::run(context, &job).await,
        RootSubcommand::Ui { print_url } => ui::run(context, print_url).await,
        #[cfg(feature = "dev")]
        RootSubcommand::Dev(args) => dev::run(context, args).await,
        #[cfg(feature = "dev")]
        RootSubcommand::Demo(args) => demo::run(context, args).await,
        RootSubcommand::Context(what) => contexts::contexts(context, what),
        RootSubcommand::Acl(what) => acl::run(context, what).await,
        RootSubcommand::Ca(what) => ca::run(context, what),
        RootSubcommand::Config(what) => contexts::config(context, what),
        RootSubcommand::Explain { word } => explain::run(context, word.as_deref()),
        RootSubcommand::Completion {
            shell,
            fixed: false,
        } => documents::completion(context, shell),
        RootSubcommand::Completion { shell, fixed: true } => {
            documents::fixed_completion(context, shell)
        }
        RootSubcommand::Man { dir, to } => documents::man(context, &to.or(dir).unwrap_or_default()),
        RootSubcommand::Sample { program } => sample::run(program, context),
    }
}
