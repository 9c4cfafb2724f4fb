//! Usage history of earlier jobs: one record per user and job name, for the sizes of the next job
//! of that name.
//!
//! The core does not know it, and a cluster works without it. The server decides how much is kept.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Name, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::replay_error::{ReplayError, parse};

/// Prefix of the keys of these records.
pub(crate) const FAMILIES: &str = "family/";

/// The usage history of one user's jobs of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedJobHistory {
    /// The user that submitted the jobs.
    pub user: String,
    /// The name of the jobs.
    pub name: Name,
    /// The number of jobs that contributed.
    pub runs: u32,
    /// The end of the latest job.
    pub last: UnixMillis,
    /// Its kinds of tasks.
    pub kinds: Vec<SavedKind>,
    /// Sizes of single tasks; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enlarged: Vec<SavedEnlargedTask>,
}

/// The size with which one task succeeded after it ran out of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedEnlargedTask {
    /// The name of the task in every run.
    pub name: String,
    /// Its rung.
    pub rung: u32,
    /// Its processors.
    pub cpus: u32,
    /// Its memory by part. Bytes.
    pub memory: BTreeMap<Name, Bytes>,
}

/// The history of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedKind {
    /// The name of the kind.
    pub name: String,
    /// For each task: peak, first and last size in bytes, number of kills, runtime in milliseconds.
    pub tasks: Vec<[u64; 5]>,
}

/// The key of the record. The user is hexadecimal, because user names may contain any characters.
pub(crate) fn record_key(user: &str, name: &Name) -> String {
    use std::fmt::Write as _;
    let mut key = user.bytes().fold(FAMILIES.to_owned(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    key.push('/');
    key.push_str(name.as_str());
    key
}

/// All usage histories among the records.
///
/// # Errors The first record that cannot be parsed.
pub fn families(records: &[(String, Vec<u8>)]) -> Result<Vec<SavedJobHistory>, ReplayError> {
    let ours = records.iter().filter(|(key, _)| key.starts_with(FAMILIES));
    ours.map(|(key, value)| parse(key, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_history_is_restored_and_a_damaged_record_is_named() {
        let name: Name = "count".parse().expect("a name");
        let kinds = vec![SavedKind {
            name: "map".into(),
            tasks: vec![[5, 6, 7, 1, 900]],
        }];
        let family = SavedJobHistory {
            user: "a/b".into(),
            name: name.clone(),
            runs: 2,
            last: UnixMillis(9),
            kinds,
            enlarged: Vec::new(),
        };
        let key = record_key("a/b", &name);
        assert_eq!(key, "family/612f62/count");
        let record = (key.clone(), serde_json::to_vec(&family).expect("encodes"));
        assert_eq!(
            families(std::slice::from_ref(&record)).expect("reads"),
            [family]
        );
        let damaged = families(&[(key, b"{".to_vec())]).expect_err("the record is damaged");
        assert!(
            damaged.to_string().contains("family/612f62/count"),
            "{damaged}"
        );
        assert_ne!(
            record_key("a", &name),
            record_key("A", &name),
            "each user has a separate key"
        );
    }
}
