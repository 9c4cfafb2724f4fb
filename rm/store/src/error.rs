//! What can go wrong with the state on disk. Each message names the place and the next step.

use std::io;
use std::path::{Path, PathBuf};

use headroom_types::StoreBackend;

use crate::engine::{EngineError, is_full};

/// The state could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be made or written to.
    #[error("the state directory {} cannot be used: {source}; give the user of the resource manager read and write rights to it", dir.display())]
    Directory {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process holds it.
    #[error("the state directory {} is in use by another resource manager{}; stop that one, or name another directory", dir.display(), process(*pid))]
    Locked {
        /// Which.
        dir: PathBuf,
        /// Which process, when the kernel tells.
        pid: Option<u32>,
    },
    /// No room is left on its disk.
    #[error("the disk under the state directory {} is full ({source}); free some space there, for a start as much as the database has, and start again: all that was acknowledged is kept", dir.display())]
    Full {
        /// Which.
        dir: PathBuf,
        /// The system's word for it.
        source: io::Error,
    },
    /// The other database is in it.
    #[error("the state directory {} was written with store = \"{found}\" and is to be opened with \"{asked}\"; keep \"{found}\", or move it over: rmctl operator state backup --state {} --to FILE, then rmctl operator state restore --state {} --from FILE --store {asked} --replace", dir.display(), dir.display(), dir.display())]
    OtherBackend {
        /// Which.
        dir: PathBuf,
        /// What is there.
        found: StoreBackend,
        /// What was asked for.
        asked: StoreBackend,
    },
    /// An earlier write failed.
    #[error("the state in {} took no write since one failed; nothing more is accepted until the next start", dir.display())]
    Failed {
        /// Which.
        dir: PathBuf,
    },
    /// Something is there already.
    #[error("{} {holds}, and nothing is written over; {advice}", place.display())]
    NotEmpty {
        /// Which file or directory.
        place: PathBuf,
        /// What it has.
        holds: String,
        /// What to do.
        advice: String,
    },
    /// There is no state in it.
    #[error("there is no state in {}; name the directory that the resource manager was started with", dir.display())]
    Nothing {
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
        source: io::Error,
    },
    /// The database could not be written or read.
    #[error("the database in {} failed: {source}", dir.display())]
    Database {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: EngineError,
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

impl StoreError {
    /// A file could not be read or written.
    pub(crate) fn file(file: &Path, source: io::Error) -> Self {
        if is_full(&source) {
            return StoreError::Full { dir: file.parent().unwrap_or(file).to_owned(), source };
        }
        StoreError::File { file: file.to_owned(), source }
    }
    /// The state directory could not be made or written to.
    pub(crate) fn directory(dir: &Path, source: io::Error) -> Self {
        let dir = dir.to_owned();
        if is_full(&source) { StoreError::Full { dir, source } } else { StoreError::Directory { dir, source } }
    }
    /// The database in `database`, in the state directory `dir`, could not be read or written.
    pub(crate) fn database(dir: &Path, database: &Path, source: EngineError) -> Self {
        match source.io() {
            Some(error) if is_full(error) => {
                let source = io::Error::new(error.kind(), error.to_string());
                StoreError::Full { dir: dir.to_owned(), source }
            }
            Some(_) | None => StoreError::Database { dir: database.to_owned(), source },
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
