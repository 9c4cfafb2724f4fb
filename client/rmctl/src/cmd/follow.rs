//! `rmctl logs --follow`: each log is one open stream from its node, through the resource manager.
//!
//! There is no polling. The nodes send new bytes as they are written. The resource manager reports
//! changes of the job, so that logs of new tasks are opened. A broken stream is reopened at its
//! position.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_client::{Client, ClientError};
use headroom_types::{AppId, ExitCharge, TaskId};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::TaskRow;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::log_source::{LogSource, WINDOW, ended, print, sources};
use crate::args::LogsArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};
use crate::render::logs as text;
use crate::target::TargetPart;

/// Longest wait of a long poll without changes.
const LONGEST: Duration = Duration::from_secs(30);
/// Shortest interval between the first two polls of a job that changes all the time. It doubles up
/// to [`PACE`].
const FIRST_PACE: Duration = Duration::from_millis(5);
/// Longest of these intervals.
const PACE: Duration = Duration::from_millis(250);
/// Wait before a broken stream is reopened.
const AGAIN: Duration = Duration::from_secs(1);
/// Capacity of the queue of pieces to print.
const PIECES: usize = 64;

/// Some bytes of a log.
type LogChunk = (LogSource, Vec<u8>);

/// How reading a log ended.
enum LogReadEnd {
    /// All of the log was sent.
    Over,
    /// The log does not exist, or not yet.
    Missing(LogSource),
}

/// Prints logs until all of them have ended, or until Ctrl-C. `end` becomes true if the caller learns
/// of the end of the job.
pub(super) async fn run(
    context: &CommandContext,
    client: &Client,
    id: &AppId,
    part: &TargetPart,
    args: &LogsArgs,
    end: watch::Receiver<bool>,
) -> CommandResult {
    let (sender, mut receiver) = mpsc::channel::<LogChunk>(PIECES);
    let over = watch::Sender::new(false);
    let (mut streams, mut known) = (JoinSet::new(), BTreeSet::new());
    let mut printer = LogLinePrinter {
        context,
        stderr: args.stderr,
        halves: BTreeMap::new(),
    };
    let mut handovers = Handovers::default();
    let mut pace = FIRST_PACE;
    let look_after = |index, pause| {
        Box::pin(changed(
            client.clone(),
            id.clone(),
            index,
            pause,
            end.clone(),
        ))
    };
    let mut look = look_after(0, Duration::ZERO);
    loop {
        tokio::select! {
            looked = &mut look => {
                let (app, index) = looked?;
                for line in handovers.news(&app, part).into_iter().filter(|_| !args.no_prefix) {
                    context.term.say(&line);
                }
                for source in sources(client, &app, part, args).await? {
                    if known.insert(source.clone()) {
                        streams.spawn(follow(client.clone(), source, args.tail, sender.clone(), over.subscribe()));
                    }
                }
                if ended(&app, part) {
                    break;
                }
                look = look_after(index, pace);
                pace = PACE.min(pace * 2);
            }
            Some(piece) = receiver.recv() => printer.take(piece),
            Some(end) = streams.join_next() => match (end, part) {
                // The next change of the job looks for this log again.
                (Ok(LogReadEnd::Missing(source)), _) => drop(known.remove(&source)),
                (Ok(LogReadEnd::Over) | Err(_), TargetPart::Container(_)) => break,
                (Ok(LogReadEnd::Over) | Err(_), TargetPart::Whole | TargetPart::Task(_) | TargetPart::Attempt(_) | TargetPart::Several(_)) => {}
            },
            _ = tokio::signal::ctrl_c() => return Ok(CommandExitCode::Ok),
        }
    }
    // Bytes that were written just before the end may still be on their way.
    drop((sender, over.send_replace(true)));
    while let Some(piece) = receiver.recv().await {
        printer.take(piece);
    }
    printer.finish();
    Ok(CommandExitCode::Ok)
}

/// Detects attempts that replaced other attempts of their task.
#[derive(Debug, Default)]
struct Handovers {
    /// The latest attempt of each task.
    latest: BTreeMap<TaskId, u32>,
    has_view: bool,
}

impl Handovers {
    /// A line for each task whose attempt has changed since the last view. The first view reports
    /// nothing.
    fn news(&mut self, app: &AppView, part: &TargetPart) -> Vec<String> {
        let mut lines = Vec::new();
        let rows = app.job.as_ref().map_or(&[][..], |job| &job.tasks);
        let wanted = |row: &&TaskRow| match part {
            TargetPart::Several(several) => several.has(&row.task, rows),
            TargetPart::Whole
            | TargetPart::Task(_)
            | TargetPart::Attempt(_)
            | TargetPart::Container(_) => part.task().is_none_or(|task| *task == row.task),
        };
        for row in rows.iter().filter(wanted) {
            let [.., before, now] = row.attempts.as_slice() else {
                continue;
            };
            let number = now.attempt.attempt;
            let known = self.latest.insert(row.task.clone(), number);
            if self.has_view && known.is_none_or(|known| known < number) {
                let how = match before.reason {
                    Some(reason) if reason.charge() == ExitCharge::Memory => {
                        format!("out of memory at {}", before.profile.memory())
                    }
                    Some(reason) => reason.sentence(),
                    None => "lost".to_owned(),
                };
                lines.push(format!(
                    "── {} ended: {how}; continuing with @{number} ──",
                    before.attempt
                ));
            }
        }
        self.has_view = true;
        lines
    }
}

/// Returns the job when its index differs from `index`, after a pause. Pause and wait are over as soon
/// as the job is known to have ended.
async fn changed(
    client: Client,
    id: AppId,
    mut index: u64,
    pause: Duration,
    mut end: watch::Receiver<bool>,
) -> Result<(AppView, u64), ClientError> {
    let is_first = index == 0;
    if *end.borrow() {
        // The end was known before, and the job did not show it yet.
        tokio::time::sleep(FIRST_PACE).await;
        index = 0;
    } else if timeout(pause, known(&mut end)).await.is_ok() {
        index = 0;
    }
    loop {
        let path = format!("/v1/apps/{id}");
        let answer = tokio::select! {
            answer = client.get_after(&path, index, LONGEST) => answer,
            () = known(&mut end), if index > 0 => {
                index = 0;
                continue;
            }
        };
        match answer {
            // The resource manager may be restarting, or another one may take over.
            Err(error) if !is_first && error.lacks_leader() => tokio::time::sleep(AGAIN).await,
            answer => return answer,
        }
    }
}

/// Waits until the job is known to have ended.
async fn known(end: &mut watch::Receiver<bool>) {
    if end.wait_for(|end| *end).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Sends one log, beginning with its last lines.
async fn follow(
    client: Client,
    source: LogSource,
    tail: Option<usize>,
    sender: mpsc::Sender<LogChunk>,
    over: watch::Receiver<bool>,
) -> LogReadEnd {
    let Ok((text, mut position)) = client
        .log_end(&source.container, &source.file, WINDOW)
        .await
    else {
        return LogReadEnd::Missing(source);
    };
    if sender
        .send((source.clone(), text::tail(&text, tail).as_bytes().to_vec()))
        .await
        .is_err()
    {
        return LogReadEnd::Over;
    }
    loop {
        let mut cancelled = over.clone();
        let ended = tokio::select! {
            ended = pieces(&client, &source, &mut position, &sender) => ended,
            _ = cancelled.wait_for(|over| *over) => LogStreamEnd::Cancelled,
        };
        match ended {
            LogStreamEnd::ByItself => return LogReadEnd::Over,
            LogStreamEnd::Cancelled => {
                // The cancelled stream may have dropped a piece; the position says where to
                // continue.
                let rest = client
                    .log_after(&source.container, &source.file, position)
                    .await
                    .unwrap_or_default();
                sender.send((source, rest)).await.ok();
                return LogReadEnd::Over;
            }
            LogStreamEnd::BrokenOff => {
                // The end of all logs ends this wait.
                let _ = timeout(AGAIN, cancelled.wait_for(|over| *over)).await;
            }
        }
    }
}

/// How one stream ended.
enum LogStreamEnd {
    /// The container has ended.
    ByItself,
    /// The stream broke.
    BrokenOff,
    /// The caller has cancelled it.
    Cancelled,
}

async fn pieces(
    client: &Client,
    source: &LogSource,
    position: &mut u64,
    sender: &mpsc::Sender<LogChunk>,
) -> LogStreamEnd {
    let Ok(mut log) = client
        .follow_log(&source.container, &source.file, *position)
        .await
    else {
        return LogStreamEnd::BrokenOff;
    };
    loop {
        match log.next().await {
            Some(Ok(bytes)) => {
                // Reserve a place first, because a piece that counts as read must not be lost.
                let Ok(room) = sender.reserve().await else {
                    return LogStreamEnd::ByItself;
                };
                *position = log.position();
                room.send((source.clone(), bytes.to_vec()));
            }
            Some(Err(_)) => return LogStreamEnd::BrokenOff,
            None => return LogStreamEnd::ByItself,
        }
    }
}

/// Prints whole lines and keeps an incomplete line until its end arrives.
struct LogLinePrinter<'a> {
    context: &'a CommandContext,
    stderr: bool,
    halves: BTreeMap<LogSource, Vec<u8>>,
}

impl LogLinePrinter<'_> {
    fn take(&mut self, (source, bytes): LogChunk) {
        let half = self.halves.entry(source.clone()).or_default();
        half.extend_from_slice(&bytes);
        if let Some(end) = half.iter().rposition(|byte| *byte == b'\n') {
            let lines: Vec<u8> = half.drain(..=end).collect();
            print(
                self.context,
                &source,
                &String::from_utf8_lossy(&lines),
                self.stderr,
            );
        }
    }

    fn finish(self) {
        for (source, half) in self.halves.iter().filter(|(_, half)| !half.is_empty()) {
            print(
                self.context,
                source,
                &String::from_utf8_lossy(half),
                self.stderr,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_following_attempt_is_reported_once() {
        let (mut handovers, mut app) = (Handovers::default(), fixture::app());
        assert!(
            handovers.news(&app, &TargetPart::Whole).is_empty(),
            "the state has not changed"
        );
        let rows = &mut app.job.as_mut().expect("job").tasks;
        let row = rows
            .iter_mut()
            .find(|row| row.task.index == 7)
            .expect("map/7");
        let mut next = row.attempts[2].clone();
        next.attempt = "map/7@4".parse().expect("id");
        row.attempts[2].reason = Some(headroom_types::ExitReason::OverheadOom);
        row.attempts.push(next);
        assert!(
            handovers
                .news(&app, &TargetPart::Task("map/4".parse().expect("id")))
                .is_empty(),
            "another task"
        );
        let several =
            |text: &str| TargetPart::Several(crate::selector::parse(text).expect("a selector"));
        assert!(
            handovers.news(&app, &several("map/2-4,9")).is_empty(),
            "none of these follows another attempt"
        );
        let lines = handovers.news(&app, &TargetPart::Whole);
        assert_eq!(
            lines,
            ["── map/7@3 ended: out of memory at 8.8 GiB; continuing with @4 ──"]
        );
        assert!(handovers.news(&app, &TargetPart::Whole).is_empty());
    }
}
