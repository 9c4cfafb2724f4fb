//! `/v1/stream`: one line for all that a page shows, of as many topics as it has on its screen.
//!
//! At first all of a topic, then only what changed, gathered for a moment so that a busy cluster does not flood its readers. Each
//! reader is asked for no more than it takes: what it is told next is made when it is ready for it, and one that takes nothing
//! for a while loses its place.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream::unfold;
use headroom_identity::{Need, Principal, Why};
use headroom_types::AppId;
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::job::JobView;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::describe::{Bad, TooMany};
use super::error::Failure;
use super::parse::Params;
use super::sight::Sight;
use super::stream::{ALIVE_EVERY, Format, alive, endless, last_seen, numbered};
use super::{Web, limits};
use crate::eventlog;
use crate::live::lists::{Piece, Sort};
use crate::live::log::{Filter, Reading};
use crate::live::{Board, Told, Topic, job, lists, nodes, overview, patch};

/// Topics of one stream.
const TOPICS: usize = 8;
/// Messages that wait for a reader.
const AHEAD: usize = 2;
/// A reader that takes nothing for so long is let go.
const PATIENCE: Duration = Duration::from_secs(20);
/// Changes that come within this time are told together.
const TOGETHER: Duration = Duration::from_millis(50);
/// After a question that the loop did not get to.
const AGAIN: Duration = Duration::from_secs(1);

/// Parameters of the call.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Up to 8, with commas between them: `overview`, `nodes`, `node:NODE`, `queues`, `jobs`, `job:JOB`, `task:JOB/STAGE/INDEX`,
    /// `container:ID`, `events`, `families`, `profiles`, `audit`. With `app` alone: that application and its events.
    topics: Option<String>,
    /// Of `nodes`, `jobs` and `audit`: so many rows go before the piece of 50 that is shown.
    #[serde(default)]
    from: usize,
    /// The order of `nodes`.
    #[serde(default)]
    #[param(inline)]
    sort: Sort,
    /// Of `nodes`, `jobs`, `events` and `audit`: only those that have this text somewhere.
    find: Option<String>,
    /// Of `events`: only those of this level.
    #[param(inline)]
    level: Option<EventLevel>,
    /// Of `events`: only those of this application.
    app: Option<AppId>,
    /// Of `events`: only what came after this number; `Last-Event-ID` goes before it.
    cursor: Option<u64>,
}

/// One topic of a reader.
struct Followed {
    topic: Topic,
    name: String,
    /// What the reader has.
    shown: Option<Arc<Board>>,
    missing: bool,
    /// Something has changed since it was looked at.
    stale: bool,
    /// It is looked at then at the earliest.
    due: Instant,
    /// Rows of a job that is over.
    over: Option<Arc<JobView>>,
}

/// A reader.
struct Follower {
    web: Web,
    format: Format,
    piece: Piece,
    topics: Vec<Followed>,
    reading: Option<Reading>,
    /// Topics that the reader may not see; told once.
    refused: Vec<Told>,
}

/// Follows topics: all parts of each at first, then those that change. One line of JSON each, or server-sent events.
///
/// Every message has the number of the latest event; sent back as `Last-Event-ID`, the topic `events` goes on from there. The
/// other topics begin anew with a snapshot. Readers that take nothing for 20 s are let go.
#[utoipa::path(get, path = "/v1/stream", tag = "cluster", params(
    Wanted,
    ("Accept" = Option<String>, Header, description = "`text/event-stream` for server-sent events."),
    ("Last-Event-ID" = Option<u64>, Header, description = "The last number that was seen."),
), responses(
    (status = 200, content((Told = "application/x-ndjson"), (Told = "text/event-stream"))), Bad, TooMany,
))]
pub(crate) async fn stream(
    State(web): State<Web>,
    Extension(principal): Extension<Principal>,
    Params(wanted): Params<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let format = Format::wanted(&headers);
    let seat = limits::place(&web.streams)?;
    let follower = Follower::new(web, &principal, wanted, (format, last_seen(&headers)))?;
    let (out, chunks) = mpsc::channel(AHEAD);
    // Ends with its reader, and when the resource manager does.
    tokio::spawn(async move {
        let _seat = seat;
        follower.run(out).await;
    });
    Ok(endless(format, unfold(chunks, |mut chunks| async { Some((chunks.recv().await?, chunks)) })))
}

/// As the guard judges a call, by the view that there is: an application that it does not know is nobody's to see here.
fn may(web: &Web, who: &Principal, need: &Need) -> Result<(), Why> {
    match (need, Sight::of(web, who)) {
        (Need::See(app), Some(sight)) if !sight.sees_id(app) => {
            Err(Why::Forbidden { who: who.who().unwrap_or_default(), needs: need.words() })
        }
        (need, _) => who.may(need, |_| None),
    }
}

impl Follower {
    fn new(web: Web, who: &Principal, wanted: Wanted, (format, seen): (Format, Option<u64>)) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::new(Code::HR0400, format!("the parameters: {detail}"));
        let of_app = || wanted.app.as_ref().map(|app| format!("job:{app},events"));
        let Some(topics) = wanted.topics.clone().or_else(of_app) else {
            let problem = Problem::new(Code::HR0400, "the parameters: neither topics nor app is given");
            return Err(problem.hint("write topics=overview,events, or app=JOB for one application and its events"));
        };
        let names: Vec<&str> = topics.split(',').map(str::trim).collect();
        if names.len() > TOPICS {
            return Err(bad(format!("{} topics are more than the {TOPICS} of one stream", names.len())));
        }
        let find = wanted.find.map(|f| f.trim().to_lowercase()).filter(|f| !f.is_empty());
        let (mut topics, mut refused, mut reading, now) = (Vec::new(), Vec::new(), None, Instant::now());
        for name in names {
            let topic: Topic = name.parse().map_err(bad)?;
            if let Err(why) = may(&web, who, &topic.need()) {
                refused.push(Told::Refused { topic: name.to_owned(), detail: why.to_string() });
                continue;
            }
            if topic == Topic::Events {
                let log = eventlog::Filter { app: wanted.app.clone(), level: wanted.level, ..eventlog::Filter::default() };
                reading = Some(Reading::new(Filter { log, find: find.clone() }, seen.or(wanted.cursor)));
                continue;
            }
            let name = name.to_owned();
            topics.push(Followed { topic, name, shown: None, missing: false, stale: true, due: now, over: None });
        }
        let piece = Piece { from: wanted.from, sort: wanted.sort, find };
        Ok(Follower { web, format, piece, topics, reading, refused })
    }

    /// Looks, tells, and waits until something has changed; for as long as there is a reader.
    async fn run(mut self, out: mpsc::Sender<Bytes>) {
        let (mut batches, mut logged) = (self.web.handle.batches(), self.web.shared.events.watch());
        let mut changes = self.web.audit.watch();
        let closing = self.web.closing.clone();
        let mut said = Instant::now();
        loop {
            let mut chunk = self.look().await;
            if chunk.is_empty() && said.elapsed() >= ALIVE_EVERY {
                chunk = alive(self.format).to_vec();
            }
            if !chunk.is_empty() {
                said = Instant::now();
                if out.send_timeout(Bytes::from(chunk), PATIENCE).await.is_err() {
                    return;
                }
            }
            let until = self.next().min(said + ALIVE_EVERY);
            let together = Instant::now() + TOGETHER;
            tokio::select! {
                () = closing.cancelled() => return,
                () = out.closed() => return,
                news = batches.changed() => if news.is_err() { return } else { self.outdate(|topic| *topic != Topic::Audit) },
                news = changes.changed() => if news.is_err() { return } else { self.outdate(|topic| *topic == Topic::Audit) },
                news = logged.changed() => if news.is_err() { return },
                () = tokio::time::sleep_until(until) => continue,
            }
            tokio::time::sleep_until(together).await;
        }
    }

    /// These have to be looked at again.
    fn outdate(&mut self, which: impl Fn(&Topic) -> bool) {
        self.topics.iter_mut().filter(|t| which(&t.topic)).for_each(|t| t.stale = true);
    }

    /// When a topic that has changed may be looked at again.
    fn next(&self) -> Instant {
        let far = Instant::now() + ALIVE_EVERY;
        self.topics.iter().filter(|t| t.stale).map(|t| t.due).min().unwrap_or(far)
    }

    /// All that is to be told now.
    async fn look(&mut self) -> Vec<u8> {
        let mut told = std::mem::take(&mut self.refused);
        told.extend(self.reading.as_mut().map(|r| r.look(&self.web.shared.events)).unwrap_or_default());
        let now = Instant::now();
        for followed in self.topics.iter_mut().filter(|t| t.stale && t.due <= now) {
            followed.stale = false;
            match make(&self.web, followed, &self.piece).await {
                Ok(board) => {
                    // What takes long to make is made less often.
                    followed.due = Instant::now() + followed.topic.every().max(now.elapsed() * 5);
                    told.extend(followed.tell(board));
                }
                Err(_busy) => (followed.stale, followed.due) = (true, Instant::now() + AGAIN),
            }
        }
        let last = *self.web.shared.events.watch().borrow();
        let mut out = Vec::new();
        told.iter().for_each(|told| numbered(&mut out, self.format, last, told.word(), told));
        out
    }
}

impl Followed {
    fn tell(&mut self, board: Option<Arc<Board>>) -> Option<Told> {
        let topic = self.name.clone();
        let Some(board) = board else {
            let told = (!self.missing).then(|| Told::Missing { detail: format!("there is no {topic}"), topic });
            (self.missing, self.shown) = (true, None);
            return told;
        };
        self.missing = false;
        match self.shown.replace(board.clone()) {
            None => Some(Told::Snapshot { topic, set: board }),
            Some(before) => patch(&topic, &before, &board),
        }
    }
}

/// The board of a topic now; `None` when there is no such thing.
async fn make(web: &Web, followed: &mut Followed, piece: &Piece) -> Result<Option<Arc<Board>>, Problem> {
    let board = match &followed.topic {
        Topic::Overview => return web.boards.overview(overview::board(web)).await.map(Some),
        Topic::Nodes => Some(lists::nodes(web, piece).await?),
        Topic::Node(id) => nodes::node(web, id).await?,
        Topic::Queues => Some(lists::queues(web).await?),
        Topic::Jobs => Some(lists::jobs(web, piece).await?),
        Topic::Job(id) => job::job(web, id, &mut followed.over).await?,
        Topic::Task(id, task) => job::task(web, id, task, &mut followed.over).await?,
        Topic::Container(id) => nodes::container(web, id).await?,
        Topic::Families => Some(lists::families(web)),
        Topic::Profiles => Some(lists::profiles(web)),
        Topic::Audit => Some(lists::audit(web, piece)),
        Topic::Events => None,
    };
    Ok(board.map(Arc::new))
}
