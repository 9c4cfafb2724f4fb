//! Access control state: issued tokens, policies of users and groups, shares, and the key that
//! signs application tokens.
//!
//! Only the main loop changes it and journals each change; the interface sees the durable state. Of
//! each token only its hash is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_identity::role::is_user;
use headroom_identity::token::{AppTokenKey, NoRandomness, random};
use headroom_identity::{
    AccessRight, AccessRights, Principal, SecretToken, SecretTokenKind, Sha256Digest, TokenAccessor,
};
use headroom_rm_store::{SavedAccess, SavedPolicy, SavedShare, SavedToken, SavedTokenPurpose};
use headroom_types::{AppId, AttemptId, NodeId, UnixMillis, millis};
use headroom_wire::v1::acl::{AppAccess, PolicyView, TokenKind, TokenView};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

/// Limit on stored tokens.
const MOST_TOKENS: usize = 10_000;
/// Limit on applications that are shared with other users.
const MOST_SHARES: usize = 10_000;
/// Limit on stored policies.
const MOST_POLICIES: usize = 2_000;

/// Limit on the saved form of tokens, policies and shares together: the store keeps it as one value
/// of at most 4 MiB, and a value that cannot be stored would end the resource manager.
const MAX_SAVED_BYTES: usize = 3 << 20;

/// Access control state of the cluster.
#[derive(Clone)]
pub(crate) struct AccessControl {
    /// Incremented by every change.
    pub(crate) generation: u64,
    secret: [u8; 32],
    key: AppTokenKey,
    bootstrapped: bool,
    tokens: BTreeMap<TokenAccessor, StoredToken>,
    policies: BTreeMap<String, AccessRights>,
    /// Users and groups with which owners share their applications.
    shares: BTreeMap<AppId, AppAccess>,
}

impl std::fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessControl")
            .field("generation", &self.generation)
            .field("tokens", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

/// Stored record of a token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredToken {
    pub(crate) hash: Sha256Digest,
    pub(crate) whose: TokenPurpose,
    pub(crate) about: String,
    pub(crate) by: String,
    pub(crate) created: UnixMillis,
    pub(crate) expires: Option<UnixMillis>,
}

/// Purpose of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenPurpose {
    /// Authenticates a user.
    User { user: String, rights: AccessRights },
    /// Lets a host join the cluster as a node, once.
    Join {
        node: Option<NodeId>,
        names: Vec<String>,
    },
}

/// Requested change of the access state.
#[derive(Clone, Debug)]
pub(crate) enum AccessChange {
    /// Stores a new token; `first` marks the bootstrap token.
    Keep {
        accessor: TokenAccessor,
        held: StoredToken,
        first: bool,
    },
    /// Revokes a token.
    Revoke(TokenAccessor),
    /// Consumes a join token when its host joins.
    Spend { accessor: TokenAccessor },
    /// Replaces the policy of a user or group.
    Allow {
        subject: String,
        rights: AccessRights,
    },
    /// Removes the policy of a user or group, so that the default rights apply again.
    Forget { subject: String },
    /// Replaces the users and groups that may view or change an application.
    Share { app: AppId, access: AppAccess },
}

/// The token record concerned by the change, for the audit log, or the reason for a refusal.
pub(crate) type AccessChangeResult = ProblemResult<Option<StoredToken>>;

impl AccessControl {
    /// Restores the state that an earlier incarnation saved. A new cluster gets a random
    /// application key, which the caller must save.
    pub(crate) fn restored(saved: &SavedAccess) -> Result<Self, NoRandomness> {
        let known = saved.app_key.parse::<Sha256Digest>().ok();
        let secret = match known {
            Some(hash) => *hash.bytes(),
            None => random()?,
        };
        let tokens = saved
            .tokens
            .iter()
            .filter_map(|token| Some((token.accessor.parse().ok()?, held(token)?)));
        let policies = saved
            .policies
            .iter()
            .map(|p| (p.subject.clone(), rights(&p.rights)));
        Ok(AccessControl {
            generation: saved.generation + u64::from(known.is_none()),
            secret,
            key: AppTokenKey::new(&secret),
            bootstrapped: saved.bootstrapped,
            tokens: tokens.collect(),
            policies: policies.collect(),
            shares: saved
                .shares
                .iter()
                .map(|s| (s.app.clone(), shared(s)))
                .collect(),
        })
    }

    /// Returns the state in the form in which it is saved.
    pub(crate) fn saved(&self) -> SavedAccess {
        let words = |rights: &AccessRights| {
            rights
                .0
                .iter()
                .map(AccessRight::to_string)
                .collect::<Vec<_>>()
        };
        let token = |(accessor, held): (&TokenAccessor, &StoredToken)| SavedToken {
            accessor: accessor.to_string(),
            hash: held.hash.to_string(),
            for_whom: match &held.whose {
                TokenPurpose::User { user, rights } => SavedTokenPurpose::User {
                    user: user.clone(),
                    rights: words(rights),
                },
                TokenPurpose::Join { node, names } => SavedTokenPurpose::Join {
                    node: node.as_ref().map(ToString::to_string),
                    names: names.clone(),
                },
            },
            about: held.about.clone(),
            by: held.by.clone(),
            created: held.created,
            expires: held.expires,
        };
        SavedAccess {
            generation: self.generation,
            app_key: Sha256Digest::from_bytes(self.secret).to_string(),
            bootstrapped: self.bootstrapped,
            tokens: self.tokens.iter().map(token).collect(),
            policies: self
                .policies
                .iter()
                .map(|(s, r)| SavedPolicy {
                    subject: s.clone(),
                    rights: words(r),
                })
                .collect(),
            shares: self
                .shares
                .iter()
                .map(|(app, access)| saved_share(app, access))
                .collect(),
        }
    }

    /// Applies a change, or returns the reason for a refusal. Storing a new token also removes
    /// expired ones.
    pub(crate) fn change(&mut self, change: AccessChange, now: UnixMillis) -> AccessChangeResult {
        let before = self.clone();
        let ruled = self.apply(change, now)?;
        let size = self.saved_size();
        if size > MAX_SAVED_BYTES && size > before.saved_size() {
            *self = before;
            let problem = ProblemDetails::too_large(format!(
                "the tokens, policies and access lists of the cluster have at most {MAX_SAVED_BYTES} bytes together"
            ));
            return Err(problem.hint("revoke tokens with rmctl acl token revoke ACCESSOR, or name fewer rights and users"));
        }
        Ok(ruled)
    }

    fn saved_size(&self) -> usize {
        serde_json::to_vec(&self.saved()).map_or(usize::MAX, |saved| saved.len())
    }

    fn apply(&mut self, change: AccessChange, now: UnixMillis) -> AccessChangeResult {
        let ruled = match change {
            AccessChange::Keep {
                accessor,
                held,
                first,
            } => self.keep(accessor, held, first, now)?,
            AccessChange::Revoke(accessor) => Some(
                self.tokens
                    .remove(&accessor)
                    .ok_or_else(|| no_token(&accessor))?,
            ),
            AccessChange::Spend { accessor } => {
                let held = self.tokens.remove(&accessor).filter(|held| held.holds(now));
                Some(held.ok_or_else(|| unknown("this token was used or revoked, or has expired"))?)
            }
            AccessChange::Allow { subject, rights } => self.allow(subject, rights)?,
            AccessChange::Forget { subject } => {
                let gone = self.policies.remove(&subject);
                gone.map(|_| None)
                    .ok_or_else(|| ProblemDetails::not_found(format!("{subject} has no policy")))?
            }
            AccessChange::Share { app, access } => self.share(app, access)?,
        };
        self.generation += 1;
        Ok(ruled)
    }

    fn keep(
        &mut self,
        accessor: TokenAccessor,
        held: StoredToken,
        first: bool,
        now: UnixMillis,
    ) -> AccessChangeResult {
        if first && self.bootstrapped {
            let problem =
                ProblemDetails::conflict("the first token of this cluster already exists");
            return Err(problem.hint("as root on the manager's host, create another one: rmctl acl token create --right admin"));
        }
        self.tokens.retain(|_, held| held.holds(now));
        if self.tokens.len() >= MOST_TOKENS {
            return Err(ProblemDetails::too_large(format!(
                "the cluster keeps at most {MOST_TOKENS} tokens"
            ))
            .hint("revoke one with rmctl acl token revoke ACCESSOR"));
        }
        // A cluster with an administrator needs no first token.
        self.bootstrapped |= first || held.is_administrator();
        self.tokens.insert(accessor, held);
        Ok(None)
    }

    fn allow(&mut self, subject: String, rights: AccessRights) -> AccessChangeResult {
        if !self.policies.contains_key(&subject) && self.policies.len() >= MOST_POLICIES {
            return Err(ProblemDetails::too_large(format!(
                "the cluster keeps at most {MOST_POLICIES} policies"
            )));
        }
        self.policies.insert(subject, rights);
        Ok(None)
    }

    fn share(&mut self, app: AppId, access: AppAccess) -> AccessChangeResult {
        if access == AppAccess::default() {
            self.shares.remove(&app);
            return Ok(None);
        }
        if !self.shares.contains_key(&app) && self.shares.len() >= MOST_SHARES {
            return Err(ProblemDetails::too_large(format!(
                "the cluster keeps the access lists of at most {MOST_SHARES} applications"
            )));
        }
        self.shares.insert(app, access);
        Ok(None)
    }

    /// Removes the shares of applications that are no longer kept.
    pub(crate) fn forget_shares(&mut self, is_kept: impl Fn(&AppId) -> bool) {
        self.shares.retain(|app, _| is_kept(app));
    }

    /// Returns the users and groups that may view or change an application.
    pub(crate) fn shared(&self, app: &AppId) -> AppAccess {
        self.shares.get(app).cloned().unwrap_or_default()
    }

    /// Authenticates the bearer of a token.
    pub(crate) fn bearer(&self, text: &str, now: UnixMillis) -> ProblemResult<Principal> {
        if let Ok((_, attempt)) = self.key.check(text) {
            return Ok(Principal::Master(attempt));
        }
        if let Ok(app) = self.key.check_executor_token(text) {
            return Ok(Principal::Executor(app));
        }
        let (accessor, held) = self.found(text, SecretTokenKind::User, now)?;
        match &held.whose {
            TokenPurpose::User { user, rights } => Ok(Principal::User {
                name: user.clone(),
                token: Some(accessor),
                rights: rights.clone(),
                groups: [].into(),
            }),
            TokenPurpose::Join { .. } => {
                Err(unknown("a join token is valid for POST /v1/join only"))
            }
        }
    }

    /// Returns the accessor of a join token, the node that it is for, and the names for the
    /// certificate.
    pub(crate) fn joins(
        &self,
        text: &str,
        now: UnixMillis,
    ) -> ProblemResult<(TokenAccessor, Option<NodeId>, Vec<String>)> {
        let (accessor, held) = self.found(text, SecretTokenKind::Join, now)?;
        match &held.whose {
            TokenPurpose::Join { node, names } => Ok((accessor, node.clone(), names.clone())),
            TokenPurpose::User { .. } => Err(unknown(
                "this is not a join token; create one with rmctl acl join-token create",
            )),
        }
    }

    fn found(
        &self,
        text: &str,
        kind: SecretTokenKind,
        now: UnixMillis,
    ) -> ProblemResult<(TokenAccessor, &StoredToken)> {
        let token: SecretToken = text
            .parse()
            .map_err(|_| unknown("the presented text is not a token of this cluster"))?;
        let held = self
            .tokens
            .get(&token.accessor())
            .filter(|held| held.hash.matches(&token.hash()) && token.kind() == kind);
        let Some(held) = held else {
            return Err(unknown(
                "this token is not known: it was revoked, was used, or never existed",
            ));
        };
        if !held.holds(now) {
            return Err(unknown(&format!("token {} has expired", token.accessor())));
        }
        Ok((token.accessor(), held))
    }

    /// Rights of a user: those of the policies for the user and its groups, or `usual` if there is
    /// no such policy. An administrator keeps `usual` in any case.
    pub(crate) fn rights(
        &self,
        user: &str,
        groups: &[String],
        usual: AccessRights,
    ) -> AccessRights {
        if usual.has(&AccessRight::Admin) {
            return usual;
        }
        let subjects =
            std::iter::once(user.to_owned()).chain(groups.iter().map(|group| format!("@{group}")));
        let said: Vec<&AccessRights> = subjects
            .filter_map(|subject| self.policies.get(&subject))
            .collect();
        if said.is_empty() {
            return usual;
        }
        said.into_iter()
            .flat_map(|rights| rights.0.iter().cloned())
            .collect()
    }

    /// Token by which the master of an attempt authenticates.
    pub(crate) fn master_token(&self, attempt: &AttemptId) -> String {
        self.key.token(attempt)
    }

    /// Token by which executors of an application look up the address of its master.
    pub(crate) fn reader_token(&self, app: &AppId) -> String {
        self.key.executor_token(app)
    }

    /// All valid tokens.
    pub(crate) fn tokens(&self, now: UnixMillis) -> Vec<TokenView> {
        self.tokens
            .iter()
            .filter(|(_, held)| held.holds(now))
            .map(|(accessor, held)| held.view(accessor))
            .collect()
    }

    /// One token.
    pub(crate) fn token(&self, accessor: &TokenAccessor) -> Option<TokenView> {
        self.tokens.get(accessor).map(|held| held.view(accessor))
    }

    /// All policies.
    pub(crate) fn policies(&self) -> Vec<PolicyView> {
        let words = |rights: &AccessRights| rights.0.iter().map(AccessRight::to_string).collect();
        self.policies
            .iter()
            .map(|(subject, r)| PolicyView {
                subject: subject.clone(),
                rights: words(r),
            })
            .collect()
    }
}

impl StoredToken {
    fn is_administrator(&self) -> bool {
        match &self.whose {
            TokenPurpose::User { rights, .. } => rights.has(&AccessRight::Admin),
            TokenPurpose::Join { .. } => false,
        }
    }

    fn holds(&self, now: UnixMillis) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// View of the token for callers. It contains no secret, because none is stored.
    pub(crate) fn view(&self, accessor: &TokenAccessor) -> TokenView {
        let (kind, user, rights, node) = match &self.whose {
            TokenPurpose::User { user, rights } => {
                (TokenKind::User, Some(user.clone()), rights.clone(), None)
            }
            TokenPurpose::Join { node, .. } => {
                (TokenKind::Join, None, AccessRights::default(), node.clone())
            }
        };
        TokenView {
            accessor: accessor.to_string(),
            kind,
            user,
            rights: rights.0.iter().map(AccessRight::to_string).collect(),
            node,
            about: self.about.clone(),
            by: self.by.clone(),
            created: self.created,
            expires: self.expires,
        }
    }
}

fn shared(saved: &SavedShare) -> AppAccess {
    AppAccess {
        view: saved.view.clone(),
        change: saved.change.clone(),
    }
}

fn saved_share(app: &AppId, access: &AppAccess) -> SavedShare {
    SavedShare {
        app: app.clone(),
        view: access.view.clone(),
        change: access.change.clone(),
    }
}

/// Time at which a lifetime of `seconds` from `now` ends.
pub(crate) fn until(now: UnixMillis, seconds: u64) -> UnixMillis {
    let after = millis(Duration::from_secs(seconds));
    UnixMillis(now.0.saturating_add(after))
}

/// Parses rights. An unknown right and an empty list are errors.
pub(crate) fn checked(words: &[String]) -> ProblemResult<AccessRights> {
    let one = |word: &String| {
        word.parse::<AccessRight>()
            .map_err(|error| ProblemDetails::bad_request(error.to_string()))
    };
    let rights = words
        .iter()
        .map(one)
        .collect::<ProblemResult<AccessRights>>()?;
    if rights.0.is_empty() {
        let known = headroom_identity::right::words().join(", ");
        return Err(ProblemDetails::bad_request("the list of rights is empty")
            .hint(format!("name at least one of {known}")));
    }
    Ok(rights)
}

/// Validates the subject of a policy: a user, or `@` and a group.
pub(crate) fn subject(text: &str) -> ProblemResult<String> {
    if is_user(text.strip_prefix('@').unwrap_or(text)) {
        return Ok(text.to_owned());
    }
    let shown: String = text.chars().take(80).collect();
    Err(
        ProblemDetails::bad_request(format!("{shown:?} is neither a user nor a group")).hint(
            "write a user as alice and a group as @etl: letters, digits, . _ and -, at most 32",
        ),
    )
}

fn unknown(detail: &str) -> ProblemDetails {
    ProblemDetails::unauthenticated(detail)
        .hint("create a token with rmctl acl token create, and present it with HEADROOM_TOKEN_FILE or --token-file")
}

fn no_token(accessor: &TokenAccessor) -> ProblemDetails {
    ProblemDetails::not_found(format!("there is no token {accessor}"))
        .hint("rmctl acl token list shows all tokens")
}

fn held(saved: &SavedToken) -> Option<StoredToken> {
    let whose = match &saved.for_whom {
        SavedTokenPurpose::User {
            user,
            rights: words,
        } => TokenPurpose::User {
            user: user.clone(),
            rights: rights(words),
        },
        SavedTokenPurpose::Join { node, names } => {
            let node = node.as_ref().map(|node| node.parse()).transpose().ok()?;
            TokenPurpose::Join {
                node,
                names: names.clone(),
            }
        }
    };
    let SavedToken {
        about,
        by,
        created,
        expires,
        ..
    } = saved.clone();
    Some(StoredToken {
        hash: saved.hash.parse().ok()?,
        whose,
        about,
        by,
        created,
        expires,
    })
}

/// Parses saved rights, and skips rights that are unknown to this version.
fn rights(words: &[String]) -> AccessRights {
    words.iter().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
