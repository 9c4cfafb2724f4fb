//! Calls about the resource manager as a process.

use headroom_wire::v1::operator;
use reqwest::Method;

use crate::{Client, ClientError};

impl Client {
    /// The resource manager reads its configuration again.
    pub async fn reload(&self) -> Result<operator::Reloaded, ClientError> {
        self.post("/v1/operator/reload", &()).await
    }
    /// How much the resource manager says in its log.
    pub async fn log_level(&self) -> Result<operator::LogView, ClientError> {
        self.get("/v1/operator/log").await
    }
    /// How much it says until its configuration is read again.
    pub async fn set_log_level(&self, set: operator::SetLog) -> Result<operator::LogView, ClientError> {
        self.change(Method::PUT, "/v1/operator/log", None, &set).await
    }
}
