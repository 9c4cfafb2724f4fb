//! `/v1/stream`: one stream with all topics that a page shows.
//!
//! A topic starts with a snapshot, then only changes follow. Changes are collected for a moment, so
//! that a busy cluster does not flood its readers. A message is made only when its reader can
//! accept it, and a reader that accepts nothing for a while is disconnected.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream::unfold;
use headroom_identity::{AccessDenied, CallRequirement, Principal};
use headroom_types::AppId;
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::job::JobView;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::describe::{Bad, TooMany};
use super::error::HandlerResult;
use super::limits;
use super::parse::QueryParams;
use super::stream::{KEEP_ALIVE_INTERVAL, StreamEncoding, alive, endless, last_seen, numbered};
use super::visibility::AppVisibility;
use super::web::WebHandlerState;
use crate::eventlog;
use crate::topics::lists::{ListPage, NodeSortOrder};
use crate::topics::log::{EventTopicFilter, EventTopicReader};
use crate::topics::{StreamTopic, TopicMessage, TopicState, job, lists, nodes, overview, patch};

/// Limit on topics of one stream.
const TOPICS: usize = 8;
/// Messages that may be queued for a reader.
const AHEAD: usize = 2;
/// A reader that accepts nothing for this time is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for which changes are collected into one message.
const TOGETHER: Duration = Duration::from_millis(50);
/// Delay before a topic is retried after the main loop was too busy.
const AGAIN: Duration = Duration::from_secs(1);

/// Query parameters of the stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// Up to 8 topics, separated by commas: `overview`, `nodes`, `node:NODE`, `queues`, `jobs`,
    /// `job:JOB`, `task:JOB/STAGE/INDEX`, `container:ID`, `events`, `families`, `profiles`,
    /// `audit`. With `app` alone: that application and its events.
    topics: Option<String>,
    /// For `nodes`, `jobs` and `audit`: number of rows before the page of 50 that is shown.
    #[serde(default)]
    from: usize,
    /// For `nodes`: the sort order.
    #[serde(default)]
    #[param(inline)]
    sort: NodeSortOrder,
    /// For `nodes`, `jobs`, `events` and `audit`: only rows that contain this text.
    find: Option<String>,
    /// For `events`: only this level.
    #[param(inline)]
    level: Option<EventLevel>,
    /// For `events`: only this application.
    app: Option<AppId>,
    /// For `events`: only events after this number; the header `Last-Event-ID` overrides it.
    cursor: Option<u64>,
}

/// One topic of a reader.
struct FollowedTopic {
    topic: StreamTopic,
    name: String,
    /// The state that the reader has.
    shown: Option<Arc<TopicState>>,
    missing: bool,
    /// Something has changed since the topic was last read.
    stale: bool,
    /// Earliest time of the next read.
    due: Instant,
    /// Rows of a job that has ended.
    over: Option<Arc<JobView>>,
}

/// State of one stream.
struct TopicStreamState {
    web: WebHandlerState,
    format: StreamEncoding,
    piece: ListPage,
    topics: Vec<FollowedTopic>,
    reading: Option<EventTopicReader>,
    /// Topics that the reader may not see; reported once.
    refused: Vec<TopicMessage>,
}

/// Streams topics: a snapshot of each, then the changes, as lines of JSON or server-sent events.
///
/// Every message has the number of the latest event. If a client sends it back as `Last-Event-ID`,
/// the topic `events` continues from there. The other topics start with a new snapshot. A client
/// that reads nothing for 20 s is disconnected.
#[utoipa::path(get, path = "/v1/stream", tag = "cluster", params(
    StreamQuery,
    ("Accept" = Option<String>, Header, description = "`text/event-stream` for server-sent events."),
    ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that the caller received."),
), responses(
    (status = 200, content((TopicMessage = "application/x-ndjson"), (TopicMessage = "text/event-stream"))), Bad, TooMany,
))]
pub(crate) async fn stream(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(wanted): QueryParams<StreamQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let format = StreamEncoding::wanted(&headers);
    let seat = limits::place(&web.streams)?;
    let follower = TopicStreamState::new(web, &principal, wanted, (format, last_seen(&headers)))?;
    let (out, chunks) = mpsc::channel(AHEAD);
    // The task ends with its reader, or with the resource manager.
    tokio::spawn(async move {
        let _seat = seat;
        follower.web.reader.shared.events.restored().await;
        follower.run(out).await;
    });
    Ok(endless(
        format,
        unfold(chunks, |mut chunks| async {
            Some((chunks.recv().await?, chunks))
        }),
    ))
}

/// Authorizes a topic like the guard authorizes a call, but with the current view: an application
/// that the view lacks is hidden.
fn may(web: &WebHandlerState, who: &Principal, need: &CallRequirement) -> Result<(), AccessDenied> {
    match (need, AppVisibility::of(&web.reader, who)) {
        (CallRequirement::See(app), Some(sight)) if !sight.sees_id(app) => {
            Err(AccessDenied::Forbidden {
                who: who.audit_name().unwrap_or_default(),
                needs: need.words(),
            })
        }
        (need, _) => who.authorize(need, |_| None),
    }
}

impl TopicStreamState {
    fn new(
        web: WebHandlerState,
        who: &Principal,
        wanted: StreamQuery,
        (format, seen): (StreamEncoding, Option<u64>),
    ) -> ProblemResult<Self> {
        let bad = |detail: String| ProblemDetails::bad_request(format!("the parameters: {detail}"));
        let of_app = || wanted.app.as_ref().map(|app| format!("job:{app},events"));
        let Some(topics) = wanted.topics.clone().or_else(of_app) else {
            let problem =
                ProblemDetails::bad_request("the parameters: neither topics nor app is given");
            return Err(problem.hint(
                "write topics=overview,events, or app=JOB for one application and its events",
            ));
        };
        let names: Vec<&str> = topics.split(',').map(str::trim).collect();
        if names.len() > TOPICS {
            return Err(bad(format!(
                "{} topics are named; a stream has at most {TOPICS}",
                names.len()
            )));
        }
        let find = wanted
            .find
            .map(|f| f.trim().to_lowercase())
            .filter(|f| !f.is_empty());
        let (mut topics, mut refused, mut reading, now) =
            (Vec::new(), Vec::new(), None, Instant::now());
        for name in names {
            let topic: StreamTopic = name.parse().map_err(bad)?;
            if let Err(why) = may(&web, who, &topic.need()) {
                refused.push(TopicMessage::Refused {
                    topic: name.to_owned(),
                    detail: why.to_string(),
                });
                continue;
            }
            if topic == StreamTopic::Events {
                let log = eventlog::EventFilter {
                    app: wanted.app.clone(),
                    level: wanted.level,
                    ..eventlog::EventFilter::default()
                };
                reading = Some(EventTopicReader::new(
                    EventTopicFilter {
                        log,
                        find: find.clone(),
                    },
                    seen.or(wanted.cursor),
                ));
                continue;
            }
            let name = name.to_owned();
            topics.push(FollowedTopic {
                topic,
                name,
                shown: None,
                missing: false,
                stale: true,
                due: now,
                over: None,
            });
        }
        let piece = ListPage {
            from: wanted.from,
            sort: wanted.sort,
            find,
        };
        Ok(TopicStreamState {
            web,
            format,
            piece,
            topics,
            reading,
            refused,
        })
    }

    /// Reads the topics, sends the changes, and waits for the next change, until the reader ends.
    async fn run(mut self, out: mpsc::Sender<Bytes>) {
        let (mut batches, mut logged) = (
            self.web.reader.handle.batches(),
            self.web.reader.shared.events.watch(),
        );
        let mut changes = self.web.audit.watch();
        let closing = self.web.closing.clone();
        let mut said = Instant::now();
        loop {
            let mut chunk = self.look().await;
            if chunk.is_empty() && said.elapsed() >= KEEP_ALIVE_INTERVAL {
                chunk = alive(self.format).to_vec();
            }
            if !chunk.is_empty() {
                said = Instant::now();
                if out
                    .send_timeout(Bytes::from(chunk), WRITE_TIMEOUT)
                    .await
                    .is_err()
                {
                    return;
                }
            }
            let until = self.next().min(said + KEEP_ALIVE_INTERVAL);
            let together = Instant::now() + TOGETHER;
            tokio::select! {
                () = closing.cancelled() => return,
                () = out.closed() => return,
                news = batches.changed() => if news.is_err() { return } else { self.outdate(|topic| *topic != StreamTopic::Audit) },
                news = changes.changed() => if news.is_err() { return } else { self.outdate(|topic| *topic == StreamTopic::Audit) },
                news = logged.changed() => if news.is_err() { return },
                () = tokio::time::sleep_until(until) => continue,
            }
            tokio::time::sleep_until(together).await;
        }
    }

    /// Marks topics as changed.
    fn outdate(&mut self, which: impl Fn(&StreamTopic) -> bool) {
        self.topics
            .iter_mut()
            .filter(|t| which(&t.topic))
            .for_each(|t| t.stale = true);
    }

    /// Earliest time at which a changed topic may be read again.
    fn next(&self) -> Instant {
        let far = Instant::now() + KEEP_ALIVE_INTERVAL;
        self.topics
            .iter()
            .filter(|t| t.stale)
            .map(|t| t.due)
            .min()
            .unwrap_or(far)
    }

    /// Messages that are due now.
    async fn look(&mut self) -> Vec<u8> {
        let mut messages = std::mem::take(&mut self.refused);
        messages.extend(
            self.reading
                .as_mut()
                .map(|r| r.look(&self.web.reader.shared.events))
                .unwrap_or_default(),
        );
        let now = Instant::now();
        for followed in self.topics.iter_mut().filter(|t| t.stale && t.due <= now) {
            followed.stale = false;
            match make(&self.web, followed, &self.piece).await {
                Ok(board) => {
                    // A topic that takes long to make is made less often.
                    followed.due = Instant::now() + followed.topic.every().max(now.elapsed() * 5);
                    messages.extend(followed.message_for(board));
                }
                Err(_busy) => (followed.stale, followed.due) = (true, Instant::now() + AGAIN),
            }
        }
        let last = *self.web.reader.shared.events.watch().borrow();
        let mut out = Vec::new();
        messages
            .iter()
            .for_each(|message| numbered(&mut out, self.format, last, message.word(), message));
        out
    }
}

impl FollowedTopic {
    fn message_for(&mut self, board: Option<Arc<TopicState>>) -> Option<TopicMessage> {
        let topic = self.name.clone();
        let Some(board) = board else {
            let missing = (!self.missing).then(|| TopicMessage::Missing {
                detail: format!("there is no {topic}"),
                topic,
            });
            (self.missing, self.shown) = (true, None);
            return missing;
        };
        self.missing = false;
        match self.shown.replace(board.clone()) {
            None => Some(TopicMessage::Snapshot { topic, set: board }),
            Some(before) => patch(&topic, &before, &board),
        }
    }
}

/// Current state of a topic; `None` if its object does not exist.
async fn make(
    web: &WebHandlerState,
    followed: &mut FollowedTopic,
    piece: &ListPage,
) -> ProblemResult<Option<Arc<TopicState>>> {
    let reader = &web.reader;
    let board = match &followed.topic {
        StreamTopic::Overview => {
            return web.boards.overview(overview::board(reader)).await.map(Some);
        }
        StreamTopic::Nodes => Some(lists::nodes(reader, piece).await?),
        StreamTopic::Node(id) => nodes::node(reader, id).await?,
        StreamTopic::Queues => Some(lists::queues(reader).await?),
        StreamTopic::Jobs => Some(lists::jobs(reader, piece).await?),
        StreamTopic::Job(id) => job::job(reader, id, &mut followed.over).await?,
        StreamTopic::Task(id, task) => job::task(reader, id, task, &mut followed.over).await?,
        StreamTopic::Container(id) => nodes::container(reader, id).await?,
        StreamTopic::Families => Some(lists::families(reader)),
        StreamTopic::Profiles => Some(lists::profiles(reader)),
        StreamTopic::Audit => Some(lists::audit(&web.audit, piece)),
        StreamTopic::Events => None,
    };
    Ok(board.map(Arc::new))
}
