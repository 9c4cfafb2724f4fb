//! What a page follows: for each topic a board of named parts, of which only those are sent that have changed.
//!
//! Boards are made for readers, from the published view and a few bounded questions to the core. A board never grows with the
//! cluster: what is large is added up here, and looked into by another topic.

pub(crate) mod attention;
pub(crate) mod brief;
pub(crate) mod job;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod nodes;
pub(crate) mod overview;
pub(crate) mod stories;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use headroom_identity::{Need, Right};
use headroom_types::{AppId, ContainerId, NodeId, TaskId};
use headroom_wire::v1::events::Event;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa::ToSchema;

/// Named parts of one topic.
pub(crate) type Board = BTreeMap<String, Value>;

/// What adds up much is made at most so often, for all readers together.
const OVERVIEW_EVERY: Duration = Duration::from_millis(500);

/// What can be followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The cluster on one screen.
    Overview,
    /// A piece of the list of nodes.
    Nodes,
    /// One node with its containers.
    Node(NodeId),
    /// The queues, and what waits.
    Queues,
    /// A piece of the list of applications.
    Jobs,
    /// One application with its tasks, added up where they are many.
    Job(AppId),
    /// One task with all its attempts.
    Task(AppId, TaskId),
    /// One container.
    Container(ContainerId),
    /// What happened.
    Events,
    /// What jobs of one name have needed.
    Families,
    /// Profiles of the cluster.
    Profiles,
    /// A piece of the record of changes.
    Audit,
}

impl FromStr for Topic {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |e: &dyn std::fmt::Display| format!("the topic {text:?}: {e}");
        let plain = match text {
            "overview" => Some(Topic::Overview),
            "nodes" => Some(Topic::Nodes),
            "queues" => Some(Topic::Queues),
            "jobs" => Some(Topic::Jobs),
            "events" => Some(Topic::Events),
            "families" => Some(Topic::Families),
            "profiles" => Some(Topic::Profiles),
            "audit" => Some(Topic::Audit),
            _ => None,
        };
        if let Some(topic) = plain {
            return Ok(topic);
        }
        match text.split_once(':') {
            Some(("node", id)) => id.parse().map(Topic::Node).map_err(|e| bad(&e)),
            Some(("job", id)) => id.parse().map(Topic::Job).map_err(|e| bad(&e)),
            Some(("container", id)) => id.parse().map(Topic::Container).map_err(|e| bad(&e)),
            Some(("task", id)) => {
                let (app, task) = id.split_once('/').ok_or_else(|| bad(&"write task:JOB/STAGE/INDEX"))?;
                Ok(Topic::Task(app.parse().map_err(|e| bad(&e))?, task.parse().map_err(|e| bad(&e))?))
            }
            Some(_) | None => Err(bad(
                &"known are overview, nodes, node:NODE, queues, jobs, job:JOB, task:JOB/STAGE/INDEX, container:ID, events, families, profiles, audit",
            )),
        }
    }
}

impl Topic {
    /// What following it needs: the same as asking for it.
    pub(crate) fn need(&self) -> Need {
        match self {
            Topic::Overview | Topic::Nodes | Topic::Node(_) | Topic::Queues | Topic::Families | Topic::Profiles => {
                Need::Right(Right::ClusterRead)
            }
            Topic::Jobs | Topic::Events => Need::Right(Right::JobRead),
            Topic::Job(app) | Topic::Task(app, _) => Need::See(app.clone()),
            Topic::Container(id) => Need::See(id.app.clone()),
            Topic::Audit => Need::Right(Right::OperatorRead),
        }
    }

    /// At most so often it is looked at again.
    pub(crate) fn every(&self) -> Duration {
        match self {
            Topic::Overview | Topic::Nodes | Topic::Queues | Topic::Jobs | Topic::Families | Topic::Profiles => OVERVIEW_EVERY,
            Topic::Node(_) | Topic::Container(_) => Duration::from_millis(400),
            Topic::Job(_) | Topic::Task(..) => Duration::from_millis(200),
            Topic::Events | Topic::Audit => Duration::from_millis(100),
        }
    }
}

/// One message of the stream.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Told {
    /// All parts of a topic: what was known of it is void.
    Snapshot {
        /// Which topic.
        topic: String,
        /// Its parts by name.
        #[serde(serialize_with = "behind")]
        #[schema(value_type = BTreeMap<String, Value>)]
        set: Arc<Board>,
    },
    /// Parts of a topic that are new or other ones than before, whole.
    Patch {
        /// Which topic.
        topic: String,
        /// These parts by name.
        set: BTreeMap<String, Value>,
        /// Parts that are no longer there.
        gone: Vec<String>,
    },
    /// There is no such thing now. A snapshot follows if it comes.
    Missing {
        /// Which topic.
        topic: String,
        /// What is not there.
        detail: String,
    },
    /// The reader may not see this. Nothing more is told of it.
    Refused {
        /// Which topic.
        topic: String,
        /// Who may not, and what it needs.
        detail: String,
    },
    /// Events, oldest first.
    Events {
        /// `events`.
        topic: String,
        /// True when earlier ones that the reader has are void.
        first: bool,
        /// What happened.
        rows: Vec<Event>,
    },
    /// Events were missed: they are no longer kept. All that is follows, as if nothing had been read.
    Resync {
        /// `events`.
        topic: String,
        /// The oldest event that is kept.
        oldest: u64,
    },
}

fn behind<S: serde::Serializer>(board: &Arc<Board>, serializer: S) -> Result<S::Ok, S::Error> {
    (**board).serialize(serializer)
}

impl Told {
    /// The word by which a listener tells messages apart; `kind` in the JSON.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Told::Snapshot { .. } => "snapshot",
            Told::Patch { .. } => "patch",
            Told::Missing { .. } => "missing",
            Told::Refused { .. } => "refused",
            Told::Events { .. } => "events",
            Told::Resync { .. } => "resync",
        }
    }
}

/// What makes `now` of `before`; `None` when they are the same.
pub(crate) fn patch(topic: &str, before: &Board, now: &Board) -> Option<Told> {
    let changed = now.iter().filter(|(name, part)| before.get(*name) != Some(part));
    let set: BTreeMap<String, Value> = changed.map(|(name, part)| (name.clone(), part.clone())).collect();
    let gone: Vec<String> = before.keys().filter(|name| !now.contains_key(*name)).cloned().collect();
    let same = set.is_empty() && gone.is_empty();
    (!same).then(|| Told::Patch { topic: topic.to_owned(), set, gone })
}

/// Any value of ours as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Value {
    // Names and numbers of this house: can always be written.
    serde_json::to_value(value).unwrap_or_default()
}

/// Boards that all readers share.
#[derive(Debug, Default)]
pub(crate) struct Boards {
    overview: Mutex<Option<(Instant, Arc<Board>)>>,
}

impl Boards {
    /// The overview, made anew when it is older than readers may see.
    pub(crate) async fn overview<E>(&self, make: impl Future<Output = Result<Board, E>>) -> Result<Arc<Board>, E> {
        let mut kept = self.overview.lock().await;
        if let Some((at, board)) = &*kept
            && at.elapsed() < OVERVIEW_EVERY * 4 / 5
        {
            return Ok(board.clone());
        }
        let board = Arc::new(make.await?);
        *kept = Some((Instant::now(), board.clone()));
        Ok(board)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn board(parts: &[(&str, u32)]) -> Board {
        parts.iter().map(|(name, n)| ((*name).to_owned(), json!(n))).collect()
    }

    #[test]
    fn only_what_changed_is_told() {
        let (before, now) = (board(&[("a", 1), ("b", 2), ("c", 3)]), board(&[("a", 1), ("b", 5), ("d", 4)]));
        let told = json(&patch("x", &before, &now));
        assert_eq!(told, json!({"kind": "patch", "topic": "x", "set": {"b": 5, "d": 4}, "gone": ["c"]}));
        assert!(patch("x", &now, &now).is_none());
    }

    #[test]
    fn patches_upon_a_snapshot_give_the_board() {
        let (before, now) = (board(&[("a", 1), ("b", 2)]), board(&[("b", 3), ("c", 1)]));
        let Some(Told::Patch { set, gone, .. }) = patch("x", &before, &now) else { panic!("they differ") };
        let mut followed = before;
        gone.iter().for_each(|name| drop(followed.remove(name)));
        followed.extend(set);
        assert_eq!(followed, now);
    }

    #[test]
    fn topics_are_named_as_things_are_named_elsewhere() {
        let task: Topic = "task:count.7/map/7".parse().expect("a topic");
        assert_eq!(task, Topic::Task("count.7".parse().expect("id"), "map/7".parse().expect("id")));
        assert_eq!("node:n-1".parse(), Ok(Topic::Node("n-1".parse().expect("id"))));
        assert_eq!("container:count.7.e1.c2".parse(), Ok(Topic::Container("count.7.e1.c2".parse().expect("id"))));
        for wrong in ["", "job", "job:", "task:count.7", "task:count.7/map", "everything", "node:a b"] {
            assert!(wrong.parse::<Topic>().is_err(), "{wrong:?}");
        }
    }
}
