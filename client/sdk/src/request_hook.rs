//! The request hook: it sees each request before it is sent, and can show or withhold it.

use std::sync::Arc;

/// A request that is about to be sent.
#[derive(Debug)]
pub struct PreparedRequest<'a> {
    /// `GET`, `POST` …
    pub method: &'a str,
    /// The whole URL.
    pub url: &'a str,
    /// Request headers, without the authorization.
    pub headers: Vec<(String, String)>,
    /// The body, if it is text.
    pub body: Option<&'a str>,
    /// True if the request changes nothing.
    pub reads: bool,
}

/// Whether a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendDecision {
    /// The request is sent.
    Yes,
    /// The request is withheld; the call ends with
    /// [`ClientError::NotSent`](crate::ClientError::NotSent).
    No,
}

/// The hook of a client.
#[derive(Clone)]
pub(crate) struct RequestHook(
    pub(crate) Arc<dyn Fn(&PreparedRequest<'_>) -> SendDecision + Send + Sync>,
);

impl std::fmt::Debug for RequestHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

impl RequestHook {
    /// Passes a request to the hook.
    pub(crate) fn decide(&self, request: &reqwest::Request) -> SendDecision {
        let header =
            |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
                Some((name.to_string(), value.to_str().ok()?.to_owned()))
            };
        let body = request
            .body()
            .and_then(reqwest::Body::as_bytes)
            .and_then(|b| std::str::from_utf8(b).ok());
        // A POST with `dry_run=true` changes nothing.
        let asks_only = request
            .url()
            .query_pairs()
            .any(|(key, value)| key == "dry_run" && value == "true");
        (self.0)(&PreparedRequest {
            method: request.method().as_str(),
            url: request.url().as_str(),
            headers: request.headers().iter().filter_map(header).collect(),
            body,
            reads: request.method().is_safe() || asks_only,
        })
    }
}
