//! The database of the resource manager's durable state.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The database of the resource manager's state. Closed: every backend passes the same tests.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum StoreBackend {
    /// sled, with an explicit sync after each commit.
    #[default]
    Sled,
    /// redb.
    Redb,
}

/// The error of an unknown backend name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a store; use sled or redb")]
pub struct UnknownBackend(String);

impl StoreBackend {
    /// All backends.
    pub const ALL: [StoreBackend; 2] = [StoreBackend::Sled, StoreBackend::Redb];

    /// The name used in configuration, JSON and screens.
    pub fn as_str(self) -> &'static str {
        match self {
            StoreBackend::Sled => "sled",
            StoreBackend::Redb => "redb",
        }
    }
}

impl fmt::Display for StoreBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StoreBackend {
    type Err = UnknownBackend;
    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        StoreBackend::ALL
            .into_iter()
            .find(|b| b.as_str() == text)
            .ok_or_else(|| UnknownBackend(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_names_round_trip_as_text() {
        for backend in StoreBackend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert!(
            "SLED"
                .parse::<StoreBackend>()
                .expect_err("wrong case")
                .to_string()
                .contains("redb")
        );
    }
}
