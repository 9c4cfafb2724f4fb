//! Assembles, checks and counts records from entries. It only reads.
//!
//! It compares the records with the [`BatchSeal`], so that missing parts are detected.

use std::collections::BTreeMap;
use std::ops::Bound;

use headroom_types::AppId;

use crate::engine::StorageEngine;
use crate::engine_error::EngineError;
use crate::entry::{ALL_KEYS, KeyRange};
use crate::frame;
use crate::master_journal;
use crate::record::DOCUMENTS;
use crate::seal::{BatchSeal, FORMAT, SEAL};

/// The result of a complete scan.
#[derive(Debug, Default)]
pub struct ScanResult {
    /// The seal; `None` in a database that was never written.
    pub seal: Option<BatchSeal>,
    /// The number of pieces of each record.
    pub pieces: BTreeMap<String, usize>,
    /// All records except documents.
    pub records: Vec<(String, Vec<u8>)>,
    /// Total size of all documents. In bytes.
    pub document_bytes: u64,
}

/// A fault of the database.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The database could not be read.
    #[error("{0}")]
    Database(#[from] EngineError),
    /// A value is damaged.
    #[error("{0}")]
    Frame(#[from] frame::FrameError),
    /// A key is not UTF-8.
    #[error("it contains a key that is not UTF-8")]
    Key,
    /// A piece has no head.
    #[error("it contains a misplaced part of {0}")]
    Stray(String),
    /// The seal cannot be parsed.
    #[error("its seal cannot be read")]
    Seal,
    /// The layout is of another version.
    #[error("it has format {0}")]
    Format(u32),
    /// The number of records differs from the seal.
    #[error("it contains {found} records instead of {sealed}")]
    Count {
        /// The number of records in the database.
        found: u64,
        /// The number in the seal.
        sealed: u64,
    },
}

/// Reads every entry and compares the records with the seal.
pub fn scan(engine: &StorageEngine) -> Result<ScanResult, ScanError> {
    let mut scan = ScanResult::default();
    records(engine, ALL_KEYS, |key, value, pieces| {
        if key == SEAL {
            let seal: BatchSeal = serde_json::from_slice(&value).map_err(|_| ScanError::Seal)?;
            if seal.format != FORMAT {
                return Err(ScanError::Format(seal.format));
            }
            scan.seal = Some(seal);
            return Ok(());
        }
        if key.starts_with(DOCUMENTS) {
            scan.document_bytes += u64::try_from(value.len()).unwrap_or(u64::MAX);
        } else {
            scan.records.push((key.clone(), value));
        }
        scan.pieces.insert(key, pieces);
        Ok(())
    })?;
    let found = u64::try_from(scan.pieces.len()).unwrap_or(u64::MAX);
    let sealed = scan.seal.map_or(0, |s| s.records);
    if found != sealed {
        Err(ScanError::Count { found, sealed })
    } else {
        Ok(scan)
    }
}

/// All records except documents and the seal, by key.
pub fn without_documents(engine: &StorageEngine) -> Result<Vec<(String, Vec<u8>)>, ScanError> {
    // Documents are skipped because they may be large, and the loop waits for this function.
    let after = after(DOCUMENTS);
    let before = (Bound::Unbounded, Bound::Excluded(DOCUMENTS.as_bytes()));
    let mut found = Vec::new();
    for keys in [
        before,
        (Bound::Included(after.as_slice()), Bound::Unbounded),
    ] {
        records(engine, keys, |key, value, _| {
            if key != SEAL {
                found.push((key, value));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Passes the documents to `see` one after another, until it returns [`ScanControl::No`].
pub fn documents(
    engine: &StorageEngine,
    mut see: impl FnMut(&str, &[u8]) -> ScanControl,
) -> Result<(), ScanError> {
    let after = after(DOCUMENTS);
    let keys = (
        Bound::Included(DOCUMENTS.as_bytes()),
        Bound::Excluded(after.as_slice()),
    );
    let mut going = ScanControl::Yes;
    records(engine, keys, |key, value, _| {
        if going == ScanControl::Yes {
            going = see(&key, &value);
        }
        Ok(())
    })
}

/// Whether the iteration continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanControl {
    /// Continue.
    Yes,
    /// Stop.
    No,
}

/// Passes the groups in the journal of an application's master to `see`, in order.
pub(crate) fn journal_groups(
    engine: &StorageEngine,
    app: &AppId,
    mut see: impl FnMut(&[u8]),
) -> Result<(), ScanError> {
    let prefix = master_journal::prefix(app);
    let after = after(&prefix);
    let keys = (
        Bound::Included(prefix.as_bytes()),
        Bound::Excluded(after.as_slice()),
    );
    records(engine, keys, |_, value, _| {
        see(&value);
        Ok(())
    })
}

/// The first key after all keys with this prefix.
fn after(prefix: &str) -> Vec<u8> {
    let mut after = prefix.as_bytes().to_vec();
    if let Some(last) = after.last_mut() {
        *last += 1;
    }
    after
}

/// A record during its assembly.
struct PartialRecord {
    key: String,
    head: Vec<u8>,
    pieces: Vec<Vec<u8>>,
}

/// Assembles records from entries in key order. Passes key, value and number of pieces to `see`.
fn records(
    engine: &StorageEngine,
    keys: KeyRange<'_>,
    mut see: impl FnMut(String, Vec<u8>, usize) -> Result<(), ScanError>,
) -> Result<(), ScanError> {
    let mut close = |part: PartialRecord| {
        let value = frame::value(&part.key, &part.head, part.pieces.iter().map(Vec::as_slice))?;
        see(part.key, value, part.pieces.len())
    };
    let mut open: Option<PartialRecord> = None;
    engine.walk(keys, |key, bytes| {
        let entry = std::str::from_utf8(key).map_err(|_| ScanError::Key)?;
        let (owner, head) = frame::owner(entry);
        if head {
            let before = open.replace(PartialRecord {
                key: owner.to_owned(),
                head: bytes.to_vec(),
                pieces: Vec::new(),
            });
            return before.map_or(Ok(()), &mut close);
        }
        match &mut open {
            Some(part)
                if part.key == owner && entry == frame::piece_key(&part.key, part.pieces.len()) =>
            {
                part.pieces.push(bytes.to_vec());
                Ok(())
            }
            Some(_) | None => Err(ScanError::Stray(entry.to_owned())),
        }
    })?;
    open.map_or(Ok(()), close)
}
