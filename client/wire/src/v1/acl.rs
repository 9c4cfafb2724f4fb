//! Access control: tokens, policies, and join of hosts.

use headroom_types::{NodeId, UnixMillis, word_enum};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum length of [`CreateTokenRequest::about`]. Bytes.
pub const MAX_ABOUT_BYTES: usize = 200;

/// A secret text that `Debug` does not print.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `POST /v1/acl/tokens`: create a token for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// User that the token represents; the caller if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Rights: `job:submit`, `queue:root.etl` … Never more than the rights of the caller.
    pub rights: Vec<String>,
    /// Lifetime; unlimited if omitted. Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
    /// Purpose, at most 200 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

/// `POST /v1/acl/join-tokens`: create a token with which one host joins as a node, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinTokenRequest {
    /// Node for which the token is valid; any node if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Host names and addresses that the certificate may contain; the address of the caller if
    /// omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Lifetime; one day if omitted. Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Accessor, the public id of the token: 16 hexadecimal digits.
    pub accessor: String,
    /// `user` or `join`.
    pub kind: TokenKind,
    /// User that the token represents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Rights of the token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<String>,
    /// Node for which a join token is valid; any node if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// User that created it.
    pub by: String,
    /// Time of creation.
    pub created: UnixMillis,
    /// Time of expiry; never if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<UnixMillis>,
}

word_enum! {
    /// The purpose of a token.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum TokenKind: "is not a kind of token; use" {
        /// Access of a user.
        User = "user",
        /// One join of a host as a node.
        Join = "join",
    }
}

/// A new token with its secret. The response shows the secret once; the resource manager does not
/// store it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MintedToken {
    /// The complete token.
    pub token: SecretText,
    /// The stored part.
    pub view: TokenView,
}

/// `PUT /v1/acl/policies/{subject}`: replace the rights of a user or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// Rights: `job:submit`, `queue:root.etl` …
    pub rights: Vec<String>,
}

/// The rights of a user or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// `alice`, or `@etl` for a group of the host whose Unix socket accepted the call.
    pub subject: String,
    /// Rights of the subject.
    pub rights: Vec<String>,
}

/// `GET` and `PUT /v1/apps/{app}/access`: users and groups that may view or change an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AppAccess {
    /// Users, and groups of the resource manager's host with a leading `@`, that may view it. At
    /// most 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub view: Vec<String>,
    /// Users and groups that may also change and end it. At most 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<String>,
}

impl AppAccess {
    /// True if only its owner, and callers with rights on other users' applications, have access.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty() && self.change.is_empty()
    }
}

/// `GET /v1/acl/self`: the authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerIdentity {
    /// Name of the caller, as in the audit log; absent without authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The token of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenView>,
    /// Rights of the caller.
    pub rights: Vec<String>,
}

/// `POST /v1/join`: join a host as a node. The private key stays on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeJoinRequest {
    /// Name of the new node.
    pub node: NodeId,
    /// Host names and addresses of the host.
    #[serde(default)]
    pub names: Vec<String>,
    /// Certificate signing request, PEM. Only its public key is used.
    pub request: String,
}

/// The response to a join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinResponse {
    /// Its certificate, PEM.
    pub certificate: String,
    /// Certificate of the cluster's authority, PEM.
    pub ca: String,
}

/// `GET /v1/ca`: certificate of the cluster's authority. Compare the fingerprint before you trust
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityView {
    /// Certificate, PEM.
    pub ca: String,
    /// SHA-256 of its first certificate, in hexadecimal digits.
    pub fingerprint: String,
}
