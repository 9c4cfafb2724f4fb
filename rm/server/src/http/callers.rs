//! Authentication of callers, from the connection and from a token in the request.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use headroom_identity::{AccessRights, Principal};
use headroom_rm_reports::RequestScheme;
use headroom_wire::v1::error::ProblemDetails;
use std::sync::Arc;
use tokio::sync::watch;

use super::listeners::ConnectionIdentity;
use super::stream_authorization::{self, CallerAuthorization};
use crate::access::AccessControl;
use crate::clock::ManagerClock;

/// Name of the cookie in which the web page keeps its token.
pub(crate) const COOKIE: &str = "headroom_session";

/// An invalid token was presented. The call is refused, even if the connection authenticates the
/// caller.
#[derive(Clone, Debug)]
pub(crate) struct RejectedToken(pub(crate) Box<ProblemDetails>);

/// State that is needed to authenticate callers.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticationState {
    pub(crate) access: watch::Receiver<Arc<AccessControl>>,
    pub(crate) clock: ManagerClock,
    /// Of the TCP listener.
    pub(crate) scheme: RequestScheme,
}

/// Middleware that authenticates the caller and stores the principal in the request.
pub(crate) async fn identify(
    State(known): State<AuthenticationState>,
    mut request: Request,
    next: Next,
) -> Response {
    let access = known.access.borrow().clone();
    let visitor = request.extensions_mut().remove::<ConnectionIdentity>();
    let path = request.uri().path();
    let principal = match shown(request.headers()) {
        None => visitor
            .as_ref()
            .map_or(Principal::Anonymous, |visitor| of(&access, visitor)),
        Some(Ok(shown)) => match access.bearer(shown.token(), known.clock.host_time()) {
            Ok(principal) => principal,
            // A joining host is unauthenticated here; the join handler checks its token.
            Err(_) if path == "/v1/join" => Principal::Anonymous,
            // A browser sends an invalid cookie until it receives another one, and it receives that
            // on these paths.
            Err(_) if matches!(shown, PresentedToken::Cookie(_)) && signs_in(path) => {
                Principal::Anonymous
            }
            Err(problem) => reject(&mut request, problem),
        },
        Some(Err(detail)) => reject(&mut request, ProblemDetails::unauthenticated(detail)),
    };
    let token = shown(request.headers())
        .and_then(Result::ok)
        .map(|shown| shown.token().to_owned());
    request.extensions_mut().insert(principal.clone());
    request.extensions_mut().insert(known.scheme);
    let clock = known.clock;
    let still = move |access: &AccessControl| match (&token, &visitor) {
        // An unauthenticated caller was allowed without any right, so no lost right can end its
        // response.
        _ if principal == Principal::Anonymous => true,
        (Some(token), _) => access
            .bearer(token, clock.host_time())
            .is_ok_and(|now| now == principal),
        (None, Some(visitor)) => of(access, visitor) == principal,
        (None, None) => true,
    };
    let caller = CallerAuthorization::new(known.access, still);
    request.extensions_mut().insert(caller.clone());
    let answer = next.run(request).await;
    stream_authorization::while_it_holds(answer, caller)
}

fn reject(request: &mut Request, problem: ProblemDetails) -> Principal {
    request
        .extensions_mut()
        .insert(RejectedToken(Box::new(problem)));
    Principal::Anonymous
}

fn of(access: &AccessControl, visitor: &ConnectionIdentity) -> Principal {
    let ConnectionIdentity {
        principal,
        groups,
        account,
    } = visitor.clone();
    let Some(name) = account else {
        return principal;
    };
    let usual = if let Principal::User { rights, .. } = principal {
        rights
    } else {
        AccessRights::default()
    };
    let rights = access.rights(&name, &groups, usual);
    Principal::User {
        name,
        token: None,
        rights,
        groups,
    }
}

/// A token, and the header in which it was presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PresentedToken<'a> {
    /// `Authorization`, set by a program, which can omit it.
    Header(&'a str),
    /// `Cookie`, set by a browser, which cannot omit it.
    Cookie(&'a str),
}

impl<'a> PresentedToken<'a> {
    pub(crate) fn token(self) -> &'a str {
        match self {
            PresentedToken::Header(token) | PresentedToken::Cookie(token) => token,
        }
    }
}

/// Paths that a browser needs to sign in: the files of the page, and its session.
fn signs_in(path: &str) -> bool {
    matches!(path, "/" | "/ui" | "/v1/session") || path.starts_with("/ui/")
}

/// Token of a request, if it has one.
pub(crate) fn shown(headers: &HeaderMap) -> Option<Result<PresentedToken<'_>, &'static str>> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let bearer = value.to_str().ok().and_then(|text| text.split_once(' '));
        let token = bearer
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        return Some(
            token
                .map(PresentedToken::Header)
                .ok_or("the header Authorization must have the form: Bearer TOKEN"),
        );
    }
    let cookies = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, token)| Ok(PresentedToken::Cookie(token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn a_token_is_read_from_a_header_or_from_the_session_cookie() {
        assert_eq!(shown(&headers(&[])), None);
        assert_eq!(
            shown(&headers(&[(header::AUTHORIZATION, "bearer hru_1_2")])),
            Some(Ok(PresentedToken::Header("hru_1_2")))
        );
        assert!(
            shown(&headers(&[(header::AUTHORIZATION, "Basic cm9vdDo=")]))
                .is_some_and(|shown| shown.is_err())
        );
        let cookie = headers(&[(header::COOKIE, "theme=dark; headroom_session=hru_3_4")]);
        assert_eq!(shown(&cookie), Some(Ok(PresentedToken::Cookie("hru_3_4"))));
        let both = headers(&[
            (header::COOKIE, "headroom_session=a"),
            (header::AUTHORIZATION, "Bearer b"),
        ]);
        assert_eq!(
            shown(&both),
            Some(Ok(PresentedToken::Header("b"))),
            "the header overrides the cookie"
        );
    }
}
