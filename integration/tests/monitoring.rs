//! Metrics and their consumers: promtool accepts the pages, the alerts fire, and dashboards name
//! existing metrics.

#![allow(missing_docs)] // a test binary has no public API

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use headroom_types::Bytes;
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, SOON, until};
use integration::jobs::{JobFile, WorkLog};
use serde_json::Value;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(shipped(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Names of metrics with their labels, from a page that another test keeps current.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("docs/metrics.md");
    let rows = page
        .lines()
        .filter_map(|l| l.strip_prefix("| `"))
        .filter_map(|l| l.split_once("` | "));
    let rows =
        rows.filter(|(name, _)| name.starts_with("headroom_") || name.starts_with("process_"));
    let mut all = BTreeMap::new();
    for (name, rest) in rows {
        let mut cells = rest.split(" | ");
        let (kind, labels) = (cells.next().expect("a type"), cells.next().expect("labels"));
        let labels: BTreeSet<String> = labels
            .split(", ")
            .filter(|l| *l != "–")
            .map(str::to_owned)
            .collect();
        let suffixes: &[&str] = if kind == "histogram" {
            &["", "_bucket", "_sum", "_count"]
        } else {
            &[""]
        };
        for suffix in suffixes {
            all.insert(format!("{name}{suffix}"), labels.clone());
        }
    }
    all
}

/// All words of a text that look like metric names of Headroom.
fn named(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(|c| !word(c))
        .filter(|w| w.starts_with("headroom_") && w.len() > 12)
        .map(str::to_owned)
        .collect()
}

fn promtool(arguments: &[&str], folder: &Path, input: Option<&str>) {
    let mut command = Command::new("promtool");
    let command = command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("promtool: {e}; `apt-get install -y prometheus`"));
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.unwrap_or_default().as_bytes())
        .expect("takes it");
    let output = child.wait_with_output().expect("ends");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success() && (input.is_none() || said.trim().is_empty()),
        "promtool {arguments:?}: {said}"
    );
}

#[test]
fn alerts_are_valid_and_fire_in_their_tests() {
    let folder = shipped("config/prometheus");
    promtool(&["check", "rules", "rules.yml"], &folder, None);
    promtool(&["check", "config", "prometheus.yml"], &folder, None);
    promtool(&["test", "rules", "rules_test.yml"], &folder, None);
}

#[test]
fn alerts_and_dashboards_name_existing_metrics() {
    let known = documented();
    assert!(known.len() > 60, "{}", known.len());
    let files = [
        "prometheus/rules.yml",
        "prometheus/rules_test.yml",
        "grafana/cluster.json",
        "grafana/job.json",
        "grafana/memory.json",
    ];
    for file in files {
        let names = named(&read(&format!("config/{file}")));
        let lost: Vec<&String> = names.iter().filter(|n| !known.contains_key(*n)).collect();
        assert!(
            !names.is_empty() && lost.is_empty(),
            "{file} names unknown metrics {lost:?}"
        );
    }
}

#[test]
fn dashboards_can_be_imported() {
    for name in ["cluster", "job", "memory"] {
        let board: Value =
            serde_json::from_str(&read(&format!("config/grafana/{name}.json"))).expect("JSON");
        assert!(board["schemaVersion"].as_u64() >= Some(39), "{name}");
        assert_eq!(
            board["__inputs"][0]["name"], "DS_PROMETHEUS",
            "{name}: the importing user chooses the data source"
        );
        let panels = board["panels"].as_array().expect("panels");
        let ids: BTreeSet<u64> = panels.iter().filter_map(|p| p["id"].as_u64()).collect();
        assert_eq!(ids.len(), panels.len(), "{name}");
        let variables: BTreeSet<&str> = board["templating"]["list"]
            .as_array()
            .expect("variables")
            .iter()
            .filter_map(|v| v["name"].as_str())
            .collect();
        for query in panels
            .iter()
            .flat_map(|p| p["targets"].as_array().expect("targets"))
        {
            let text = query["expr"].as_str().expect("a query");
            let used = text.split('$').skip(1).map(|t| {
                t.split(|c: char| !c.is_ascii_alphabetic())
                    .next()
                    .unwrap_or_default()
            });
            assert!(
                used.clone().all(|v| variables.contains(v)),
                "{name}: {text}"
            );
        }
        let marks = board["annotations"]["list"]
            .as_array()
            .expect("annotations");
        assert!(
            marks
                .iter()
                .any(|a| a["expr"].as_str().is_some_and(|e| e.contains("OomKilled"))),
            "{name}: kills are marked"
        );
    }
}

/// The metrics page of a daemon.
fn page(url: &str, accept: &str) -> String {
    let host = url.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(host).expect("connects");
    stream.set_read_timeout(Some(SOON)).expect("a deadline");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    )
    .expect("sends");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines()
        .find_map(|l| l.strip_prefix(series))?
        .trim()
        .parse()
        .ok()
}

/// Series of the resource manager after a memory failure, with their least values.
const SERIES: [(&str, f64); 8] = [
    (
        "headroom_am_task_attempts_total{profile=\"large\",outcome=\"task_oom\"}",
        1.0,
    ),
    (
        "headroom_am_wasted_memory_byte_seconds_total{profile=\"large\"}",
        1.0,
    ),
    ("headroom_rm_jobs{state=\"finished\"}", 1.0),
    (
        "headroom_rm_scheduler_decisions_total{result=\"granted\"}",
        1.0,
    ),
    (
        "headroom_rm_request_wait_seconds_count{queue=\"root.default\"}",
        1.0,
    ),
    ("headroom_rm_events_total{reason=\"OomKilled\"}", 1.0),
    ("headroom_rm_state_write_seconds_count", 1.0),
    ("headroom_rm_leader", 1.0),
];

/// Checks the page of the node that ran the job.
fn launches_are_counted(of_node: &str) {
    assert!(
        value(
            of_node,
            "headroom_node_launch_seconds_count{stage=\"start\"}"
        )
        .is_some_and(|n| n >= 2.0),
        "{of_node}"
    );
    assert!(
        value(
            of_node,
            "headroom_node_containers_started_total{profile=\"master\"}"
        ) >= Some(1.0),
        "{of_node}"
    );
}

/// One task exceeds its limit; the metrics of the resource manager and of the node report that.
#[test]
fn a_memory_failure_is_exported_as_metrics_on_this_host() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let job = JobFile::new("scraped", 1, 2, Bytes::from_mib(32));
    let job = job
        .workload("large", 1, log.path(), &["--mib", "88"])
        .expect("a stage")
        .without_growth();
    let app = cluster.submit(job.text()).expect("submits");
    assert_eq!(
        cluster.until_ended(&app).expect("ends").state,
        AppState::Finished
    );
    let node = cluster
        .call(cluster.client().nodes())
        .expect("answers")
        .remove(0)
        .url;
    let rm = until("the metric to count the end", SOON, || {
        let page = page(&cluster.url(), "text/plain");
        Ok(value(
            &page,
            "headroom_am_recovered_tasks_total{profile=\"large\"}",
        )
        .is_some_and(|n| n >= 1.0)
        .then_some(page))
    });
    let rm = rm.expect("one task recovered");
    for (series, least) in SERIES {
        assert!(
            value(&rm, series).is_some_and(|n| n >= least),
            "{series} in\n{rm}"
        );
    }
    let of_node = page(&node, "text/plain");
    launches_are_counted(&of_node);
    for text in [&rm, &of_node] {
        promtool(&["check", "metrics"], &shipped("config"), Some(text));
        let (known, exported) = (documented(), named(text));
        let odd: Vec<&String> = exported
            .iter()
            .filter(|n| !known.contains_key(*n))
            .collect();
        assert!(odd.is_empty(), "reported but not documented: {odd:?}");
    }
    let open = page(&node, "application/openmetrics-text; version=1.0.0");
    assert!(
        open.ends_with("# EOF\n")
            && open.contains("# TYPE headroom_node_containers_started counter\n"),
        "{open}"
    );
}
