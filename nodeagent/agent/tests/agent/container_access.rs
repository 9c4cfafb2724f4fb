//! Container access: signals, files, and programs inside a running container.

use headroom_types::{ContainerId, EnforcerKind, ExitReason, Signal};
use headroom_wire::v1::container_access::{
    ContainerFileEntry, ExecContainer, ExecExitStatus, ExecOutputLine, FileEntryKind,
    NODE_KEY_HEADER, SignalContainer, SignalDelivered, TextOrBytes,
};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fake_rm::{FakeRm, WAIT_TIMEOUT};
use crate::node::{GREEDY, Node, sh};

/// A caller that has the key of the node, like its resource manager.
struct Caller {
    url: String,
    key: String,
    http: reqwest::Client,
}

impl Caller {
    fn new(rm: &FakeRm, node: &Node) -> Caller {
        let key = rm
            .with(|received| received.registrations.last().and_then(|r| r.key.clone()))
            .expect("the key of the node");
        let no_trust = headroom_transport::trust_none_config().expect("a library that works");
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(WAIT_TIMEOUT)
            .tls_backend_preconfigured(no_trust);
        let http = http.build().expect("a client");
        Caller {
            url: node.url.clone(),
            key,
            http,
        }
    }

    async fn answer(request: reqwest::RequestBuilder) -> Result<Vec<u8>, ErrorCode> {
        let answer = request.send().await.expect("answers");
        let good = answer.status().is_success();
        let bytes = answer.bytes().await.expect("a body").to_vec();
        if good {
            Ok(bytes)
        } else {
            Err(serde_json::from_slice::<ProblemDetails>(&bytes)
                .expect("a problem")
                .code)
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ErrorCode> {
        self.bytes(path)
            .await
            .map(|bytes| serde_json::from_slice(&bytes).expect("json"))
    }

    async fn bytes(&self, path: &str) -> Result<Vec<u8>, ErrorCode> {
        Self::answer(
            self.http
                .get(format!("{}{path}", self.url))
                .header(NODE_KEY_HEADER, &self.key),
        )
        .await
    }

    async fn post<B: Serialize + Sync>(&self, path: &str, body: &B) -> Result<Vec<u8>, ErrorCode> {
        Self::answer(
            self.http
                .post(format!("{}{path}", self.url))
                .header(NODE_KEY_HEADER, &self.key)
                .json(body),
        )
        .await
    }

    async fn signal(&self, id: &ContainerId, signal: &str, all: bool) -> Result<u32, ErrorCode> {
        let body = SignalContainer {
            signal: signal.parse().expect("a signal"),
            all,
            reason: None,
        };
        let done = self
            .post(&format!("/v1/containers/{id}/signal"), &body)
            .await?;
        Ok(serde_json::from_slice::<SignalDelivered>(&done)
            .expect("json")
            .processes)
    }

    /// Runs a program. Returns both outputs and the end.
    async fn exec(
        &self,
        id: &ContainerId,
        request: &ExecContainer,
    ) -> Result<(String, String, ExecExitStatus), ErrorCode> {
        let lines = String::from_utf8(
            self.post(&format!("/v1/containers/{id}/exec"), request)
                .await?,
        )
        .expect("text");
        let (mut out, mut err, mut end) = (Vec::new(), Vec::new(), None);
        for line in lines.lines().filter(|line| !line.is_empty()) {
            match serde_json::from_str(line).expect("a line") {
                ExecOutputLine::Stdout { data } => out.extend(data.bytes().expect("bytes")),
                ExecOutputLine::Stderr { data } => err.extend(data.bytes().expect("bytes")),
                ExecOutputLine::Ended { end: ended } => end = Some(ended),
            }
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Ok((text(out), text(err), end.expect("an end")))
    }
}

fn exec_request(command: &[&str]) -> ExecContainer {
    ExecContainer {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        input: None,
        timeout_ms: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_the_key_of_the_node_are_refused() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 64, sh("sleep 61"));
    rm.running(&id).await;
    let mut stranger = Caller::new(&rm, &node);
    stranger.key = "0".repeat(stranger.key.len());
    assert_eq!(
        stranger.signal(&id, "TERM", false).await,
        Err(ErrorCode::HR0403)
    );
    assert_eq!(
        stranger.exec(&id, &exec_request(&["true"])).await,
        Err(ErrorCode::HR0403)
    );
    assert_eq!(
        stranger
            .get::<Vec<ContainerFileEntry>>(&format!("/v1/containers/{id}/files"))
            .await,
        Err(ErrorCode::HR0403)
    );
    stranger.key.clear();
    assert_eq!(
        stranger
            .bytes(&format!("/v1/containers/{id}/files/content?path=stdout"))
            .await,
        Err(ErrorCode::HR0403)
    );
    let page = String::from_utf8(
        stranger
            .bytes("/metrics")
            .await
            .expect("any caller may read metrics"),
    )
    .expect("text");
    assert!(
        page.contains("headroom_node_calls_refused_total{code=\"HR0403\"} 4.0\n"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_the_program_or_all_processes() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id =
        rm.run(1, 64, sh("trap 'echo got usr1' USR1; sleep 61 & echo ready; while true; do wait $!; kill -0 $! || exit 3; done"));
    rm.running(&id).await;
    rm.until("the trap", |_| {
        node.text(&id, "stdout").contains("ready").then_some(())
    })
    .await;
    let caller = Caller::new(&rm, &node);
    assert_eq!(caller.signal(&id, "usr1", false).await, Ok(1));
    rm.until("the signal", |_| {
        node.text(&id, "stdout").contains("got usr1").then_some(())
    })
    .await;
    // The signal kills the child; the shell survives it and then exits with 3.
    assert_eq!(caller.signal(&id, "USR1", true).await, Ok(2));
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 3 }, "{report:#?}");
    assert_eq!(
        caller.signal(&id, "TERM", false).await,
        Err(ErrorCode::HR0409),
        "the container has ended"
    );
    assert_eq!(
        caller
            .signal(&"test.1.e1.c9".parse().expect("id"), "TERM", false)
            .await,
        Err(ErrorCode::HR0404)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_kill_is_reported_as_a_stop() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(
        1,
        64,
        sh("trap '' TERM; echo ready; while true; do sleep 1; done"),
    );
    rm.until("the trap", |_| {
        node.text(&id, "stdout").contains("ready").then_some(())
    })
    .await;
    let caller = Caller::new(&rm, &node);
    assert!(
        caller
            .signal(&id, &Signal::KILL.to_string(), false)
            .await
            .expect("is sent")
            >= 1
    );
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.evidence.signal),
        (ExitReason::Stopped, Some(9)),
        "{report:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_and_read_also_after_the_end() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(
        1,
        64,
        sh("mkdir out; printf 0123456789 > out/a; ln -s ../../spec out/trap; echo done"),
    );
    rm.exit(&id).await;
    let caller = Caller::new(&rm, &node);
    let list = |path: &str| format!("/v1/containers/{id}/files?path={path}");
    let rows: Vec<ContainerFileEntry> = caller.get(&list("work/out")).await.expect("lists");
    let seen: Vec<_> = rows
        .iter()
        .map(|r| (r.path.as_str(), r.kind, r.bytes))
        .collect();
    assert_eq!(
        seen,
        [
            ("work/out/a", FileEntryKind::File, 10),
            ("work/out/trap", FileEntryKind::Link, 10)
        ]
    );
    let content = |path: &str| format!("/v1/containers/{id}/files/content?path={path}");
    assert_eq!(
        caller.bytes(&content("work/out/a")).await.expect("reads"),
        b"0123456789"
    );
    assert_eq!(
        caller.bytes(&content("stdout")).await.expect("reads"),
        b"done\n"
    );
    for wrong in [
        "work/out/trap",
        "spec",
        "order.json",
        "../x",
        "/etc/passwd",
        "work/out",
    ] {
        assert_eq!(
            caller.bytes(&content(wrong)).await,
            Err(ErrorCode::HR0400),
            "{wrong}"
        );
    }
    assert_eq!(
        caller.bytes(&content("work/none")).await,
        Err(ErrorCode::HR0404)
    );
    let part = caller
        .http
        .get(format!("{}{}", caller.url, content("work/out/a")))
        .header(NODE_KEY_HEADER, &caller.key)
        .header("range", "bytes=3-5");
    let part = part.send().await.expect("answers");
    assert_eq!(
        (
            part.status().as_u16(),
            part.headers()["content-range"].to_str().expect("text")
        ),
        (206, "bytes 3-5/10")
    );
    assert_eq!(part.text().await.expect("text"), "345");
}

/// Runs programs that end in each other way, in a container with a file `here` that is no program.
async fn check_exec_ends(caller: &Caller, id: &ContainerId) {
    let missing = caller
        .exec(id, &exec_request(&["/no/such/program"]))
        .await
        .expect("answers")
        .2;
    assert!(
        matches!(missing, ExecExitStatus::NotFound { .. }),
        "{missing:?}"
    );
    let odd = caller
        .exec(id, &exec_request(&["./here"]))
        .await
        .expect("answers")
        .2;
    assert!(matches!(odd, ExecExitStatus::NotStarted { .. }), "{odd:?}");
    let killed = caller
        .exec(id, &exec_request(&["sh", "-c", "kill -9 $$"]))
        .await
        .expect("answers")
        .2;
    assert_eq!(killed, ExecExitStatus::Signal { signal: 9 });
    let long = ExecContainer {
        timeout_ms: Some(2000),
        ..exec_request(&["sh", "-c", "echo started; sleep 62 & sleep 62"])
    };
    assert_eq!(
        caller.exec(id, &long).await.expect("answers"),
        ("started\n".into(), String::new(), ExecExitStatus::Timeout)
    );
    let many = caller
        .exec(
            id,
            &exec_request(&["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]),
        )
        .await
        .expect("answers");
    assert_eq!(
        (many.0.len(), many.2),
        (3_000_000, ExecExitStatus::Exit { code: 0 })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_program_returns_its_output_and_exit_code() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let mut launch = sh("echo mine > here; sleep 61");
    launch.env.insert("COLOUR".into(), "green".into());
    let id = rm.run(1, 64, launch);
    rm.until("the file of the program", |_| {
        node.file(&id, "work/here").exists().then_some(())
    })
    .await;
    let caller = Caller::new(&rm, &node);
    let mut asked = exec_request(&[
        "sh",
        "-c",
        "cat here -; echo $COLOUR $HEADROOM_CONTAINER; echo to err >&2; exit 7",
    ]);
    asked.input = Some(TextOrBytes::of(b"typed\n"));
    let (out, err, end) = caller.exec(&id, &asked).await.expect("runs");
    assert_eq!(
        (out, err.as_str(), end),
        (
            format!("mine\ntyped\ngreen {id}\n"),
            "to err\n",
            ExecExitStatus::Exit { code: 7 }
        )
    );
    check_exec_ends(&caller, &id).await;
    assert_eq!(
        caller.exec(&id, &exec_request(&[])).await,
        Err(ErrorCode::HR0400)
    );
    assert_eq!(
        std::fs::read_dir(node.file(&id, "exec"))
            .expect("lists")
            .count(),
        0,
        "a directory is left"
    );
    // None of these ends counts as the end of the container's own program.
    assert!(!node.file(&id, "exit").exists());
    assert_eq!(caller.signal(&id, "TERM", false).await, Ok(1));
    let report = rm.exit(&id).await;
    assert_eq!(
        report.reason,
        ExitReason::Signal { signal: 15 },
        "{report:#?}"
    );
    assert!(report.tasks.is_empty(), "{:#?}", report.tasks);
    assert_eq!(
        caller.exec(&id, &exec_request(&["true"])).await,
        Err(ErrorCode::HR0409),
        "the container has ended"
    );
}

/// Runs a program that allocates too much in a container of 24 MiB, whose own program uses little.
/// Returns the reason of the container's end.
async fn exec_over_limit(extra: &[&str]) -> (EnforcerKind, ExitReason) {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, extra);
    let id = rm.run(1, 24, sh("sleep 61"));
    rm.running(&id).await;
    let caller = Caller::new(&rm, &node);
    let (_, _, end) = caller
        .exec(&id, &exec_request(&["sh", "-c", GREEDY]))
        .await
        .expect("runs");
    assert_eq!(end, ExecExitStatus::Signal { signal: 9 });
    let enforcer = rm.with(|received| received.registrations[0].enforcer);
    if enforcer.is_kernel() {
        // The kernel kills in the group with the largest use, on cgroup v2 all processes of that
        // group. The container's own program is not in it.
        assert_eq!(
            caller.signal(&id, "TERM", false).await,
            Ok(1),
            "the program of the container still runs"
        );
    }
    (enforcer, rm.exit(&id).await.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_an_exec_program_counts_in_the_container() {
    match exec_over_limit(&[]).await {
        (EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2, reason) => {
            assert_eq!(
                reason,
                ExitReason::Signal { signal: 15 },
                "a kill of an exec program is not counted for the container"
            )
        }
        (EnforcerKind::Poll, reason) => assert_eq!(reason, ExitReason::OverheadOom),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_an_exec_program_counts_with_the_poll_enforcer() {
    assert_eq!(
        exec_over_limit(&["--enforcer=poll"]).await,
        (EnforcerKind::Poll, ExitReason::OverheadOom)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_during_the_start_leaves_no_exec_program() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 64, sh("sleep 61"));
    rm.running(&id).await;
    let caller = Caller::new(&rm, &node);
    let programs = || {
        let entries = std::fs::read_dir(node.file(&id, "exec")).into_iter();
        entries.flatten().flatten().count()
    };
    for _ in 0..8 {
        let request = caller
            .http
            .post(format!("{}/v1/containers/{id}/exec", caller.url))
            .header(NODE_KEY_HEADER, &caller.key)
            .json(&exec_request(&["sleep", "600"]));
        let call = tokio::spawn(request.send());
        // Its directory exists before its shim.
        while programs() == 0 && !call.is_finished() {
            tokio::task::yield_now().await;
        }
        call.abort();
        rm.until("the end of the exec program", |_| {
            (programs() == 0).then_some(())
        })
        .await;
    }
}

/// A process in a frozen group of the v1 freezer outlives SIGKILL until it is thawed.
struct FrozenProcess(std::path::PathBuf);

impl FrozenProcess {
    /// `None` without that hierarchy.
    fn new(pid: i32) -> Option<FrozenProcess> {
        let dir = std::path::PathBuf::from(format!(
            "/sys/fs/cgroup/freezer/headroom-test-{}-{pid}",
            std::process::id()
        ));
        dir.parent()?.join("tasks").exists().then_some(())?;
        std::fs::create_dir(&dir).expect("makes");
        std::fs::write(dir.join("cgroup.procs"), pid.to_string()).expect("moves");
        let frozen = FrozenProcess(dir);
        frozen.set("FROZEN");
        while !std::fs::read_to_string(frozen.0.join("freezer.state"))
            .expect("reads")
            .starts_with("FROZEN")
        {
            std::thread::yield_now();
        }
        Some(frozen)
    }

    fn set(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).expect("writes");
    }
}

impl Drop for FrozenProcess {
    fn drop(&mut self) {
        self.set("THAWED");
        let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
        while std::fs::remove_dir(&self.0).is_err() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_kills_of_a_process_that_cannot_end_occupy_one_thread() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 64, sh("exec sleep 61"));
    rm.running(&id).await;
    let Some(frozen) = FrozenProcess::new(node.pid(&id)) else {
        return; // cgroup v2 lets a frozen process end
    };
    let caller = Caller::new(&rm, &node);
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", node.agent()));
        tasks.expect("lists").count()
    };
    assert_eq!(caller.signal(&id, "KILL", true).await, Ok(1));
    let before = threads();
    for _ in 0..16 {
        assert_eq!(caller.signal(&id, "KILL", true).await, Ok(1));
    }
    let after = threads();
    assert!(after < before + 8, "{before} threads became {after}");
    drop(frozen);
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_programs_of_an_earlier_agent_are_ended() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 64, sh("sleep 61"));
    rm.running(&id).await;
    let caller = Caller::new(&rm, &node);
    let request = caller
        .http
        .post(format!("{}/v1/containers/{id}/exec", caller.url))
        .header(NODE_KEY_HEADER, &caller.key);
    let mut answer = request
        .json(&exec_request(&["sh", "-c", "echo $$; exec sleep 63"]))
        .send()
        .await
        .expect("answers");
    let first = answer.chunk().await.expect("reads").expect("a line");
    let ExecOutputLine::Stdout { data } = serde_json::from_slice(&first).expect("a line") else {
        panic!("{first:?}")
    };
    let pid: i32 = String::from_utf8(data.bytes().expect("bytes"))
        .expect("text")
        .trim()
        .parse()
        .expect("a number");
    let is_running = || {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert!(is_running());
    node.crash();
    node.start_again();
    rm.until("the end of the exec program", |_| {
        (!is_running()).then_some(())
    })
    .await;
    assert!(!node.file(&id, "exec").exists());
    rm.until("the registration of the next agent", |received| {
        (received.registrations.len() > 1).then_some(())
    })
    .await;
    assert_eq!(
        Caller::new(&rm, &node)
            .exec(&id, &exec_request(&["true"]))
            .await
            .expect("runs")
            .2,
        ExecExitStatus::Exit { code: 0 }
    );
}
