//! What an operator asks of the resource manager as a process.

use headroom_types::LogLevel;
use serde::{Deserialize, Serialize};

/// `POST /v1/operator/reload`: what came of reading the configuration again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reloaded {
    /// Keys that have another value from now on: `history.apps: 500 → 7`.
    pub holds: Vec<String>,
    /// Keys with another value that waits for a restart.
    pub waits: Vec<String>,
    /// What goes before the file.
    pub notes: Vec<String>,
}

/// `GET /v1/operator/log`: how much is said in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogView {
    /// Now.
    pub level: LogLevel,
    /// After the next reload or restart: what the configuration says.
    pub configured: LogLevel,
    /// `HEADROOM_LOG` in the daemon's environment goes before both.
    pub by_environment: bool,
}

/// `PUT /v1/operator/log`: how much is said in the log until the next reload or restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetLog {
    /// So much.
    pub level: LogLevel,
}
