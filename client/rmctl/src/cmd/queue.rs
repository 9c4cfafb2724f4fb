//! `rmctl queue`: shows the tree or one queue, replaces the tree, sets the state of a queue.

use std::io::Read as _;
use std::path::Path;

use headroom_client::{Client, ClientError};
use headroom_types::QueuePath;
use headroom_wire::v1::queues::{QueueProblem, QueueRunState, QueueView, QueuesView};
use serde_json::Value;

use super::app;
use crate::args::{AppSubcommand, OutputFormat, QueueSubcommand, WatchedListOptions};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{count, json, json::MachineOutput, queues};
use crate::watch::watch;

/// Runs a `queue` verb.
pub(crate) async fn run(context: &CommandContext, what: QueueSubcommand) -> CommandResult {
    let client = context.client()?;
    match what {
        QueueSubcommand::List(args) => list(context, &client, args).await,
        QueueSubcommand::Show { queue } => show(context, &client, &queue).await,
        QueueSubcommand::Set {
            file,
            generation,
            dry_run,
        } => set(context, &client, &file, generation, dry_run).await,
        QueueSubcommand::State { queue, state } => {
            set_queue_state(context, &client, &queue, state).await
        }
        QueueSubcommand::Pause { queue } => {
            set_queue_state(context, &client, &queue, QueueRunState::Paused).await
        }
        QueueSubcommand::Resume { queue } => {
            set_queue_state(context, &client, &queue, QueueRunState::Running).await
        }
        QueueSubcommand::Move { job, queue } => {
            app::run(context, AppSubcommand::Move { job, queue }).await
        }
    }
}

async fn list(
    context: &CommandContext,
    client: &Client,
    args: WatchedListOptions,
) -> CommandResult {
    let context = &context.list(&args.rows);
    let wanted = args.rows.wanted();
    if args.watch {
        let rows =
            |view: QueuesView| wanted.of(view.root.walk().into_iter().cloned().collect(), now());
        return watch(context, "/v1/queues", rows, async |all| {
            Ok(queues::chosen(&all, context.look()))
        })
        .await;
    }
    let view = client.queues().await?;
    if context.format == OutputFormat::Json && wanted.is_all() {
        context.term.print(&json::pretty(&view));
        return Ok(CommandExitCode::Ok);
    }
    let all: Vec<QueueView> = wanted.of(view.root.walk().into_iter().cloned().collect(), now())?;
    let machine = MachineOutput::list(&all).rows(&context.output);
    let people = || match wanted.is_all() {
        true => queues::screen(&view, context.look()),
        false => queues::chosen(&all, context.look()),
    };
    Ok(context.show(machine, people))
}

async fn show(context: &CommandContext, client: &Client, queue: &QueuePath) -> CommandResult {
    let view = client.queue(queue).await?;
    let machine = MachineOutput::one(&view).text(&context.output, |q| q.path.to_string());
    Ok(context.show(machine, || queues::one(&view, context.term.paint)))
}

async fn set(
    context: &CommandContext,
    client: &Client,
    file: &Path,
    generation: Option<u64>,
    dry_run: bool,
) -> CommandResult {
    let text = read(file)?;
    let name = file.display().to_string();
    let tree = tree(&text, &name)?;
    let with_places = |e: ClientError| at_their_places(e, &text, &name);
    if dry_run {
        let checked = client
            .check_queues(&tree, generation)
            .await
            .map_err(with_places)?;
        let machine =
            MachineOutput::one(&checked).text(&context.output, |c| c.generation.to_string());
        return Ok(context.show(machine, || {
            format!("the file is valid for generation {}\n", checked.generation)
        }));
    }
    let view: QueuesView = client
        .set_queues(&tree, generation)
        .await
        .map_err(with_places)?;
    let machine = MachineOutput::one(&view).text(&context.output, |v| v.generation.to_string());
    let people = || {
        let below = u64::try_from(view.root.walk().len().saturating_sub(1)).unwrap_or(u64::MAX);
        format!(
            "generation {} is in force: {}\nnext: rmctl queue list\n",
            view.generation,
            count(below, "queue")
        )
    };
    Ok(context.show(machine, people))
}

/// Reads a file, or standard input for `-`.
pub(super) fn read(file: &Path) -> CommandResult<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        return read
            .map(|_| text)
            .map_err(|e| CommandFailure::usage(format!("standard input cannot be read: {e}")));
    }
    Ok(headroom_config::load::read(file)?)
}

/// Parses JSON as `PUT /v1/queues` accepts it, or TOML with the tables of the resource manager's
/// configuration.
fn tree(text: &str, name: &str) -> CommandResult<Value> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|e| CommandFailure::usage(format!("{name} is not JSON: {e}")));
    }
    Ok(headroom_config::queues::parse_queue_tree(text, name)?)
}

/// The errors of a tree with their places in the file.
fn at_their_places(error: ClientError, text: &str, name: &str) -> CommandFailure {
    let problems: &[QueueProblem] = error.problem().map_or(&[], |problem| &problem.problems);
    if problems.is_empty() || text.trim_start().starts_with('{') {
        return error.into();
    }
    headroom_config::queues::locate_problems(text, name, problems).into()
}

async fn set_queue_state(
    context: &CommandContext,
    client: &Client,
    queue: &QueuePath,
    state: QueueRunState,
) -> CommandResult {
    let view = client.set_queue_state(queue, state).await?;
    let machine = MachineOutput::one(&view).text(&context.output, |q| q.path.to_string());
    let people = || {
        let (own, held) = (state.as_str(), view.state.as_str());
        let note = if state == view.state {
            String::new()
        } else {
            format!(", but {held} in effect because of a parent queue")
        };
        format!(
            "{} is {own}{note}\nnext: rmctl queue show {}\n",
            view.path.short(),
            view.path.short()
        )
    };
    Ok(context.show(machine, people))
}
