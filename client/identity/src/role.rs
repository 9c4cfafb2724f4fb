//! Roles of certificate holders: one URI in the names of a certificate,
//! `headroom://node/worker-01`.

use std::fmt;
use std::str::FromStr;

use headroom_types::NodeId;

/// The role of a certificate holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateRole {
    /// A resource manager.
    Manager,
    /// The agent of a node.
    Node(NodeId),
    /// A user of the cluster.
    User(String),
}

/// The error of a text that is not a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a role; the roles are manager, node/NAME and user/NAME")]
pub struct ParseRoleError(pub String);

const SCHEME: &str = "headroom://";

impl CertificateRole {
    /// The URI of the role in a certificate.
    pub fn uri(&self) -> String {
        format!("{SCHEME}{self}")
    }

    /// Parses the URI of a role.
    ///
    /// # Errors
    /// The URI is not a Headroom role.
    pub fn from_uri(uri: &str) -> Result<Self, ParseRoleError> {
        uri.strip_prefix(SCHEME)
            .ok_or_else(|| ParseRoleError(uri.to_owned()))?
            .parse()
    }
}

impl fmt::Display for CertificateRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateRole::Manager => f.write_str("manager"),
            CertificateRole::Node(node) => write!(f, "node/{node}"),
            CertificateRole::User(user) => write!(f, "user/{user}"),
        }
    }
}

impl FromStr for CertificateRole {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let wrong = || ParseRoleError(text.chars().take(80).collect());
        match text.split_once('/') {
            None if text == "manager" => Ok(CertificateRole::Manager),
            Some(("node", node)) => node.parse().map(CertificateRole::Node).map_err(|_| wrong()),
            Some(("user", user)) if is_user(user) => Ok(CertificateRole::User(user.to_owned())),
            Some(_) | None => Err(wrong()),
        }
    }
}

/// True for a valid account name: lower-case letters, digits, `.`, `_` and `-`, at most 32
/// characters.
pub fn is_user(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=32).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_round_trip_as_text() {
        for text in ["manager", "node/worker-01", "user/alice", "user/_apt.x"] {
            let role: CertificateRole = text.parse().expect("a role");
            assert_eq!(role.to_string(), text);
            assert_eq!(CertificateRole::from_uri(&role.uri()), Ok(role));
        }
    }

    #[test]
    fn invalid_roles_are_refused() {
        let long = format!("user/{}", "a".repeat(33));
        for text in [
            "",
            "managers",
            "manager/x",
            "node/",
            "node/../x",
            "node/a/b",
            "user/",
            "user/a b",
            "user/1",
            "root",
            &long,
        ] {
            assert!(text.parse::<CertificateRole>().is_err(), "{text}");
        }
        assert!(CertificateRole::from_uri("https://manager").is_err());
    }
}
