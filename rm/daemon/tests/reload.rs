//! Reload of the configuration of a running daemon: reloadable keys take effect, and a file with
//! errors changes nothing.

#![allow(missing_docs)] // tests are read, not imported

#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fakes::*;
use headroom_client::{Client, FollowMode};
use headroom_rm_server::{ManagerOptions, start};
use headroom_types::LogLevel;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::events::LoggedEvent;
use headroom_wire::v1::operator::{LogLevelView, SetLogLevelRequest};
use serde_json::Value;

/// A daemon with a configuration file.
struct Configured {
    child: Child,
    client: Client,
    dir: tempfile::TempDir,
}

impl Configured {
    async fn start(text: &str) -> Configured {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        fs::write(dir.path().join("rm.toml"), text).expect("writes");
        let said = File::create(dir.path().join("said")).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_resourcemanager"))
            .args(["--listen", &format!("127.0.0.1:{port}"), "--config"])
            .arg(dir.path().join("rm.toml"))
            .arg("--state")
            .arg(dir.path().join("state"))
            .env_remove("HEADROOM_LOG")
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("starts");
        let client = Client::new(&format!("http://127.0.0.1:{port}")).expect("address");
        until("the daemon to answer", || async {
            client.get_text("/readyz").await.ok()
        })
        .await;
        Configured { child, client, dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("rm.toml")
    }
    fn said(&self) -> String {
        fs::read_to_string(self.dir.path().join("said")).expect("reads")
    }

    /// Writes the file, sends SIGHUP, and waits for the event of the reload.
    async fn reload(&self, text: &str) -> LoggedEvent {
        let mut events = self.events().await;
        let seen = events.pop().expect("the start event").index;
        fs::write(self.file(), text).expect("writes");
        let hup = Command::new("kill")
            .args(["-HUP", &self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(hup.success());
        until("the event of the reload", || async {
            let events = self.events().await;
            events
                .into_iter()
                .find(|e| e.index > seen && e.reason.starts_with("Config"))
        })
        .await
    }

    async fn events(&self) -> Vec<LoggedEvent> {
        let mut lines = self
            .client
            .events_of(None, 0, FollowMode::No)
            .await
            .expect("answers");
        let mut all = Vec::new();
        while let Some(event) = soon("the end of the log", lines.next()).await {
            all.push(event.expect("an event"));
        }
        all
    }

    async fn list(&self, path: &str) -> Value {
        serde_json::from_str(&self.client.get_text(path).await.expect("answers")).expect("JSON")
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // Fails if the daemon has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files(dir: &Path) -> usize {
    let all = fs::read_dir(dir).expect("lists").filter_map(Result::ok);
    all.filter(|f| f.file_name().to_string_lossy().starts_with("audit-"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_applies_keys_and_names_those_that_need_a_restart() {
    let daemon = Configured::start("log = \"info\"\n[queues.a]\n").await;
    daemon.list("/v1/queues").await;
    assert!(
        !daemon.said().contains("answered"),
        "a reading call is logged at info: {}",
        daemon.said()
    );
    let text = "log = \"debug\"\nlost = \"45s\"\n[limits]\nstreams = 9\n[history]\napps = 1\n[queues.a]\n[queues.b]\n";
    let event = daemon.reload(text).await;
    assert_eq!(
        (event.reason.as_str(), event.message.as_str()),
        (
            "ConfigReloaded",
            "log: \"info\" → \"debug\"; lost: \"30s\" → \"45s\"; history.apps: 500 → 1; queues; after a restart: limits.streams"
        )
    );
    let queues = daemon.list("/v1/queues").await.to_string();
    assert!(queues.contains("root.b"), "{queues}");
    until("a log line of a reading call", || async {
        daemon.said().contains("answered").then_some(())
    })
    .await;
    for _ in 0..3 {
        let mut submit = unmanaged("short");
        submit.queue = Some(id("root.b"));
        let app = daemon.client.submit(&submit).await.expect("submits").app;
        daemon.client.kill(&app, None).await.expect("kills");
        app_state_or_gone(&daemon.client, &app).await;
    }
    assert_eq!(
        daemon.client.apps().await.expect("lists").len(),
        1,
        "history.apps is in effect"
    );
    let again = daemon.reload(text).await;
    assert_eq!(
        again.message, "after a restart: limits.streams",
        "until the next restart"
    );
    let audit = daemon.list("/v1/audit?verb=RELOAD").await;
    let entries: Vec<_> = audit
        .as_array()
        .expect("rows")
        .iter()
        .map(|l| (l["who"].clone(), l["outcome"].clone()))
        .collect();
    assert_eq!(
        entries,
        [("SIGHUP".into(), 200.into()), ("SIGHUP".into(), 200.into())]
    );
}

async fn app_state_or_gone(client: &Client, app: &headroom_types::AppId) {
    until("the end", || async {
        match client.app(app).await {
            Ok(view) => view.ended.map(|_| ()),
            Err(_) => Some(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_file_is_refused_as_a_whole_and_explained() {
    let daemon = Configured::start("[history]\napps = 7\n").await;
    let event = daemon
        .reload("log = \"debug\"\nlost = \"1s\"\n[history]\napps = 0\n")
        .await;
    assert_eq!(event.reason, "ConfigRefused");
    assert!(
        event.message.starts_with("nothing has changed: ") && event.message.contains("rm.toml:"),
        "{}",
        event.message
    );
    assert!(
        event.message.contains("more in the log)"),
        "{}",
        event.message
    );
    let said = daemon.said();
    assert!(
        said.contains("history.apps") && said.contains("= fix:"),
        "{said}"
    );
    let greedy = daemon
        .reload("[queues.a]\nguaranteed = \"60%\"\n[queues.b]\nguaranteed = \"60%\"\n")
        .await;
    assert!(
        greedy.reason == "ConfigRefused" && greedy.message.contains("guaranteed"),
        "{greedy:?}"
    );
    fs::remove_file(daemon.file()).expect("removes");
    let hup = Command::new("kill")
        .args(["-HUP", &daemon.child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(hup.success());
    let refused = |e: &&LoggedEvent| e.reason == "ConfigRefused";
    let third = until("the event of the missing file", || async {
        daemon.events().await.iter().filter(refused).nth(2).cloned()
    })
    .await;
    assert!(
        third.message.contains("cannot be read"),
        "{}",
        third.message
    );
    let fine = daemon.reload("[history]\napps = 8\n").await;
    assert_eq!(
        fine.message, "history.apps: 7 → 8",
        "a refused reload changes no key"
    );
    let audit = daemon.list("/v1/audit?verb=RELOAD&refused=true").await;
    assert_eq!(audit.as_array().map(Vec::len), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_used_queues_and_a_tree_set_at_run_time() {
    let daemon = Configured::start("[queues.a]\n").await;
    let mut submit = unmanaged("job");
    submit.queue = Some(id("root.a"));
    daemon.client.submit(&submit).await.expect("submits");
    let refused = daemon.reload("[queues.b]\n").await;
    assert!(
        refused.reason == "ConfigRefused" && refused.message.contains("job.1"),
        "{refused:?}"
    );
    let call =
        reqwest::Client::new().post(format!("{}/v1/queues/root.a/state", daemon.client.base()));
    assert_eq!(
        soon("a response", call.body(r#"{"state":"paused"}"#).send())
            .await
            .expect("answers")
            .status(),
        200
    );
    let overruled = daemon.reload("[queues.b]\n").await;
    assert_eq!(
        overruled.message,
        "a queue tree that was set at run time overrides queues"
    );
    assert!(
        daemon
            .list("/v1/queues")
            .await
            .to_string()
            .contains("root.a")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_applies_the_log_limits_at_once() {
    let daemon = Configured::start("[audit]\nsegment = \"64KiB\"\nsegments = 10\n").await;
    let logs = daemon.dir.path().join("state/log");
    let wrong = format!("{}/v1/apps/{}.1/kill", daemon.client.base(), "x".repeat(60));
    let calls = reqwest::Client::new();
    let mut sent = 0;
    while files(&logs) < 4 {
        sent += 1;
        assert!(sent < 5000, "the segments do not fill");
        soon("a response", calls.post(&wrong).body("{}").send())
            .await
            .expect("answers");
    }
    let event = daemon
        .reload("[audit]\nsegment = \"64KiB\"\nsegments = 2\n")
        .await;
    assert_eq!(event.message, "audit.segments: 10 → 2");
    assert_eq!(files(&logs), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_reload_and_set_the_log_level() {
    let daemon = Configured::start("log = \"info\"\n").await;
    let level = |view: LogLevelView| (view.level, view.configured, view.by_environment);
    assert_eq!(
        level(daemon.client.log_level().await.expect("answers")),
        (LogLevel::Info, LogLevel::Info, false)
    );
    let more = daemon
        .client
        .set_log_level(SetLogLevelRequest {
            level: LogLevel::Debug,
        })
        .await
        .expect("sets");
    assert_eq!(level(more), (LogLevel::Debug, LogLevel::Info, false));
    daemon.list("/v1/queues").await;
    until("a log line of a reading call", || async {
        daemon.said().contains("answered").then_some(())
    })
    .await;
    fs::write(daemon.file(), "log = \"info\"\n[history]\napps = 7\n").expect("writes");
    let reloaded = daemon.client.reload().await.expect("reads");
    assert_eq!(
        (reloaded.holds, reloaded.waits),
        (vec!["history.apps: 500 → 7".to_owned()], vec![])
    );
    assert_eq!(
        daemon.client.log_level().await.expect("answers").level,
        LogLevel::Info,
        "until the next reload"
    );
    fs::write(daemon.file(), "history = 7\n").expect("writes");
    let refused = daemon
        .client
        .reload()
        .await
        .expect_err("the file is invalid")
        .to_string();
    assert!(
        refused.contains("nothing has changed: ") && refused.contains("rm.toml:1"),
        "{refused}"
    );
    let audit = daemon.list("/v1/audit").await;
    let lines = audit.as_array().expect("rows");
    let entries: Vec<_> = lines
        .iter()
        .map(|l| {
            (
                l["object"].as_str(),
                l["outcome"].as_u64(),
                l["after"].as_str(),
            )
        })
        .collect();
    let expected = [
        (Some("operator/log"), Some(200), Some("debug")),
        (
            Some("operator/reload"),
            Some(200),
            Some("history.apps: 500 → 7"),
        ),
        (Some("operator/reload"), Some(400), None),
    ];
    assert_eq!(entries, expected, "one audit line for each call");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_resource_manager_refuses_a_reload() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = start(ManagerOptions::new(
        "127.0.0.1:0".parse().expect("address"),
        dir.path().join("state"),
    ))
    .await
    .expect("starts");
    let client = Client::new(&running.url).expect("address");
    let refused = client
        .reload()
        .await
        .expect_err("there is no configuration file");
    assert_eq!(refused.code(), Some(ErrorCode::HR0409));
    running.shutdown().await.expect("ends");
}
