//! Refusal of calls while many wait for the main loop: reads first, then changes by users.
//!
//! Calls of nodes and masters are never refused: the end of a container, a heartbeat, a request. A
//! refused call has changed nothing. The answer names the time after which to try again.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};

use super::error::ProblemResponse;
use crate::handle::MainLoopHandle;
use crate::inbox::LENGTH;

/// Number of waiting calls from which reads are refused.
pub(super) const READS: usize = LENGTH / 4;
/// Number of waiting calls from which changes by users are refused too.
pub(super) const CHANGES: usize = LENGTH / 2;

/// The class of a call, in the order in which classes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallClass {
    Read,
    Change,
    /// A call of a node, a master or a monitoring system.
    Essential,
}

impl CallClass {
    fn of(method: &Method, path: &str) -> CallClass {
        let Some(call) = path.strip_prefix("/v1/") else {
            // Files of the page, metrics, health.
            return CallClass::Essential;
        };
        match call.split('/').collect::<Vec<_>>().as_slice() {
            ["leader" | "version"]
            | ["nodes", _, "desired"]
            | ["apps", _, "updates" | "requests"]
            | ["apps", _, "requests", _] => CallClass::Essential,
            _ if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) => CallClass::Read,
            _ => CallClass::Change,
        }
    }

    /// The number of waiting calls from which this class is refused.
    fn limit(self) -> Option<usize> {
        match self {
            CallClass::Read => Some(READS),
            CallClass::Change => Some(CHANGES),
            CallClass::Essential => None,
        }
    }
}

/// The problem of a call that is refused while `waiting` others wait.
fn refusal(class: CallClass, waiting: usize) -> Option<ProblemDetails> {
    if waiting < class.limit()? {
        return None;
    }
    let what = match class {
        CallClass::Read => format!("reads are refused from {READS} on"),
        CallClass::Change => format!("changes by users are refused from {CHANGES} on"),
        CallClass::Essential => return None,
    };
    let problem = ProblemDetails::new(
        ErrorCode::HR0503,
        format!("the resource manager is overloaded: {waiting} calls wait, and {what}"),
    );
    Some(problem.hint("nothing was changed; send the call again after the time in Retry-After"))
}

/// Middleware for the calls of users.
pub(super) async fn shed(
    State(handle): State<MainLoopHandle>,
    request: Request,
    next: Next,
) -> Response {
    let class = CallClass::of(request.method(), request.uri().path());
    match refusal(class, handle.calls_waiting()) {
        Some(problem) => ProblemResponse(problem).into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_refused_before_changes_and_nodes_and_masters_never() {
        let refused = |method: Method, path: &str, waiting| {
            refusal(CallClass::of(&method, path), waiting).is_some()
        };
        let (read, change) = ("/v1/apps/job.1", "/v1/apps");
        assert!(!refused(Method::GET, read, READS - 1));
        assert!(refused(Method::GET, read, READS));
        assert!(!refused(Method::POST, change, READS));
        assert!(refused(Method::POST, change, CHANGES));
        for path in [
            "/metrics",
            "/livez",
            "/v1/leader",
            "/v1/nodes/n1/desired",
            "/v1/apps/job.1/updates",
            "/v1/apps/job.1/requests",
            "/v1/apps/job.1/requests/main",
        ] {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert!(!refused(method, path, LENGTH), "{path}");
            }
        }
    }

    #[test]
    fn a_refusal_says_what_waits_and_when_to_try_again() {
        let problem = refusal(CallClass::Read, 2000).expect("refused");
        assert_eq!(problem.code, ErrorCode::HR0503);
        assert!(problem.detail.contains("2000 calls wait"), "{problem:?}");
        let response = ProblemResponse(problem).into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
    }
}
