//! Parts of a request to this interface: path segments, query parameters, JSON bodies and the base
//! URL. Their errors have YARN's format. Reads nothing but the request.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use headroom_rm_reports::RequestScheme;
use serde::de::DeserializeOwned;

use crate::error::{YarnError, YarnResult};

/// Path segments, as ids or text.
#[derive(Debug)]
pub(crate) struct YarnPathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for YarnPathParams<T> {
    type Rejection = YarnError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> YarnResult<Self> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(t)| YarnPathParams(t))
            .map_err(|e| YarnError::bad(format!("the address: {}", e.body_text())))
    }
}

/// A JSON body.
#[derive(Debug)]
pub(crate) struct YarnJsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for YarnJsonBody<T> {
    type Rejection = YarnError;

    async fn from_request(request: Request, state: &S) -> YarnResult<Self> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes
            .map_err(|e| YarnError::bad(format!("the body did not arrive: {}", e.body_text())))?;
        serde_json::from_slice(&bytes)
            .map(YarnJsonBody)
            .map_err(|e| YarnError::bad(format!("the body is invalid: {e}")))
    }
}

/// Query parameters. A name may occur more than once.
#[derive(Debug, Default)]
pub(crate) struct YarnQueryParams(pub(crate) Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for YarnQueryParams {
    type Rejection = YarnError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> YarnResult<Self> {
        let read = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        read.map(|Query(pairs)| YarnQueryParams(pairs))
            .map_err(|e| YarnError::bad(format!("the parameters: {}", e.body_text())))
    }
}

impl YarnQueryParams {
    /// Value of one parameter, unless it is empty.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }
    /// Values of a parameter that accepts several: repeated, or joined by commas.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let given = self
            .0
            .iter()
            .filter(|(key, _)| key == name)
            .flat_map(|(_, value)| value.split(','));
        given
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .collect()
    }
    /// User name that the caller claims.
    pub(crate) fn user(&self) -> Option<&str> {
        self.one("user.name").or_else(|| self.one("doAs"))
    }
}

/// Base URL under which the caller reached this server, for links.
#[derive(Debug)]
pub(crate) struct RequestBaseUrl(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for RequestBaseUrl {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let host = parts
            .headers
            .get(header::HOST)
            .and_then(|v| v.to_str().ok())
            .unwrap_or("localhost");
        let RequestScheme(scheme) = parts
            .extensions
            .get()
            .copied()
            .unwrap_or(RequestScheme("http"));
        Ok(RequestBaseUrl(format!("{scheme}://{host}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_may_be_repeated_or_comma_separated() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let asked = YarnQueryParams(vec![
            pair("states", "NEW, RUNNING"),
            pair("states", "FAILED"),
            pair("user", ""),
        ]);
        assert_eq!(asked.all("states"), ["NEW", "RUNNING", "FAILED"]);
        assert_eq!((asked.one("user"), asked.one("limit")), (None, None));
    }
}
