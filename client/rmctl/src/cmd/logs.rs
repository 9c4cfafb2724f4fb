//! `rmctl logs`: of a job (all its tasks), a task, an attempt, a container, or the job's master.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_client::{Client, ClientError};
use headroom_types::{AppId, ContainerId, TaskAttemptId};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::error::Code;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use crate::args::Logs;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::logs as text;
use crate::target::{self, Part};

/// Largest end of a log that is fetched at once. Bytes.
const WINDOW: u64 = 1 << 20;
/// How often a log that is followed is read.
const LOOK: Duration = Duration::from_millis(400);

/// One file to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    /// Printed before each line; empty when it is the only one.
    prefix: String,
    container: ContainerId,
    file: String,
}

/// Prints logs, and with `--follow` goes on until all of it has ended.
pub(crate) async fn run(context: &Context, args: Logs) -> Result<Exit, Failure> {
    let client = context.client()?;
    let (app, target) = context.app(&client, &args.target).await?;
    let mut reader = Reader { context, client: &client, stderr: args.stderr, seen: BTreeMap::new() };
    let sources = sources(&client, &app, &target.part, &args).await?;
    if sources.is_empty() && !args.follow {
        return Err(Failure::new(Exit::NotFound, format!("{} has started no task yet: there is no log", app.id))
            .help(format!("rmctl why {} · rmctl logs {} --master --stderr", app.id, app.id)));
    }
    let only = sources.len() == 1;
    let mut missing = None;
    for source in &sources {
        if let Err(e) = reader.read(source, args.tail, args.follow).await {
            if only && !args.follow {
                return Err(e);
            }
            missing = Some(e);
        }
    }
    if args.follow {
        return follow(&mut reader, &app.id, &target.part, &args).await;
    }
    match missing {
        Some(e) if reader.seen.is_empty() => Err(e),
        Some(_) | None => Ok(Exit::Ok),
    }
}

async fn follow(reader: &mut Reader<'_>, id: &AppId, part: &Part, args: &Logs) -> Result<Exit, Failure> {
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Ok),
        }
        // Looked at before reading, so that what was printed just before the end is not missed.
        let app = reader.client.app(id).await?;
        let over = ended(&app, part);
        for source in sources(reader.client, &app, part, args).await? {
            // A file that is not there yet will be looked for again.
            match reader.read(&source, None, !over).await {
                Ok(()) => {}
                Err(e) if matches!(e.exit(), Exit::NotFound | Exit::Unreachable) => {}
                Err(e) => return Err(e),
            }
        }
        if over {
            return Ok(Exit::Ok);
        }
    }
}

fn ended(app: &AppView, part: &Part) -> bool {
    let row = part.task().and_then(|id| target::task(app, id).ok());
    let done = match part {
        Part::Attempt(id) => row.and_then(|r| r.attempts.iter().find(|a| a.attempt == *id)).is_some_and(|a| a.ended.is_some()),
        Part::Task(_) => row.is_some_and(|r| {
            use headroom_wire::v1::job::TaskState::{Blocked, Done, Failed, Pending, Running};
            match r.state {
                Done | Failed => true,
                Blocked | Pending | Running => false,
            }
        }),
        Part::Whole | Part::Container(_) => false,
    };
    done || app.state.is_final()
}

/// Which files a target means.
async fn sources(client: &Client, app: &AppView, part: &Part, args: &Logs) -> Result<Vec<Source>, Failure> {
    let own = if args.stderr { "stderr" } else { "stdout" };
    let whole = |container: ContainerId| Source { prefix: String::new(), container, file: own.to_owned() };
    if args.master {
        let all = client.containers(Some(&app.id)).await?;
        let mut masters: Vec<ContainerId> = all.into_iter().filter(|c| c.request.is_none()).map(|c| c.id).collect();
        masters.sort();
        return match masters.pop() {
            Some(id) => Ok(vec![whole(id)]),
            None if app.managed => {
                Err(Failure::new(Exit::NotFound, format!("the master of {} has not been launched yet", app.id))
                    .help(format!("rmctl why {}", app.id)))
            }
            None => Err(Failure::new(Exit::NotFound, format!("the master of {} runs beside its user: its log is there", app.id))),
        };
    }
    match part {
        Part::Container(id) => Ok(vec![whole(id.clone())]),
        Part::Attempt(id) => Ok(vec![of_attempt(target::attempt(app, id)?.1, args.stderr, "")]),
        Part::Task(id) => {
            let row = target::task(app, id)?;
            Ok(row.attempts.last().map(|a| of_attempt(a, args.stderr, &prefix(args, &a.attempt))).into_iter().collect())
        }
        Part::Whole => {
            let rows: &[TaskRow] = app.job.as_ref().map_or(&[], |j| &j.tasks);
            let last = rows.iter().filter_map(|r| r.attempts.last());
            Ok(last.map(|a| of_attempt(a, args.stderr, &a.attempt.to_string())).collect())
        }
    }
}

/// A task that is followed may change its attempt: then each line says which.
fn prefix(args: &Logs, attempt: &TaskAttemptId) -> String {
    if args.follow { attempt.to_string() } else { String::new() }
}

fn of_attempt(a: &AttemptRow, stderr: bool, prefix: &str) -> Source {
    let end = if stderr { "err" } else { "out" };
    Source { prefix: prefix.to_owned(), container: a.container.clone(), file: format!("{}.{end}", a.attempt.file_name()) }
}

/// Reads files again and prints what is new.
struct Reader<'a> {
    context: &'a Context,
    client: &'a Client,
    stderr: bool,
    seen: BTreeMap<Source, String>,
}

impl Reader<'_> {
    async fn read(&mut self, source: &Source, tail: Option<usize>, growing: bool) -> Result<(), Failure> {
        let fetched = self.client.log(&source.container, &source.file, WINDOW).await.map_err(|e| gone(e, source))?;
        let now = if growing { text::whole_lines(&fetched) } else { &fetched };
        let before = self.seen.get(source).map_or("", String::as_str);
        let new = text::tail(text::new_part(before, now), tail);
        let paint = self.context.term.paint;
        if source.prefix.is_empty() {
            self.context.term.print(new);
        } else {
            self.context.term.print(&text::prefixed(&source.prefix, new, self.stderr, paint));
        }
        self.seen.insert(source.clone(), now.to_owned());
        Ok(())
    }
}

fn gone(e: ClientError, source: &Source) -> Failure {
    if e.code() == Some(Code::HR0404) {
        return Failure::new(Exit::NotFound, format!("there is no log {} of container {}", source.file, source.container))
            .help("logs are kept on the node for the last 200 containers that ended");
    }
    e.into()
}
