//! The size of an attempt, its place, and the cap on sizes. Plain data of the policy and the core;
//! it never decides.

use headroom_types::{Bytes, Profile};
use serde::{Deserialize, Serialize};

/// The place where an attempt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptPlace {
    /// In slots of a shared executor.
    Shared,
    /// In a container that was requested for this task alone.
    Own,
}

/// The size of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSize {
    /// Heap, overhead, processors.
    pub profile: Profile,
    /// Occupied slots of the executor; 1 in an own container.
    pub slots: u32,
    /// The rung; 1 for the size of the stage.
    pub rung: u32,
    /// The place.
    pub place: AttemptPlace,
}

impl AttemptSize {
    /// Heap and overhead together.
    pub fn memory(&self) -> Bytes {
        self.profile.memory()
    }
}

/// The largest size that a task can get, and the origin of this cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSizeCap {
    /// Heap and overhead of one task. Bytes.
    pub task: Bytes,
    /// Memory of the largest container of any node; `None` if unknown. Bytes.
    pub largest: Option<Bytes>,
    /// True if the job's own `retry.cap` is the cap.
    pub by_job: bool,
}

impl TaskSizeCap {
    /// The origin of the cap, for messages.
    pub fn words(&self) -> String {
        match (self.by_job, self.largest) {
            (true, _) => format!("the job's retry.cap of {}", self.task),
            (false, Some(largest)) => format!("the largest container here, {largest}"),
            (false, None) => "no known limit".to_owned(),
        }
    }
}
