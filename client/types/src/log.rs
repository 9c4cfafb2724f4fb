//! Log level of a daemon.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

word_enum! {
    /// The log level of a daemon.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
        ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum LogLevel: "is not a log level; use" {
        /// Failed operations only.
        Error = "error",
        /// Also conditions that an operator should check.
        Warn = "warn",
        /// Also changes.
        #[default]
        Info = "info",
        /// Also every call.
        Debug = "debug",
        /// All messages.
        Trace = "trace",
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
