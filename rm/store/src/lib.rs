//! What the resource manager cannot rebuild from its nodes and masters: applications, attempts, ends, the epoch.
//!
//! Owned by the daemon's loop, one process at a time. A batch of records is durable when [`Store::commit`] returns, and whole or
//! not there at all after a crash. What is damaged is refused and left as it was found.
//!
//! *Architecture Invariant*: never keeps what a heartbeat brings. Records are types of their own: neither the core's nor the
//! wire's, so each of the three can change alone.

#![forbid(unsafe_code)]

pub mod access;
pub mod anchor;
pub mod answers;
pub mod backup;
pub mod check;
pub mod disk;
pub mod engine;
pub mod error;
pub mod families;
pub mod frame;
pub mod journal;
pub mod lock;
pub mod make;
pub mod open;
pub mod profiles;
pub mod queues;
pub mod record;
pub mod redb;
pub mod replay;
pub mod scan;
pub mod sled;
pub mod snapshot;
pub mod suspect;

pub use access::{SavedAccess, SavedFor, SavedPolicy, SavedShare, SavedToken};
pub use answers::SavedAnswer;
pub use disk::{DiskStore, Documents};
pub use error::StoreError;
pub use families::{SavedFamily, SavedKind};
pub use journal::Journal;
pub use open::{Opened, open};
pub use profiles::{SavedProfile, SavedProfiles};

use std::path::PathBuf;

/// Largest value accepted. Bytes.
pub const MAX_VALUE: usize = 4 << 20;

/// One change of the table of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record is this now.
    Put {
        /// Its key: printable, without `#`.
        key: String,
        /// Its value.
        value: Vec<u8>,
    },
    /// The record is gone.
    Remove {
        /// Its key.
        key: String,
    },
}

/// Where records are kept.
pub trait Store: Send + std::fmt::Debug {
    /// Makes all the changes or none; they are durable when this returns.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;
    /// Every record but documents, by key.
    fn load(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError>;
    /// Writes every record but documents into one file beside the database.
    fn snapshot(&mut self) -> Result<PathBuf, StoreError>;
}
