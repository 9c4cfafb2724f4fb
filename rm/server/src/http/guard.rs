//! Authorization: the rights that each call needs. The connection and the token authenticate the
//! caller before.
//!
//! *Architecture Invariant*: a path that is not listed here needs the right of an administrator; a
//! test compares the list with the router.

use std::fmt::Display;
use std::str::FromStr;

use axum::RequestExt as _;
use axum::body::to_bytes;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headroom_identity::{AccessDenied, AccessRight, CallRequirement, Principal};
use headroom_types::{ContainerId, QueuePath};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemResult};

use super::callers::RejectedToken;
use super::error::ProblemResponse;
use super::parse;
use super::visibility::belongs;
use super::web::WebHandlerState;

/// Number of bytes of a refused request that are read and discarded.
const UNREAD: usize = 64 << 10;

/// Returns the right that a call needs. `id` is the first parameter of the path as the handler gets
/// it, without percent-encoding: a requirement about another text than the handler's is none.
///
/// # Errors
/// The path names no valid object, so it has no owner.
pub(crate) fn need(method: &Method, template: &str, id: &str) -> ProblemResult<CallRequirement> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let words: Vec<&str> = template.split('/').filter(|w| !w.is_empty()).collect();
    let right = |right| CallRequirement::Right(right);
    let own = |right| about(id, |app| CallRequirement::Own(right, app));
    let need =
        match words.as_slice() {
            [] | ["livez" | "readyz" | "cluster" | "jmx"] | ["ui", ..] => CallRequirement::Nothing,
            [
                "v1",
                "version" | "leader" | "openapi.json" | "errors" | "ca" | "join" | "session",
                ..,
            ] => CallRequirement::Nothing,
            // The bootstrap handler accepts only the host of the resource manager, and once. Any caller
            // may query its own identity.
            ["v1", "acl", "bootstrap" | "self"] => CallRequirement::Nothing,
            // The handlers check that callers grant no right that they lack, and that callers may
            // revoke their own tokens.
            ["v1", "acl", "tokens", ..] if !reads => CallRequirement::Anybody,
            ["v1", "acl", ..] if reads => right(AccessRight::OperatorRead),
            ["v1", "acl", "join-tokens"] => right(AccessRight::NodeWrite),
            ["v1", "acl", ..] => right(AccessRight::OperatorWrite),
            [
                "v1",
                "status" | "nodes" | "node-groups" | "queues" | "profiles" | "families"
                | "suggestions" | "events" | "stream",
                ..,
            ]
            | ["metrics"]
                if reads =>
            {
                match words.last() {
                    Some(&"desired") => about(id, CallRequirement::Node)?,
                    Some(_) | None => right(AccessRight::ClusterRead),
                }
            }
            ["v1", "audit" | "operator", ..] if reads => right(AccessRight::OperatorRead),
            ["v1", "apps", _, "updates" | "journal"] => about(id, CallRequirement::Application)?,
            // The node reads files with its own permissions, so viewers of the application may not read
            // them.
            ["v1", "containers", _, "files", ..] => about(id, |id: ContainerId| {
                CallRequirement::Own(AccessRight::JobRead, id.app)
            })?,
            // The environment of a launch may contain secrets, such as that of a Spark application.
            ["v1", "apps", _, "requests", ..] if reads => own(AccessRight::JobRead)?,
            ["v1", "apps", app, ..] if reads && !app.is_empty() => about(id, CallRequirement::See)?,
            ["v1", "containers", _, ..] if reads => {
                about(id, |id: ContainerId| CallRequirement::See(id.app))?
            }
            ["v1", "apps" | "containers"] if reads => CallRequirement::Look,
            ["v1", "apps"] => right(AccessRight::JobSubmit),
            // A node fetches the files of its containers. A user who knows the digest of a file can read
            // it anyway: with a container that names it.
            ["v1", "uploads", _] if reads => CallRequirement::SomeNodeOr(AccessRight::JobSubmit),
            ["v1", "uploads", _] => right(AccessRight::JobSubmit),
            ["v1", "upload-copies", ..] => CallRequirement::OtherManager,
            ["v1", "apps", _, "register" | "sync" | "finish"]
            | ["v1", "apps", _, "requests", ..] => about(id, CallRequirement::Application)?,
            ["v1", "apps", _, "channel" | "channel-token"] => own(AccessRight::JobSubmit)?,
            ["v1", "apps", _, ..] => own(AccessRight::JobKill)?,
            ["v1", "containers", _, ..] => about(id, |id: ContainerId| {
                CallRequirement::Own(AccessRight::JobKill, id.app)
            })?,
            ["v1", "nodes", _, "register" | "report"] => about(id, CallRequirement::Node)?,
            ["v1", "nodes", ..] => right(AccessRight::NodeWrite),
            ["v1", "queues", _, "state"] => about(id, CallRequirement::Queue)?,
            ["v1", "queues" | "profiles" | "operator", ..] => right(AccessRight::OperatorWrite),
            ["ws", ..] if reads => right(AccessRight::JobRead),
            ["ws", "v1", "cluster", "apps"]
            | ["ws", "v1", "cluster", "apps", "new-application"] => right(AccessRight::JobSubmit),
            ["ws", ..] => right(AccessRight::OperatorWrite),
            _ => right(AccessRight::Admin),
        };
    Ok(need)
}

/// The requirement of a call about the object that a text names.
fn about<T: FromStr<Err: Display>>(
    id: &str,
    need: impl FnOnce(T) -> CallRequirement,
) -> ProblemResult<CallRequirement> {
    parse::id(id).map(need)
}

/// Middleware that passes permitted calls and refuses all others.
pub(crate) async fn guard(
    State(web): State<WebHandlerState>,
    mut request: Request,
    next: Next,
) -> Response {
    let principal = request
        .extensions()
        .get::<Principal>()
        .cloned()
        .unwrap_or(Principal::Anonymous);
    if let Some(RejectedToken(problem)) = request.extensions_mut().remove() {
        let _ = to_bytes(request.into_body(), UNREAD).await;
        return ProblemResponse(*problem).into_response();
    }
    if principal == Principal::Open {
        return next.run(request).await;
    }
    // Without a route there is nothing to protect; the fallback reports that.
    let Some(route) = request.extensions().get::<MatchedPath>().cloned() else {
        return next.run(request).await;
    };
    let authorized = match requirement(&mut request, &route).await {
        Ok(need) => authorize(&web, &principal, &need).await,
        // An unauthenticated caller does not learn whether the id is valid.
        Err(problem) => match principal.authorize(&CallRequirement::Anybody, |_| None) {
            Ok(()) => Err(problem),
            Err(why) => Err(refusal(&why)),
        },
    };
    match authorized {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            // A caller that is still sending would not read the response, so the body is read
            // first.
            let _ = to_bytes(request.into_body(), UNREAD).await;
            ProblemResponse(problem).into_response()
        }
    }
}

async fn requirement(request: &mut Request, route: &MatchedPath) -> ProblemResult<CallRequirement> {
    let parameters = request.extract_parts::<RawPathParams>().await;
    let parameters = parameters
        .map_err(|e| ProblemDetails::bad_request(format!("the address: {}", e.body_text())))?;
    let id = parameters.iter().next().map_or("", |(_, value)| value);
    need(request.method(), route.as_str(), id)
}

/// Checks that the caller meets the requirement.
async fn authorize(
    web: &WebHandlerState,
    principal: &Principal,
    need: &CallRequirement,
) -> ProblemResult<()> {
    let belongs = match need {
        // Ownership does not matter for a caller who may see all applications.
        CallRequirement::See(_) if principal.may_view_all() => None,
        CallRequirement::Own(_, app)
        | CallRequirement::Application(app)
        | CallRequirement::See(app)
            if matches!(principal, Principal::User { .. }) =>
        {
            match web.reader.app(app).await {
                Ok(found) => Some(belongs(&web.reader, &found)),
                // The handler reports the missing application.
                Err(problem) if problem.code == ErrorCode::HR0404 => None,
                Err(problem) => return Err(problem),
            }
        }
        CallRequirement::Own(..) | CallRequirement::Application(_) | CallRequirement::See(_) => {
            None
        }
        CallRequirement::Nothing
        | CallRequirement::Anybody
        | CallRequirement::Right(_)
        | CallRequirement::Look
        | CallRequirement::Queue(_)
        | CallRequirement::Node(_)
        | CallRequirement::SomeNodeOr(_)
        | CallRequirement::OtherManager => None,
    };
    principal
        .authorize(need, |_| belongs)
        .map_err(|why| refusal(&why))
}

pub(super) fn refusal(why: &AccessDenied) -> ProblemDetails {
    match why {
        AccessDenied::Unknown => ProblemDetails::unauthenticated(why.to_string()),
        AccessDenied::Forbidden { .. } => ProblemDetails::forbidden(why.to_string()),
    }
}

/// Checks that the caller may submit to this queue, or move an application to it.
pub(crate) fn queue(principal: &Principal, queue: Option<&QueuePath>) -> ProblemResult<()> {
    let usual = QueuePath::default_leaf();
    let queue = queue.unwrap_or(&usual);
    let (name, rights) = match principal {
        Principal::Open => return Ok(()),
        Principal::User { name, rights, .. } => (name, rights),
        // A program has no rights to queues, also not those of the user who started it.
        Principal::Anonymous
        | Principal::Manager
        | Principal::Node(_)
        | Principal::Master(_)
        | Principal::Executor(_) => {
            let who = principal.audit_name().unwrap_or_default();
            let problem = ProblemDetails::forbidden(format!("{who} may not use queue {queue}"));
            return Err(problem.hint("a user with the right to the queue may move the application"));
        }
    };
    if rights.may_submit_to(queue) {
        return Ok(());
    }
    let own: Vec<String> = rights
        .0
        .iter()
        .filter(|right| right.queue_permission().is_some())
        .map(AccessRight::to_string)
        .collect();
    let problem = ProblemDetails::forbidden(format!(
        "{name} may not use queue {queue}: it needs the right queue:{queue}"
    ));
    Err(problem.hint(format!("{name} has {}", own.join(", "))))
}

/// Returns the user of a submission: the caller, or another user if the caller may act for others.
pub(crate) fn submits(
    principal: &Principal,
    wanted: Option<String>,
) -> ProblemResult<Option<String>> {
    let Principal::User { name, rights, .. } = principal else {
        return Ok(wanted);
    };
    match wanted {
        Some(other) if other != *name && !rights.has(&AccessRight::OperatorWrite) => {
            let detail = format!(
                "{name} may not submit in the name of {other}: it needs the right operator:write"
            );
            Err(ProblemDetails::forbidden(detail))
        }
        Some(other) => Ok(Some(other)),
        None => Ok(Some(name.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_identity::AccessRights;
    use headroom_types::AppId;
    use headroom_wire::v1::error::ErrorCode;

    fn of(method: Method, template: &str, path: &str) -> CallRequirement {
        let mut words = template.split('/').zip(path.split('/'));
        let id = words.find(|(word, _)| word.starts_with('{'));
        need(&method, template, id.map_or("", |(_, given)| given)).expect("a valid id")
    }

    #[test]
    fn every_route_has_a_requirement() {
        for (method, template) in super::super::operations() {
            let path = template
                .replace("{app}", "sort.1")
                .replace("{node}", "n1")
                .replace("{path}", "root.etl")
                .replace("{id}", "sort.1.e1.c1");
            let method: Method = method.to_uppercase().parse().expect("a method");
            assert_ne!(
                of(method.clone(), &template, &path),
                CallRequirement::Right(AccessRight::Admin),
                "{method} {template}"
            );
        }
    }

    #[test]
    fn a_text_that_names_no_object_meets_no_requirement() {
        for (method, template) in [
            (Method::POST, "/v1/apps/{app}/kill"),
            (Method::GET, "/v1/apps/{app}/updates"),
            (Method::POST, "/v1/containers/{id}/exec"),
            (Method::GET, "/v1/containers/{id}/files/content"),
            (Method::GET, "/v1/nodes/{node}/desired"),
            (Method::POST, "/v1/queues/{path}/state"),
        ] {
            for id in ["", "sort%2E1", "a b"] {
                let problem = need(&method, template, id).expect_err(template);
                assert_eq!(problem.code, ErrorCode::HR0400, "{template} {id}");
            }
        }
    }

    #[test]
    fn calls_about_an_application_require_its_owner_or_its_master() {
        let app: AppId = "sort.1".parse().expect("an application id");
        let own = CallRequirement::Own(AccessRight::JobKill, app.clone());
        assert_eq!(
            of(Method::POST, "/v1/apps/{app}/kill", "/v1/apps/sort.1/kill"),
            own
        );
        assert_eq!(of(Method::PATCH, "/v1/apps/{app}", "/v1/apps/sort.1"), own);
        assert_eq!(of(Method::DELETE, "/v1/apps/{app}", "/v1/apps/sort.1"), own);
        assert_eq!(
            of(
                Method::POST,
                "/v1/containers/{id}/stop",
                "/v1/containers/sort.1.e1.c1/stop"
            ),
            own
        );
        for call in ["channel", "channel-token"] {
            assert_eq!(
                of(
                    Method::POST,
                    &format!("/v1/apps/{{app}}/{call}"),
                    &format!("/v1/apps/sort.1/{call}")
                ),
                CallRequirement::Own(AccessRight::JobSubmit, app.clone())
            );
        }
        assert_eq!(
            of(Method::POST, "/v1/apps/{app}/sync", "/v1/apps/sort.1/sync"),
            CallRequirement::Application(app.clone())
        );
        assert_eq!(
            of(
                Method::GET,
                "/v1/apps/{app}/updates",
                "/v1/apps/sort.1/updates"
            ),
            CallRequirement::Application(app.clone())
        );
        assert_eq!(
            of(
                Method::GET,
                "/v1/apps/{app}/requests",
                "/v1/apps/sort.1/requests"
            ),
            CallRequirement::Own(AccessRight::JobRead, app)
        );
        assert_eq!(
            of(Method::POST, "/v1/apps", "/v1/apps"),
            CallRequirement::Right(AccessRight::JobSubmit)
        );
        assert_eq!(
            of(Method::GET, "/v1/apps", "/v1/apps"),
            CallRequirement::Look
        );
    }

    #[test]
    fn calls_of_nodes_and_operators_require_their_own_rights() {
        let state = of(
            Method::POST,
            "/v1/queues/{path}/state",
            "/v1/queues/root.etl/state",
        );
        assert_eq!(
            state,
            CallRequirement::Queue("root.etl".parse().expect("a queue"))
        );
        assert_eq!(
            of(Method::POST, "/v1/nodes/{node}/drain", "/v1/nodes/n1/drain"),
            CallRequirement::Right(AccessRight::NodeWrite)
        );
        assert_eq!(
            of(Method::PATCH, "/v1/nodes/{node}", "/v1/nodes/n1"),
            CallRequirement::Right(AccessRight::NodeWrite)
        );
        assert_eq!(
            of(
                Method::POST,
                "/v1/nodes/{node}/report",
                "/v1/nodes/n1/report"
            ),
            CallRequirement::Node("n1".parse().expect("a node"))
        );
        assert_eq!(
            of(
                Method::GET,
                "/v1/nodes/{node}/desired",
                "/v1/nodes/n1/desired"
            ),
            CallRequirement::Node("n1".parse().expect("a node"))
        );
        let upload = |method| of(method, "/v1/uploads/{sha256}", "/v1/uploads/00");
        let submit = AccessRight::JobSubmit;
        assert_eq!(upload(Method::PUT), CallRequirement::Right(submit.clone()));
        assert_eq!(
            upload(Method::HEAD),
            CallRequirement::SomeNodeOr(submit.clone())
        );
        assert_eq!(upload(Method::GET), CallRequirement::SomeNodeOr(submit));
        let copy = "/v1/upload-copies/{sha256}";
        assert_eq!(of(Method::GET, copy, copy), CallRequirement::OtherManager);
        assert_eq!(
            of(Method::GET, "/v1/audit", "/v1/audit"),
            CallRequirement::Right(AccessRight::OperatorRead)
        );
        assert_eq!(
            of(Method::PUT, "/v1/queues", "/v1/queues"),
            CallRequirement::Right(AccessRight::OperatorWrite)
        );
        assert_eq!(
            of(Method::DELETE, "/v1/unheard/of", "/v1/unheard/of"),
            CallRequirement::Right(AccessRight::Admin)
        );
        assert_eq!(
            of(Method::POST, "/v1/acl/join-tokens", "/v1/acl/join-tokens"),
            CallRequirement::Right(AccessRight::NodeWrite)
        );
        assert_eq!(
            of(Method::GET, "/livez", "/livez"),
            CallRequirement::Nothing
        );
    }

    #[test]
    fn reading_files_requires_ownership_and_reading_logs_does_not() {
        let (app, into) = (
            || "sort.1".parse().expect("an application id"),
            |last: &str| format!("/v1/containers/{{id}}/{last}"),
        );
        let at = |method, last: &str| {
            of(
                method,
                &into(last),
                &format!("/v1/containers/sort.1.e1.c2/{last}"),
            )
        };
        assert_eq!(
            at(Method::GET, "files/content"),
            CallRequirement::Own(AccessRight::JobRead, app())
        );
        assert_eq!(
            at(Method::POST, "exec"),
            CallRequirement::Own(AccessRight::JobKill, app())
        );
        assert_eq!(at(Method::GET, "logs/stdout"), CallRequirement::See(app()));
        assert_eq!(
            of(Method::GET, "/v1/apps/{app}", "/v1/apps/sort.1"),
            CallRequirement::See(app())
        );
    }

    #[test]
    fn only_users_choose_queues() {
        let other: QueuePath = "root.prod".parse().expect("a queue");
        let attempt = "sort.1@1".parse().expect("an attempt");
        for program in [
            Principal::Master(attempt),
            Principal::Executor("sort.1".parse().expect("an application id")),
        ] {
            let refused = queue(&program, Some(&other)).expect_err("a program");
            assert_eq!(refused.code, ErrorCode::HR0403);
        }
        assert_eq!(queue(&Principal::Open, Some(&other)), Ok(()));
    }

    #[test]
    fn a_submission_for_another_user_requires_a_right() {
        let user = |rights| Principal::User {
            name: "alice".into(),
            token: None,
            rights,
            groups: [].into(),
        };
        let own = |rights, wanted: Option<&str>| submits(&user(rights), wanted.map(str::to_owned));
        assert_eq!(
            own(AccessRights::user_default(), None),
            Ok(Some("alice".into()))
        );
        assert_eq!(
            own(AccessRights::user_default(), Some("alice")),
            Ok(Some("alice".into()))
        );
        assert_eq!(
            own(AccessRights::user_default(), Some("bob"))
                .expect_err("it lacks the right")
                .code,
            ErrorCode::HR0403
        );
        assert_eq!(
            own(AccessRights::all(), Some("bob")),
            Ok(Some("bob".into()))
        );
        assert_eq!(
            submits(&Principal::Open, Some("bob".into())),
            Ok(Some("bob".into()))
        );
    }
}
