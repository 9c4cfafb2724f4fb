//! OpenAPI 3.1 description of the interface, from the code: every route, parameter, body, response
//! and problem.
//!
//! The routes are those of the router, because both are built from the same list. The description
//! is served at `/v1/openapi.json` and kept in `docs/openapi.json`.

use std::collections::BTreeMap;

use axum::http::{Method, header};
use axum::response::{IntoResponse as _, Response};
use headroom_identity::CallRequirement;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, PathItem, Ref, RefOr, Required,
    ResponseBuilder,
};
use utoipa::{IntoResponses, OpenApi as _, ToSchema};

use super::guard;

/// Components that all parts of the description share.
#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(ProblemDetails)))]
struct OpenApiComponents;

/// Defines responses for problems with certain codes.
macro_rules! problems {
    ($($name:ident: $($code:ident),+; $what:literal)*) => {$(
        #[doc = $what]
        #[derive(Debug)]
        pub(crate) struct $name;
        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
                problem(&[$(ErrorCode::$code),+], $what)
            }
        }
    )*};
}
problems! {
    Bad: HR0400; "The body, the path or a parameter is invalid."
    Missing: HR0404; "The object does not exist."
    Conflict: HR0409; "The state of the object does not allow the call, or another caller changed it first."
    Stale: HR0410; "The call names another epoch of the resource manager: register again."
    TooOld: HR0411; "The cursor is before the oldest kept entry."
    StaleOrTooOld: HR0410, HR0411; "The call names another epoch, or the cursor is before the oldest kept entry."
    TooLarge: HR0413; "The body, a count or a name is too large."
    Beyond: HR0416; "The range begins after the last byte."
    NotLive: HR0418; "The job accepts no tasks while it runs."
    Over: HR0419; "The application has ended."
    NotUpgraded: HR0426; "The headers do not ask for the protocol of the channel."
    Never: HR0422; "The request is infeasible: it exceeds every node or the queue."
    UploadsFull: HR0507; "The uploaded files, or the disk of the resource manager, leave too little space."
    TooMany: HR0429; "Too many at once; try again after the time in Retry-After."
}

fn problem(codes: &[ErrorCode], what: &str) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let names: Vec<String> = codes.iter().map(ToString::to_string).collect();
    let status = codes.first().map_or(500, |c| c.status()).to_string();
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(ProblemDetails::name())))
        .build();
    let response = ResponseBuilder::new().description(format!("{}: {what}", names.join(", ")));
    [(
        status,
        response
            .content("application/problem+json", content)
            .build()
            .into(),
    )]
    .into()
}

/// Completes the description of the routes in `api`.
pub(crate) fn whole(api: OpenApi) -> OpenApi {
    let mut api = OpenApiComponents::openapi().merge_from(api);
    api.info = InfoBuilder::new()
        .title("Headroom resource manager")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(
            LicenseBuilder::new()
                .name("Apache-2.0")
                .identifier(Some("Apache-2.0"))
                .build(),
        ))
        .build();
    for (path, item) in &mut api.paths.paths {
        for (method, operation) in operations(item) {
            finish(path, method, operation);
        }
    }
    api
}

const ABOUT: &str = "Applications, containers, nodes and queues of one cluster. Within /v1, fields and calls are added, \
    but none changes its meaning. Every problem is an RFC 9457 document with a stable code. A request may have an \
    X-Request-Id; the response, its problem and the log contain it. A POST may have an Idempotency-Key: a repeated key \
    returns the first response again.";

pub(crate) fn operations(item: &mut PathItem) -> Vec<(&'static str, &mut Operation)> {
    let all = [
        ("get", item.get.as_mut()),
        ("put", item.put.as_mut()),
        ("post", item.post.as_mut()),
        ("delete", item.delete.as_mut()),
        ("patch", item.patch.as_mut()),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| Some((method, operation?)))
        .collect()
}

/// Paths that need no right, but whose handlers check the caller themselves.
const JUDGES: [&str; 3] = ["/v1/session", "/v1/join", "/v1/acl/bootstrap"];

/// Adds the parts that all operations share.
fn finish(path: &str, method: &str, operation: &mut Operation) {
    // Several handlers in different modules have the same name, so the id is made from the path.
    let words = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty() && *w != "v1");
    operation.operation_id = Some(
        std::iter::once(method)
            .chain(words)
            .collect::<Vec<_>>()
            .join("_"),
    );
    for text in [&mut operation.summary, &mut operation.description]
        .into_iter()
        .flatten()
    {
        *text = text.replace("[`", "`").replace("`]", "`");
    }
    if !path.starts_with("/v1") {
        return;
    }
    let mut usual = problem(
        &[ErrorCode::HR0500],
        "Internal error; the log of the resource manager contains the details.",
    );
    usual.extend(problem(
        &[ErrorCode::HR0503],
        "Not ready, or no response in time; try again after the time in Retry-After.",
    ));
    // The template of an id is no id, so a call about one has an error here.
    let open = guard::need(&verb(method), path, path) == Ok(CallRequirement::Nothing);
    if !open || JUDGES.contains(&path) {
        usual.extend(problem(
            &[ErrorCode::HR0401],
            "The caller is not authenticated.",
        ));
        usual.extend(problem(
            &[ErrorCode::HR0403],
            "The caller is not authorized; the detail names the missing right.",
        ));
    }
    for (status, response) in usual {
        operation
            .responses
            .responses
            .entry(status)
            .or_insert(response);
    }
    let mut headers = vec![header_parameter(
        "X-Request-Id",
        "An id for this request; assigned if it is absent.",
    )];
    if method == "post" && !super::trace::DAEMONS.contains(&path) {
        headers.push(header_parameter(
            "Idempotency-Key",
            "Key of this call: calls with the same key are made only once.",
        ));
    }
    operation.parameters.get_or_insert_default().extend(headers);
}

fn verb(method: &str) -> Method {
    method.to_uppercase().parse().unwrap_or_default()
}

fn header_parameter(name: &str, what: &str) -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False);
    parameter
        .description(Some(what))
        .schema(Some(text.build()))
        .build()
}

/// Text that is served and kept. Deterministic: equal code results in equal text.
pub(crate) fn text(api: &OpenApi) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&serde_json::to_value(api)?)? + "\n")
}

/// Responds with the description.
pub(crate) fn answer(text: &str) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        text.to_owned(),
    )
        .into_response()
}
