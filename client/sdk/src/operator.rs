//! Calls about the process of the resource manager.

use headroom_wire::v1::operator;
use reqwest::Method;

use crate::{Client, ClientResult};

impl Client {
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
