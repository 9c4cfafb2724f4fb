//! Submission of applications in YARN's format: a command that runs as a managed master.
//!
//! Fields without an equivalent are refused by name. No field that the program needs is ignored
//! silently.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use headroom_identity::Principal;
use headroom_rm_reports::SharedCluster;
use headroom_types::{Bytes, Cpus, LaunchSpec, Name, Resource};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};
use headroom_wire::yarn::ids::YarnApplicationId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::app_kind::{NAME_VARIABLE, TAGS_VARIABLE, TYPE, TYPE_VARIABLE};
use crate::error::{YarnError, YarnResult};
use crate::request::{RequestBaseUrl, YarnJsonBody, YarnQueryParams};
use crate::resource::Bare;
use crate::state::NodeState;

/// Response of `new-application`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct NewApplication {
    application_id: YarnApplicationId,
    maximum_resource_capability: Bare,
}

/// A submission. Unknown keys are ignored, as in YARN.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Submission {
    application_id: YarnApplicationId,
    application_name: Option<String>,
    application_type: Option<String>,
    application_tags: Option<ApplicationTags>,
    queue: Option<String>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    am_container_spec: ContainerSpec,
    #[serde(default, rename = "unmanaged-AM")]
    unmanaged: bool,
    max_app_attempts: Option<u32>,
    resource: Option<Size>,
    attempt_failures_validity_interval: Option<i64>,
    reservation_id: Option<String>,
    #[serde(default)]
    application_timeouts: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct ContainerSpec {
    local_resources: Value,
    environment: Option<Environment>,
    commands: Option<Commands>,
    service_data: Value,
    credentials: Value,
    application_acls: Value,
}

#[derive(Debug, Deserialize)]
struct Environment {
    #[serde(default)]
    entry: OneOrMore<Pair>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Debug, Deserialize)]
struct Commands {
    command: OneOrMore<String>,
}

#[derive(Debug, Deserialize)]
struct ApplicationTags {
    #[serde(default)]
    tag: OneOrMore<String>,
}

#[derive(Debug, Deserialize)]
struct Size {
    memory: u64,
    #[serde(default = "one", rename = "vCores")]
    v_cores: u32,
}

fn one() -> u32 {
    1
}

/// One value or a list: YARN's clients write a list with one element as that element.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    More(Vec<T>),
    One(T),
}

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        OneOrMore::More(Vec::new())
    }
}

impl<T> OneOrMore<T> {
    fn all(self) -> Vec<T> {
        match self {
            OneOrMore::More(all) => all,
            OneOrMore::One(one) => vec![one],
        }
    }
}

/// Default memory of a master. Mebibytes.
const USUAL_MIB: u64 = 1024;

/// `POST /ws/v1/cluster/apps/new-application`.
pub(crate) async fn new_application(
    State(cluster): State<SharedCluster>,
) -> YarnResult<Json<NewApplication>> {
    let number = cluster.reserve_number().await?;
    let nodes = cluster.nodes().await?;
    let active = nodes.iter().filter(|node| NodeState::of(node).is_active());
    let largest = active
        .map(|node| &node.offers)
        .max_by_key(|offers| offers.memory)
        .cloned()
        .unwrap_or_default();
    Ok(Json(NewApplication {
        application_id: YarnApplicationId(number),
        maximum_resource_capability: Bare::of(&largest),
    }))
}

/// `POST /ws/v1/cluster/apps`: the submission is accepted and durable when the response arrives. A
/// repeated id is the same application.
pub(crate) async fn submit(
    State(cluster): State<SharedCluster>,
    principal: Option<Extension<Principal>>,
    asked: YarnQueryParams,
    RequestBaseUrl(here): RequestBaseUrl,
    YarnJsonBody(submission): YarnJsonBody<Submission>,
) -> YarnResult<Response> {
    let id = submission.application_id;
    let wanted = convert(submission, asked.user())?;
    let caller = principal.map_or(Principal::Anonymous, |Extension(principal)| principal);
    let app = cluster.submit(caller, id.0, wanted).await?;
    let place = format!("{here}/ws/v1/cluster/apps/{}", YarnApplicationId::of(&app));
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, place)]).into_response())
}

fn convert(submission: Submission, user: Option<&str>) -> YarnResult<SubmitApplicationRequest> {
    refuse_what_has_no_equal(&submission)?;
    let Submission {
        application_id,
        application_name,
        queue,
        max_app_attempts,
        resource,
        priority,
        ..
    } = submission;
    let given = application_name.unwrap_or_default();
    let name = name_of(&given)?;
    let kind = submission
        .application_type
        .filter(|kind| !kind.is_empty())
        .unwrap_or_else(|| TYPE.to_owned());
    let tags = submission
        .application_tags
        .map(|tags| tags.tag.all().join(","))
        .unwrap_or_default();
    let spec = submission.am_container_spec;
    let master = if submission.unmanaged {
        ApplicationMaster::Unmanaged
    } else {
        let (exports, mut env) = split(
            spec.environment
                .map(|env| env.entry.all())
                .unwrap_or_default(),
        );
        let variables = [
            (NAME_VARIABLE, given),
            (TYPE_VARIABLE, kind),
            (TAGS_VARIABLE, tags),
        ];
        env.extend(
            variables
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(key, value)| (key.to_owned(), value)),
        );
        let command = exports + &command(spec.commands)?;
        let Size { memory, v_cores } = resource.unwrap_or(Size {
            memory: USUAL_MIB,
            v_cores: 1,
        });
        let resource = Resource::new(
            Bytes::from_mib(1).mul_ratio(memory, 1),
            Cpus::from_milli(v_cores.saturating_mul(1000)),
        );
        ApplicationMaster::Managed {
            resource,
            launch: Box::new(launch(command, env)),
            max_attempts: max_app_attempts.unwrap_or(2),
            growth: None,
            start_timeout_ms: None,
            first_request: None,
        }
    };
    let queue = queue
        .filter(|q| !q.is_empty())
        .map(|q| q.parse())
        .transpose()
        .map_err(|e| YarnError::bad(format!("queue: {e}")))?;
    Ok(SubmitApplicationRequest {
        name,
        queue,
        priority,
        user: user.map(str::to_owned),
        lifetime_ms: None,
        master,
        idempotency_key: Some(application_id.to_string()),
        access: AppAccess::default(),
    })
}

fn launch(command: String, env: BTreeMap<String, String>) -> LaunchSpec {
    LaunchSpec {
        command: ["/bin/sh".to_owned(), "-c".to_owned(), command].to_vec(),
        env,
        ..LaunchSpec::default()
    }
}

/// Shell command from all commands: YARN runs them in one shell.
fn command(commands: Option<Commands>) -> YarnResult<String> {
    let all = commands.map(|c| c.command.all()).unwrap_or_default();
    let command = expanded(&all.join(" && "));
    if command.trim().is_empty() {
        return Err(YarnError::bad(
            "am-container-spec.commands.command is empty; set the command for the shell",
        ));
    }
    Ok(command)
}

/// Replaces YARN's placeholders for a shell: `{{NAME}}` is a variable, `<CPS>` separates paths,
/// `<LOG_DIR>` is the directory of logs.
fn expanded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, behind)) = after.split_once("}}") else {
            break;
        };
        out.push_str(before);
        // Without braces, which have another meaning for the node agent.
        out.push('$');
        out.push_str(name);
        rest = behind;
    }
    out.push_str(rest);
    out.replace("<CPS>", ":")
        .replace("<LOG_DIR>", "$HEADROOM_CONTAINER_DIR")
}

/// Splits the environment. The shell sets variables that refer to other variables, as YARN does for
/// all; the others are passed on unchanged.
fn split(environment: Vec<Pair>) -> (String, BTreeMap<String, String>) {
    let all = environment
        .into_iter()
        .map(|Pair { key, value }| (key, expanded(&value)));
    let (of_shell, plain): (Vec<_>, Vec<_>) = all.partition(|(_, value)| value.contains('$'));
    let export = |(key, value): &(String, String)| {
        format!("export {key}=\"{}\"; ", value.replace('"', "\\\""))
    };
    (
        of_shell.iter().map(export).collect(),
        plain.into_iter().collect(),
    )
}

/// Valid application name from a YARN name: invalid characters become `-`. The original name is
/// kept in the environment.
fn name_of(given: &str) -> YarnResult<Name> {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let word: String = given
        .chars()
        .map(plain)
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(63)
        .collect();
    let word = word.trim_end_matches('-');
    let word = if word.is_empty() { "application" } else { word };
    word.parse()
        .map_err(|e| YarnError::bad(format!("application-name: {e}")))
}

fn refuse_what_has_no_equal(submission: &Submission) -> YarnResult<()> {
    let Submission {
        am_container_spec: spec,
        application_timeouts,
        reservation_id,
        ..
    } = submission;
    let values = [
        (
            "am-container-spec.local-resources",
            &spec.local_resources,
            "local resources are not fetched; put the files on the nodes, or submit a job file with files",
        ),
        (
            "am-container-spec.service-data",
            &spec.service_data,
            "auxiliary services are not supported",
        ),
        (
            "am-container-spec.credentials",
            &spec.credentials,
            "tokens and secrets are not passed on; set them in the environment of the program",
        ),
        (
            "am-container-spec.application-acls",
            &spec.application_acls,
            "PUT /v1/apps/{app}/access sets the users who may view or change an application",
        ),
        (
            "application-timeouts",
            application_timeouts,
            "send PUT /ws/v1/cluster/apps/{app}/timeout after the submission",
        ),
    ];
    if let Some((key, _, instead)) = values.iter().find(|(_, value, _)| holds_something(value)) {
        return Err(YarnError::bad(format!("{key} is not supported: {instead}")));
    }
    if reservation_id.as_ref().is_some_and(|id| !id.is_empty()) {
        return Err(YarnError::bad(
            "reservation-id is not supported: there are no time reservations",
        ));
    }
    if submission
        .attempt_failures_validity_interval
        .is_some_and(|ms| ms > 0)
    {
        return Err(YarnError::bad(
            "attempt-failures-validity-interval is not supported: failures of a master never expire",
        ));
    }
    Ok(())
}

/// Whether a value has content: YARN's clients send empty objects for fields that they do not use.
fn holds_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(fields) => fields.values().any(holds_something),
        Value::Array(all) => all.iter().any(holds_something),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> YarnResult<SubmitApplicationRequest> {
        convert(serde_json::from_value(body).expect("reads"), Some("ann"))
    }

    fn with(key: &str, value: Value) -> Value {
        let mut body = json!({
            "application-id": "application_1700000000000_0007", "application-name": "My app (1)", "queue": "etl.nightly",
            "am-container-spec": {
                "commands": {"command": "{{JAVA_HOME}}/bin/java -cp a<CPS>b X 1><LOG_DIR>/stdout"},
                "environment": {"entry": [{"key": "PLAIN", "value": "1"}, {"key": "CLASSPATH", "value": "{{PWD}}/\"x\""}]},
                "local-resources": {"entry": []}, "credentials": {"tokens": {}, "secrets": {"entry": []}},
            },
            "resource": {"memory": 512, "vCores": 2}, "application-type": "SPARK", "application-tags": {"tag": ["a", "b"]},
        });
        if let Some((outer, inner)) = key.split_once('/') {
            body[outer][inner] = value;
        } else {
            body[key] = value;
        }
        body
    }

    #[test]
    fn a_command_becomes_a_managed_master() {
        let app = read(with("max-app-attempts", json!(3))).expect("maps");
        assert_eq!(
            (app.name.as_str(), app.user.as_deref()),
            ("My-app--1", Some("ann"))
        );
        assert_eq!(
            app.idempotency_key.as_deref(),
            Some("application_1700000000000_0007")
        );
        assert_eq!(app.queue, Some("root.etl.nightly".parse().expect("queue")));
        let ApplicationMaster::Managed {
            resource,
            launch,
            max_attempts,
            growth: None,
            start_timeout_ms: None,
            first_request: None,
        } = app.master
        else {
            panic!("the master is not managed")
        };
        assert_eq!(
            (resource, max_attempts),
            (Resource::new(Bytes::from_mib(512), Cpus::from_cores(2)), 3)
        );
        assert_eq!(launch.command[..2], ["/bin/sh", "-c"]);
        assert_eq!(
            launch.command[2],
            r#"export CLASSPATH="$PWD/\"x\""; $JAVA_HOME/bin/java -cp a:b X 1>$HEADROOM_CONTAINER_DIR/stdout"#
        );
        let said = |key: &str| launch.env.get(key).map(String::as_str);
        assert_eq!(
            (said("PLAIN"), said(NAME_VARIABLE)),
            (Some("1"), Some("My app (1)"))
        );
        assert_eq!(
            (said(TYPE_VARIABLE), said(TAGS_VARIABLE)),
            (Some("SPARK"), Some("a,b"))
        );
    }

    #[test]
    fn an_unsupported_field_is_refused_by_name() {
        let files = json!({"entry": [{"key": "a.jar", "value": {"resource": "hdfs://nn/a.jar", "type": "FILE", "size": 1}}]});
        let refused = [
            ("am-container-spec/local-resources", files),
            (
                "am-container-spec/credentials",
                json!({"tokens": {"entry": [{"key": "t", "value": "AAAA"}]}}),
            ),
            (
                "am-container-spec/service-data",
                json!({"entry": [{"key": "shuffle", "value": "AAAA"}]}),
            ),
            ("reservation-id", json!("reservation_1_1")),
            ("attempt-failures-validity-interval", json!(3600)),
            (
                "application-timeouts",
                json!({"timeout": [{"type": "LIFETIME", "expiryTime": "x"}]}),
            ),
        ];
        for (key, value) in refused {
            let word = key.rsplit('/').next().unwrap_or(key);
            let text = format!("{:?}", read(with(key, value)).expect_err(key));
            assert!(text.contains(word), "{text}");
        }
        assert!(read(with("am-container-spec/commands", json!({"command": " "}))).is_err());
    }

    #[test]
    fn empty_objects_and_single_values_in_place_of_lists_are_accepted() {
        let one = json!({"entry": {"key": "A", "value": "1"}});
        let app = read(with("am-container-spec/environment", one)).expect("maps");
        let ApplicationMaster::Managed { launch, .. } = app.master else {
            panic!("the master is not managed")
        };
        assert_eq!(launch.env.get("A").map(String::as_str), Some("1"));
        assert!(read(with("reservation-id", json!(""))).is_ok());
        assert!(
            read(with("unmanaged-AM", json!(true)))
                .expect("maps")
                .master
                == ApplicationMaster::Unmanaged
        );
    }

    #[test]
    fn every_yarn_name_becomes_a_valid_name() {
        for (given, word) in [
            ("a b", "a-b"),
            ("--x--", "x"),
            ("", "application"),
            ("日本", "application"),
            ("ok_1", "ok_1"),
        ] {
            assert_eq!(name_of(given).expect("a name").as_str(), word, "{given:?}");
        }
    }
}
