//! What arrives, parsed: bodies, addresses and parameters. What cannot be parsed is a problem that says where.

use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use headroom_wire::v1::error::{Code, Problem};
use serde::de::DeserializeOwned;

use super::error::Failure;

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        serde_json::from_slice(&bytes).map(Body).map_err(|e| Problem::new(Code::HR0400, format!("the body: {e}")).into())
    }
}

fn unread(rejection: BytesRejection) -> Failure {
    let problem = if rejection.status().as_u16() == 413 {
        Problem::new(Code::HR0413, "the body is larger than this call takes").hint("send less at once")
    } else {
        Problem::new(Code::HR0400, format!("the body did not arrive: {}", rejection.body_text()))
    };
    problem.into()
}

/// Parameters after the question mark.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let parsed = Query::<T>::from_request_parts(parts, state).await;
        let wrong = |what: String| Failure(Problem::new(Code::HR0400, format!("the parameters: {what}")));
        parsed.map(|Query(t)| Params(t)).map_err(|e| wrong(e.body_text()))
    }
}

/// The one id in the address.
#[derive(Debug)]
pub(crate) struct Id<T>(pub(crate) T);

impl<T: FromStr<Err: std::fmt::Display>, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(text) = path::<String, S>(parts, state).await?;
        parse(&text).map(Id)
    }
}

/// An id and a second word in the address.
#[derive(Debug)]
pub(crate) struct Ids<T, U>(pub(crate) T, pub(crate) U);

impl<T, U, S> FromRequestParts<S> for Ids<T, U>
where
    T: FromStr<Err: std::fmt::Display>,
    U: FromStr<Err: std::fmt::Display>,
    S: Send + Sync,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path((first, second)) = path::<(String, String), S>(parts, state).await?;
        Ok(Ids(parse(&first)?, parse(&second)?))
    }
}

async fn path<T: DeserializeOwned + Send, S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Path<T>, Failure> {
    let wrong = |what: String| Failure(Problem::new(Code::HR0400, format!("the address: {what}")));
    Path::<T>::from_request_parts(parts, state).await.map_err(|e| wrong(e.body_text()))
}

fn parse<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|e| Problem::new(Code::HR0400, format!("the address: {e}")).into())
}
