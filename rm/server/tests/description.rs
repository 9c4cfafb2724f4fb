//! OpenAPI description: equal to the file in `docs`, served, and complete with respect to the
//! routes.
//!
//! `HEADROOM_UPDATE_GOLDEN=1` rewrites the file; look at the difference before you commit it.

#![allow(missing_docs)] // tests are read, not imported
#![allow(clippy::disallowed_methods)]

mod fakes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fakes::*;
use reqwest::Method;
use serde_json::Value;

const METHODS: [Method; 5] = [
    Method::GET,
    Method::PUT,
    Method::POST,
    Method::DELETE,
    Method::PATCH,
];

fn description() -> Value {
    serde_json::from_str(&headroom_rm_server::description()).expect("JSON")
}

/// Each path with its methods.
fn described() -> BTreeMap<String, BTreeSet<String>> {
    let api = description();
    let paths = api["paths"].as_object().expect("paths");
    let methods = |item: &Value| {
        item.as_object()
            .expect("a path")
            .keys()
            .map(|m| m.to_uppercase())
            .collect()
    };
    paths
        .iter()
        .map(|(path, item)| (path.clone(), methods(item)))
        .collect()
}

#[test]
fn the_committed_description_matches_the_code() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let text = headroom_rm_server::description();
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(
        kept == text,
        "docs/openapi.json differs from the code; HEADROOM_UPDATE_GOLDEN=1 writes it again"
    );
}

/// Every described method of a path has a handler, and all other methods are refused.
#[tokio::test(flavor = "multi_thread")]
async fn routes_match_the_description() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let http = reqwest::Client::new();
    for (path, methods) in described() {
        // `~` is not a valid id: a handler refuses it or finds nothing, with another message than
        // the router.
        let address = path
            .split('/')
            .map(|word| if word.starts_with('{') { "~" } else { word })
            .collect::<Vec<_>>()
            .join("/");
        for method in METHODS {
            let sent = http
                .request(method.clone(), format!("{}{address}", client.base()))
                .send();
            let answer = soon(&path, sent).await.expect("answers");
            let wanted = methods.contains(method.as_str());
            let refused = match answer
                .headers()
                .get("content-type")
                .map(|t| t.to_str().expect("text").to_owned())
            {
                Some(kind) if kind == "application/problem+json" => {
                    let text = answer.text().await.expect("reads");
                    text.contains("there is nothing at")
                        || text.contains(&format!("does not take {method}"))
                }
                Some(_) | None => false,
            };
            assert_eq!(refused, !wanted, "{method} {path}");
        }
    }
}

/// All routes come from the list from which the description is made.
#[test]
fn the_description_contains_every_route() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/http");
    let mut routes = 0;
    for entry in std::fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .filter(|e| e.path().is_file())
    {
        let source = std::fs::read_to_string(entry.path()).expect("reads");
        assert!(
            !source.contains(".route("),
            "{} has a route that is not described",
            entry.path().display()
        );
        routes += source.matches("#[utoipa::path(").count();
    }
    let described: usize = described().values().map(BTreeSet::len).sum();
    assert_eq!(
        routes, described,
        "a handler is described without a route, or has a route without a description"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let served: Value = client.get("/v1/openapi.json").await.expect("answers");
    assert_eq!(served, description());
    assert_eq!(served["openapi"].as_str().map(|v| &v[..3]), Some("3.1"));
}

/// Every error response is described as a problem document with a code, and every reference has a
/// target.
#[test]
fn problems_have_codes_and_references_have_targets() {
    let api = description();
    let mut names = BTreeSet::new();
    for (path, item) in api["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .filter(|(path, _)| path.starts_with("/v1"))
    {
        for (method, operation) in item.as_object().expect("a path") {
            let name = operation["operationId"].as_str().expect("a name");
            assert!(
                names.insert(name.to_owned()),
                "{method} {path}: {name} is the name of two operations"
            );
            let responses = operation["responses"].as_object().expect("responses");
            assert!(
                responses.contains_key("500") && responses.contains_key("503"),
                "{method} {path}"
            );
            for (status, response) in responses
                .iter()
                .filter(|(status, _)| status.starts_with(['4', '5']))
            {
                assert!(
                    response["content"]["application/problem+json"].is_object(),
                    "{method} {path} {status}"
                );
                assert!(
                    response["description"]
                        .as_str()
                        .expect("text")
                        .starts_with("HR0"),
                    "{method} {path} {status}"
                );
            }
        }
    }
    let text = api.to_string();
    for reference in text
        .split("\"#/components/schemas/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        assert!(
            api["components"]["schemas"][reference].is_object(),
            "{reference} is not described"
        );
    }
}
