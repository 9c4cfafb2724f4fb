//! `/v1/profiles`: named sizes that administrators maintain, for job files without sizes of their
//! own.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use headroom_types::Name;
use headroom_wire::v1::profiles::{ClusterProfile, ProfileSpec};

use super::answer::{Audited, audited, single};
use super::describe::{Bad, Conflict, Missing, TooLarge, TooMany};
use super::error::{HandlerResult, unexpected};
use super::parse::{DryRunQuery, EmptyQuery, JsonBody, PathId, QueryParams, if_match};
use super::web::WebHandlerState;
use crate::profiles::{ProfileAction, ProfileChange, ProfileOutcome};

/// Lists the profiles of the cluster, by name.
#[utoipa::path(get, path = "/v1/profiles", tag = "profiles", responses(
    (status = 200, body = Vec<ClusterProfile>, headers(("ETag", description = "Changes with every change of a profile."))),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Bad, TooMany,
))]
pub(crate) async fn list(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let all = web.reader.shared.profiles.borrow().clone();
    let rows: Vec<&ClusterProfile> = all.known.values().collect();
    single(
        &headers,
        Some(&all.generation.to_string()),
        all.generation,
        &rows,
        &rows,
    )
}

/// Shows one profile of the cluster.
#[utoipa::path(get, path = "/v1/profiles/{name}", tag = "profiles", params(("name" = Name, Path)), responses(
    (status = 200, body = ClusterProfile, headers(("ETag", description = "The revision of the profile."))),
    (status = 304, description = "Unchanged: If-None-Match names the current version."),
    Bad, Missing, TooMany,
))]
pub(crate) async fn one(
    State(web): State<WebHandlerState>,
    PathId(name): PathId<Name>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let all = web.reader.shared.profiles.borrow().clone();
    let profile = all.get(&name)?;
    single(
        &headers,
        Some(&profile.revision.to_string()),
        all.generation,
        profile,
        profile,
    )
}

/// Creates or replaces a profile of the cluster.
///
/// Jobs that were submitted before keep the size with which they were submitted.
#[utoipa::path(put, path = "/v1/profiles/{name}", tag = "profiles", params(
    ("name" = Name, Path), DryRunQuery,
    ("If-Match" = Option<String>, Header, description = "ETag of the expected version; without it, any version matches."),
), request_body = ProfileSpec, responses(
    (status = 200, description = "The profile is set.", body = ClusterProfile),
    (status = 202, description = "With dry_run: the profile as the change would leave it.", body = ClusterProfile),
    Bad, Conflict, TooLarge, TooMany,
))]
pub(crate) async fn put(
    State(web): State<WebHandlerState>,
    PathId(name): PathId<Name>,
    QueryParams(only): QueryParams<DryRunQuery>,
    headers: HeaderMap,
    JsonBody(spec): JsonBody<ProfileSpec>,
) -> HandlerResult<Audited<Response>> {
    let ProfileOutcome { before, after } =
        change(&web, name, ProfileAction::Set(spec), &headers, &only).await?;
    let profile = after.ok_or_else(unexpected)?;
    Ok(audited(
        words(before.as_ref()),
        words(Some(&profile)),
        shown(&profile, &only),
    ))
}

/// Deletes a profile of the cluster.
///
/// Jobs that were submitted with it keep its size. The response contains the deleted profile.
#[utoipa::path(delete, path = "/v1/profiles/{name}", tag = "profiles", params(
    ("name" = Name, Path), DryRunQuery,
    ("If-Match" = Option<String>, Header, description = "ETag of the expected version; without it, any version matches."),
), responses(
    (status = 200, description = "The profile is deleted.", body = ClusterProfile),
    (status = 202, description = "With dry_run: the profile can be deleted.", body = ClusterProfile),
    Bad, Missing, Conflict, TooMany,
))]
pub(crate) async fn delete(
    State(web): State<WebHandlerState>,
    PathId(name): PathId<Name>,
    QueryParams(only): QueryParams<DryRunQuery>,
    headers: HeaderMap,
) -> HandlerResult<Audited<Response>> {
    let ProfileOutcome { before, after: _ } =
        change(&web, name, ProfileAction::Unset, &headers, &only).await?;
    let profile = before.ok_or_else(unexpected)?;
    Ok(audited(words(Some(&profile)), "", shown(&profile, &only)))
}

async fn change(
    web: &WebHandlerState,
    name: Name,
    action: ProfileAction,
    headers: &HeaderMap,
    only: &DryRunQuery,
) -> HandlerResult<ProfileOutcome> {
    let change = ProfileChange {
        name,
        action,
        matched: if_match(headers)?,
        how: only.mode(),
    };
    Ok(web.reader.handle.change_profile(change).await?)
}

fn shown(profile: &ClusterProfile, only: &DryRunQuery) -> Response {
    let mut response = (only.status(), Json(profile)).into_response();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", profile.revision)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Text for the audit log.
fn words(profile: Option<&ClusterProfile>) -> String {
    profile
        .map(|p| format!("{}, {} cpus", p.size(), p.cpus))
        .unwrap_or_default()
}
