//! `/v1/upload-copies`: uploaded files between resource managers. Standbys answer these calls too.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRef, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headroom_identity::{CallRequirement, Principal};
use headroom_types::Sha256;
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::uploads::{UploadDifferences, UploadInventory, UploadedFile};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::describe::{Bad, Missing, TooLarge, TooMany, UploadsFull};
use super::error::ProblemResponse;
use super::guard;
use super::listeners::ConnectionIdentity;
use super::parse::{JsonBody, PathId};
use super::uploads::{self, IncomingFile};
use crate::upload_transfer::{self, on_disk, slot};
use crate::uploads::{UploadError, UploadStore};

/// Routes of the leader and of a standby.
pub(crate) fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<UploadStore>: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(get, put, delete))
        .routes(routes!(compare))
}

/// Middleware of a standby, which knows neither tokens nor policies: it passes other managers only.
pub(crate) async fn managers_only(request: Request, next: Next) -> Response {
    let identity = request.extensions().get::<ConnectionIdentity>();
    let principal = identity.map_or(Principal::Anonymous, |identity| identity.principal.clone());
    match principal.authorize(&CallRequirement::OtherManager, |_| None) {
        Ok(()) => next.run(request).await,
        Err(why) => ProblemResponse(guard::refusal(&why)).into_response(),
    }
}

/// Stores a copy of an uploaded file, for another resource manager.
#[utoipa::path(put, path = "/v1/upload-copies/{sha256}", tag = "uploads", params(("sha256" = Sha256, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, body = UploadedFile, description = "The store had the file already."),
    (status = 201, body = UploadedFile, description = "The file is new."),
    Bad, TooLarge, TooMany, UploadsFull,
))]
async fn put(
    State(store): State<Arc<UploadStore>>,
    PathId(sha256): PathId<Sha256>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ProblemResponse> {
    let begun = begin(&store, sha256, &headers).await;
    Ok(uploads::store(begun, body, sha256).await?)
}

async fn begin(
    store: &Arc<UploadStore>,
    sha256: Sha256,
    headers: &HeaderMap,
) -> Result<IncomingFile, ProblemDetails> {
    let size = uploads::size(headers)?;
    let slot = slot(&store.uploads)?;
    let writer = upload_transfer::begin(store, sha256, size).await??;
    Ok(IncomingFile { slot, writer, size })
}

/// Returns the own copy of an uploaded file to another resource manager.
#[utoipa::path(get, path = "/v1/upload-copies/{sha256}", tag = "uploads", params(("sha256" = Sha256, Path)), responses(
    (status = 200, body = Vec<u8>, content_type = "application/octet-stream"), Bad, Missing, TooMany,
))]
async fn get(
    State(store): State<Arc<UploadStore>>,
    PathId(sha256): PathId<Sha256>,
) -> Result<Response, ProblemResponse> {
    let sent = uploads::send(&store, sha256).await?;
    sent.ok_or_else(|| uploads::missing(sha256).into())
}

/// Removes a copy that the leader does not have, if it was not used for `keep` under `[uploads]`.
#[utoipa::path(delete, path = "/v1/upload-copies/{sha256}", tag = "uploads", params(("sha256" = Sha256, Path)),
    responses((status = 204), Bad))]
async fn delete(
    State(store): State<Arc<UploadStore>>,
    PathId(sha256): PathId<Sha256>,
) -> Result<StatusCode, ProblemResponse> {
    on_disk(move || {
        let one = BTreeSet::from([sha256]);
        store.expire(&one, &BTreeSet::new(), store.now())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Compares the uploaded files of the leader with the own ones. Those that both have are marked as
/// used.
#[utoipa::path(post, path = "/v1/upload-copies", tag = "uploads", request_body = UploadInventory,
    responses((status = 200, body = UploadDifferences), Bad, TooLarge))]
async fn compare(
    State(store): State<Arc<UploadStore>>,
    JsonBody(inventory): JsonBody<UploadInventory>,
) -> Result<Json<UploadDifferences>, ProblemResponse> {
    let compared = on_disk(move || {
        let leader: BTreeSet<Sha256> = inventory.files.into_iter().collect();
        let own = store.names();
        store.refresh(&leader.intersection(&own).copied().collect())?;
        Ok(UploadDifferences {
            missing: leader.difference(&own).copied().collect(),
            extra: own.difference(&leader).copied().collect(),
        })
    });
    let differences = compared.await?.map_err(UploadError::Disk);
    Ok(Json(differences.map_err(ProblemDetails::from)?))
}
