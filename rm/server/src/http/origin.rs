//! Protection against cross-site requests: the interface starts programs, and a browser on the same
//! host would send it any page's requests.
//!
//! `Origin` contains the address of the page, so a changing call with a foreign origin is refused.
//! A page whose name resolves to loopback (DNS rebinding) has its own name in both headers. On
//! loopback, therefore, only names of loopback are accepted as host.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

use super::error::ProblemResponse;

/// Middleware that refuses cross-site requests.
pub(crate) async fn guard(
    State(listen): State<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    match check(listen.ip(), request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => ProblemResponse(problem).into_response(),
    }
}

fn check(listen: IpAddr, method: &Method, headers: &HeaderMap) -> ProblemResult<()> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &axum::http::HeaderValue| value.to_str().ok())
    };
    let host = text(header::HOST).unwrap_or_default();
    if listen.is_loopback() && !host.is_empty() && !is_loopback(host) {
        return Err(refused(format!(
            "the resource manager listens on loopback only, and the request is for {host}"
        )));
    }
    let changes = *method != Method::GET && *method != Method::HEAD;
    match text(header::ORIGIN) {
        Some(origin) if changes && origin.split_once("://").map(|(_, o)| o) != Some(host) => {
            Err(refused(format!(
                "a web page of {origin} may not send changing calls"
            )))
        }
        Some(_) | None => Ok(()),
    }
}

fn refused(detail: String) -> ProblemDetails {
    ProblemDetails::bad_request(detail).hint("use rmctl, or the web page of this resource manager")
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(listen: &str, method: Method, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
        }
        check(listen.parse().expect("an address"), &method, &headers).is_ok()
    }

    #[test]
    fn pages_of_other_origins_cannot_send_changing_calls() {
        assert!(
            asked("127.0.0.1", Method::POST, "127.0.0.1:7070", None),
            "the request is not from a web page"
        );
        assert!(
            asked(
                "127.0.0.1",
                Method::POST,
                "localhost:7070",
                Some("http://localhost:7070")
            ),
            "same origin"
        );
        assert!(!asked(
            "127.0.0.1",
            Method::POST,
            "localhost:7070",
            Some("http://evil.example")
        ));
        assert!(!asked(
            "127.0.0.1",
            Method::POST,
            "localhost:7070",
            Some("null")
        ));
        assert!(!asked(
            "0.0.0.0",
            Method::DELETE,
            "rm.example:7070",
            Some("http://evil.example")
        ));
        assert!(
            asked(
                "0.0.0.0",
                Method::GET,
                "rm.example:7070",
                Some("http://evil.example")
            ),
            "the browser hides the response"
        );
    }

    #[test]
    fn a_foreign_host_name_on_loopback_is_refused() {
        assert!(!asked("127.0.0.1", Method::GET, "evil.example:7070", None));
        assert!(asked("127.0.0.1", Method::GET, "[::1]:7070", None));
        assert!(asked("::1", Method::GET, "[::1]", None));
        assert!(asked("10.0.0.7", Method::GET, "rm.example:7070", None));
    }
}
