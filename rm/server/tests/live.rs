//! The stream of the web page: snapshots, then changes; and the page itself.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::collections::BTreeMap;

use fakes::*;
use headroom_client::Client;
use headroom_types::UnixMillis;
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::job::{JobEvent, JobTotals, JobViewPatch, TaskRow, TaskState};
use serde_json::Value;

/// A reader like the web page.
struct Page {
    answer: reqwest::Response,
    rest: String,
    boards: BTreeMap<String, BTreeMap<String, Value>>,
    events: Vec<Value>,
    kinds: Vec<String>,
    last: u64,
}

impl Page {
    async fn open(client: &Client, query: &str, seen: Option<u64>) -> Page {
        let request = reqwest::Client::new()
            .get(format!("{}/v1/stream?{query}", client.base()))
            .header("accept", "text/event-stream");
        let request = seen.into_iter().fold(request, |r, seen| {
            r.header("last-event-id", seen.to_string())
        });
        let answer = soon("a response", request.send()).await.expect("answers");
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &"text/event-stream".parse().expect("a value"))
        );
        Page {
            answer,
            rest: String::new(),
            boards: BTreeMap::new(),
            events: Vec::new(),
            kinds: Vec::new(),
            last: 0,
        }
    }

    /// Reads messages until the condition is met.
    async fn until<T>(&mut self, what: &str, see: impl Fn(&Page) -> Option<T>) -> T {
        loop {
            if let Some(seen) = see(self) {
                return seen;
            }
            let chunk = soon(what, self.answer.chunk())
                .await
                .expect("reads")
                .unwrap_or_else(|| panic!("ended before {what}"));
            self.rest
                .push_str(std::str::from_utf8(&chunk).expect("text"));
            while let Some((message, rest)) = self
                .rest
                .split_once("\n\n")
                .map(|(m, r)| (m.to_owned(), r.to_owned()))
            {
                self.rest = rest;
                self.take(&message);
            }
        }
    }

    /// Reads messages until a part of a topic meets the condition.
    async fn until_part(
        &mut self,
        what: &str,
        (topic, part): (&str, &str),
        holds: impl Fn(&Value) -> bool,
    ) {
        self.until(what, |p| {
            p.part(topic, part).filter(|part| holds(part)).map(|_| ())
        })
        .await;
    }

    fn take(&mut self, message: &str) {
        let field = |name: &str| {
            message
                .lines()
                .find_map(|l| l.strip_prefix(name))
                .map(str::to_owned)
        };
        let Some(data) = field("data: ") else {
            return assert!(message.starts_with(':'), "{message}");
        };
        let body: Value = serde_json::from_str(&data).expect("JSON");
        let (kind, topic) = (
            body["kind"].as_str().expect("a kind").to_owned(),
            body["topic"].as_str().expect("a topic").to_owned(),
        );
        assert_eq!(field("event: ").as_deref(), Some(kind.as_str()));
        self.last = field("id: ")
            .and_then(|n| n.parse().ok())
            .expect("a number");
        let set = || body["set"].as_object().expect("parts").clone();
        match kind.as_str() {
            "snapshot" => drop(self.boards.insert(topic, set().into_iter().collect())),
            "patch" => {
                let board = self.boards.get_mut(&topic).expect("a snapshot came first");
                body["gone"]
                    .as_array()
                    .expect("names")
                    .iter()
                    .for_each(|n| drop(board.remove(n.as_str().expect("a name"))));
                board.extend(set());
            }
            "missing" => drop(self.boards.remove(&topic)),
            _ => self
                .events
                .extend(body["rows"].as_array().cloned().unwrap_or_default()),
        }
        self.kinds.push(kind);
    }

    fn part(&self, topic: &str, part: &str) -> Option<&Value> {
        self.boards.get(topic)?.get(part)
    }
    fn reasons(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|e| e["reason"].as_str())
            .collect()
    }
}

fn task_patch(task: &str, state: TaskState, events: &[&str]) -> JobViewPatch {
    let (heap, cpus) = (
        headroom_types::Bytes::from_mib(64),
        headroom_types::Cpus::from_cores(1),
    );
    let profile = headroom_types::Profile {
        heap,
        overhead: headroom_types::Bytes::ZERO,
        cpus,
    };
    let row = TaskRow {
        task: id(task),
        state,
        profile,
        rung: 2,
        note: String::new(),
        attempts: Vec::new(),
        frozen: None,
        ahead: Vec::new(),
        priority: 0,
        tags: Default::default(),
    };
    let event = |reason: &&str| JobEvent {
        time: UnixMillis(1),
        level: EventLevel::Warning,
        reason: (*reason).to_owned(),
        object: task.to_owned(),
        message: "reported by the master".into(),
    };
    JobViewPatch {
        full: false,
        totals: JobTotals::default(),
        tasks: vec![row],
        events: events.iter().map(event).collect(),
        ..JobViewPatch::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_sends_snapshots_and_then_patches() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let mut page = Page::open(&client, "topics=overview,nodes,job:job.1,events", None).await;
    page.until_part("the empty cluster", ("overview", "status"), |s| {
        s["nodes"] == 0
    })
    .await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    page.until_part("the node", ("overview", "node:n1"), |n| {
        n["state"] == "ready"
    })
    .await;
    page.until_part("the list of nodes", ("nodes", "page"), |n| n["of"] == 1)
        .await;
    let master = FakeMaster::submit(&client, "job").await;
    assert_eq!(master.app().to_string(), "job.1");
    page.until_part("the job", ("job:job.1", "app"), |a| a["state"] == "running")
        .await;
    master
        .sync_with(
            Vec::new(),
            Some(task_patch("map/0", TaskState::Running, &["Escalated"])),
        )
        .await
        .expect("syncs");
    page.until_part("its task", ("job:job.1", "task:map/0"), |t| {
        t["state"] == "running"
    })
    .await;
    page.until("its event", |p| {
        p.reasons().contains(&"Escalated").then_some(())
    })
    .await;
    master
        .sync_with(Vec::new(), Some(task_patch("map/0", TaskState::Done, &[])))
        .await
        .expect("syncs");
    page.until_part("its end", ("job:job.1", "stage:map"), |s| {
        s["squares"] == "D"
    })
    .await;
    assert_eq!(
        page.kinds.iter().filter(|k| *k == "snapshot").count(),
        3,
        "one snapshot for each topic: {:?}",
        page.kinds
    );
    assert!(
        page.kinds.contains(&"missing".to_owned()),
        "the topic of the job was missing at first"
    );
    let seen = page.last;
    let mut again = Page::open(&client, "topics=events", Some(seen - 1)).await;
    again
        .until("the missed event", |p| (!p.events.is_empty()).then_some(()))
        .await;
    assert_eq!(
        again.events.len(),
        1,
        "only later events: {:?}",
        again.reasons()
    );
    running.shutdown().await.expect("ends");
    assert!(
        soon("the end", page.answer.chunk())
            .await
            .ok()
            .flatten()
            .is_none_or(|c| !c.is_empty()),
        "the stream ends with the daemon"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_stream_parameters_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let many = ["overview"; 9].join(",");
    for query in [
        "",
        "topics=",
        "topics=everything",
        "topics=job:",
        "topics=jobs&sort=odd",
        "topics=jobs&form=1",
        &format!("topics={many}"),
    ] {
        let answer = soon(
            "a response",
            reqwest::get(format!("{}/v1/stream?{query}", client.base())),
        )
        .await
        .expect("answers");
        assert_eq!(answer.status().as_u16(), 400, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parameter_app_selects_an_application_and_its_events() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (one, other) = (
        FakeMaster::submit(&client, "one").await,
        FakeMaster::submit(&client, "other").await,
    );
    let mut page = Page::open(&client, &format!("app={}", one.app()), None).await;
    other
        .sync_with(
            Vec::new(),
            Some(task_patch("map/0", TaskState::Done, &["Escalated"])),
        )
        .await
        .expect("syncs");
    one.sync_with(
        Vec::new(),
        Some(task_patch("map/1", TaskState::Done, &["OomKilled"])),
    )
    .await
    .expect("syncs");
    page.until("its own event", |p| {
        p.events
            .iter()
            .any(|e| e["reason"] == "OomKilled")
            .then_some(())
    })
    .await;
    assert!(
        page.events
            .iter()
            .all(|e| e["app"] == one.app().to_string()),
        "{:?}",
        page.events
    );
    assert_eq!(
        page.boards.keys().collect::<Vec<_>>(),
        [&format!("job:{}", one.app())]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_sends_the_nodes_in_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut nodes = Vec::new();
    for n in 0..60 {
        nodes.push(FakeNode::join(&client, &format!("n{n:02}"), 512).await);
    }
    let mut page = Page::open(&client, "topics=overview,nodes&from=50", None).await;
    page.until("the list of nodes", |p| {
        p.part("nodes", "page")
            .filter(|n| n["of"] == 60)
            .map(|_| ())
    })
    .await;
    page.until("the overview", |p| {
        p.part("overview", "status")
            .filter(|s| s["nodes"] == 60)
            .map(|_| ())
    })
    .await;
    let rows = |topic: &str| {
        page.boards[topic]
            .keys()
            .filter(|k| k.starts_with("node:"))
            .count()
    };
    assert_eq!((rows("nodes"), rows("overview")), (10, 16));
    let mut found = Page::open(&client, "topics=nodes&find=N07", None).await;
    let of = found
        .until("the matching node", |p| {
            p.part("nodes", "page").map(|n| n["of"].clone())
        })
        .await;
    assert_eq!(of, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_sends_lines_of_the_audit_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut all = Page::open(&client, "topics=audit", None).await;
    let mut kills = Page::open(&client, "topics=audit&find=KILL", None).await;
    let lines = |p: &Page| p.part("audit", "lines").and_then(Value::as_array).cloned();
    assert_eq!(
        all.until("the empty audit log", lines).await,
        Vec::<Value>::new()
    );
    kills.until("the empty audit log", lines).await;
    client.submit(&unmanaged("job")).await.expect("submits");
    client
        .kill(&id("none.7"), None)
        .await
        .expect_err("the application does not exist");
    let first = |p: &Page| lines(p).filter(|lines| lines.len() == 2);
    let both = all.until("both calls", first).await;
    assert_eq!(
        (&both[0]["verb"], &both[0]["outcome"], &both[1]["verb"]),
        (&"POST kill".into(), &404.into(), &"POST".into())
    );
    let one = kills
        .until("the kill", |p| lines(p).filter(|lines| !lines.is_empty()))
        .await;
    assert_eq!(
        (one.len(), &one[0]["object"], &one[0]["code"]),
        (1, &"apps/none.7".into(), &"HR0404".into())
    );
    assert_eq!(
        kills
            .part("audit", "page")
            .map(|page| (page["of"].clone(), page["all"].clone())),
        Some((1.into(), 2.into()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let answer = soon("the page", reqwest::get(client.base().to_owned()))
        .await
        .expect("answers");
    assert_eq!(
        (answer.url().path(), answer.status().as_u16()),
        ("/ui/", 200)
    );
    let policy = answer.headers()["content-security-policy"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(
        policy.starts_with("default-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    let text = answer.text().await.expect("reads");
    let files: Vec<&str> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|a| text.split(a).skip(1))
        .filter_map(|r| r.split('"').next())
        .collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let answer = soon(file, reqwest::get(format!("{}/ui/{file}", client.base())))
            .await
            .expect("answers");
        assert_eq!(answer.status().as_u16(), 200, "{file}");
    }
}
