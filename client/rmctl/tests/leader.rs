//! The program with several resource managers: `rmctl operator leader`, and calls that find the
//! leader.

#![allow(missing_docs)] // tests are read, not imported

#[allow(dead_code)] // other tests use the rest
mod fake_manager;

use std::net::TcpListener;

use fake_manager::{Fake, rmctl, usual};

const LEADER: &str = r#"{"self":"http://rm1:7070","state":"leader","leader":"http://rm1:7070","epoch":7,
"managers":[{"url":"http://rm1:7070","state":"leader"},{"url":"http://rm2:7070","state":"standby"}]}"#;
const STANDBY: &str =
    r#"{"self":"http://rm2:7070","state":"standby","leader":null,"epoch":null,"managers":[]}"#;

fn leads(method: &str, path: &str) -> (u16, String) {
    match path {
        "/v1/leader" => (200, LEADER.to_owned()),
        _ => usual(method, path),
    }
}

fn waits(_: &str, path: &str) -> (u16, String) {
    match path {
        "/v1/leader" => (200, STANDBY.to_owned()),
        _ => (421, String::new()),
    }
}

fn older(_: &str, path: &str) -> (u16, String) {
    match path {
        "/v1/version" => (200, r#"{"version":"0.0.9"}"#.to_owned()),
        _ => (404, String::new()),
    }
}

fn dead() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

#[test]
fn every_resource_manager_is_asked_and_the_exit_code_says_whether_one_leads() {
    let (a, b, c, gone) = (Fake::new(leads), Fake::new(waits), Fake::new(older), dead());
    let all = [&gone, &b.url, &a.url, &c.url]
        .map(String::as_str)
        .join(",");
    let ran = rmctl(&["--addr", &all, "operator", "leader", "-o", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let rows: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let states = rows.as_array().expect("a list").iter();
    let states: Vec<&str> = states.filter_map(|row| row["state"].as_str()).collect();
    assert_eq!(states, ["unreachable", "standby", "leader", "unknown"]);
    assert_eq!(
        (&rows[0]["epoch"], &rows[2]["epoch"]),
        (&serde_json::Value::Null, &7.into())
    );
    assert_eq!(rows[2]["address"], a.url.as_str());

    let without = format!("{gone},{}", b.url);
    let ran = rmctl(&["--addr", &without, "operator", "leader"]);
    assert_eq!((ran.code, ran.err.as_str()), (6, ""));
    assert!(
        ran.out.contains("standby") && ran.out.contains("knows no leader"),
        "{}",
        ran.out
    );
}

#[test]
fn a_call_finds_the_leader_and_its_error_names_every_address() {
    let (a, b, gone) = (Fake::new(leads), Fake::new(waits), dead());
    let all = [&gone, &b.url, &a.url].map(String::as_str).join(",");
    let ran = rmctl(&["--addr", &all, "node", "list", "-q"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "worker-01\n"),
        "{}",
        ran.err
    );
    let page = rmctl(&["--addr", &all, "ui", "--print-url"]);
    assert_eq!(
        (page.code, page.out),
        (0, format!("{}/ui\n", a.url)),
        "{}",
        page.err
    );

    let without = format!("{gone},{}", b.url);
    let ran = rmctl(&["--addr", &without, "ps"]);
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(
        ran.err.contains(&gone) && ran.err.contains(&b.url) && ran.err.contains("operator leader"),
        "{}",
        ran.err
    );
}

#[test]
fn a_mistake_in_the_list_is_named() {
    for (list, wanted) in [
        ("http://a:1,,http://b:1", "has no address at position 2"),
        ("http://a:1,b:1", "\"b:1\" is not an address"),
        ("http://a:1,https://b:1", "are in one list"),
    ] {
        let ran = rmctl(&["--addr", list, "operator", "leader"]);
        assert!(ran.code == 2 && ran.err.contains(wanted), "{}", ran.err);
        let ran = rmctl(&["--addr", list, "ps"]);
        assert!(ran.code == 2 && ran.err.contains(wanted), "{}", ran.err);
    }
}
