//! Commands of users to a running job: about one of its tasks, or about its number of executors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Bytes, Name, TaskId};

/// A command to the master of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// A command about one task.
    Task(TaskOrder),
    /// A command about executors.
    Scale(ScaleOrder),
}

/// A command that sets the maximum number of executors of a set. Idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScaleOrder {
    /// Executor set, as named in the job file. Optional if the job has only one set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub executors: Option<Name>,
    /// Maximum number of executors at the same time; 1 to 10000.
    pub count: u32,
    /// Reason, for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A command about one task. Idempotent, so it may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskOrder {
    /// The task.
    #[schema(value_type = String)]
    pub task: TaskId,
    /// The requested action.
    pub action: TaskOrderAction,
    /// Reason, for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The requested action on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum TaskOrderAction {
    /// End the task without another attempt.
    Cancel,
    /// End the running attempt and start the next one; charged to no budget.
    Retry {
        /// Number of the attempt to end, from 1. Another running attempt is left alone.
        attempt: u32,
    },
    /// Set the memory of the next attempt.
    Resize {
        /// Heap and overhead together. Bytes.
        memory: Bytes,
    },
    /// From its next attempt on, start the task before tasks of the job with a lower priority.
    Rank {
        /// Priority; the default is 0.
        priority: i32,
    },
}

impl TaskOrder {
    /// The command in words: `cancelled on request: it reads the wrong day`.
    pub fn sentence(&self) -> String {
        let done = match self.action {
            TaskOrderAction::Cancel => "cancelled on request".to_owned(),
            TaskOrderAction::Retry { .. } => "retried on request".to_owned(),
            TaskOrderAction::Resize { memory } => format!("{memory} on request"),
            TaskOrderAction::Rank { priority } => format!("priority {priority} on request"),
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
    fn an_order_contains_its_action_and_reason() {
        let order = |action, reason: Option<&str>| TaskOrder {
            task: "map/7".parse().expect("id"),
            action,
            reason: reason.map(str::to_owned),
        };
        assert_eq!(
            order(TaskOrderAction::Cancel, Some("wrong day")).sentence(),
            "cancelled on request: wrong day"
        );
        assert_eq!(
            order(
                TaskOrderAction::Resize {
                    memory: Bytes::from_mib(512)
                },
                None
            )
            .sentence(),
            "512 MiB on request"
        );
        let text = serde_json::to_value(order(
            TaskOrderAction::Resize {
                memory: Bytes::from_mib(1),
            },
            None,
        ))
        .expect("writes");
        assert_eq!(
            text,
            serde_json::json!({"task": "map/7", "action": {"do": "resize", "memory": 1_048_576}})
        );
    }
}
