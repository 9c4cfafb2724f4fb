//! What can go wrong with the state on disk. Each message names the place and the next step.

use std::path::PathBuf;

/// The state could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be made or written to.
    #[error("the state directory {} cannot be used: {source}; give the user of the resource manager read and write rights to it", dir.display())]
    Directory {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process holds it.
    #[error("the state directory {} is in use by another resource manager; stop that one, or name another directory", dir.display())]
    Locked {
        /// Which.
        dir: PathBuf,
    },
    /// What is there is not what was written.
    #[error("the state in {} is damaged: {what}; nothing was changed. {advice}", file.display())]
    Corrupt {
        /// Which file or directory.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        advice: String,
    },
    /// Written by a later version.
    #[error("the state in {} was written by a newer version (format {found}, this one knows {known}); start that version instead", file.display())]
    TooNew {
        /// Which file or directory.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The latest format known here.
        known: u32,
    },
    /// A file beside the database could not be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The database could not be written or read.
    #[error("the database in {} failed: {source}", dir.display())]
    Database {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: sled::Error,
    },
    /// A value is larger than what is accepted.
    #[error("{key} has {length} bytes and may have at most {most}")]
    TooLarge {
        /// The record.
        key: String,
        /// Its size.
        length: usize,
        /// The bound.
        most: usize,
    },
    /// A record could not be turned into text.
    #[error("{key} cannot be written down: {source}")]
    Encode {
        /// The record.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
}
