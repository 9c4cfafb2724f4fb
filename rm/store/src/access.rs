//! Who may come in, as it lies on disk: hashes of tokens, policies, and the key by which tokens of applications are made.
//!
//! One record holds all of it, so that it is never seen half changed. No token is in it, only what tells one again.

use headroom_types::{AppId, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::replay::ReplayError;

/// Key of the one [`SavedAccess`] record.
pub(crate) const ACCESS: &str = "access";

/// All of it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAccess {
    /// Counts up with every change.
    pub generation: u64,
    /// 32 bytes in hexadecimal digits, by which tokens of applications are made. Secret.
    pub app_key: String,
    /// Somebody has taken the first token; nobody can take it again.
    #[serde(default)]
    pub bootstrapped: bool,
    /// Tokens that hold.
    #[serde(default)]
    pub tokens: Vec<SavedToken>,
    /// What accounts may, where it is not the usual.
    #[serde(default)]
    pub policies: Vec<SavedPolicy>,
    /// Whom owners let come near their applications.
    #[serde(default)]
    pub shares: Vec<SavedShare>,
}

/// Whom the owner of one application lets come near it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedShare {
    /// Which.
    pub app: AppId,
    /// Who may look: accounts, and groups with `@`.
    #[serde(default)]
    pub view: Vec<String>,
    /// Who may change and end it.
    #[serde(default)]
    pub change: Vec<String>,
}

impl std::fmt::Debug for SavedAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SavedAccess { generation, bootstrapped, tokens, policies, .. } = self;
        let mut shown = f.debug_struct("SavedAccess");
        shown.field("generation", generation).field("bootstrapped", bootstrapped);
        shown.field("tokens", tokens).field("policies", policies).finish_non_exhaustive()
    }
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedToken {
    /// How it is named.
    pub accessor: String,
    /// SHA-256 of its secret, hexadecimal digits.
    pub hash: String,
    /// What it is for.
    pub for_whom: SavedFor,
    /// What it is for, in the words of whoever made it.
    #[serde(default)]
    pub about: String,
    /// Who made it.
    pub by: String,
    /// When.
    pub created: UnixMillis,
    /// Until then; for ever when it is nothing.
    #[serde(default)]
    pub expires: Option<UnixMillis>,
}

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedFor {
    /// Somebody works with the cluster.
    User {
        /// In whose name.
        user: String,
        /// What they may.
        rights: Vec<String>,
    },
    /// A host becomes a node, once.
    Join {
        /// Which node; any when it is nothing.
        node: Option<String>,
        /// At which names and addresses; where it calls from when there are none.
        names: Vec<String>,
    },
}

/// What an account or a group may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPolicy {
    /// `alice`, or `@etl` for a group.
    pub subject: String,
    /// What they may.
    pub rights: Vec<String>,
}

/// It among the records.
///
/// # Errors
/// The record cannot be what was written.
pub fn access(records: &[(String, Vec<u8>)]) -> Result<SavedAccess, ReplayError> {
    let Some((key, value)) = records.iter().find(|(key, _)| key == ACCESS) else { return Ok(SavedAccess::default()) };
    serde_json::from_slice(value).map_err(|source| ReplayError::Text { key: key.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_the_key_is_not_printed() {
        let token = SavedToken {
            accessor: "4f1c8a2b9d3e5f60".into(),
            hash: "00".repeat(32),
            for_whom: SavedFor::User { user: "alice".into(), rights: vec!["job:read".into()] },
            about: "ci".into(),
            by: "root".into(),
            created: UnixMillis(7),
            expires: Some(UnixMillis(9)),
        };
        let join = SavedToken { for_whom: SavedFor::Join { node: Some("n1".into()), names: vec![] }, ..token.clone() };
        let policies = vec![SavedPolicy { subject: "@etl".into(), rights: vec!["queue:root.etl".into()] }];
        let app = "sort.1".parse().expect("an app");
        let shares = vec![SavedShare { app, view: vec!["bob".into()], change: vec![] }];
        let key = "ab".repeat(32);
        let all =
            SavedAccess { generation: 3, app_key: key.clone(), bootstrapped: true, tokens: vec![token, join], policies, shares };
        let record = (ACCESS.to_owned(), serde_json::to_vec(&all).expect("encodes"));
        assert_eq!(access(&[record]).expect("reads"), all);
        assert_eq!(access(&[]).expect("none yet"), SavedAccess::default());
        assert!(!format!("{all:?}").contains(&key));
        access(&[(ACCESS.to_owned(), b"[".to_vec())]).expect_err("is damaged");
    }
}
