//! Operator commands to the resource manager process.

use headroom_types::LogLevel;
use serde::{Deserialize, Serialize};

/// `POST /v1/operator/reload`: the result of a configuration reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReloadResult {
    /// Changed keys that are in force: `history.apps: 500 → 7`.
    pub holds: Vec<String>,
    /// Changed keys that wait for a restart.
    pub waits: Vec<String>,
    /// Settings that override the file.
    pub notes: Vec<String>,
}

/// `GET /v1/operator/log`: the log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogLevelView {
    /// Current level.
    pub level: LogLevel,
    /// Level after the next reload or restart, from the configuration.
    pub configured: LogLevel,
    /// True if `HEADROOM_LOG` in the environment of the daemon overrides both.
    pub by_environment: bool,
}

/// `PUT /v1/operator/log`: set the log level until the next reload or restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetLogLevelRequest {
    /// New level.
    pub level: LogLevel,
}
