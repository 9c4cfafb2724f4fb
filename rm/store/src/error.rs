//! Errors of the state on disk. Each message names the file or directory and the next step.

use std::io;
use std::path::{Path, PathBuf};

use headroom_types::StoreBackend;

use crate::engine_error::{EngineError, is_full};

/// An error of opening, reading or writing the state.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be created or written.
    #[error("the state directory {} cannot be used: {source}; give the user of the resource manager read and write rights to it", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error("the state directory {} is in use by another resource manager{}; stop that one, or name another directory", dir.display(), process(*pid))]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The pid of the holder; `None` when the kernel does not report it.
        pid: Option<u32>,
    },
    /// The disk is full.
    #[error("the disk under the state directory {} is full ({source}); free some space there (a start needs as much as the database) and start again; all acknowledged changes are kept", dir.display())]
    Full {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory contains the database of another backend.
    #[error("the state directory {} was written with store = \"{found}\" and is to be opened with \"{asked}\"; keep \"{found}\", or convert the state: rmctl operator state backup --state {} --to FILE, then rmctl operator state restore --state {} --from FILE --store {asked} --replace", dir.display(), dir.display(), dir.display())]
    OtherBackend {
        /// The directory.
        dir: PathBuf,
        /// The present backend.
        found: StoreBackend,
        /// The requested backend.
        asked: StoreBackend,
    },
    /// The state in etcd is empty, and the directory contains a state.
    #[error("there is no state in {} yet, and {} has one in {local}; move it: rmctl operator state migrate --state {} --config FILE", state.display(), dir.display(), dir.display())]
    NotMigrated {
        /// The directory.
        dir: PathBuf,
        /// Its database.
        local: StoreBackend,
        /// The state in etcd.
        state: PathBuf,
    },
    /// The state in etcd must not be used.
    #[error("the state in {} cannot be used: {reason}", state.display())]
    Closed {
        /// The state.
        state: PathBuf,
        /// The reason, and the next step.
        reason: String,
    },
    /// A resource manager leads.
    #[error("the resource manager at {leader} leads the state in {}; stop all resource managers of the cluster first", state.display())]
    Led {
        /// The state.
        state: PathBuf,
        /// URL of the leader.
        leader: String,
    },
    /// The state in etcd belongs to another cluster.
    #[error("the state in {} belongs to cluster {stored}, and this resource manager to cluster {own}; set etcd.prefix to the one of its own cluster, or remove {} to join the other cluster", state.display(), file.display())]
    OtherCluster {
        /// The state.
        state: PathBuf,
        /// The identity in etcd.
        stored: String,
        /// The identity in the state directory.
        own: String,
        /// The file with the own identity.
        file: PathBuf,
    },
    /// An earlier write failed.
    #[error("an earlier write to the state in {} failed; no change is accepted until the next start", dir.display())]
    Failed {
        /// The directory.
        dir: PathBuf,
    },
    /// The target exists already.
    #[error("{} {holds}, and is not overwritten; {advice}", place.display())]
    NotEmpty {
        /// The file or directory.
        place: PathBuf,
        /// Its present content.
        holds: String,
        /// The next step.
        advice: String,
    },
    /// The directory contains no state.
    #[error("there is no state in {}; name the directory that the resource manager was started with", dir.display())]
    Nothing {
        /// The directory.
        dir: PathBuf,
    },
    /// The content differs from the written one.
    #[error("the state in {} is damaged: {what}; nothing was changed. {advice}", file.display())]
    Corrupt {
        /// The file or directory.
        file: PathBuf,
        /// The damage.
        what: String,
        /// The next step.
        advice: String,
    },
    /// A later version wrote the state.
    #[error("the state in {} was written by a newer version (format {found}, this one knows {known}); start that version instead", file.display())]
    TooNew {
        /// The file or directory.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The latest format that this version supports.
        known: u32,
    },
    /// A file next to the database could not be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The database could not be read or written.
    #[error("the database in {} failed: {source}", dir.display())]
    Database {
        /// The path of the database.
        dir: PathBuf,
        /// The error of the engine.
        source: EngineError,
    },
    /// A value exceeds the maximum size.
    #[error("{key} has {length} bytes and may have at most {most}")]
    TooLarge {
        /// The record.
        key: String,
        /// Its size. In bytes.
        length: usize,
        /// The maximum. In bytes.
        most: usize,
    },
    /// A record could not be encoded.
    #[error("{key} cannot be encoded: {source}")]
    Encode {
        /// The record.
        key: String,
        /// The encoder's error.
        source: serde_json::Error,
    },
}

impl StoreError {
    /// An error of reading or writing a file.
    pub(crate) fn file(file: &Path, source: io::Error) -> Self {
        if is_full(&source) {
            return StoreError::Full {
                dir: file.parent().unwrap_or(file).to_owned(),
                source,
            };
        }
        StoreError::File {
            file: file.to_owned(),
            source,
        }
    }
    /// An error of creating or writing the state directory.
    pub(crate) fn directory(dir: &Path, source: io::Error) -> Self {
        let dir = dir.to_owned();
        if is_full(&source) {
            StoreError::Full { dir, source }
        } else {
            StoreError::Directory { dir, source }
        }
    }
    /// An error of reading or writing `database` in the state directory `dir`.
    pub(crate) fn database(dir: &Path, database: &Path, source: EngineError) -> Self {
        match source.io() {
            Some(error) if is_full(error) => {
                let source = io::Error::new(error.kind(), error.to_string());
                StoreError::Full {
                    dir: dir.to_owned(),
                    source,
                }
            }
            Some(_) | None => StoreError::Database {
                dir: database.to_owned(),
                source,
            },
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})"))
        .unwrap_or_default()
}
