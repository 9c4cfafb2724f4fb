//! `rmctl run`: runs one command in a container as if it ran here, with its output and its exit
//! code.
//!
//! The command becomes a job of one task, so that a memory kill is answered with more memory as in
//! any other job, unless `--no-escalate` is given. The program's own exit code is passed on. Exit
//! code 125 is a failure of rmctl; 126 and 127 are as in a shell. A memory kill is always exit code
//! 9 with a sentence, so that it differs from an ordinary exit.

use std::path::Path;
use std::sync::Arc;

use headroom_client::Client;
use headroom_config::job::ClusterProfiles;
use headroom_types::{AppId, Bytes, ExitCharge, ExitReason, Name, Profile};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{AttemptRow, MemoryFailureMode, TaskRow, TaskState};
use tokio::sync::watch;

use super::exit_code::{NO_PROGRAM, NOT_STARTED, OURS, leave};
use super::feasibility::refuse_infeasible;
use super::follow::{self as logs, FollowedJob, JobSight};
use super::job_file::CompiledJob;
use super::submission::submit;
use crate::args::{LogsArgs, RunArgs};
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::follow::{FollowScope, JobObservation, follow_in};
use crate::interrupt::Interrupt;
use crate::render::figures::short;
use crate::target::TargetPart;
use crate::term::{self, OutputLoss};

/// Exit code after Ctrl-C.
const INTERRUPTED: i32 = 130;
/// Exit code after the reader of the output has closed the pipe, as of a program that SIGPIPE ends.
const CLOSED_PIPE: i32 = 141;

/// Runs the command and ends this process with its exit code.
pub(crate) async fn run(context: &CommandContext, args: RunArgs) -> CommandResult {
    leave(context, stay(context, &args).await)
}

async fn stay(context: &CommandContext, args: &RunArgs) -> CommandResult<i32> {
    let client = context.client()?;
    let id = begin(&client, args).await?;
    if args.detach {
        context.term.line(&id.to_string());
        return Ok(0);
    }
    match until_over(context, &client, &id, is_decided).await? {
        WatchEnd::Over(app) => {
            let code = ended(context, &app);
            match term::lost_output() {
                Some(OutputLoss::Failed(failure)) => Err(failure),
                Some(OutputLoss::Closed) | None => Ok(code),
            }
        }
        WatchEnd::Interrupted(code) => Ok(code),
    }
}

/// Runs a command to its end. Its output goes to the terminal of `context`.
pub(super) async fn to_its_end(context: &CommandContext, args: &RunArgs) -> CommandResult<AppView> {
    let client = context.client()?;
    let id = begin(&client, args).await?;
    match until_over(context, &client, &id, |_| false).await? {
        WatchEnd::Over(app) => Ok(*app),
        WatchEnd::Interrupted(_) => Err(CommandFailure::failed(format!("{id} was interrupted"))),
    }
}

async fn begin(client: &Client, args: &RunArgs) -> CommandResult<AppId> {
    let size = match &args.profile {
        Some(name) => Some(client.profile(name).await?.size()),
        None => None,
    };
    let text = job_file(args, size.as_ref());
    let spec = headroom_config::job::compile(&text, "the command line")?;
    let base = std::env::current_dir()
        .map_err(|e| CommandFailure::failed(format!("no working directory: {e}")))?;
    let mode = if args.no_escalate {
        MemoryFailureMode::Fixed
    } else {
        spec.mode
    };
    let job = CompiledJob {
        spec,
        text,
        named: ClusterProfiles::new(),
        base,
        mode,
        uploads: Vec::new(),
    };
    let submitted = submit(client, &job).await;
    // The resource manager compares the only executor with its nodes. Its refusal has no advice.
    if submitted.as_ref().is_err_and(CommandFailure::is_infeasible) {
        refuse_infeasible(&job.spec, &client.node_groups().await?)?;
    }
    Ok(submitted?.app)
}

/// Why a job is no longer watched.
enum WatchEnd {
    /// The job has ended, or is over in the sense of the caller.
    Over(Box<AppView>),
    /// The user or the reader of the output has gone, and the job was ended. The exit code.
    Interrupted(i32),
}

/// Watches the job until its end or `is_over`. Ctrl-C and the loss of standard output end the job.
async fn until_over(
    context: &CommandContext,
    client: &Client,
    id: &AppId,
    is_over: fn(&AppView) -> bool,
) -> CommandResult<WatchEnd> {
    let interrupt = Interrupt::ctrl_c()?;
    tokio::select! {
        app = watched(context, client, id, is_over) => Ok(WatchEnd::Over(Box::new(app?))),
        () = interrupt.asked() => {
            client.kill(id, Some("interrupted".to_owned())).await?;
            Ok(WatchEnd::Interrupted(INTERRUPTED))
        }
        lost = term::output_lost() => {
            client.kill(id, Some("its output has no reader".to_owned())).await?;
            match lost {
                OutputLoss::Closed => Ok(WatchEnd::Interrupted(CLOSED_PIPE)),
                OutputLoss::Failed(failure) => Err(failure),
            }
        }
    }
}

/// The last attempt of the only task.
pub(super) fn last_attempt(app: &AppView) -> Option<&AttemptRow> {
    app.job
        .iter()
        .flat_map(|j| &j.tasks)
        .filter_map(|t| t.attempts.last())
        .next()
}

/// True if the outcome of the job is decided and saved: its only task has ended, and its master has
/// reported the end. Its containers may still have to end.
fn is_decided(app: &AppView) -> bool {
    let over = |row: &TaskRow| matches!(row.state, TaskState::Done | TaskState::Failed);
    app.state == AppState::Finishing
        && app.job.iter().flat_map(|job| &job.tasks).all(over)
        && last_attempt(app).is_some_and(|attempt| attempt.reason.is_some())
}

/// Prints both outputs and the important events until `is_over` or the end of the job.
async fn watched(
    context: &CommandContext,
    client: &Client,
    id: &AppId,
    is_over: fn(&AppView) -> bool,
) -> CommandResult<AppView> {
    let aside = CommandContext {
        term: context.term.aside(),
        ..context.clone()
    };
    let args = |stderr| LogsArgs {
        target: id.to_string(),
        follow: true,
        stderr,
        tail: None,
        master: false,
        no_prefix: true,
    };
    let (out, err) = (args(false), args(true));
    let sights = watch::Sender::new(None);
    let (for_out, for_err) = (sights.subscribe(), sights.subscribe());
    let job = async move {
        let see = |sight: JobObservation<'_>| match sight {
            JobObservation::View(view) => drop(sights.send_replace(Some(JobSight {
                app: Arc::new(view.clone()),
                is_over: view.state.is_final() || is_over(view),
            }))),
            JobObservation::Event(event)
                if matches!(event.reason.as_str(), "OomKilled" | "Escalated") =>
            {
                context.term.say(&format!("rmctl: {}", event.message));
            }
            JobObservation::Waits(why) => context
                .term
                .say(&format!("rmctl: {id} waits: {}", why.sentence)),
            JobObservation::Event(_) => {}
        };
        // The sender ends with this block, and with it the followers of both outputs.
        follow_in(client, id, FollowScope::Rows(is_over), see).await
    };
    let whole = TargetPart::Whole;
    let (app, out, err) = tokio::join!(
        job,
        logs::run(context, client, &whole, &out, FollowedJob::Seen(for_out)),
        logs::run(&aside, client, &whole, &err, FollowedJob::Seen(for_err)),
    );
    // Unreadable output is only a warning; the end of the job determines the result.
    for lost in [out.err(), err.err()].into_iter().flatten() {
        context.term.complain(&lost);
    }
    Ok(app?)
}

/// The exit code. Prints a sentence if the program did not exit by itself.
fn ended(context: &CommandContext, app: &AppView) -> i32 {
    let (code, sentence) = match last_attempt(app) {
        Some(attempt) => code(attempt),
        None => (
            OURS,
            Some(format!("the task never ran: {}", app.diagnostics)),
        ),
    };
    if let Some(sentence) = sentence {
        context.term.say(&format!(
            "rmctl: {sentence}\nnext: rmctl diagnose {}",
            app.id
        ));
    }
    code
}

fn code(a: &AttemptRow) -> (i32, Option<String>) {
    let Some(reason) = a.reason else {
        return (OURS, Some("the job ended while the task ran".to_owned()));
    };
    let size = short(a.profile.memory());
    match (reason, reason.charge()) {
        (ExitReason::Exit { code }, _) => (code, None),
        (_, ExitCharge::Memory) => (
            i32::from(CommandExitCode::OomExhausted as u8),
            Some(format!(
                "{} at {size}, and no larger size was tried",
                reason.sentence()
            )),
        ),
        (ExitReason::Signal { signal }, _) => (128 + signal, Some(reason.sentence())),
        (ExitReason::LaunchFailed, _) => {
            let code = a
                .evidence
                .as_ref()
                .and_then(|e| e.exit_code)
                .unwrap_or(NOT_STARTED);
            let why = a.log_tail.trim();
            let what = if code == NO_PROGRAM {
                "there is no such program".to_owned()
            } else {
                reason.sentence()
            };
            (
                code,
                Some(if why.is_empty() {
                    what
                } else {
                    format!("{what}: {why}")
                }),
            )
        }
        (_, ExitCharge::Plain | ExitCharge::Free | ExitCharge::Success) => {
            (OURS, Some(reason.sentence()))
        }
    }
}

/// The job file for a command line, with one task.
fn job_file(args: &RunArgs, size: Option<&Profile>) -> String {
    use serde_json::Value;
    let quoted = |text: &str| Value::from(text).to_string();
    // Braces are placeholders in job files, so they are escaped.
    let word = |text: &str| quoted(&text.replace('{', "{{").replace('}', "}}"));
    let command: Vec<String> = args.launch.command.iter().map(|text| word(text)).collect();
    let variables = args.launch.env.iter();
    let env: Vec<String> = variables
        .map(|(name, value)| format!("{name} = {}", word(value)))
        .collect();
    let queue = args
        .queue
        .as_ref()
        .map(|q| format!("queue = {}\n", quoted(q.as_str())))
        .unwrap_or_default();
    let timeout = args
        .timeout
        .map(|t| format!("timeout = \"{}s\"\n", t.as_secs().max(1)))
        .unwrap_or_default();
    let cap = args
        .cap
        .map(|cap| format!("cap = \"{}B\"\n", cap.get()))
        .unwrap_or_default();
    let reserved = |bytes: Bytes| bytes.saturating_add(RESERVE).get();
    let memory = match size {
        Some(size) if !size.overhead.is_zero() => {
            format!(
                "heap = \"{}B\"\noverhead = \"{}B\"",
                size.heap.get(),
                reserved(size.overhead)
            )
        }
        Some(size) => format!("memory = \"{}B\"", reserved(size.memory())),
        None => format!("memory = \"{}B\"", reserved(args.memory)),
    };
    let nodes: Vec<String> = args
        .nodes
        .iter()
        .map(|node| quoted(node.as_str()))
        .collect();
    let nodes = if nodes.is_empty() {
        String::new()
    } else {
        format!("nodes = [{}]\n", nodes.join(", "))
    };
    format!(
        "version = 1\nname = {}\n{queue}[profiles.run]\n{memory}\ncpus = {}\n[executors.main]\nprofile = \"run\"\ncount = 1\n\
         slots = 1\nreserve = \"{}B\"\n{nodes}[[stage]]\nname = \"run\"\ncommand = [{}]\n{timeout}env = {{ {} }}\n[retry]\nmax_attempts = 1\n{cap}",
        quoted(&name(args)),
        size.map_or(args.cpus, |size| size.cpus),
        RESERVE.get(),
        command.join(", "),
        env.join(", "),
    )
}

/// Memory of the executor in the command's container.
const RESERVE: Bytes = Bytes::from_mib(32);

/// The requested name, or the valid characters of the program's name.
fn name(args: &RunArgs) -> String {
    let program = args
        .launch
        .command
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .map(|n| n.to_string_lossy().into_owned());
    let plain: String = program
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(32)
        .collect();
    let plain = plain.trim_matches('-').to_ascii_lowercase();
    args.name.clone().unwrap_or_else(|| {
        if plain.parse::<Name>().is_ok() {
            plain
        } else {
            "run".to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{RmctlArguments, RootSubcommand};
    use crate::render::fixture;
    use clap::Parser as _;

    fn args(words: &[&str]) -> RunArgs {
        let cli =
            RmctlArguments::try_parse_from([&["rmctl", "run"], words].concat()).expect("parses");
        let RootSubcommand::Run(args) = cli.verb else {
            panic!("another verb")
        };
        args
    }

    #[test]
    fn the_outcome_is_decided_when_the_task_and_its_job_are_over() {
        let mut app = fixture::app();
        let job = app.job.as_mut().expect("a job");
        job.tasks.truncate(1);
        let row = &mut job.tasks[0];
        row.state = TaskState::Done;
        row.attempts.truncate(1);
        row.attempts[0].reason = Some(ExitReason::Exit { code: 0 });
        app.state = AppState::Finishing;
        assert!(is_decided(&app));
        let running = AppView {
            state: AppState::Running,
            ..app.clone()
        };
        assert!(!is_decided(&running), "its output may have to be committed");
        let mut killed = app.clone();
        killed.job.as_mut().expect("a job").tasks[0].state = TaskState::Running;
        assert!(!is_decided(&killed), "its last attempt is not over");
        app.job.as_mut().expect("a job").tasks[0].attempts.clear();
        assert!(!is_decided(&app), "it never ran");
    }

    #[test]
    fn a_command_line_becomes_a_job_with_a_single_task() {
        let args = args(&[
            "--memory",
            "1G",
            "--env",
            "A=b c",
            "--timeout",
            "2m",
            "--",
            "/bin/sh",
            "-c",
            "echo \"${HOME}\" 'x'",
        ]);
        let spec = headroom_config::job::compile(&job_file(&args, None), "x")
            .unwrap_or_else(|p| panic!("{}", headroom_config::render(&p)));
        assert_eq!((spec.name.as_str(), spec.tasks()), ("sh", 1));
        let stage = &spec.stages[0];
        let words: Vec<String> = stage.command.iter().map(ToString::to_string).collect();
        assert_eq!(
            words[2], "echo \"${{HOME}}\" 'x'",
            "braces are taken literally"
        );
        assert_eq!(
            stage.profile.memory(),
            Bytes::from_gib(1),
            "the command gets all of the requested memory"
        );
        assert!(stage.env.contains_key("A") && stage.timeout.is_some());
    }

    #[test]
    fn a_profile_and_nodes_go_into_the_job() {
        let args = args(&[
            "--profile",
            "etl",
            "--node",
            "n1",
            "--node",
            "n2",
            "--",
            "true",
        ]);
        let mib = Bytes::from_mib;
        let size = Profile {
            heap: mib(512),
            overhead: mib(64),
            cpus: headroom_types::Cpus::from_cores(2),
        };
        let compiled = |size: &Profile| {
            let text = job_file(&args, Some(size));
            headroom_config::job::compile(&text, "x")
                .unwrap_or_else(|p| panic!("{}", headroom_config::render(&p)))
        };
        let spec = compiled(&size);
        assert_eq!(
            spec.stages[0].profile.memory(),
            size.memory(),
            "the command gets all of the profile"
        );
        assert_eq!(
            (
                spec.executors[0].profile.heap,
                spec.executors[0].profile.cpus
            ),
            (mib(512), size.cpus)
        );
        assert_eq!(spec.executors[0].place.nodes.len(), 2);
        let one = Profile {
            overhead: Bytes::ZERO,
            ..size
        };
        assert_eq!(compiled(&one).stages[0].profile.memory(), mib(512));
    }

    #[test]
    fn a_memory_kill_has_its_own_exit_code() {
        let mut a = fixture::killed();
        let (killed, sentence) = code(&a);
        assert_eq!(killed, 9);
        assert!(sentence.is_some_and(|s| s.contains("out of memory") && s.contains("4.4G")));
        let mut of = |reason| {
            a.reason = Some(reason);
            code(&a).0
        };
        assert_eq!(
            (
                of(ExitReason::Exit { code: 3 }),
                of(ExitReason::Exit { code: 0 })
            ),
            (3, 0)
        );
        assert_eq!(of(ExitReason::Signal { signal: 15 }), 143);
        assert_eq!(
            (of(ExitReason::LaunchFailed), of(ExitReason::NodeLost)),
            (126, 125)
        );
        a.evidence.as_mut().expect("evidence").exit_code = Some(127);
        a.log_tail = "cannot start nothing: step exec failed on nothing".into();
        assert_eq!(code(&a).0, 125, "the node is still lost");
        a.reason = Some(ExitReason::LaunchFailed);
        let (missing, sentence) = code(&a);
        assert_eq!(missing, 127);
        assert!(
            sentence
                .is_some_and(|s| s.starts_with("there is no such program: cannot start nothing"))
        );
    }
}
