//! Log level of a daemon.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The log level of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Failed operations only.
    Error,
    /// Also conditions that an operator should check.
    Warn,
    /// Also changes.
    #[default]
    Info,
    /// Also every call.
    Debug,
    /// All messages.
    Trace,
}

impl LogLevel {
    /// All levels, in increasing verbosity.
    pub const ALL: [LogLevel; 5] = [
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
        LogLevel::Trace,
    ];

    /// The word in configuration files and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for LogLevel {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = LogLevel::ALL
            .into_iter()
            .find(|level| level.as_str() == text);
        found.ok_or_else(|| {
            format!(
                "{text:?} is none of {}",
                LogLevel::ALL.map(LogLevel::as_str).join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_round_trip_as_text() {
        for level in LogLevel::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(serde_json::to_value(level).expect("writes"), level.as_str());
        }
        assert!(
            "loud"
                .parse::<LogLevel>()
                .expect_err("none")
                .contains("warn, info")
        );
    }
}
