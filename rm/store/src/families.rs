//! What tasks of earlier jobs have needed: one record for each user and name, so that the next job of that name need not find out again.
//!
//! The core knows nothing of them, and a cluster goes on without them. How much is kept is the server's business.

use headroom_types::{Name, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::replay::ReplayError;

/// Keys of these records begin so.
pub(crate) const FAMILIES: &str = "family/";

/// One family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFamily {
    /// Who submitted its jobs.
    pub user: String,
    /// The name of its jobs.
    pub name: Name,
    /// Jobs that have taught something.
    pub runs: u32,
    /// When the latest ended.
    pub last: UnixMillis,
    /// Its stages.
    pub kinds: Vec<SavedKind>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedKind {
    /// Its name.
    pub name: String,
    /// For each task: peak, first and last size in bytes, kills, runtime in milliseconds.
    pub tasks: Vec<[u64; 5]>,
}

/// The record's key. A user may be called anything, and keys are plain.
pub(crate) fn record_key(user: &str, name: &Name) -> String {
    use std::fmt::Write as _;
    let mut key = user.bytes().fold(FAMILIES.to_owned(), |mut hex, byte| {
        // Writing to a text cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    key.push('/');
    key.push_str(name.as_str());
    key
}

/// All families among the records.
///
/// # Errors
/// The first record that cannot be what was written.
pub fn families(records: &[(String, Vec<u8>)]) -> Result<Vec<SavedFamily>, ReplayError> {
    let ours = records.iter().filter(|(key, _)| key.starts_with(FAMILIES));
    ours.map(|(key, value)| serde_json::from_slice(value).map_err(|source| ReplayError::Text { key: key.to_owned(), source }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_comes_back_and_a_damaged_one_is_named() {
        let name: Name = "count".parse().expect("a name");
        let kinds = vec![SavedKind { name: "map".into(), tasks: vec![[5, 6, 7, 1, 900]] }];
        let family = SavedFamily { user: "a/b".into(), name: name.clone(), runs: 2, last: UnixMillis(9), kinds };
        let key = record_key("a/b", &name);
        assert_eq!(key, "family/612f62/count");
        let record = (key.clone(), serde_json::to_vec(&family).expect("encodes"));
        assert_eq!(families(std::slice::from_ref(&record)).expect("reads"), [family]);
        let damaged = families(&[(key, b"{".to_vec())]).expect_err("is damaged");
        assert!(damaged.to_string().contains("family/612f62/count"), "{damaged}");
        assert_ne!(record_key("a", &name), record_key("A", &name), "users are told apart");
    }
}
