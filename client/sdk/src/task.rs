//! Calls about one task of a job: its row, and orders to it.

use headroom_types::{AppId, TaskId};
use headroom_wire::v1::{apps, job};

use crate::{Client, ClientResult};

impl Client {
    /// Returns one task with all its attempts.
    pub async fn task(&self, app: &AppId, task: &TaskId) -> ClientResult<job::TaskRow> {
        self.get(&format!("/v1/apps/{app}/tasks/{task}")).await
    }
    /// Ends a task for good and returns its row as it was before.
    pub async fn kill_task(
        &self,
        app: &AppId,
        task: &TaskId,
        reason: Option<String>,
    ) -> ClientResult<job::TaskRow> {
        self.post(
            &format!("/v1/apps/{app}/tasks/{task}/kill"),
            &apps::TaskOrderRequest { reason },
        )
        .await
    }
    /// Replaces the running attempt of a task by a new one and returns the task's row as it was
    /// before.
    pub async fn retry_task(
        &self,
        app: &AppId,
        task: &TaskId,
        reason: Option<String>,
    ) -> ClientResult<job::TaskRow> {
        self.post(
            &format!("/v1/apps/{app}/tasks/{task}/retry"),
            &apps::TaskOrderRequest { reason },
        )
        .await
    }
    /// Sets the size of the next attempt of a waiting task and returns the task's row as it was
    /// before.
    pub async fn resize_task(
        &self,
        app: &AppId,
        task: &TaskId,
        body: &apps::ResizeTaskRequest,
    ) -> ClientResult<job::TaskRow> {
        self.post(&format!("/v1/apps/{app}/tasks/{task}/resize"), body)
            .await
    }
    /// Changes the priority of a task within its job and returns the task's row as it was before.
    pub async fn rank_task(
        &self,
        app: &AppId,
        task: &TaskId,
        body: &apps::PrioritizeTask,
    ) -> ClientResult<job::TaskRow> {
        self.post(&format!("/v1/apps/{app}/tasks/{task}/priority"), body)
            .await
    }
}
