//! Calls about the process of the resource manager.

use headroom_wire::v1::operator;
use reqwest::Method;

use crate::{Client, ClientResult};

impl Client {
    /// Returns the resource managers of the cluster, as the one that answers sees them. A standby
    /// answers it.
    pub async fn leader(&self) -> ClientResult<operator::LeaderView> {
        self.get("/v1/leader").await
    }
    /// Reloads the configuration of the resource manager.
    pub async fn reload(&self) -> ClientResult<operator::ReloadResult> {
        self.post("/v1/operator/reload", &()).await
    }
    /// Returns the log level of the resource manager.
    pub async fn log_level(&self) -> ClientResult<operator::LogLevelView> {
        self.get("/v1/operator/log").await
    }
    /// Sets the log level until the configuration is reloaded.
    pub async fn set_log_level(
        &self,
        set: operator::SetLogLevelRequest,
    ) -> ClientResult<operator::LogLevelView> {
        self.change(Method::PUT, "/v1/operator/log", None, &set)
            .await
    }
}
