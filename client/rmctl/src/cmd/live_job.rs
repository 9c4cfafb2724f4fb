//! `rmctl job add`, `close` and `cancel-tasks`: tasks of a live job, through its submission channel.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use headroom_client::{
    ClientError, SubmissionChannel, SubmissionEvent, SubmissionInputError, SubmissionOptions,
};
use headroom_types::{AppId, ExitCharge, Name};
use headroom_wire::v1::submission::{SubmittedTask, SubmittedTaskOutcome, SubmittedTaskResult};
use serde::Serialize;

use crate::args::JobAddArgs;
use crate::argument_line;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::interrupt::Interrupt;
use crate::render::json::MachineOutput;
use crate::render::submission::{accepted, result_line};

/// Longest time without a connection to the master.
const UNREACHED_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for the effect of a closing or a cancellation.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Number of tasks that wait in the channel while a file is read.
const MAX_WAITING: usize = 4000;

/// A task that the job has accepted, in machine formats.
#[derive(Debug, Serialize)]
struct AddedTaskRow {
    app: AppId,
    key: String,
}

/// Adds tasks to a live job.
pub(super) async fn add(context: &CommandContext, args: JobAddArgs) -> CommandResult {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, &args.job).await?;
    let tasks = tasks(&args)?;
    let mut channel = open(context, &app.id)?;
    let mut addition = TaskAddition {
        stage: args.stage,
        open: tasks.iter().map(|task| task.key.clone()).collect(),
        tasks: tasks.into_iter(),
        accepted: Vec::new(),
        results: Vec::new(),
    };
    let (people, interrupt) = (context.format.is_screen(), Interrupt::ctrl_c()?);
    loop {
        addition.fill(&mut channel)?;
        if addition.is_over(&channel, args.wait) {
            break;
        }
        let event = tokio::select! {
            event = channel.next() => event?,
            () = interrupt.asked() => {
                context.term.say(&format!("detached; the tasks that {} has accepted keep running", app.id));
                break;
            }
        };
        let event = event.ok_or_else(|| ended(&app.id, "before all tasks were added"))?;
        let result = addition.take(event, &mut channel, &app.id)?;
        if let (Some(result), true, true) = (result, args.wait, people) {
            context.term.line(&result_line(result, context.term.paint));
        }
    }
    channel.leave().await;
    Ok(addition.report(context, &app.id, args.wait))
}

/// Tasks on their way into a job.
struct TaskAddition {
    stage: Name,
    tasks: std::vec::IntoIter<SubmittedTask>,
    /// Keys without a result.
    open: BTreeSet<String>,
    accepted: Vec<String>,
    results: Vec<SubmittedTaskResult>,
}

impl TaskAddition {
    /// Passes tasks on to the channel, as many as it should hold.
    fn fill(&mut self, channel: &mut SubmissionChannel) -> CommandResult<()> {
        while channel.session().unaccepted() < MAX_WAITING
            && let Some(task) = self.tasks.next()
        {
            let added = channel.add_task(self.stage.clone(), task);
            added.map_err(|error| refused_input(&error))?;
        }
        Ok(())
    }

    fn is_over(&self, channel: &SubmissionChannel, wait: bool) -> bool {
        let all_accepted = self.tasks.len() == 0 && channel.session().unaccepted() == 0;
        all_accepted && (!wait || self.open.is_empty())
    }

    /// Processes an event. Returns a new result of one of the tasks.
    fn take(
        &mut self,
        event: SubmissionEvent,
        channel: &mut SubmissionChannel,
        app: &AppId,
    ) -> CommandResult<Option<&SubmittedTaskResult>> {
        match event {
            SubmissionEvent::TasksAccepted { keys } => self.accepted.extend(keys),
            SubmissionEvent::TasksRefused { error, .. }
            | SubmissionEvent::StageRefused { error, .. }
            | SubmissionEvent::Refused { error } => return Err(ClientError::Problem(error).into()),
            SubmissionEvent::Connected { closed: true, .. }
                if channel.session().unaccepted() > 0 =>
            {
                let failure = CommandFailure::new(
                    CommandExitCode::Conflict,
                    format!("{app} is closed: it accepts no more tasks"),
                );
                return Err(failure.help(format!("rmctl ps {app}")));
            }
            SubmissionEvent::Ended(result) => {
                channel.acknowledge(result.cursor);
                if self.open.remove(&result.key) {
                    self.results.push(*result);
                    return Ok(self.results.last());
                }
            }
            SubmissionEvent::Over { diagnostics, .. } => {
                let all = self.open.is_empty() && channel.session().unaccepted() == 0;
                if !all {
                    return Err(ended(app, &diagnostics));
                }
            }
            SubmissionEvent::Connected { .. }
            | SubmissionEvent::StageAccepted { .. }
            | SubmissionEvent::States { .. } => {}
        }
        Ok(None)
    }

    fn report(&self, context: &CommandContext, app: &AppId, wait: bool) -> CommandExitCode {
        if wait {
            let text = MachineOutput::list(&self.results)
                .text(&context.output, |result| result.key.clone());
            context.show(text, String::new);
            let exit = exit_of_results(&self.results);
            // After Ctrl-C, the outcome of these tasks is open.
            return if exit == CommandExitCode::Ok && !self.open.is_empty() {
                CommandExitCode::WaitTimeout
            } else {
                exit
            };
        }
        let row = |key: &String| AddedTaskRow {
            app: app.clone(),
            key: key.clone(),
        };
        let rows: Vec<AddedTaskRow> = self.accepted.iter().map(row).collect();
        let text = MachineOutput::list(&rows).text(&context.output, |task| task.key.clone());
        context.show(text, || accepted(app, &self.accepted))
    }
}

/// The exit code of results: that of the most serious failure.
fn exit_of_results(results: &[SubmittedTaskResult]) -> CommandExitCode {
    let failed = |result: &&SubmittedTaskResult| result.outcome != SubmittedTaskOutcome::Succeeded;
    let for_memory = |result: &SubmittedTaskResult| {
        let reason = result.reason;
        reason.is_some_and(|reason| reason.charge() == ExitCharge::Memory)
    };
    let mut failed = results.iter().filter(failed).peekable();
    if failed.peek().is_none() {
        CommandExitCode::Ok
    } else if failed.any(for_memory) {
        CommandExitCode::OomExhausted
    } else {
        CommandExitCode::Failed
    }
}

/// Closes a live job: it ends when all its tasks have ended.
pub(super) async fn close(context: &CommandContext, job: &str) -> CommandResult {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    let mut channel = open(context, &app.id)?;
    channel.close();
    // The message has no answer: the next connection shows its effect.
    let closed = async {
        loop {
            match channel.next().await? {
                None
                | Some(
                    SubmissionEvent::Over { .. } | SubmissionEvent::Connected { closed: true, .. },
                ) => return Ok(()),
                Some(SubmissionEvent::Connected { closed: false, .. }) => {
                    channel.flush_and_disconnect().await;
                }
                Some(SubmissionEvent::Refused { error }) => {
                    return Err(CommandFailure::from(ClientError::Problem(error)));
                }
                Some(
                    SubmissionEvent::StageAccepted { .. }
                    | SubmissionEvent::StageRefused { .. }
                    | SubmissionEvent::TasksAccepted { .. }
                    | SubmissionEvent::TasksRefused { .. }
                    | SubmissionEvent::States { .. }
                    | SubmissionEvent::Ended(_),
                ) => {}
            }
        }
    };
    match tokio::time::timeout(EFFECT_TIMEOUT, closed).await {
        Ok(closed) => closed?,
        Err(_) => return Err(no_effect(&app.id)),
    }
    channel.leave().await;
    let text = MachineOutput::one(&app).text(&context.output, |app| app.id.to_string());
    Ok(context.show(text, || {
        format!(
            "{0}  closed: it ends when all tasks have ended\nnext: rmctl wait {0}\n",
            app.id
        )
    }))
}

/// Cancels tasks of a live job by their keys.
pub(super) async fn cancel_tasks(
    context: &CommandContext,
    job: &str,
    keys: Vec<String>,
) -> CommandResult {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    let mut channel = open(context, &app.id)?;
    let mut open: BTreeSet<String> = keys.iter().cloned().collect();
    channel
        .cancel(keys)
        .map_err(|error| refused_input(&error))?;
    let mut results = Vec::new();
    let ends = async {
        while !open.is_empty() {
            match channel.next().await? {
                Some(SubmissionEvent::Ended(result)) => {
                    channel.acknowledge(result.cursor);
                    if open.remove(&result.key) {
                        results.push(*result);
                    }
                }
                Some(SubmissionEvent::Refused { error }) => {
                    return Err(CommandFailure::from(ClientError::Problem(error)));
                }
                Some(
                    SubmissionEvent::Connected { .. }
                    | SubmissionEvent::StageAccepted { .. }
                    | SubmissionEvent::StageRefused { .. }
                    | SubmissionEvent::TasksAccepted { .. }
                    | SubmissionEvent::TasksRefused { .. }
                    | SubmissionEvent::States { .. }
                    | SubmissionEvent::Over { .. },
                ) => {}
                None => break,
            }
        }
        Ok(())
    };
    // Unknown keys, and those of tasks that ended long ago, have no result.
    if let Ok(ended) = tokio::time::timeout(EFFECT_TIMEOUT, ends).await {
        ended?;
    }
    channel.leave().await;
    let text = MachineOutput::list(&results).text(&context.output, |result| result.key.clone());
    context.show(text, || {
        let lines = results
            .iter()
            .map(|result| result_line(result, context.term.paint) + "\n");
        lines.collect()
    });
    if open.is_empty() {
        return Ok(CommandExitCode::Ok);
    }
    let unseen: Vec<&str> = open.iter().map(String::as_str).collect();
    let what = format!("no result of {} has arrived", unseen.join(", "));
    Err(CommandFailure::not_found(what)
        .help("an unknown key, or a task that ended before, has no result")
        .help(format!("rmctl ps {}", app.id)))
}

/// A channel with a name of its own.
fn open(context: &CommandContext, app: &AppId) -> CommandResult<SubmissionChannel> {
    let options = SubmissionOptions {
        client: format!("rmctl-{}", random_word()?),
        after: 0,
        give_up_after: UNREACHED_TIMEOUT,
    };
    Ok(SubmissionChannel::new(
        context.client()?,
        app.clone(),
        &options,
    )?)
}

fn random_word() -> CommandResult<String> {
    let random: [u8; 6] = headroom_identity::token::random()
        .map_err(|error| CommandFailure::failed(error.to_string()))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The tasks of a command line, or those of a file.
fn tasks(args: &JobAddArgs) -> CommandResult<Vec<SubmittedTask>> {
    let task = |key: String, arguments: Vec<String>| SubmittedTask {
        key,
        args: arguments,
        env: args.env.iter().cloned().collect(),
        memory: args.memory,
        priority: args.priority,
        ..SubmittedTask::default()
    };
    let word = random_word()?;
    let Some(path) = &args.from_file else {
        let key = args.key.clone().unwrap_or(word);
        return Ok(vec![task(key, args.arguments.clone())]);
    };
    let lines = lines(path, &read(path)?)?;
    if lines.is_empty() {
        let what = format!("{} has no tasks", path.display());
        return Err(CommandFailure::usage(what).help("write one task on each line"));
    }
    let numbered = (1..).zip(lines);
    Ok(numbered
        .map(|(number, arguments)| task(format!("{word}-{number}"), arguments))
        .collect())
}

/// The arguments of each task: one line each, without empty lines and comments.
fn lines(path: &Path, text: &str) -> CommandResult<Vec<Vec<String>>> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let wrong = |why| {
            let what = format!("{}:{number}: {why}", path.display());
            CommandFailure::usage(what).help("quote arguments as in a shell")
        };
        found.push(argument_line::split(line).map_err(wrong)?);
    }
    Ok(found)
}

fn read(path: &Path) -> CommandResult<String> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| CommandFailure::usage(format!("{}: {error}", path.display())))
}

fn refused_input(error: &SubmissionInputError) -> CommandFailure {
    CommandFailure::usage(error.to_string())
}

fn ended(app: &AppId, why: &str) -> CommandFailure {
    CommandFailure::new(CommandExitCode::Conflict, format!("{app} has ended: {why}"))
        .help(format!("rmctl ps {app}"))
}

fn no_effect(app: &AppId) -> CommandFailure {
    let what = format!(
        "the master of {app} has not closed the job within {} s",
        EFFECT_TIMEOUT.as_secs()
    );
    CommandFailure::new(CommandExitCode::WaitTimeout, what)
        .help("repeat the command; a repetition has no further effect")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{JobSubcommand, RmctlArguments, RootSubcommand};
    use clap::Parser as _;
    use headroom_types::{Bytes, ExitReason};

    fn args(words: &[&str]) -> JobAddArgs {
        let cli = RmctlArguments::try_parse_from([&["rmctl", "job", "add"], words].concat())
            .expect("parses");
        let RootSubcommand::Job(JobSubcommand::Add(args)) = cli.verb else {
            panic!("another verb: {:?}", cli.verb)
        };
        args
    }

    #[test]
    fn a_command_line_becomes_a_task() {
        let given = [
            "last", "--stage", "map", "--memory", "64MiB", "-e", "A=b c", "--key", "k", "--", "1",
            "--x",
        ];
        let tasks = tasks(&args(&given)).expect("is valid");
        let wanted = SubmittedTask {
            key: "k".into(),
            args: vec!["1".into(), "--x".into()],
            env: [("A".to_owned(), "b c".to_owned())].into(),
            memory: Some(Bytes::from_mib(64)),
            ..SubmittedTask::default()
        };
        assert_eq!(tasks, [wanted]);
    }

    #[test]
    fn each_line_of_a_file_becomes_a_task() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tasks");
        std::fs::write(&path, "# inputs\n1 'a b'\n\n2\n").expect("writes");
        let given = |path: &Path| {
            args(&[
                "last",
                "--stage",
                "map",
                "--from-file",
                &path.display().to_string(),
            ])
        };
        let found = tasks(&given(&path)).expect("is valid");
        let arguments: Vec<&[String]> = found.iter().map(|task| &*task.args).collect();
        assert_eq!(
            arguments,
            [&["1".to_owned(), "a b".to_owned()][..], &["2".to_owned()]]
        );
        assert!(found[0].key != found[1].key && found[1].key.ends_with("-2"));
        std::fs::write(&path, "ok\n\n'open\n").expect("writes");
        let wrong = tasks(&given(&path))
            .expect_err("a quote is open")
            .to_string();
        assert!(wrong.contains(":3: the quote ' has no end"), "{wrong}");
        std::fs::write(&path, "# nothing\n").expect("writes");
        let empty = tasks(&given(&path)).expect_err("no tasks");
        assert_eq!(empty.exit(), CommandExitCode::Usage);
    }

    #[test]
    fn the_exit_code_is_that_of_the_most_serious_failure() {
        let result = |outcome, reason| SubmittedTaskResult {
            cursor: 1,
            key: "k".into(),
            task: "map/0".parse().expect("id"),
            outcome,
            value: None,
            value_too_large: None,
            reason: Some(reason),
            dimension: None,
            message: String::new(),
            log_tail: String::new(),
            attempts: Vec::new(),
        };
        let fine = result(
            SubmittedTaskOutcome::Succeeded,
            ExitReason::Exit { code: 0 },
        );
        let failed = result(SubmittedTaskOutcome::Failed, ExitReason::Exit { code: 3 });
        let memory = result(SubmittedTaskOutcome::Failed, ExitReason::TaskOom);
        let exit = |results: &[SubmittedTaskResult]| exit_of_results(results) as u8;
        assert_eq!(exit(&[]), 0);
        assert_eq!(exit(std::slice::from_ref(&fine)), 0);
        assert_eq!(exit(&[fine.clone(), failed.clone()]), 1);
        assert_eq!(exit(&[fine, failed, memory]), 9);
    }
}
