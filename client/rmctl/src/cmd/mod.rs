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
mod status;
mod submission;
mod submit;
mod tags;
mod task;
mod top;
mod topscreen;
mod ui;
mod version;
mod wait;
mod why;

use crate::args::{AuditVerb, Verb};
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Runs one verb.
pub(crate) async fn run(verb: Verb, context: &mut Context) -> Result<Exit, Failure> {
    match verb {
        Verb::Status { watch } => status::run(context, watch).await,
        Verb::Submit(args) => submit::run(context, args).await,
        Verb::Run(args) => run::run(context, args).await,
        Verb::Ps { job, list } => ps::run(context, job.as_deref(), list).await,
        Verb::Top(args) => top::run(context, args).await,
        Verb::Why { target } => why::run(context, &target).await,
        Verb::Diagnose { target } => diagnose::run(context, &target).await,
        Verb::Logs(args) => logs::run(context, args).await,
        Verb::Wait { job, timeout } => wait::run(context, &job, timeout).await,
        Verb::Kill(args) => kill::run(context, args).await,
        Verb::Events(args) => events::run(context, events::EventSelection::of(args)).await,
        Verb::Audit {
            what: AuditVerb::List(args),
        } => audit::list(context, args).await,
        Verb::Node { what } => node::run(context, what).await,
        Verb::Operator { what } => operator::run(context, what).await,
        Verb::Job { what } => job::run(context, what).await,
        Verb::Profile { what } => profile::run(context, what).await,
        Verb::Queue { what } => queue::run(context, what).await,
        Verb::App { what } => app::run(context, what).await,
        Verb::Container { what } => container::run(context, what).await,
        #[cfg(feature = "dev")]
        Verb::Doctor(args) => doctor::run(context, args).await,
        Verb::Version { check } => version::run(context, check).await,
        Verb::Request { what } => request::run(context, what).await,
        Verb::Task { what } => task::run(context, what).await,
        Verb::Attach { job } => attach::run(context, &job).await,
        Verb::Ui { print_url } => ui::run(context, print_url).await,
        #[cfg(feature = "dev")]
        Verb::Dev(args) => dev::run(context, args).await,
        #[cfg(feature = "dev")]
        Verb::Demo(args) => demo::run(context, args).await,
        Verb::Context { what } => contexts::contexts(context, what),
        Verb::Acl { what } => acl::run(context, what).await,
        Verb::Ca { what } => ca::run(context, what),
        Verb::Config { what } => contexts::config(context, what),
        Verb::Explain { word } => explain::run(context, word.as_deref()),
        Verb::Completion {
            shell,
            fixed: false,
        } => documents::completion(context, shell),
        Verb::Completion { shell, fixed: true } => documents::fixed_completion(context, shell),
        Verb::Man { dir, to } => documents::man(context, &to.or(dir).unwrap_or_default()),
        Verb::Sample { program } => sample::run(program, context),
    }
}
