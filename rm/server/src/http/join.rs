//! `/v1/join`: a host with a token becomes a node; `/v1/ca`: the certificate of the authority.

use std::net::IpAddr;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use headroom_identity::Certificate;
use headroom_wire::v1::acl::{AuthorityView, JoinResponse, NodeJoinRequest};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

use super::answer::{Audited, audited};
use super::callers;
use super::describe::{Bad, Conflict, Missing, TooLarge, TooMany};
use super::error::HandlerResult;
use super::limits::PeerAddress;
use super::parse::{EmptyQuery, JsonBody, QueryParams};
use super::web::WebHandlerState;
use crate::access::AccessChange;

/// Returns the certificate of the cluster's authority.
///
/// Any caller receives it: compare the fingerprint before you trust it.
#[utoipa::path(get, path = "/v1/ca", tag = "access", responses((status = 200, body = AuthorityView), Bad, Missing, TooMany))]
pub(crate) async fn ca(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<AuthorityView>> {
    let ca = web
        .authority
        .as_ref()
        .map(|signer| signer.ca().to_owned())
        .or_else(|| web.nodes.ca());
    let Some(ca) = ca else {
        return Err(ProblemDetails::not_found("this cluster has no certificates").into());
    };
    let fingerprint = Certificate::from_pem(&ca)
        .map_err(|error| ProblemDetails::internal(error.to_string()))?
        .fingerprint;
    Ok(Json(AuthorityView {
        ca,
        fingerprint: fingerprint.to_string(),
    }))
}

/// Joins a host to the cluster as a node.
///
/// The host presents a join token and receives a certificate for a key of its own. The token is
/// then used up.
#[utoipa::path(post, path = "/v1/join", tag = "access", request_body = NodeJoinRequest,
    responses((status = 200, body = JoinResponse), Bad, Conflict, TooLarge, TooMany))]
pub(crate) async fn join(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<NodeJoinRequest>,
) -> HandlerResult<Audited<Json<JoinResponse>>> {
    let Some(signer) = &web.authority else {
        return Err(ProblemDetails::conflict(
            "this manager has no authority to sign certificates, so hosts cannot join",
        )
        .into());
    };
    let unknown = || {
        ProblemDetails::unauthenticated(
            "a host needs a join token; rmctl acl join-token create makes one",
        )
    };
    let token = callers::shown(&headers)
        .and_then(Result::ok)
        .ok_or_else(unknown)?
        .token();
    let now = web.reader.clock.host_time();
    let (accessor, node, names) = web.reader.shared.access.borrow().joins(token, now)?;
    if let Some(other) = node.filter(|node| *node != body.node) {
        let detail = format!("this token is for node {other}, not for {}", body.node);
        return Err(ProblemDetails::forbidden(detail).into());
    }
    allowed(
        &body.names,
        &names,
        peer.map(|Extension(PeerAddress(peer))| peer),
    )?;
    let certificate = signer.sign(&body, now)?;
    let change = AccessChange::Spend { accessor };
    web.reader.handle.change_access(change).await?;
    Ok(audited(
        format!("token {accessor}"),
        format!("node {} has a certificate", body.node),
        Json(JoinResponse {
            certificate,
            ca: signer.ca().to_owned(),
        }),
    ))
}

/// Checks the names for a certificate: a certificate with the name of another host would let its
/// holder impersonate that host.
fn allowed(asked: &[String], named: &[String], peer: Option<IpAddr>) -> ProblemResult<()> {
    let own = peer.map(|peer| peer.to_string());
    let may =
        |name: &&String| !named.contains(name) && (!named.is_empty() || own.as_ref() != Some(name));
    let Some(foreign) = asked.iter().find(may) else {
        if asked.is_empty() {
            return Err(ProblemDetails::bad_request(
                "a node's certificate needs an address, and the request names none",
            ));
        }
        return Ok(());
    };
    let shown: String = foreign.chars().take(80).collect();
    let problem = ProblemDetails::forbidden(format!(
        "this token does not allow {shown:?} in a certificate"
    ));
    Err(problem.hint("without names, a token allows the caller's address only: rmctl acl join-token create --at NAME"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::v1::error::ErrorCode;

    #[test]
    fn a_certificate_with_the_name_of_another_host_is_refused() {
        let peer: Option<IpAddr> = Some([10, 0, 0, 7].into());
        let words = |names: &[&str]| {
            names
                .iter()
                .map(|n| (*n).to_owned())
                .collect::<Vec<String>>()
        };
        allowed(&words(&["10.0.0.7"]), &[], peer).expect("the address of the caller is allowed");
        allowed(&words(&["10.0.0.8"]), &[], peer).expect_err("another address is refused");
        allowed(&words(&["rm.example"]), &[], peer)
            .expect_err("a name outside the token is refused");
        allowed(&words(&["w1.example"]), &words(&["w1.example"]), peer)
            .expect("the token names it");
        allowed(&words(&["10.0.0.7"]), &words(&["w1.example"]), peer)
            .expect_err("the token names other addresses");
        assert_eq!(
            allowed(&[], &[], peer)
                .expect_err("the request has no address")
                .code,
            ErrorCode::HR0400
        );
    }
}
