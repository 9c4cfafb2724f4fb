//! Headers of responses to readers: the index of the view, an ETag for "not modified", and the
//! cursor of the next page of a list.
//!
//! An ETag is `"VERSION.CONTENT"`. `If-None-Match` compares all of it. `If-Match` compares only the
//! part before the dot, so that a change is not refused because an unrelated measurement has
//! changed.

use std::hash::{DefaultHasher, Hasher as _};

use axum::Extension;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::error::{HandlerResult, ProblemResponse};
use crate::audit::AuditChange;
use crate::to_wire;

/// Header with the index of the view in the response; `?index=` accepts it.
pub(crate) const INDEX: HeaderName = HeaderName::from_static("x-headroom-index");
/// Header with the cursor of the next page of a list; `?after=` accepts it.
pub(crate) const NEXT: HeaderName = HeaderName::from_static("x-headroom-next");

/// A response with the change that it makes, for the audit log.
pub(crate) type Audited<R> = (Extension<AuditChange>, R);

/// Adds the states of an object before and after the call to a response.
pub(crate) fn audited<R>(
    before: impl Into<String>,
    after: impl Into<String>,
    response: R,
) -> Audited<R> {
    let change = AuditChange {
        before: before.into(),
        after: after.into(),
    };
    (Extension(change), response)
}

/// Responds with one object as JSON, or 304 if the caller has it already. `steady` is the object
/// without fields that change by themselves.
pub(crate) fn single<T: Serialize, S: Serialize>(
    asked: &HeaderMap,
    version: Option<&str>,
    index: u64,
    value: &T,
    steady: &S,
) -> HandlerResult<Response> {
    let tag = tag(version, steady)?;
    let known = asked
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok());
    let has_it = known
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .any(|t| t == "*" || t == tag || t == format!("W/{tag}"));
    let mut response = if has_it {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json(value)?
    };
    let headers = response.headers_mut();
    put(headers, header::ETAG, &tag);
    put(headers, INDEX, &index.to_string());
    Ok(response)
}

/// Responds with one page of a list as JSON. `next` is the cursor of the next page, if there is
/// one.
pub(crate) fn list<T: Serialize>(
    uri: &Uri,
    index: u64,
    rows: &[T],
    next: Option<impl ToString>,
) -> HandlerResult<Response> {
    let mut response = json(&rows)?;
    let headers = response.headers_mut();
    put(headers, INDEX, &index.to_string());
    if let Some(next) = next {
        let next = next.to_string();
        put(headers, NEXT, &next);
        let next = further(uri, &next);
        link(&mut response, &next);
    }
    Ok(response)
}

/// Sets the `Link` header with the address of the next page.
pub(crate) fn link(response: &mut Response, next: &str) {
    put(
        response.headers_mut(),
        header::LINK,
        &format!("<{next}>; rel=\"next\""),
    );
}

/// Address of the page after `next`.
fn further(uri: &Uri, next: &str) -> String {
    let once = ["after=", "wait=", "index="];
    let kept = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|p| !p.is_empty() && !once.iter().any(|o| p.starts_with(o)));
    let mut query: Vec<&str> = kept.collect();
    let after = format!("after={next}");
    query.push(&after);
    format!("{}?{}", uri.path(), query.join("&"))
}

fn json<T: Serialize>(value: &T) -> HandlerResult<Response> {
    let body = serde_json::to_vec(value).map_err(|e| unwritten(&e))?;
    Ok((
        [(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )],
        body,
    )
        .into_response())
}

fn unwritten(error: &serde_json::Error) -> ProblemResponse {
    tracing::error!(%error, "cannot write a response as JSON; the caller received an internal error");
    to_wire::internal_error().into()
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Ids, numbers, and addresses that were read from a header or an address before: always valid.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn tag<S: Serialize>(version: Option<&str>, steady: &S) -> HandlerResult<String> {
    let content = digest(&serde_json::to_vec(steady).map_err(|e| unwritten(&e))?);
    Ok(match version {
        Some(version) => format!("\"{version}.{content:016x}\""),
        None => format!("\"{content:016x}\""),
    })
}

/// Short hash of bytes. Not collision-resistant.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("a header"))])
    }
    fn text(response: &Response, name: HeaderName) -> String {
        response.headers()[name].to_str().expect("text").to_owned()
    }

    #[test]
    fn a_current_etag_is_answered_with_304() {
        let value = json!({"a": 1, "age": 7});
        let steady = json!({"a": 1});
        let first = single(&HeaderMap::new(), Some("3"), 9, &value, &steady).expect("answers");
        let tag = text(&first, header::ETAG);
        assert!(
            tag.starts_with("\"3.") && text(&first, INDEX) == "9",
            "{tag}"
        );
        for known in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"x\", {tag}"),
            "*".into(),
        ] {
            let again = single(
                &headers(header::IF_NONE_MATCH, &known),
                Some("3"),
                9,
                &value,
                &steady,
            )
            .expect("answers");
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        }
        let moved = single(
            &headers(header::IF_NONE_MATCH, &tag),
            Some("3"),
            9,
            &value,
            &json!({"a": 2}),
        )
        .expect("answers");
        assert_eq!(moved.status(), StatusCode::OK);
    }

    #[test]
    fn a_list_links_to_its_next_page() {
        let uri: Uri = "/v1/apps?limit=2&after=a.1&index=4&state=running"
            .parse()
            .expect("an address");
        let piece = list(&uri, 3, &[1, 2], Some("b.2")).expect("answers");
        assert_eq!(
            text(&piece, header::LINK),
            "</v1/apps?limit=2&state=running&after=b.2>; rel=\"next\""
        );
        assert_eq!(text(&piece, NEXT), "b.2");
        let last = list(&uri, 3, &[1], None::<&str>).expect("answers");
        assert!(!last.headers().contains_key(header::LINK));
    }
}
