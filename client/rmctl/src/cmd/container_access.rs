//! `rmctl container signal`, `files` and `exec`, `rmctl task exec`: access to a running container
//! and to the files of an ended one.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use headroom_client::{Client, LogStream};
use headroom_types::{ContainerId, millis};
use headroom_wire::v1::container_access::{
    ExecContainer, ExecExitStatus, ExecOutputLine, MAX_EXEC_INPUT_BYTES, SignalContainer,
    TextOrBytes,
};
use headroom_wire::v1::job::TaskState;

use super::exit_code::{NO_PROGRAM, NOT_STARTED, OURS, leave};
use crate::args::{
    ByteRange, ContainerExecArgs, ExecOptions, FilesSubcommand, SignalArgs, TaskExecArgs,
};
use crate::context::{CommandContext, user};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{files, json::MachineOutput};
use crate::target::{self, TargetPart};

/// Sends a signal.
pub(crate) async fn signal(context: &CommandContext, args: SignalArgs) -> CommandResult {
    let client = context.client()?;
    let id = &args.container;
    let receiver = if args.all {
        "every process"
    } else {
        "the program"
    };
    let would = format!("{id}: {receiver} would get {}", args.signal);
    if args.sure.dry_run {
        context.term.line(&would);
        return Ok(CommandExitCode::Ok);
    }
    context.confirm(args.sure, &would)?;
    let reason = args
        .reason
        .or_else(|| user().map(|user| format!("by {user}")));
    let body = SignalContainer {
        signal: args.signal,
        all: args.all,
        reason,
    };
    let done = client.signal(id, &body).await?;
    let machine = MachineOutput::one(&done).text(&context.output, |_| id.to_string());
    Ok(context.show(machine, || {
        let to = if args.all {
            processes(done.processes)
        } else {
            "its program".to_owned()
        };
        format!(
            "{id}  {} was sent to {to}\nnext: rmctl container show {id}\n",
            done.signal
        )
    }))
}

fn processes(n: u32) -> String {
    if n == 1 {
        "1 process".to_owned()
    } else {
        format!("{n} processes")
    }
}

/// Lists, prints or copies files.
pub(crate) async fn files(context: &CommandContext, what: FilesSubcommand) -> CommandResult {
    let client = context.client()?;
    match what {
        FilesSubcommand::Ls { container, path } => {
            let rows = client.files(&container, &path).await?;
            let machine = MachineOutput::list(&rows).text(&context.output, |row| row.path.clone());
            context.show(machine, || files::table(&rows, context.look()));
        }
        FilesSubcommand::Cat {
            container,
            path,
            range,
        } => {
            let mut stream = opened(&client, &container, &path, range).await?;
            while let Some(bytes) = stream.next().await {
                context.term.bytes(&bytes?);
            }
        }
        FilesSubcommand::Get {
            container,
            path,
            to,
            force,
            range,
        } => {
            let to = destination(&path, to)?;
            if !force && to.exists() {
                let there = CommandFailure::new(
                    CommandExitCode::Conflict,
                    format!("{} already exists", to.display()),
                );
                return Err(there.help("use --force to overwrite it, or name another file"));
            }
            let stream = opened(&client, &container, &path, range).await?;
            let length = copy(stream, &to).await?;
            context
                .term
                .line(&format!("{}  {length} bytes", to.display()));
        }
    }
    Ok(CommandExitCode::Ok)
}

async fn opened(
    client: &Client,
    container: &ContainerId,
    path: &str,
    range: ByteRange,
) -> CommandResult<LogStream> {
    Ok(client
        .file(container, path, range.header().as_deref())
        .await?)
}

/// The local path of a copy: `to`, or below `to` if it is a directory. The default is the file's
/// name in the working directory.
fn destination(path: &str, to: Option<PathBuf>) -> CommandResult<PathBuf> {
    let none = || CommandFailure::usage(format!("{path:?} names no file"));
    let name = Path::new(path).file_name().ok_or_else(none)?;
    Ok(match to {
        None => name.into(),
        Some(to) if to.is_dir() => to.join(name),
        Some(to) => to,
    })
}

/// Writes to a temporary name first, so that an interrupted copy leaves no incomplete file.
async fn copy(mut stream: LogStream, to: &Path) -> CommandResult<u64> {
    let failed = |error: std::io::Error| {
        CommandFailure::failed(format!("{} cannot be written: {error}", to.display()))
    };
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    let mut file = File::create(&part).map_err(failed)?;
    let mut length = 0;
    while let Some(bytes) = stream.next().await {
        let written = bytes.map_err(CommandFailure::from).and_then(|bytes| {
            length += bytes.len() as u64;
            file.write_all(&bytes).map_err(failed)
        });
        if let Err(failure) = written {
            // The incomplete file is useless. If it cannot be removed, it keeps its temporary name.
            fs::remove_file(&part).ok();
            return Err(failure);
        }
    }
    fs::rename(&part, to).map_err(failed)?;
    Ok(length)
}

/// Runs a program in a container and ends this process with the program's exit code.
pub(crate) async fn exec(context: &CommandContext, args: ContainerExecArgs) -> CommandResult {
    let ran = stay(context, &args.container, &args.beside).await;
    leave(context, ran)
}

/// Runs a program in the container of a task's running attempt.
pub(crate) async fn exec_task(context: &CommandContext, args: TaskExecArgs) -> CommandResult {
    let ran = match container_of(context, &args.task).await {
        Ok(container) => stay(context, &container, &args.beside).await,
        Err(failure) => Err(failure),
    };
    leave(context, ran)
}

async fn container_of(context: &CommandContext, text: &str) -> CommandResult<ContainerId> {
    let (app, target) = context.app(&context.client()?, text).await?;
    let attempt = match &target.part {
        TargetPart::Attempt(id) => Some(target::attempt(&app, id)?.1),
        TargetPart::Task(id) => target::task(&app, id)?.attempts.last(),
        TargetPart::Whole | TargetPart::Container(_) | TargetPart::Several(_) => {
            let wrong = CommandFailure::usage(format!("{text} is not a task"));
            return Err(wrong.help(format!("write for example {}/map/7", app.id)));
        }
    };
    let id = target
        .part
        .task()
        .map(ToString::to_string)
        .unwrap_or_default();
    let runs = target
        .part
        .task()
        .and_then(|id| target::task(&app, id).ok())
        .is_some_and(|row| row.state == TaskState::Running);
    let attempt = attempt.filter(|attempt| runs && attempt.ended.is_none());
    let over = || {
        let failure = CommandFailure::new(
            CommandExitCode::Conflict,
            format!("no attempt at {}/{id} runs", app.id),
        );
        failure.help(format!("rmctl task show {}/{id}", app.id))
    };
    Ok(attempt.ok_or_else(over)?.container.clone())
}

async fn stay(
    context: &CommandContext,
    container: &ContainerId,
    beside: &ExecOptions,
) -> CommandResult<i32> {
    let input = if beside.stdin {
        Some(TextOrBytes::of(&standard_input()?))
    } else {
        None
    };
    let timeout_ms = Some(millis(beside.timeout));
    let body = ExecContainer {
        command: beside.command.clone(),
        input,
        timeout_ms,
    };
    let client = context.client()?;
    let mut lines = client.exec(container, &body).await?;
    while let Some(line) = lines.next().await {
        match line? {
            ExecOutputLine::Stdout { data } => context.term.bytes(&bytes(&data)?),
            ExecOutputLine::Stderr { data } => context
                .term
                .aside()
                .print(&String::from_utf8_lossy(&bytes(&data)?)),
            ExecOutputLine::Ended { end } => {
                return Ok(ended(context, &client, container, &end).await);
            }
        }
    }
    let cut = CommandFailure::failed(format!(
        "the connection to container {container} was lost before the program ended"
    ));
    Err(cut.help(format!("rmctl container show {container}")))
}

fn bytes(data: &TextOrBytes) -> CommandResult<Vec<u8>> {
    data.bytes()
        .map_err(|why| CommandFailure::failed(format!("the response cannot be read: {why}")))
}

fn standard_input() -> CommandResult<Vec<u8>> {
    let mut input = Vec::new();
    let most = MAX_EXEC_INPUT_BYTES as u64 + 1;
    let read = std::io::stdin().lock().take(most).read_to_end(&mut input);
    read.map_err(|error| {
        CommandFailure::failed(format!("standard input cannot be read: {error}"))
    })?;
    if input.len() > MAX_EXEC_INPUT_BYTES {
        let long = CommandFailure::usage(format!(
            "standard input is longer than {} KiB",
            MAX_EXEC_INPUT_BYTES >> 10
        ));
        return Err(long.help("write it to a file that the job fetches"));
    }
    Ok(input)
}

/// The exit code. Prints a sentence if the program did not exit by itself.
async fn ended(
    context: &CommandContext,
    client: &Client,
    container: &ContainerId,
    end: &ExecExitStatus,
) -> i32 {
    let (code, sentence) = code(end);
    if let Some(sentence) = sentence {
        context.term.say(&format!("rmctl: {sentence}"));
    }
    // The program may have reached the container's limit, which ends both.
    let view = if matches!(end, ExecExitStatus::Signal { .. }) {
        client.container(container).await.ok()
    } else {
        None
    };
    if let Some(reason) = view.and_then(|view| view.reason) {
        context.term.say(&format!(
            "rmctl: container {container} has ended too: {}",
            reason.sentence()
        ));
    }
    code
}

fn code(end: &ExecExitStatus) -> (i32, Option<String>) {
    match end {
        ExecExitStatus::Exit { code } => (*code, None),
        ExecExitStatus::Signal { signal } => (
            128 + signal,
            Some(format!("the program was ended by signal {signal}")),
        ),
        ExecExitStatus::NotFound { why } => (NO_PROGRAM, Some(why.clone())),
        ExecExitStatus::NotStarted { why } => (NOT_STARTED, Some(why.clone())),
        ExecExitStatus::Timeout => (
            OURS,
            Some("the program was ended at its timeout; set a longer --timeout".to_owned()),
        ),
        ExecExitStatus::TooMuchOutput => (
            OURS,
            Some("the program printed more than 64 MiB and was ended".to_owned()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_to_its_destination() {
        let dir = tempfile::tempdir().expect("dir");
        assert_eq!(destination("work/part-0", None), Ok("part-0".into()));
        assert_eq!(
            destination("work/part-0", Some(dir.path().into())),
            Ok(dir.path().join("part-0"))
        );
        assert_eq!(
            destination("work/part-0", Some("other".into())),
            Ok("other".into())
        );
        assert_eq!(
            destination("", None).expect_err("none").exit(),
            CommandExitCode::Usage
        );
    }

    #[test]
    fn the_end_of_the_program_is_the_exit_code() {
        let of = |end: ExecExitStatus| code(&end).0;
        let why = || "no such file".to_owned();
        assert_eq!(
            (
                of(ExecExitStatus::Exit { code: 3 }),
                of(ExecExitStatus::Signal { signal: 9 })
            ),
            (3, 137)
        );
        assert_eq!(
            (
                of(ExecExitStatus::NotFound { why: why() }),
                of(ExecExitStatus::NotStarted { why: why() })
            ),
            (127, 126)
        );
        assert_eq!(
            (
                of(ExecExitStatus::Timeout),
                of(ExecExitStatus::TooMuchOutput)
            ),
            (125, 125)
        );
    }
}
