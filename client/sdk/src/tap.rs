//! Requests as they are told to somebody before they are sent: to be shown, or to be kept back.

use std::sync::Arc;

/// A request that is about to be sent.
#[derive(Debug)]
pub struct Request<'a> {
    /// `GET`, `POST` …
    pub method: &'a str,
    /// The whole address.
    pub url: &'a str,
    /// Headers that matter, with their values.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Option<&'a str>,
    /// It changes nothing.
    pub reads: bool,
}

/// Whether a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// It is.
    Yes,
    /// It is kept back; the call ends with [`ClientError::NotSent`](crate::ClientError::NotSent).
    No,
}

/// Somebody who is told.
#[derive(Clone)]
pub(crate) struct Tap(pub(crate) Arc<dyn Fn(&Request<'_>) -> Sending + Send + Sync>);

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

impl Tap {
    /// Tells of a request that is ready.
    pub(crate) fn tell(&self, request: &reqwest::Request) -> Sending {
        let header = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        let body = request.body().and_then(reqwest::Body::as_bytes).and_then(|b| std::str::from_utf8(b).ok());
        // A POST that only asks what would become of it changes nothing.
        let asks_only = request.url().query_pairs().any(|(key, value)| key == "dry_run" && value == "true");
        (self.0)(&Request {
            method: request.method().as_str(),
            url: request.url().as_str(),
            headers: request.headers().iter().filter_map(header).collect(),
            body,
            reads: request.method().is_safe() || asks_only,
        })
    }
}
