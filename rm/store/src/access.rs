//! Access data on disk: hashes of tokens, policies, and the key that derives application tokens.
//!
//! One record holds all of it, so that a reader never sees a partial change. It contains no tokens,
//! only hashes that verify them.

use headroom_types::{AppId, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::replay_error::{ReplayError, parse};

/// Key of the one [`SavedAccess`] record.
pub(crate) const ACCESS: &str = "access";

/// All access data.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAccess {
    /// Increases with every change.
    pub generation: u64,
    /// The key of application tokens: 32 bytes in hexadecimal digits. Secret.
    pub app_key: String,
    /// Whether the first token was issued; it is issued only once.
    #[serde(default)]
    pub bootstrapped: bool,
    /// Valid tokens.
    #[serde(default)]
    pub tokens: Vec<SavedToken>,
    /// Rights of accounts that differ from the defaults.
    #[serde(default)]
    pub policies: Vec<SavedPolicy>,
    /// Accounts that may view or change single applications.
    #[serde(default)]
    pub shares: Vec<SavedShare>,
}

/// The accounts that may view or change one application, as its owner set them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedShare {
    /// The application.
    pub app: AppId,
    /// Accounts that may view it, and groups with `@`.
    #[serde(default)]
    pub view: Vec<String>,
    /// Accounts and groups that may change and end it.
    #[serde(default)]
    pub change: Vec<String>,
}

headroom_types::debug_fields!(SavedAccess {
    generation,
    bootstrapped,
    tokens,
    policies
});

/// One token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedToken {
    /// The public name of the token.
    pub accessor: String,
    /// SHA-256 of its secret, in hexadecimal digits.
    pub hash: String,
    /// Its purpose.
    pub for_whom: SavedTokenPurpose,
    /// The description by its author.
    #[serde(default)]
    pub about: String,
    /// The account that created it.
    pub by: String,
    /// The time of its creation.
    pub created: UnixMillis,
    /// The time of its expiry; `None` is unlimited.
    pub expires: Option<UnixMillis>,
}

/// The purpose of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedTokenPurpose {
    /// Authenticates a user.
    User {
        /// The user.
        user: String,
        /// The rights of the token.
        rights: Vec<String>,
    },
    /// Lets a host join as a node, once.
    Join {
        /// The node; `None` allows any.
        node: Option<String>,
        /// Names and addresses of the node; empty means the caller's address.
        names: Vec<String>,
    },
}

/// The rights of an account or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPolicy {
    /// `alice`, or `@etl` for a group.
    pub subject: String,
    /// The rights.
    pub rights: Vec<String>,
}

/// The access data among the records.
///
/// # Errors The record cannot be parsed.
pub fn access(records: &[(String, Vec<u8>)]) -> Result<SavedAccess, ReplayError> {
    let Some((key, value)) = records.iter().find(|(key, _)| key == ACCESS) else {
        return Ok(SavedAccess::default());
    };
    parse(key, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_restored_and_the_key_is_not_printed() {
        let token = SavedToken {
            accessor: "4f1c8a2b9d3e5f60".into(),
            hash: "00".repeat(32),
            for_whom: SavedTokenPurpose::User {
                user: "alice".into(),
                rights: vec!["job:read".into()],
            },
            about: "ci".into(),
            by: "root".into(),
            created: UnixMillis(7),
            expires: Some(UnixMillis(9)),
        };
        let join = SavedToken {
            for_whom: SavedTokenPurpose::Join {
                node: Some("n1".into()),
                names: vec![],
            },
            ..token.clone()
        };
        let policies = vec![SavedPolicy {
            subject: "@etl".into(),
            rights: vec!["queue:root.etl".into()],
        }];
        let app = "sort.1".parse().expect("an app");
        let shares = vec![SavedShare {
            app,
            view: vec!["bob".into()],
            change: vec![],
        }];
        let key = "ab".repeat(32);
        let all = SavedAccess {
            generation: 3,
            app_key: key.clone(),
            bootstrapped: true,
            tokens: vec![token, join],
            policies,
            shares,
        };
        let record = (
            ACCESS.to_owned(),
            serde_json::to_vec(&all).expect("encodes"),
        );
        assert_eq!(access(&[record]).expect("reads"), all);
        assert_eq!(
            access(&[]).expect("reads no tokens"),
            SavedAccess::default()
        );
        assert!(!format!("{all:?}").contains(&key));
        access(&[(ACCESS.to_owned(), b"[".to_vec())]).expect_err("the record is damaged");
    }
}
