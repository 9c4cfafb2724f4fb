//! Error of a record whose text or kind differs from the written one.
//!
//! The parsers of the records return it; `damage` adds the state directory and the next step.

use serde::de::DeserializeOwned;

use crate::record::META;

/// A record that differs from the written one.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Its text cannot be parsed.
    #[error("record {key} cannot be read: {source}")]
    Text {
        /// The record.
        key: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// Its kind is unknown.
    #[error("record {0} is of an unknown kind")]
    Kind(String),
    /// The `app` or the `state` record of an application is missing.
    #[error("application number {0} has no {1} record")]
    Half(String, &'static str),
    /// The core refuses the tree of queues.
    #[error("the saved tree of queues (generation {generation}) is refused: {problems}")]
    Queues {
        /// The generation of the tree.
        generation: u64,
        /// All problems of the tree.
        problems: String,
    },
    /// The `meta` record is missing.
    #[error("the record {META} is missing")]
    NoMeta,
}

/// Parses the text of a record.
pub(crate) fn parse<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, ReplayError> {
    serde_json::from_slice(value).map_err(|source| ReplayError::Text {
        key: key.to_owned(),
        source,
    })
}
