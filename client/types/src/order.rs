//! What somebody wants done with a job that runs: with one task of it, or with how many executors it has.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Name, TaskId};

/// An order to the master of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// About one task.
    Task(TaskOrder),
    /// About executors.
    Scale(ScaleOrder),
}

/// An order about how many executors of a set a job may have at once. Carried out twice it changes nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScaleOrder {
    /// Which set, as the job file calls it; the only one there is when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub executors: Option<Name>,
    /// So many at most; 1 to 10000.
    pub count: u32,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An order about one task. Carried out twice it changes nothing more, so it may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskOrder {
    /// Which task.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task: TaskId,
    /// What is wanted.
    pub wish: TaskWish,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is wanted of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum TaskWish {
    /// It ends, and is not tried again.
    Cancel,
    /// The attempt that runs ends, and the next one begins: charged to no budget.
    Retry {
        /// Only if it is this one; 1 for the first.
        attempt: u32,
    },
    /// Its next attempt gets this much.
    Resize {
        /// Heap and overhead together. Bytes.
        memory: Bytes,
    },
    /// It begins before tasks of its job with a lower priority, from its next attempt on.
    Rank {
        /// 0 is the usual.
        priority: i32,
    },
}

impl TaskOrder {
    /// In words: `cancelled on request: it reads the wrong day`.
    pub fn sentence(&self) -> String {
        let done = match self.wish {
            TaskWish::Cancel => "cancelled on request".to_owned(),
            TaskWish::Retry { .. } => "tried again on request".to_owned(),
            TaskWish::Resize { memory } => format!("{memory} on request"),
            TaskWish::Rank { priority } => format!("priority {priority} on request"),
        };
        match &self.reason {
            Some(reason) => format!("{done}: {reason}"),
            None => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_says_what_and_why() {
        let order = |wish, reason: Option<&str>| TaskOrder {
            task: "map/7".parse().expect("id"),
            wish,
            reason: reason.map(str::to_owned),
        };
        assert_eq!(order(TaskWish::Cancel, Some("wrong day")).sentence(), "cancelled on request: wrong day");
        assert_eq!(order(TaskWish::Resize { memory: Bytes::from_mib(512) }, None).sentence(), "512 MiB on request");
        let text = serde_json::to_value(order(TaskWish::Resize { memory: Bytes::from_mib(1) }, None)).expect("writes");
        assert_eq!(text, serde_json::json!({"task": "map/7", "wish": {"do": "resize", "memory": 1_048_576}}));
    }
}
