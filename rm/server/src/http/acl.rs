//! `/v1/acl`: tokens, policies, and the identity of the caller.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use headroom_identity::role::is_user;
use headroom_identity::{
    AccessRight, AccessRights, Principal, QueuePermission, SecretToken, SecretTokenKind,
    TokenAccessor,
};
use headroom_types::UnixMillis;
use headroom_wire::v1::acl::{
    CallerIdentity, CreateJoinTokenRequest, CreateTokenRequest, MAX_ABOUT_BYTES, MintedToken,
    PolicySpec, PolicyView, SecretText, TokenView,
};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

use super::answer::{Audited, audited};
use super::callers;
use super::describe::{Bad, Conflict, Missing, TooLarge, TooMany};
use super::error::{HandlerResult, unexpected};
use super::limits::PeerAddress;
use super::listeners::ANONYMOUS;
use super::parse::{EmptyQuery, JsonBody, PathId, QueryParams};
use super::web::WebHandlerState;
use crate::access::{self, AccessChange, StoredToken, TokenPurpose};

/// Default lifetime of a join token. Seconds.
const DAY: u64 = 86_400;

/// Lists the valid tokens, without their secrets.
#[utoipa::path(get, path = "/v1/acl/tokens", tag = "access",
    responses((status = 200, body = Vec<TokenView>), Bad, TooMany))]
pub(crate) async fn tokens(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Json<Vec<TokenView>> {
    let access = web.reader.shared.access.borrow().clone();
    Json(access.tokens(web.reader.clock.host_time()))
}

/// Creates a token for a user.
///
/// The secret is only in this response.
#[utoipa::path(post, path = "/v1/acl/tokens", tag = "access", request_body = CreateTokenRequest,
    responses((status = 201, description = "The token is valid.", body = MintedToken), Bad, TooLarge, TooMany))]
pub(crate) async fn mint(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<CreateTokenRequest>,
) -> HandlerResult<Response> {
    let CreateTokenRequest {
        user,
        rights,
        lifetime_s,
        about,
    } = body;
    let rights = access::checked(&rights)?;
    let user = in_the_name_of(&principal, user)?;
    within(&principal, &rights)?;
    let whose = TokenPurpose::User { user, rights };
    give(&web, &principal, whose, (about, lifetime_s), false).await
}

/// Creates the first token, with all rights.
///
/// Allowed once in the lifetime of a cluster, and only on the host of the resource manager.
#[utoipa::path(post, path = "/v1/acl/bootstrap", tag = "access",
    responses((status = 201, description = "The token is valid.", body = MintedToken), Bad, Conflict, TooMany))]
pub(crate) async fn bootstrap(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    peer: Option<Extension<PeerAddress>>,
) -> HandlerResult<Response> {
    if !peer.is_some_and(|Extension(PeerAddress(peer))| peer.is_loopback()) {
        let problem =
            ProblemDetails::forbidden("the first token can be created only on the manager's host");
        return Err(problem.hint("run rmctl acl bootstrap on that host").into());
    }
    if let Principal::User { name, rights, .. } = &principal
        && name != ANONYMOUS
        && !rights.has(&AccessRight::Admin)
    {
        let problem = ProblemDetails::forbidden(format!("{name} may not create the first token"));
        return Err(problem
            .hint("run rmctl acl bootstrap as root on that host")
            .into());
    }
    let whose = TokenPurpose::User {
        user: "admin".to_owned(),
        rights: AccessRights::all(),
    };
    give(
        &web,
        &principal,
        whose,
        ("the first token".to_owned(), None),
        true,
    )
    .await
}

/// Creates a token with which one host joins as a node, once.
///
/// The secret is only in this response.
#[utoipa::path(post, path = "/v1/acl/join-tokens", tag = "access", request_body = CreateJoinTokenRequest,
    responses((status = 201, description = "The token is valid.", body = MintedToken), Bad, Conflict, TooLarge, TooMany))]
pub(crate) async fn mint_join(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<CreateJoinTokenRequest>,
) -> HandlerResult<Response> {
    if web.authority.is_none() {
        let problem = ProblemDetails::conflict(
            "this manager has no authority to sign certificates, so hosts cannot join",
        );
        return Err(problem
            .hint("set authority = \"/etc/headroom/authority\" in resourcemanager.toml")
            .into());
    }
    let CreateJoinTokenRequest {
        node,
        names,
        lifetime_s,
    } = body;
    let whose = TokenPurpose::Join { node, names };
    give(
        &web,
        &principal,
        whose,
        (String::new(), lifetime_s.or(Some(DAY))),
        false,
    )
    .await
}

/// Revokes a token, from the next call on.
#[utoipa::path(delete, path = "/v1/acl/tokens/{accessor}", tag = "access", params(("accessor" = String, Path)),
    responses((status = 200, description = "The token before the call.", body = TokenView), Bad, Missing, TooMany))]
pub(crate) async fn revoke(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    PathId(accessor): PathId<TokenAccessor>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Audited<Json<TokenView>>> {
    let whose = web
        .reader
        .shared
        .access
        .borrow()
        .token(&accessor)
        .and_then(|view| view.user);
    let may = match &principal {
        Principal::Open => true,
        Principal::User { name, rights, .. } => {
            rights.has(&AccessRight::Admin) || whose.as_ref() == Some(name)
        }
        Principal::Anonymous
        | Principal::Manager
        | Principal::Node(_)
        | Principal::Master(_)
        | Principal::Executor(_) => false,
    };
    if !may {
        let who = principal.audit_name().unwrap_or_default();
        return Err(ProblemDetails::forbidden(format!(
            "{who} may not revoke this token: it needs the right admin"
        ))
        .into());
    }
    let held = web
        .reader
        .handle
        .change_access(AccessChange::Revoke(accessor))
        .await?;
    let view = held.ok_or_else(unexpected)?.view(&accessor);
    let before = format!(
        "{} {}",
        view.user.as_deref().unwrap_or("join"),
        view.rights.join(",")
    );
    Ok(audited(before, "", Json(view)))
}

/// Shows the caller's identity and rights.
#[utoipa::path(get, path = "/v1/acl/self", tag = "access", responses((status = 200, body = CallerIdentity), Bad, TooMany))]
pub(crate) async fn who(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Json<CallerIdentity> {
    let words = |rights: &AccessRights| rights.0.iter().map(AccessRight::to_string).collect();
    let (token, rights) = match &principal {
        Principal::Open => (None, words(&AccessRights::all())),
        Principal::User { token, rights, .. } => (
            token.and_then(|accessor| web.reader.shared.access.borrow().token(&accessor)),
            words(rights),
        ),
        Principal::Anonymous
        | Principal::Manager
        | Principal::Node(_)
        | Principal::Master(_)
        | Principal::Executor(_) => (None, Vec::new()),
    };
    Json(CallerIdentity {
        who: principal.audit_name(),
        token,
        rights,
    })
}

/// Lists the policies of users and groups that differ from the default rights.
#[utoipa::path(get, path = "/v1/acl/policies", tag = "access",
    responses((status = 200, body = Vec<PolicyView>), Bad, TooMany))]
pub(crate) async fn policies(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Json<Vec<PolicyView>> {
    Json(web.reader.shared.access.borrow().policies())
}

/// Replaces the policy of a user or group.
///
/// A group of the resource manager's host is written with @.
#[utoipa::path(put, path = "/v1/acl/policies/{subject}", tag = "access", params(("subject" = String, Path)),
    request_body = PolicySpec, responses((status = 200, body = PolicyView), Bad, TooLarge, TooMany))]
pub(crate) async fn allow(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    PathId(subject): PathId<String>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(body): JsonBody<PolicySpec>,
) -> HandlerResult<Audited<Json<PolicyView>>> {
    let (subject, rights) = (access::subject(&subject)?, access::checked(&body.rights)?);
    within(&principal, &rights)?;
    let before = said(&web, &subject);
    let after = rights.to_string();
    let change = AccessChange::Allow {
        subject: subject.clone(),
        rights,
    };
    web.reader.handle.change_access(change).await?;
    let rights = after.split(',').map(str::to_owned).collect();
    Ok(audited(before, after, Json(PolicyView { subject, rights })))
}

/// Removes the policy of a user or group, so that the default rights apply again.
#[utoipa::path(delete, path = "/v1/acl/policies/{subject}", tag = "access", params(("subject" = String, Path)),
    responses((status = 200, description = "The policy before the call.", body = PolicyView), Bad, Missing, TooMany))]
pub(crate) async fn forget(
    State(web): State<WebHandlerState>,
    PathId(subject): PathId<String>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Audited<Json<PolicyView>>> {
    let subject = access::subject(&subject)?;
    let before = said(&web, &subject);
    let change = AccessChange::Forget {
        subject: subject.clone(),
    };
    web.reader.handle.change_access(change).await?;
    let rights = before.split(',').map(str::to_owned).collect();
    Ok(audited(before, "", Json(PolicyView { subject, rights })))
}

/// Signs in to the web page.
///
/// Sets a cookie with the token; scripts cannot read it.
#[utoipa::path(post, path = "/v1/session", tag = "access", request_body = SecretText,
    responses((status = 204, description = "The cookie is set."), Bad, TooMany))]
pub(crate) async fn session(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    JsonBody(SecretText(token)): JsonBody<SecretText>,
) -> HandlerResult<Response> {
    let token = token.trim();
    let principal = web
        .reader
        .shared
        .access
        .borrow()
        .bearer(token, web.reader.clock.host_time())?;
    let Principal::User { .. } = &principal else {
        let problem = ProblemDetails::unauthenticated(
            "this is an application's token; the web page needs a user's token",
        );
        return Err(problem
            .hint("create one: rmctl acl token create --right cluster:read,job:read")
            .into());
    };
    let after = format!("{} signed in", principal.audit_name().unwrap_or_default());
    let set_cookie = [(header::SET_COOKIE, cookie(&web, token))];
    Ok(audited("", after, (StatusCode::NO_CONTENT, set_cookie)).into_response())
}

/// Session cookie with this token; an empty token deletes it. Scripts cannot read it, and other
/// sites cannot have it sent.
fn cookie(web: &WebHandlerState, token: &str) -> String {
    let secure = if web.nodes.encrypts() { "; Secure" } else { "" };
    let end = if token.is_empty() { "; Max-Age=0" } else { "" };
    format!(
        "{}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{end}",
        callers::COOKIE
    )
}

/// Signs out of the web page.
#[utoipa::path(delete, path = "/v1/session", tag = "access",
    responses((status = 204, description = "The cookie is deleted."), Bad, TooMany))]
pub(crate) async fn leave(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Response {
    (
        StatusCode::NO_CONTENT,
        [(header::SET_COOKIE, cookie(&web, ""))],
    )
        .into_response()
}

fn said(web: &WebHandlerState, subject: &str) -> String {
    let all = web.reader.shared.access.borrow().policies();
    all.into_iter()
        .find(|policy| policy.subject == subject)
        .map(|policy| policy.rights.join(","))
        .unwrap_or_default()
}

/// Refuses rights that the caller does not have.
fn within(principal: &Principal, rights: &AccessRights) -> ProblemResult<()> {
    let Some((name, own)) = giver(principal)? else {
        return Ok(());
    };
    let lacks = rights
        .0
        .iter()
        .find(|right| match right.queue_permission() {
            Some((QueuePermission::Submit, queue)) => !own.may_submit_to(queue),
            Some((QueuePermission::View, queue)) => !own.may_view_queue(queue),
            Some((QueuePermission::Administer, queue)) => !own.may_administer(queue),
            None => !own.has(right),
        });
    // A token that names no queue is valid for all queues.
    let wider = !own.has(&AccessRight::Admin) && own.names_queues() && !rights.names_queues();
    match lacks {
        Some(right) => Err(ProblemDetails::forbidden(format!(
            "{name} may not grant the right {right}, which {name} lacks"
        ))),
        None if wider => {
            let detail = format!(
                "{name} may use only some queues, so a token of {name} must name them: queue:NAME"
            );
            Err(ProblemDetails::forbidden(detail))
        }
        None => Ok(()),
    }
}

/// Returns the user of a new token.
fn in_the_name_of(principal: &Principal, wanted: Option<String>) -> ProblemResult<String> {
    if let Some(bad) = wanted.as_ref().filter(|user| !is_user(user)) {
        let shown: String = bad.chars().take(80).collect();
        return Err(ProblemDetails::bad_request(format!(
            "{shown:?} is not a valid user name"
        )));
    }
    let Some((name, rights)) = giver(principal)? else {
        return Ok(wanted.unwrap_or_else(|| "admin".to_owned()));
    };
    match wanted {
        Some(other) if other != *name && !rights.has(&AccessRight::Admin) => {
            Err(ProblemDetails::forbidden(format!(
                "{name} may not create a token for {other}: it needs the right admin"
            )))
        }
        Some(user) => Ok(user),
        None => Ok(name.to_owned()),
    }
}

/// Returns the user who grants rights; `None` if callers are not authenticated. A new token can
/// outlive the token that created it, so only an administrator's token may create others.
fn giver(principal: &Principal) -> ProblemResult<Option<(&str, &AccessRights)>> {
    let refused = |why: String| Err(ProblemDetails::forbidden(why));
    match principal {
        Principal::Open => Ok(None),
        Principal::User {
            name,
            token: Some(token),
            rights,
            ..
        } if !rights.has(&AccessRight::Admin) => refused(format!(
            "{name} (token {token}) may not grant rights with a token: it needs the right admin"
        )),
        // A token would outlive the configuration that lets unauthenticated callers read.
        Principal::User { name, .. } if name == ANONYMOUS => {
            refused("an unauthenticated caller may not grant rights".to_owned())
        }
        Principal::User { name, rights, .. } => Ok(Some((name, rights))),
        Principal::Anonymous
        | Principal::Manager
        | Principal::Node(_)
        | Principal::Master(_)
        | Principal::Executor(_) => refused("only a user can grant rights".to_owned()),
    }
}

async fn give(
    web: &WebHandlerState,
    principal: &Principal,
    whose: TokenPurpose,
    (about, lifetime_s): (String, Option<u64>),
    first: bool,
) -> HandlerResult<Response> {
    if about.len() > MAX_ABOUT_BYTES {
        return Err(ProblemDetails::too_large(format!(
            "about has {} bytes; at most {MAX_ABOUT_BYTES} are allowed",
            about.len()
        ))
        .into());
    }
    let kind = match whose {
        TokenPurpose::User { .. } => SecretTokenKind::User,
        TokenPurpose::Join { .. } => SecretTokenKind::Join,
    };
    let token =
        SecretToken::mint(kind).map_err(|error| ProblemDetails::unavailable(error.to_string()))?;
    let created: UnixMillis = web.reader.clock.host_time();
    let expires = lifetime_s.map(|seconds| access::until(created, seconds));
    let by = principal
        .audit_name()
        .unwrap_or_else(|| "unauthenticated".to_owned());
    let held = StoredToken {
        hash: token.hash(),
        whose,
        about,
        by,
        created,
        expires,
    };
    let (accessor, view) = (token.accessor(), held.view(&token.accessor()));
    let change = AccessChange::Keep {
        accessor,
        held,
        first,
    };
    web.reader.handle.change_access(change).await?;
    let rights = if view.rights.is_empty() {
        String::new()
    } else {
        format!(": {}", view.rights.join(","))
    };
    let after = format!(
        "token {accessor} for {}{rights}",
        view.user.as_deref().unwrap_or("a node")
    );
    let minted = MintedToken {
        token: SecretText(token.reveal()),
        view,
    };
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    Ok(audited("", after, (StatusCode::CREATED, no_store, Json(minted))).into_response())
}
