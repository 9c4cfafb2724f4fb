//! Who may come in: tokens, policies, and hosts that become nodes.

use headroom_types::{NodeId, UnixMillis};
use serde::{Deserialize, Serialize};

/// Most bytes of [`NewToken::about`].
pub const LONGEST_ABOUT: usize = 200;

/// A text that is not printed by `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `POST /v1/acl/tokens`: a token for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// In whose name it acts; the caller's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it may: `job:submit`, `queue:root.etl` … Never more than the caller may.
    pub rights: Vec<String>,
    /// How long it holds, seconds; for ever when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
    /// What it is for. At most 200 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

/// `POST /v1/acl/join-tokens`: a token by which one host becomes a node, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewJoinToken {
    /// The node it is for; any when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Host names and addresses that may stand in its certificate; the address it calls from when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// How long it can be used, seconds; a day when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    /// How it is named: 16 hexadecimal digits.
    pub accessor: String,
    /// `user` or `join`.
    pub kind: TokenKind,
    /// In whose name it acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<String>,
    /// The node that may join with it; any when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Who made it.
    pub by: String,
    /// When.
    pub created: UnixMillis,
    /// Until then; for ever when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<UnixMillis>,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// Somebody works with the cluster.
    User,
    /// A host becomes a node, once.
    Join,
}

impl TokenKind {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenKind::User => "user",
            TokenKind::Join => "join",
        }
    }
}

/// A token with its secret. It is shown this once and kept by nobody but its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MintedToken {
    /// The whole text.
    pub token: Secret,
    /// What is kept of it.
    pub view: TokenView,
}

/// `PUT /v1/acl/policies/{subject}`: what an account or a group may from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// `job:submit`, `queue:root.etl` …
    pub rights: Vec<String>,
}

/// What an account or a group may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyView {
    /// `alice`, or `@etl` for a group of the host whose socket was called at.
    pub subject: String,
    /// What they may.
    pub rights: Vec<String>,
}

/// `GET` and `PUT /v1/apps/{app}/access`: whom an application's owner lets come near it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AppAccess {
    /// Who may look at it: accounts, and groups of the manager's host written with `@`. 32 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub view: Vec<String>,
    /// Who may change and end it too. 32 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<String>,
}

impl AppAccess {
    /// Nobody but its owner, and who may more than their own.
    pub fn is_nobody(&self) -> bool {
        self.view.is_empty() && self.change.is_empty()
    }
}

/// `GET /v1/acl/self`: who calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhoAmI {
    /// As it stands in the record of changes; nothing where nobody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The token that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenView>,
    /// What may be done.
    pub rights: Vec<String>,
}

/// `POST /v1/join`: a host becomes a node. The key stays where it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The name it is to have.
    pub node: NodeId,
    /// Host names and addresses it is reached at.
    #[serde(default)]
    pub names: Vec<String>,
    /// A request for a certificate, PEM. Only its key is looked at.
    pub request: String,
}

/// A host has become a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Joined {
    /// Its certificate, PEM.
    pub certificate: String,
    /// Who vouches for everybody in the cluster, PEM.
    pub ca: String,
}

/// `GET /v1/ca`: who vouches for everybody in the cluster. Compare its fingerprint before it is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CaView {
    /// PEM.
    pub ca: String,
    /// SHA-256 of the first certificate in it, hexadecimal digits.
    pub fingerprint: String,
}
