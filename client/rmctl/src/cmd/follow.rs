//! `rmctl logs --follow`: each log is one open stream from its node, through the resource manager.
//!
//! The nodes send new bytes as they are written. A broken stream is reopened at its position. The
//! counts of the job are read four times per second. If they have changed, its tasks are read, and
//! logs of new tasks are opened, after a short delay. `rmctl run` reads the job itself, once for both
//! outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headroom_client::{Client, ClientError, TaskRowScope};
use headroom_types::{AppId, ContainerId, ExitCharge, TaskId};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::job::{JobTotals, TaskRow};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::log_source::{LogSource, WINDOW, ended, print, sources};
use crate::args::LogsArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};
use crate::interrupt::Interrupt;
use crate::render::logs as text;
use crate::target::TargetPart;

/// Interval between the first two looks at a job. It doubles up to [`PACE`].
const FIRST_PACE: Duration = Duration::from_millis(5);
/// Longest interval between two looks.
const PACE: Duration = Duration::from_millis(250);
/// Wait before a broken stream is reopened.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for which a task may run before its log is opened. A task without output that ends within
/// this time needs no read.
const OPENING_DELAY: Duration = Duration::from_millis(10);
/// Capacity of the queue of pieces to print.
const PIECES: usize = 64;

/// Some bytes of a log.
pub(super) type LogChunk = (LogSource, Vec<u8>);

/// How reading a log ended.
enum LogReadEnd {
    /// All of the log was sent.
    Over,
    /// The log does not exist, or not yet.
    Missing(LogSource),
    /// The end of the log could not be read.
    CutOff(LogSource, ClientError),
}

/// Prints logs until all of them have ended, or until Ctrl-C.
pub(super) async fn run(
    context: &CommandContext,
    client: &Client,
    part: &TargetPart,
    args: &LogsArgs,
    job: FollowedJob,
) -> CommandResult {
    let (sender, mut receiver) = mpsc::channel::<LogChunk>(PIECES);
    let over = watch::Sender::new(false);
    let (mut streams, mut known) = (JoinSet::new(), BTreeSet::new());
    let mut delayed: BTreeMap<LogSource, Instant> = BTreeMap::new();
    let log = |source, may_appear| FollowedLog {
        client: client.clone(),
        source,
        may_appear,
        sender: sender.clone(),
        over: over.subscribe(),
    };
    let mut printer = LogLinePrinter::new(context, args.stderr);
    let mut handovers = Handovers::default();
    let mut look = Box::pin(job.next());
    let interrupt = Interrupt::ctrl_c()?;
    loop {
        tokio::select! {
            looked = &mut look => {
                let Some((JobSight { app, is_over }, job)) = looked? else { break };
                for line in handovers.news(&app, part).into_iter().filter(|_| !args.no_prefix) {
                    context.term.say(&line);
                }
                let is_over = is_over || ended(&app, part);
                let (running, mut before) = (running(&app), std::mem::take(&mut delayed));
                let new = sources(client, &app, part, args).await?.into_iter();
                for source in new.filter(|source| !known.contains(source)).collect::<Vec<_>>() {
                    let may_appear = running.contains(&source.container);
                    if may_appear && !is_over {
                        let at = before.remove(&source);
                        delayed.insert(source, at.unwrap_or_else(|| Instant::now() + OPENING_DELAY));
                    } else {
                        known.insert(source.clone());
                        streams.spawn(log(source, may_appear).follow(args.tail));
                    }
                }
                if is_over {
                    break;
                }
                look = Box::pin(job.next());
            }
            source = next_delayed(&mut delayed) => {
                known.insert(source.clone());
                streams.spawn(log(source, true).follow(args.tail));
            }
            Some(piece) = receiver.recv() => printer.take(piece),
            Some(end) = streams.join_next() => match (end, part) {
                // The next change of the job looks for this log again.
                (Ok(LogReadEnd::Missing(source)), _) => drop(known.remove(&source)),
                (Ok(LogReadEnd::Over | LogReadEnd::CutOff(..)) | Err(_), TargetPart::Container(_)) => break,
                (Ok(LogReadEnd::Over | LogReadEnd::CutOff(..)) | Err(_), TargetPart::Whole | TargetPart::Task(_) | TargetPart::Attempt(_) | TargetPart::Several(_)) => {}
            },
            () = interrupt.asked() => return Ok(CommandExitCode::Ok),
        }
    }
    for source in delayed.into_keys() {
        streams.spawn(log(source, true).follow(args.tail));
    }
    // Bytes that were written just before the end may still be on their way.
    drop((sender, over.send_replace(true)));
    loop {
        tokio::select! {
            piece = receiver.recv() => match piece {
                Some(piece) => printer.take(piece),
                None => break,
            },
            () = interrupt.asked() => return Ok(CommandExitCode::Ok),
        }
    }
    printer.finish();
    while let Some(end) = streams.join_next().await {
        if let Ok(LogReadEnd::CutOff(source, error)) = end {
            let LogSource {
                container, file, ..
            } = source;
            context.term.say(&format!(
                "the end of the log {file} of {container} is missing: {error}"
            ));
        }
    }
    Ok(CommandExitCode::Ok)
}

/// Waits until the delay of a log has passed, and takes that log.
async fn next_delayed(delayed: &mut BTreeMap<LogSource, Instant>) -> LogSource {
    let Some((source, at)) = delayed.iter().min_by_key(|(_, at)| **at) else {
        return std::future::pending().await;
    };
    let (source, at) = (source.clone(), *at);
    tokio::time::sleep_until(at).await;
    delayed.remove(&source);
    source
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

/// A job at one moment.
#[derive(Clone, Debug)]
pub(super) struct JobSight {
    pub(super) app: Arc<AppView>,
    /// No output follows.
    pub(super) is_over: bool,
}

/// Counts of a job at one moment.
#[derive(Clone, Debug, PartialEq)]
struct JobCounts {
    state: AppState,
    totals: Option<JobTotals>,
}

/// How a follower of logs learns that its job has changed.
pub(super) enum FollowedJob {
    /// It asks the resource manager.
    Asked(Box<JobPoll>),
    /// Another follower reads the job.
    Seen(watch::Receiver<Option<JobSight>>),
}

/// Repeated reads of a job.
pub(super) struct JobPoll {
    client: Client,
    id: AppId,
    /// Counts at the last change.
    before: Option<JobCounts>,
    pace: Duration,
}

impl FollowedJob {
    pub(super) fn new(client: &Client, id: &AppId) -> Self {
        FollowedJob::Asked(Box::new(JobPoll {
            client: client.clone(),
            id: id.clone(),
            before: None,
            pace: FIRST_PACE,
        }))
    }

    /// Returns the job as soon as it differs from the last one returned; `None` if the follower that
    /// reads it has ended.
    async fn next(self) -> Result<Option<(JobSight, FollowedJob)>, ClientError> {
        match self {
            FollowedJob::Asked(mut poll) => {
                let app = Arc::new(poll.next().await?);
                let is_over = false;
                Ok(Some((JobSight { app, is_over }, FollowedJob::Asked(poll))))
            }
            FollowedJob::Seen(mut sights) => loop {
                if sights.changed().await.is_err() {
                    return Ok(None);
                }
                let sight = sights.borrow_and_update().clone();
                if let Some(sight) = sight {
                    return Ok(Some((sight, FollowedJob::Seen(sights))));
                }
            },
        }
    }
}

impl JobPoll {
    /// Returns the job as soon as its counts differ from the last ones.
    async fn next(&mut self) -> Result<AppView, ClientError> {
        let JobPoll { client, id, .. } = self;
        let (is_first, mut pace) = (self.before.is_none(), self.pace);
        self.pace = PACE.min(self.pace * 2);
        loop {
            if !is_first {
                tokio::time::sleep(pace).await;
                pace = PACE.min(pace * 2);
            }
            let counts = match client.app_with(id, TaskRowScope::None).await {
                Ok(app) => Some(JobCounts {
                    state: app.state,
                    totals: app.job.map(|job| job.totals),
                }),
                // The resource manager may be restarting, or another one may take over.
                Err(error) if !is_first && error.lacks_leader() => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.before != counts {
                match client.app(id).await {
                    Err(error) if !is_first && error.lacks_leader() => {}
                    Err(error) => return Err(error),
                    Ok(app) => {
                        self.before = counts;
                        return Ok(app);
                    }
                }
            }
        }
    }
}

/// Containers that run a task.
fn running(app: &AppView) -> BTreeSet<ContainerId> {
    let rows = app.job.iter().flat_map(|job| &job.tasks);
    rows.flat_map(|row| &row.attempts)
        .filter(|attempt| attempt.ended.is_none())
        .map(|attempt| attempt.container.clone())
        .collect()
}

/// A log that is sent as it grows.
struct FollowedLog {
    client: Client,
    source: LogSource,
    /// Its container runs, so a missing log may appear.
    may_appear: bool,
    sender: mpsc::Sender<LogChunk>,
    over: watch::Receiver<bool>,
}

impl FollowedLog {
    /// Sends the whole log, or its last `tail` lines and all that follow.
    async fn follow(mut self, tail: Option<usize>) -> LogReadEnd {
        let mut position = 0;
        if let Some(tail) = tail {
            let LogSource {
                container, file, ..
            } = &self.source;
            let Ok((text, end)) = self.client.log_end(container, file, WINDOW).await else {
                return LogReadEnd::Missing(self.source);
            };
            position = end;
            let lines = text::tail(&text, Some(tail)).as_bytes().to_vec();
            if self
                .sender
                .send((self.source.clone(), lines))
                .await
                .is_err()
            {
                return LogReadEnd::Over;
            }
        }
        let mut retry = FIRST_PACE;
        loop {
            let mut over = self.over.clone();
            let ended = tokio::select! {
                biased;
                _ = over.wait_for(|over| *over) => LogStreamEnd::Cancelled,
                ended = self.pieces(&mut position) => ended,
            };
            let wait = match ended {
                LogStreamEnd::ByItself => return LogReadEnd::Over,
                LogStreamEnd::Cancelled => {
                    return match self.rest(position).await {
                        Err(error) if error.code() != Some(ErrorCode::HR0404) => {
                            LogReadEnd::CutOff(self.source, error)
                        }
                        Ok(()) | Err(_) => LogReadEnd::Over,
                    };
                }
                // A part was already sent, so the log is not opened again from its start.
                LogStreamEnd::Missing if position > 0 => AGAIN,
                LogStreamEnd::Missing if !self.may_appear || retry > AGAIN => {
                    return LogReadEnd::Missing(self.source);
                }
                LogStreamEnd::Missing => {
                    retry *= 2;
                    retry
                }
                LogStreamEnd::BrokenOff => AGAIN,
            };
            // The end of all logs ends this wait.
            let _ = timeout(wait, self.over.wait_for(|over| *over)).await;
        }
    }

    async fn pieces(&self, position: &mut u64) -> LogStreamEnd {
        let LogSource {
            container, file, ..
        } = &self.source;
        let mut log = match self.client.follow_log(container, file, *position).await {
            Ok(log) => log,
            Err(error) if error.code() == Some(ErrorCode::HR0404) => return LogStreamEnd::Missing,
            Err(_) => return LogStreamEnd::BrokenOff,
        };
        loop {
            match log.next().await {
                Some(Ok(bytes)) => {
                    // Reserve a place first, because a piece that counts as read must not be lost.
                    let Ok(room) = self.sender.reserve().await else {
                        return LogStreamEnd::ByItself;
                    };
                    *position = log.position();
                    room.send((self.source.clone(), bytes.to_vec()));
                }
                Some(Err(_)) => return LogStreamEnd::BrokenOff,
                None => return LogStreamEnd::ByItself,
            }
        }
    }

    /// Sends all from a position on. The cancelled stream may have dropped a piece; the position says
    /// where to continue.
    async fn rest(&self, mut position: u64) -> Result<(), ClientError> {
        let LogSource {
            container, file, ..
        } = &self.source;
        loop {
            let (bytes, next) = self.client.log_after(container, file, position).await?;
            let is_sent = self.sender.send((self.source.clone(), bytes)).await.is_ok();
            if next == position || !is_sent {
                return Ok(());
            }
            position = next;
        }
    }
}

/// How one stream ended.
enum LogStreamEnd {
    /// The container has ended.
    ByItself,
    /// There is no such log.
    Missing,
    /// The stream broke.
    BrokenOff,
    /// The caller has cancelled it.
    Cancelled,
}

/// Prints whole lines and keeps an incomplete line until its end arrives.
pub(super) struct LogLinePrinter<'a> {
    context: &'a CommandContext,
    stderr: bool,
    halves: BTreeMap<LogSource, Vec<u8>>,
}

impl<'a> LogLinePrinter<'a> {
    pub(super) fn new(context: &'a CommandContext, stderr: bool) -> Self {
        LogLinePrinter {
            context,
            stderr,
            halves: BTreeMap::new(),
        }
    }

    pub(super) fn take(&mut self, (source, bytes): LogChunk) {
        let half = self.halves.entry(source.clone()).or_default();
        half.extend_from_slice(&bytes);
        if let Some(end) = half.iter().rposition(|byte| *byte == b'\n') {
            let lines: Vec<u8> = half.drain(..=end).collect();
            print(self.context, &source, &lines, self.stderr);
        }
    }

    pub(super) fn finish(self) {
        for (source, half) in self.halves.iter().filter(|(_, half)| !half.is_empty()) {
            print(self.context, source, half, self.stderr);
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
