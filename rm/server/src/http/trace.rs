//! Request ids: the caller's own or a generated one. The response, its problem document and the log
//! contain it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headroom_identity::Principal;
use headroom_types::Epoch;
use headroom_wire::v1::audit::AuditLine;
use headroom_wire::v1::error::ProblemDetails;
use tracing::{debug, info, warn};

use super::limits::PeerAddress;
use crate::audit::{AuditChange, AuditRecorder, named as verb_and_object};
use crate::clock::ManagerClock;
use crate::from_wire::cut;
use crate::metrics::ManagerCounters;

/// Header with the id.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of a caller's id.
const LONGEST: usize = 128;
/// Maximum length of a call's object in the audit log. Bytes.
const LONGEST_OBJECT: usize = 512;
/// Frequent calls of nodes and masters, logged at debug level only.
pub(crate) const DAEMONS: [&str; 6] = [
    "/v1/apps/{app}/sync",
    "/v1/apps/{app}/finish",
    "/v1/apps/{app}/register",
    "/v1/apps/{app}/journal",
    "/v1/nodes/{node}/register",
    "/v1/nodes/{node}/report",
];

/// Generator of request ids, with call metrics and the audit log.
#[derive(Debug)]
pub(crate) struct RequestIdGenerator {
    epoch: Epoch,
    next: AtomicU64,
    counters: Arc<ManagerCounters>,
    audit: Option<(Arc<AuditRecorder>, ManagerClock)>,
}

impl RequestIdGenerator {
    pub(crate) fn new(
        epoch: Epoch,
        counters: Arc<ManagerCounters>,
        audit: (Arc<AuditRecorder>, ManagerClock),
    ) -> Self {
        RequestIdGenerator {
            epoch,
            next: AtomicU64::new(1),
            counters,
            audit: Some(audit),
        }
    }

    /// The caller's id if it consists of printable ASCII characters without spaces, otherwise a new
    /// one.
    fn of(&self, request: &Request) -> HeaderValue {
        let given = request.headers().get(&REQUEST_ID);
        if let Some(given) = given.filter(|v| is_plain(v)) {
            return given.clone();
        }
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::from_str(&format!("e{}-{n}", self.epoch))
            .unwrap_or(HeaderValue::from_static("-"))
    }
}

fn is_plain(value: &HeaderValue) -> bool {
    (1..=LONGEST).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

impl RequestIdGenerator {
    /// Writes a changing call to the audit log.
    fn record(
        &self,
        response: &Response,
        (method, path): (&Method, &str),
        (who, peer, id): (&str, &str, &HeaderValue),
    ) {
        let Some((audit, clock)) = &self.audit else {
            return;
        };
        let (verb, object) = verb_and_object(method.as_str(), path);
        let changed = response.extensions().get::<AuditChange>().cloned();
        let (before, after) = changed.map(|c| (c.before, c.after)).unzip();
        audit.write(AuditLine {
            index: 0,
            time: clock.unix_now(),
            who: who.to_owned(),
            from: peer.to_owned(),
            verb: cut(verb, LONGEST),
            object: cut(object, LONGEST_OBJECT),
            request: id.to_str().unwrap_or_default().to_owned(),
            outcome: response.status().as_u16(),
            code: response
                .extensions()
                .get::<ProblemDetails>()
                .map(|problem| problem.code),
            before,
            after,
        });
    }
}

/// Middleware that assigns the id and logs the outcome.
pub(crate) async fn trace(
    State(ids): State<Arc<RequestIdGenerator>>,
    request: Request,
    next: Next,
) -> Response {
    let (id, began) = (ids.of(&request), Instant::now());
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let peer = request
        .extensions()
        .get::<PeerAddress>()
        .map(|p| p.0.to_string())
        .unwrap_or_default();
    let who = request
        .extensions()
        .get::<Principal>()
        .and_then(Principal::audit_name);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let daemon = route
        .as_ref()
        .is_some_and(|p| DAEMONS.contains(&p.as_str()));
    let call = ids.counters.calls.begin();
    let mut response = next.run(request).await;
    if !daemon && !reads(&method) {
        ids.record(
            &response,
            (&method, uri.path()),
            (who.as_deref().unwrap_or(&peer), &peer, &id),
        );
    }
    response = named(response, &id);
    ids.counters.calls.end(
        &call,
        route.as_ref().map(MatchedPath::as_str),
        &method,
        response.status(),
    );
    let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis());
    let (request, path) = (id.to_str().unwrap_or_default(), uri.path());
    if response.status().is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE.as_u16() {
        warn!(request, peer, %method, path, status, ms, "a call failed with a server error");
    } else if matches!(
        response.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) {
        let who = who.as_deref();
        info!(name: "call-refused", request, peer, who, %method, path, status, ms, "a call was refused");
    } else if daemon || reads(&method) {
        debug!(request, peer, %method, path, status, ms, "answered");
    } else {
        info!(request, peer, %method, path, status, ms, "answered");
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Adds the request id to a problem document.
fn named(mut response: Response, id: &HeaderValue) -> Response {
    let Some(mut problem) = response.extensions_mut().remove::<ProblemDetails>() else {
        return response;
    };
    problem.instance = id
        .to_str()
        .ok()
        .map(|id| format!("urn:headroom:request:{id}"));
    let (mut parts, _) = response.into_parts();
    let (fresh, body) = Json(problem).into_response().into_parts();
    if let Some(length) = fresh.headers.get(header::CONTENT_LENGTH) {
        parts.headers.insert(header::CONTENT_LENGTH, length.clone());
    } else {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_for(given: Option<&'static str>) -> String {
        let mut request = Request::new(axum::body::Body::empty());
        if let Some(given) = given {
            request
                .headers_mut()
                .insert(REQUEST_ID, HeaderValue::from_static(given));
        }
        let counters = Arc::new(ManagerCounters::new(Vec::new()));
        RequestIdGenerator {
            epoch: Epoch(4),
            next: AtomicU64::new(1),
            counters,
            audit: None,
        }
        .of(&request)
        .to_str()
        .expect("text")
        .to_owned()
    }

    #[test]
    fn a_plain_request_id_of_the_caller_is_kept() {
        assert_eq!(id_for(Some("deploy-7/step:2")), "deploy-7/step:2");
        for odd in [None, Some(""), Some("two words"), Some("tab\tbed")] {
            assert_eq!(id_for(odd), "e4-1", "{odd:?}");
        }
    }
}
