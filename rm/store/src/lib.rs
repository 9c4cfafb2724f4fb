//! State of the resource manager that its nodes and masters cannot restore: applications, attempts,
//! ended containers, the epoch.
//!
//! The loop of the daemon owns it; one process at a time uses it. A batch of records is durable
//! when [`RecordStore::commit`] returns. After a crash, a batch is present completely or not at
//! all. A damaged database is refused and stays unchanged.
//!
//! *Architecture Invariant*: the store never keeps data that heartbeats report. Records have their
//! own types, separate from those of the core and the wire, so that each of the three can change
//! alone.

#![forbid(unsafe_code)]

#[macro_use]
mod mirror;
pub mod access;
pub mod anchor;
pub mod backup;
pub mod check;
pub mod database;
pub mod engine;
pub mod engine_error;
pub mod entry;
pub mod error;
pub mod etcd;
pub mod etcd_checks;
pub mod etcd_state;
pub mod frame;
pub mod history;
pub mod idempotency;
pub mod integrity;
pub mod journal;
pub mod local_database;
pub mod lock;
pub mod logged_database;
pub mod make;
pub mod master_journal;
pub mod open;
pub mod overlay;
pub mod profiles;
pub mod queues;
pub mod record;
pub mod redb;
pub mod replay;
pub mod replay_error;
pub mod scan;
pub mod seal;
pub mod sled;
pub mod snapshot;
pub mod write_ahead_log;

mod cluster_identity;
mod damage;

pub use access::{SavedAccess, SavedPolicy, SavedShare, SavedToken, SavedTokenPurpose};
pub use database::{DatabaseStore, Documents};
pub use error::StoreError;
pub use history::{SavedEnlargedTask, SavedJobHistory, SavedKind};
pub use idempotency::SavedResponse;
pub use journal::{RecordBatch, RecordJournal};
pub use master_journal::JournalGroup;
pub use open::{OpenedStore, open, open_in_etcd, open_with_log};
pub use profiles::{SavedProfile, SavedProfiles};

use std::path::PathBuf;

/// Maximum size of a value. In bytes.
pub const MAX_VALUE: usize = 4 << 20;

/// One change of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// Sets the record to this value.
    Put {
        /// Its key: printable, without `#`.
        key: String,
        /// Its value.
        value: Vec<u8>,
    },
    /// Removes the record.
    Remove {
        /// Its key.
        key: String,
    },
}

/// A durable set of records.
pub trait RecordStore: Send + std::fmt::Debug {
    /// Makes all changes or none. They are durable when this returns.
    fn commit(&mut self, changes: &[RecordChange]) -> Result<(), StoreError>;
    /// All records except documents, by key.
    fn load(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError>;
    /// Keys of the records with this prefix, in order.
    fn keys(&self, prefix: &str) -> Vec<String>;
    /// Writes all records except documents into one file next to the database.
    fn snapshot(&mut self) -> Result<PathBuf, StoreError>;
}
