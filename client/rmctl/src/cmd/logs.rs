//! `rmctl logs`: logs of a job (all its tasks), a task, an attempt, a container, or the job's
//! master.

use headroom_client::{Client, ClientError};
use headroom_wire::v1::error::ErrorCode;

use super::follow::{self, FollowedJob, LogLinePrinter};
use super::log_source::{LogSource, WINDOW, print, sources};
use crate::args::LogsArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::logs as text;
use crate::selector;
use crate::target::TargetPart;

/// Prints logs, and with `--follow` continues until all of them have ended.
pub(crate) async fn run(context: &CommandContext, args: LogsArgs) -> CommandResult {
    let client = context.client()?;
    let (app, part) = match selector::parse(&args.target) {
        Some(several) => {
            let (app, _) = context.app(&client, &several.job).await?;
            // A selection that is malformed or matches no task fails at once.
            several.of(&app)?;
            (app, TargetPart::Several(several))
        }
        None => {
            let (app, target) = context.app(&client, &args.target).await?;
            (app, target.part)
        }
    };
    if args.follow {
        let job = FollowedJob::new(&client, &app.id);
        return follow::run(context, &client, &part, &args, job).await;
    }
    let sources = sources(&client, &app, &part, &args).await?;
    if sources.is_empty() {
        let none = if part == TargetPart::Whole {
            "has started no task yet"
        } else {
            "has not started it yet"
        };
        return Err(
            CommandFailure::not_found(format!("{} {none}: there is no log", app.id)).help(format!(
                "rmctl why {} · rmctl logs {} --master --stderr",
                app.id, app.id
            )),
        );
    }
    let only = sources.len() == 1;
    let (mut missing, mut read) = (None, 0);
    for source in &sources {
        let printed = if args.tail.is_none() && source.marker.is_none() {
            print_whole(context, &client, source, args.stderr).await
        } else {
            let log = client.log(&source.container, &source.file, WINDOW).await;
            log.map(|text| {
                let part = text::tail(part_of(context, source, &text), args.tail);
                print(context, source, part.as_bytes(), args.stderr);
            })
        };
        match printed {
            Ok(()) => read += 1,
            Err(e) if only => return Err(gone(e, source)),
            Err(e) => missing = Some(gone(e, source)),
        }
    }
    match missing {
        Some(e) if read == 0 => Err(e),
        Some(_) | None => Ok(CommandExitCode::Ok),
    }
}

/// Prints a log from its first stored byte to its end.
async fn print_whole(
    context: &CommandContext,
    client: &Client,
    source: &LogSource,
    stderr: bool,
) -> Result<(), ClientError> {
    let mut printer = LogLinePrinter::new(context, stderr);
    let mut position = 0;
    loop {
        let (bytes, next) = client
            .log_after(&source.container, &source.file, position)
            .await?;
        if bytes.is_empty() {
            break;
        }
        position = next;
        printer.take((source.clone(), bytes));
    }
    printer.finish();
    Ok(())
}

/// The lines of the target in a log that several tasks share. A note on the terminal names the
/// whole log.
fn part_of<'a>(context: &CommandContext, source: &LogSource, text: &'a str) -> &'a str {
    let Some(marker) = &source.marker else {
        return text;
    };
    let container = &source.container;
    let part = text::between(text, marker);
    let note = if part.is_empty() {
        "has no line of this task, such as at log level WARN or after 1 MiB of later lines"
    } else {
        "is shared with other tasks, whose lines may be among these"
    };
    context.term.say(&format!(
        "the log of executor {container} {note}; rmctl logs {container} --stderr prints all of it"
    ));
    part
}

fn gone(e: ClientError, source: &LogSource) -> CommandFailure {
    if e.code() == Some(ErrorCode::HR0404) {
        return CommandFailure::not_found(format!(
            "there is no log {} of container {}",
            source.file, source.container
        ))
        .help("logs are kept on the node for the last 200 containers that ended");
    }
    e.into()
}
