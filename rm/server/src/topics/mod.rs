//! Topics of the web page. The state of a topic consists of named parts, and only changed parts are
//! sent.
//!
//! A topic state is made for readers, from the published view and a few bounded queries to the
//! core. Its size is independent of the size of the cluster: large parts are aggregated, and other
//! topics show their details.

pub(crate) mod attention;
pub(crate) mod brief;
pub(crate) mod job;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod nodes;
pub(crate) mod overview;
pub(crate) mod task_summary;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use headroom_identity::{AccessRight, CallRequirement};
use headroom_types::{AppId, ContainerId, NodeId, TaskId};
use headroom_wire::v1::events::LoggedEvent;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa::ToSchema;

/// State of one topic: named parts.
pub(crate) type TopicState = BTreeMap<String, Value>;

/// Minimum interval between two versions of an expensive topic, for all readers together.
const OVERVIEW_EVERY: Duration = Duration::from_millis(500);

/// Topic of a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamTopic {
    /// Overview of the cluster.
    Overview,
    /// One page of the list of nodes.
    Nodes,
    /// One node with its containers.
    Node(NodeId),
    /// Queues with their waiting requests.
    Queues,
    /// One page of the list of applications.
    Jobs,
    /// One application with its tasks, aggregated where there are many.
    Job(AppId),
    /// One task with all its attempts.
    Task(AppId, TaskId),
    /// One container.
    Container(ContainerId),
    /// Event log.
    Events,
    /// Usage history.
    Families,
    /// Profiles of the cluster.
    Profiles,
    /// One page of the audit log.
    Audit,
}

impl FromStr for StreamTopic {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |e: &dyn std::fmt::Display| format!("the topic {text:?}: {e}");
        let plain = match text {
            "overview" => Some(StreamTopic::Overview),
            "nodes" => Some(StreamTopic::Nodes),
            "queues" => Some(StreamTopic::Queues),
            "jobs" => Some(StreamTopic::Jobs),
            "events" => Some(StreamTopic::Events),
            "families" => Some(StreamTopic::Families),
            "profiles" => Some(StreamTopic::Profiles),
            "audit" => Some(StreamTopic::Audit),
            _ => None,
        };
        if let Some(topic) = plain {
            return Ok(topic);
        }
        match text.split_once(':') {
            Some(("node", id)) => id.parse().map(StreamTopic::Node).map_err(|e| bad(&e)),
            Some(("job", id)) => id.parse().map(StreamTopic::Job).map_err(|e| bad(&e)),
            Some(("container", id)) => id.parse().map(StreamTopic::Container).map_err(|e| bad(&e)),
            Some(("task", id)) => {
                let (app, task) = id
                    .split_once('/')
                    .ok_or_else(|| bad(&"write task:JOB/STAGE/INDEX"))?;
                Ok(StreamTopic::Task(
                    app.parse().map_err(|e| bad(&e))?,
                    task.parse().map_err(|e| bad(&e))?,
                ))
            }
            Some(_) | None => Err(bad(
                &"known topics are overview, nodes, node:NODE, queues, jobs, job:JOB, task:JOB/STAGE/INDEX, \
                  container:ID, events, families, profiles, audit",
            )),
        }
    }
}

impl StreamTopic {
    /// Right that a reader of the topic needs.
    pub(crate) fn need(&self) -> CallRequirement {
        match self {
            StreamTopic::Overview
            | StreamTopic::Nodes
            | StreamTopic::Node(_)
            | StreamTopic::Queues
            | StreamTopic::Families
            | StreamTopic::Profiles => CallRequirement::Right(AccessRight::ClusterRead),
            StreamTopic::Jobs | StreamTopic::Events => CallRequirement::Right(AccessRight::JobRead),
            StreamTopic::Job(app) | StreamTopic::Task(app, _) => CallRequirement::See(app.clone()),
            StreamTopic::Container(id) => CallRequirement::See(id.app.clone()),
            StreamTopic::Audit => CallRequirement::Right(AccessRight::OperatorRead),
        }
    }

    /// Minimum interval between two versions.
    pub(crate) fn every(&self) -> Duration {
        match self {
            StreamTopic::Overview
            | StreamTopic::Nodes
            | StreamTopic::Queues
            | StreamTopic::Jobs
            | StreamTopic::Families
            | StreamTopic::Profiles => OVERVIEW_EVERY,
            StreamTopic::Node(_) | StreamTopic::Container(_) => Duration::from_millis(400),
            StreamTopic::Job(_) | StreamTopic::Task(..) => Duration::from_millis(200),
            StreamTopic::Events | StreamTopic::Audit => Duration::from_millis(100),
        }
    }
}

/// One message of the stream.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum TopicMessage {
    /// All parts of a topic, which replace all earlier ones.
    Snapshot {
        /// Name of the topic.
        topic: String,
        /// Parts by name.
        #[serde(serialize_with = "behind")]
        #[schema(value_type = BTreeMap<String, Value>)]
        set: Arc<TopicState>,
    },
    /// New and changed parts of a topic, each complete.
    Patch {
        /// Name of the topic.
        topic: String,
        /// New and changed parts by name.
        set: BTreeMap<String, Value>,
        /// Names of removed parts.
        gone: Vec<String>,
    },
    /// The object of the topic does not exist. A snapshot follows when it is created.
    Missing {
        /// Name of the topic.
        topic: String,
        /// The object that does not exist.
        detail: String,
    },
    /// The reader may not see the topic. No further messages about it follow.
    Refused {
        /// Name of the topic.
        topic: String,
        /// The caller, and the right that it lacks.
        detail: String,
    },
    /// Events, oldest first.
    Events {
        /// `events`.
        topic: String,
        /// True if they replace all earlier events of the reader.
        first: bool,
        /// The events.
        rows: Vec<LoggedEvent>,
    },
    /// Events were missed, because they are no longer kept. The kept events follow, as for a new
    /// reader.
    Resync {
        /// `events`.
        topic: String,
        /// Number of the oldest kept event.
        oldest: u64,
    },
}

fn behind<S: serde::Serializer>(board: &Arc<TopicState>, serializer: S) -> Result<S::Ok, S::Error> {
    (**board).serialize(serializer)
}

impl TopicMessage {
    /// Event type of a message; `kind` in the JSON.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            TopicMessage::Snapshot { .. } => "snapshot",
            TopicMessage::Patch { .. } => "patch",
            TopicMessage::Missing { .. } => "missing",
            TopicMessage::Refused { .. } => "refused",
            TopicMessage::Events { .. } => "events",
            TopicMessage::Resync { .. } => "resync",
        }
    }
}

/// Difference between two states of a topic; `None` if they are equal.
pub(crate) fn patch(topic: &str, before: &TopicState, now: &TopicState) -> Option<TopicMessage> {
    let changed = now
        .iter()
        .filter(|(name, part)| before.get(*name) != Some(part));
    let set: BTreeMap<String, Value> = changed
        .map(|(name, part)| (name.clone(), part.clone()))
        .collect();
    let gone: Vec<String> = before
        .keys()
        .filter(|name| !now.contains_key(*name))
        .cloned()
        .collect();
    let same = set.is_empty() && gone.is_empty();
    (!same).then(|| TopicMessage::Patch {
        topic: topic.to_owned(),
        set,
        gone,
    })
}

/// Converts a value to JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Value {
    // Cannot fail: the values contain only names and numbers.
    serde_json::to_value(value).unwrap_or_default()
}

/// Topic states that all readers share.
#[derive(Debug, Default)]
pub(crate) struct SharedTopicStates {
    overview: Mutex<Option<(Instant, Arc<TopicState>)>>,
}

impl SharedTopicStates {
    /// Returns the overview, and makes it again when it is too old.
    pub(crate) async fn overview<E>(
        &self,
        make: impl Future<Output = Result<TopicState, E>>,
    ) -> Result<Arc<TopicState>, E> {
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

    fn board(parts: &[(&str, u32)]) -> TopicState {
        parts
            .iter()
            .map(|(name, n)| ((*name).to_owned(), json!(n)))
            .collect()
    }

    #[test]
    fn a_patch_contains_only_changed_parts() {
        let (before, now) = (
            board(&[("a", 1), ("b", 2), ("c", 3)]),
            board(&[("a", 1), ("b", 5), ("d", 4)]),
        );
        let message = json(&patch("x", &before, &now));
        assert_eq!(
            message,
            json!({"kind": "patch", "topic": "x", "set": {"b": 5, "d": 4}, "gone": ["c"]})
        );
        assert!(patch("x", &now, &now).is_none());
    }

    #[test]
    fn a_snapshot_with_its_patches_gives_the_topic_state() {
        let (before, now) = (board(&[("a", 1), ("b", 2)]), board(&[("b", 3), ("c", 1)]));
        let Some(TopicMessage::Patch { set, gone, .. }) = patch("x", &before, &now) else {
            panic!("there is no patch")
        };
        let mut followed = before;
        gone.iter().for_each(|name| drop(followed.remove(name)));
        followed.extend(set);
        assert_eq!(followed, now);
    }

    #[test]
    fn topics_use_the_ids_of_other_calls() {
        let task: StreamTopic = "task:count.7/map/7".parse().expect("a topic");
        assert_eq!(
            task,
            StreamTopic::Task("count.7".parse().expect("id"), "map/7".parse().expect("id"))
        );
        assert_eq!(
            "node:n-1".parse(),
            Ok(StreamTopic::Node("n-1".parse().expect("id")))
        );
        assert_eq!(
            "container:count.7.e1.c2".parse(),
            Ok(StreamTopic::Container("count.7.e1.c2".parse().expect("id")))
        );
        for wrong in [
            "",
            "job",
            "job:",
            "task:count.7",
            "task:count.7/map",
            "everything",
            "node:a b",
        ] {
            assert!(wrong.parse::<StreamTopic>().is_err(), "{wrong:?}");
        }
    }
}
