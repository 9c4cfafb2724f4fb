//! A fake resource manager that answers from a table, and the program as a process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

const PROFILE: &str = include_str!("../../../wire/golden/v1/cluster_profile.json");
const SUGGESTION: &str = include_str!("../../../wire/golden/v1/suggestion.json");
pub(crate) const APP: &str = include_str!("../../../wire/golden/v1/app_view.json");
const PROBLEM: &str = include_str!("../../../wire/golden/v1/problem.json");
pub(crate) const EVENT: &str = include_str!("../../../wire/golden/v1/event.json");
pub(crate) const NODES: &str = r#"[{"id":"worker-01","state":"ready","reason":null,"enforcer":"cgroup1","offers":{"memory":1073741824,"cpus":4},
"allocated":{"memory":536870912,"cpus":1},"allocated_heap":0,"used":1048576,"host_used":2097152,"unattributed":0,"containers":1,
"url":"http://127.0.0.1:1","version":"0.1.0", "traits": {"exclusive": false},"silent_ms":10}]"#;
pub(crate) const STATUS: &str = r#"{"version":"0.1.0","epoch":3,"up_s":9,"nodes_ready":1,"nodes":1,"memory":1073741824,"allocated":536870912,
"used":1048576,"cpus":4,"cpus_allocated":1,"apps_live":1,"containers":1,"pending":0,"oom_1h":2,"longest_wait":null,"enforcers":["cgroup1"]}"#;
const AUDIT: &str = r#"[{"index":4,"time":1790000000000,"who":"ada","from":"127.0.0.1","verb":"POST kill","object":"apps/word-count.7",
"request":"r-1","outcome":200,"before":"running","after":"http://ada:hunter2@host/x"}]"#;
const METRICS: &str = "# HELP headroom_rm_nodes Nodes.\n# TYPE headroom_rm_nodes gauge\nheadroom_rm_nodes{state=\"ready\"} 1\n\
                       # HELP headroom_rm_apps Applications.\n# TYPE headroom_rm_apps gauge\nheadroom_rm_apps 2\n";
pub(crate) const JOB: &str = "version = 1\nname = \"demo\"\n[profiles.exec]\nheap = \"256MiB\"\ncpus = 1\n[executors.main]\nprofile = \"exec\"\n\
                   count = 1\nslots = 2\n[[stage]]\nname = \"map\"\ncommand = [\"true\"]\n";

/// A fake server that answers every request from a table, with one connection each.
pub(crate) struct Fake {
    pub(crate) url: String,
}

pub(crate) type Answer = fn(&str, &str) -> (u16, String);

impl Fake {
    pub(crate) fn new(answer: Answer) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|peer| serve(peer, answer))
        });
        Fake { url }
    }

    pub(crate) fn rmctl(&self, arguments: &[&str]) -> Ran {
        rmctl(&[&["--addr", &self.url], arguments].concat())
    }
}

fn serve(mut peer: TcpStream, answer: Answer) {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    while !complete(&request) {
        match peer.read(&mut chunk) {
            Ok(n) if n > 0 => request.extend_from_slice(&chunk[..n]),
            Ok(_) | Err(_) => return,
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let mut words = text.split_whitespace();
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (status, body) = answer(method, path);
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = peer
        .write_all(head.as_bytes())
        .and_then(|()| peer.write_all(body.as_bytes()));
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|l| {
        l.to_ascii_lowercase()
            .strip_prefix("content-length:")
            .map(|n| n.trim().to_owned())
    });
    length
        .and_then(|n| n.parse::<usize>().ok())
        .is_none_or(|n| body.len() >= n)
}

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn rmctl(arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmctl"));
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(arguments).env_clear().output().expect("runs");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("UTF-8");
    Ran {
        code: status.code().expect("an exit code"),
        out: text(stdout),
        err: text(stderr),
    }
}

/// The job of a cluster, whose attempt has log files of its own.
fn app() -> String {
    APP.replace("\"log_marker\": \"(TID 45)\"", "\"log_marker\": null")
}

/// The answers of a cluster with one job.
pub(crate) fn usual(method: &str, path: &str) -> (u16, String) {
    let path = path
        .trim_end_matches("?tasks=none")
        .trim_end_matches("?tasks=first");
    let ended = || {
        app().replace(
            "\"running\",\n  \"diagnostics\": \"\"",
            "\"failed\",\n  \"diagnostics\": \"map/7 was given up\"",
        )
    };
    match (method, path) {
        ("GET", "/v1/apps") => (200, format!("[{}]", app())),
        ("GET", "/v1/apps/word-count.7") => (200, app()),
        ("POST", "/v1/apps/word-count.7/kill") => (200, ended()),
        ("POST", "/v1/apps") => (
            200,
            r#"{"app":"demo.8","attempt":"demo.8@1","epoch":3}"#.to_owned(),
        ),
        ("GET", "/v1/nodes") => (200, NODES.to_owned()),
        ("GET", "/v1/status") => (200, STATUS.to_owned()),
        ("GET", "/v1/apps/word-count.7/why") => (200, "[]".to_owned()),
        ("GET", p) if p.starts_with("/v1/audit") => (200, AUDIT.to_owned()),
        ("GET", "/v1/profiles") => (200, format!("[{PROFILE}]")),
        (_, p) if p.split('?').next() == Some("/v1/profiles/jvm-medium") => {
            (200, PROFILE.to_owned())
        }
        ("GET", p) if p.starts_with("/v1/suggestions") => (200, format!("[{SUGGESTION}]")),
        ("GET", "/v1/version") => (
            200,
            r#"{"version":"0.1.0","api":"v1","epoch":3}"#.to_owned(),
        ),
        ("GET", "/v1/containers") => (
            200,
            r#"[{"id":"word-count.7.e3.c1","api_token":"hunter2"}]"#.to_owned(),
        ),
        ("GET", "/v1/queues") => (
            200,
            r#"{"generation":1,"root":{"path":"root","command":["--password=hunter2"]}}"#
                .to_owned(),
        ),
        ("GET", "/metrics") => (200, METRICS.to_owned()),
        ("GET", p) if p.starts_with("/v1/events") => (200, EVENT.replace('\n', "") + "\n"),
        ("GET", p) if p.contains("/logs/map-7-2.out") => (200, "one\ntwo\nthree\n".to_owned()),
        _ => (
            404,
            PROBLEM.replace("HR0422", "HR0404").replace("422", "404"),
        ),
    }
}

pub(crate) fn all_failed(_: &str, path: &str) -> (u16, String) {
    let failed = app().replacen("\"state\": \"running\"", "\"state\": \"failed\"", 1);
    let killed = failed
        .replacen("\"ended\": null", "\"ended\": 1790000009000", 1)
        .replace("\"state\": \"running\"", "\"state\": \"failed\"")
        .replace("\"reason\": null", "\"reason\": {\"kind\":\"task_oom\"}");
    match path {
        "/v1/apps" => (200, format!("[{killed}]")),
        p if p.starts_with("/v1/events") => (200, String::new()),
        _ => (200, killed),
    }
}

/// Writes a job file and returns its path.
pub(crate) fn job_file(dir: &Path, text: &str) -> String {
    let path = dir.join("job.toml");
    std::fs::write(&path, text).expect("writes");
    path.display().to_string()
}

/// A URL at which no program listens.
pub(crate) fn unused() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}
