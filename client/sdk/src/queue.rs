//! Calls about queues.

use headroom_types::QueuePath;
use headroom_wire::v1::queues;
use reqwest::Method;

use crate::{Client, ClientResult};

/// The entity tag of a generation, or `*` without one.
fn tag(generation: Option<u64>) -> String {
    generation.map_or_else(|| "*".to_owned(), |g| format!("\"{g}\""))
}

impl Client {
    /// Returns the whole tree of queues.
    pub async fn queues(&self) -> ClientResult<queues::QueuesView> {
        self.get("/v1/queues").await
    }
    /// Returns one queue with its applications and child queues.
    pub async fn queue(&self, path: &QueuePath) -> ClientResult<queues::QueueView> {
        self.get(&format!("/v1/queues/{path}")).await
    }
    /// Replaces the tree of queues if it still has `generation`; without `generation` it always
    /// applies. The tree is sent as the user wrote it, so that the server can report all errors in
    /// it.
    pub async fn set_queues(
        &self,
        tree: &serde_json::Value,
        generation: Option<u64>,
    ) -> ClientResult<queues::QueuesView> {
        self.change(Method::PUT, "/v1/queues", Some(&tag(generation)), tree)
            .await
    }
    /// Validates a tree of queues without applying it.
    pub async fn check_queues(
        &self,
        tree: &serde_json::Value,
        generation: Option<u64>,
    ) -> ClientResult<queues::QueueTreeCheck> {
        self.change(
            Method::PUT,
            "/v1/queues?dry_run=true",
            Some(&tag(generation)),
            tree,
        )
        .await
    }
    /// Merges some keys into one queue; a null value deletes a key.
    pub async fn patch_queue(
        &self,
        path: &QueuePath,
        keys: &serde_json::Value,
    ) -> ClientResult<queues::QueuesView> {
        self.change(Method::PATCH, &format!("/v1/queues/{path}"), None, keys)
            .await
    }
    /// Sets the state of a queue: running, paused, draining or stopped.
    pub async fn set_queue_state(
        &self,
        path: &QueuePath,
        state: queues::QueueRunState,
    ) -> ClientResult<queues::QueueView> {
        self.post(
            &format!("/v1/queues/{path}/state"),
            &queues::SetQueueState { state },
        )
        .await
    }
}
