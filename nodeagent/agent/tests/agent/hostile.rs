//! Malicious tasks and callers. The tests also try operations that the kernel refuses, as the user
//! of the tasks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headroom_test_fakes::ReceivedReports;
use headroom_types::{ContainerId, ExitReason, StopCause};
use headroom_wire::v1::container_access::NODE_KEY_HEADER;

use crate::fake_rm::{FakeRm, WAIT_TIMEOUT};
use crate::node::{Node, kill, on_any_disk, sh};

/// Running programs as other users needs root.
fn is_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: {test}: only root can start programs as another user");
    }
    root
}

/// A node whose tasks run as their submitters, including system users.
async fn node(dir: &Path) -> (FakeRm, Node) {
    let config = dir.join("nodeagent.toml");
    fs::write(
        &config,
        on_any_disk("[isolation]\nrun_as = \"submitter\"\nmin_uid = 1\n"),
    )
    .expect("writes");
    let rm = FakeRm::start();
    let node = Node::start(
        rm.url(),
        512,
        &["--config", config.to_str().expect("UTF-8")],
    );
    fs::set_permissions(node.state(), fs::Permissions::from_mode(0o711)).expect("mode");
    (rm, node)
}

/// The cgroup directories of a process in all hierarchies that limit memory or count processes.
fn groups(pid: i32) -> Vec<std::path::PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives");
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (
            parts.next()?.to_owned(),
            parts.next()?.trim_start_matches('/').to_owned(),
        );
        let bases = if controllers.is_empty() {
            vec![String::new(), "unified".into()]
        } else {
            vec![controllers]
        };
        bases
            .into_iter()
            .map(|b| Path::new("/sys/fs/cgroup").join(b).join(&path))
            .find(|p| p.join("cgroup.procs").exists())
    };
    text.lines()
        .filter_map(of)
        .filter(|p| p.to_string_lossy().contains("headroom-"))
        .collect()
}

/// The result of one attempt. Each output line has the form `attempt=result`.
fn attempt_result(text: &str, attempt: &str) -> String {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(attempt)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no result of {attempt} in {text}"))
        .to_owned()
}

/// A script of a task that tries to leave its cgroup, to raise its limit, and to reach the process
/// `pid` of the container `victim`, its groups `others`, and the agent.
fn attack_script(
    victim: &ContainerId,
    pid: i32,
    others: &[PathBuf],
    agent: i32,
    state: &Path,
) -> String {
    format!(
        "try() {{ name=$1; shift; if (eval \"$*\") >/dev/null 2>&1; then echo $name=done; else echo $name=refused; fi; }}\n\
         cg=$(cut -d: -f3 /proc/self/cgroup | sort -u)\n\
         for path in $cg; do for base in /sys/fs/cgroup /sys/fs/cgroup/memory /sys/fs/cgroup/pids /sys/fs/cgroup/unified; do\n\
         [ -d $base$path ] && [ $path != / ] || continue\n\
         for file in memory.max memory.limit_in_bytes memory.high pids.max; do [ -e $base$path/$file ] || continue\n\
         echo limit=$base$path/$file; if (echo 999999999 > $base$path/$file) 2>/dev/null; then echo raised=$base$path/$file; fi; done\n\
         if (echo $$ > $base/cgroup.procs) 2>/dev/null; then echo left=$base; fi\n\
         if (mkdir $base$path/below) 2>/dev/null; then echo made=$base$path; fi; done; done\n\
         for group in {others}; do if (echo $$ > $group/cgroup.procs) 2>/dev/null; then echo left=$group; fi; done\n\
         try own-signal kill -0 $$\n\
         try signal kill -0 {pid}\n\
         try signal-agent kill -0 {agent}\n\
         try signal-shim kill -0 $PPID\n\
         try environment cat /proc/{pid}/environ\n\
         try memory head -c 1 /proc/{pid}/mem\n\
         try trace cat /proc/{pid}/syscall\n\
         try descriptors ls /proc/{pid}/fd/\n\
         try agent-environment cat /proc/{agent}/environ\n\
         try file cat {state}/containers/{victim}/{own}/kept\n\
         try order cat {state}/containers/{victim}/order.json\n\
         try token cat {state}/containers/{victim}/tasks/.token\n\
         try node cat {state}/node.json\n\
         try oom-score 'echo -1000 > /proc/self/oom_score_adj'\n\
         exit 0",
        others = others
            .iter()
            .map(|p| p.display().to_string())
            .collect::<Vec<_>>()
            .join(" "),
        state = state.display(),
        own = "work",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_cannot_leave_its_cgroup_raise_its_limit_or_reach_others() {
    if !is_root("a_task_cannot_leave_its_cgroup_raise_its_limit_or_reach_others") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (rm, node) = node(dir.path()).await;
    let victim = rm.run_by(
        1,
        Some("www-data"),
        sh("echo secret > kept; chmod 600 kept; exec sleep 600"),
    );
    rm.running(&victim).await;
    let (pid, agent) = (node.pid(&victim), node.agent());
    let others = groups(pid);
    let script = attack_script(&victim, pid, &others, agent, node.state());
    let id = rm.run_by(2, Some("nobody"), sh(&script));
    let report = rm.exit(&id).await;
    let text = node.text(&id, "stdout");
    assert_eq!(
        report.reason,
        ExitReason::Exit { code: 0 },
        "{report:#?}\n{text}{}",
        node.text(&id, "stderr")
    );
    assert_eq!(
        attempt_result(&text, "own-signal"),
        "done",
        "the script can send signals: {text}"
    );
    for attempt in [
        "signal",
        "signal-agent",
        "signal-shim",
        "environment",
        "memory",
        "trace",
        "descriptors",
    ] {
        assert_eq!(
            attempt_result(&text, attempt),
            "refused",
            "{attempt}: {text}"
        );
    }
    for attempt in [
        "agent-environment",
        "file",
        "order",
        "token",
        "node",
        "oom-score",
    ] {
        assert_eq!(
            attempt_result(&text, attempt),
            "refused",
            "{attempt}: {text}"
        );
    }
    for done in ["raised=", "left=", "made="] {
        assert!(!text.contains(done), "{text}");
    }
    // If there was no file to write to, the test proves nothing.
    if others.is_empty() {
        eprintln!("SKIPPED: the part about cgroups; tasks of this host have no cgroup");
    } else {
        assert!(
            text.contains("limit=/sys/fs/cgroup"),
            "the task found no limit file: {text}"
        );
        assert_eq!(
            groups(pid),
            others,
            "the other container is still in its groups"
        );
    }
    rm.stop(&victim, StopCause::Asked);
    rm.exit(&victim).await;
}

/// The kernel cuts process names at 15 bytes, possibly within a character, and a program may choose
/// its own name. A restarted agent handles both: it neither loses such a program nor starts it
/// twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_name_is_not_utf8_is_adopted() {
    let dir = tempfile::tempdir().expect("a directory");
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let cut = dir.path().join("ääääääää");
    fs::copy("/bin/sleep", &cut).expect("copies");
    let command = vec![cut.to_str().expect("UTF-8").to_owned(), "600".into()];
    let by_chance = rm.run(
        2,
        64,
        headroom_types::LaunchSpec {
            command,
            ..Default::default()
        },
    );
    rm.running(&by_chance).await;
    // A name with an invalid UTF-8 byte, followed by the characters that end the name in
    // `/proc/PID/stat`.
    let script =
        "name=$(printf 'x\\377) R 1 1'); cp /bin/sleep \"./$name\" && exec \"./$name\" 600";
    let id = rm.run(1, 64, sh(script));
    rm.running(&id).await;
    let pid = node.pid(&id);
    let named =
        || fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(b"x\xff"));
    rm.until("the program to have its name", |_| named().then_some(()))
        .await;
    node.crash();
    rm.restart();
    node.start_again();
    let seen = |received: &mut ReceivedReports| received.observed.get(&id).map(|o| o.phase);
    let phase = rm
        .until("the container in a report of the next agent", seen)
        .await;
    assert_eq!(phase, headroom_wire::v1::nodes::NodeContainerPhase::Running);
    assert!(named(), "the process is the same");
    for (id, pid) in [(&id, pid), (&by_chance, node.pid(&by_chance))] {
        kill(pid, 15);
        let report = rm.exit(id).await;
        assert_eq!(report.evidence.signal, Some(15), "{report:#?}");
        assert_eq!(
            rm.with(|received| received.ends.get(id).map(|end| end.reports)),
            Some(1)
        );
    }
}

/// The response on a separate connection. Empty if the connection is closed without one.
fn call(node: &Node, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(node.url.trim_start_matches("http://")).expect("connects");
    stream
        .set_read_timeout(Some(WAIT_TIMEOUT))
        .expect("a deadline");
    // The agent may close the connection during the write.
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn status(answer: &str) -> Option<u16> {
    answer.split_whitespace().nth(1)?.parse().ok()
}

fn get(node: &Node, key: &str, path: &str) -> (Option<u16>, String) {
    let text =
        call(node, format!("GET {path} HTTP/1.1\r\nhost: h\r\n{NODE_KEY_HEADER}: {key}\r\nconnection: close\r\n\r\n").as_bytes());
    (status(&text), text)
}

fn check_other_calls(node: &Node) {
    let from = Instant::now();
    assert_eq!(get(node, "", "/livez").0, Some(200));
    assert!(
        from.elapsed() < Duration::from_secs(10),
        "other calls are served meanwhile"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_calls_are_refused_without_blocking_other_calls() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let key = rm
        .until("the key of the node", |received| {
            received.registrations.last().and_then(|r| r.key.clone())
        })
        .await;
    let id = rm.run(1, 64, sh("echo said; exec sleep 600"));
    rm.running(&id).await;
    let post = |body: &str| {
        let head = "HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\nconnection: close\r\n";
        let text = format!(
            "POST /v1/containers/{id}/exec {head}{NODE_KEY_HEADER}: {key}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        call(&node, text.as_bytes())
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{{\"command\":{deep}}}");
    for body in [
        deep.as_str(),
        &nested,
        "",
        "\0",
        "{\"command\":[]}",
        "{\"command\":[\"a\\u0000b\"]}",
    ] {
        let answer = post(body);
        assert!(
            matches!(status(&answer), Some(400 | 422)),
            "{:.80}: {answer:.300}",
            body
        );
        assert!(answer.len() < 4096, "the error does not repeat the body");
    }
    let huge = format!(
        "{{\"command\":[\"true\"],\"input\":\"{}\"}}",
        "a".repeat(16 << 20)
    );
    let answer = post(&huge);
    assert!(
        matches!(status(&answer), None | Some(413 | 400)),
        "{answer:.300}"
    );
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        &[0; 4096],
    ] {
        let answer = call(&node, bytes);
        assert!(matches!(status(&answer), None | Some(400)), "{answer:.300}");
    }
    let long = format!(
        "GET /livez HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n",
        "b".repeat(4 << 20)
    );
    assert!(matches!(
        status(&call(&node, long.as_bytes())),
        None | Some(431 | 400)
    ));
    let both = "POST /v1/containers/x/exec HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_ne!(
        status(&call(&node, both.as_bytes())),
        Some(200),
        "two body lengths are refused"
    );
    check_other_calls(&node);
    check_path_traversal(&node, &key, &id);
    assert!(
        rm.with(|received| !received.ends.contains_key(&id)),
        "the container still runs"
    );
}

/// A body arrives byte by byte and never ends. Clients with and without the node's key try it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_is_cut_off_without_blocking_other_calls() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let key = rm
        .until("the key of the node", |received| {
            received.registrations.last().and_then(|r| r.key.clone())
        })
        .await;
    let id = rm.run(1, 64, sh("exec sleep 600"));
    rm.running(&id).await;
    let mut slow_calls = Vec::new();
    for (path, body) in [
        ("exec", "{\"command\":[\"true\"]"),
        ("signal", "{\"signal\":\"TERM\""),
    ] {
        for key in [key.as_str(), "guess"] {
            let head =
                "HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 100000";
            let text = format!(
                "POST /v1/containers/{id}/{path} {head}\r\n{NODE_KEY_HEADER}: {key}\r\n\r\n{body}"
            );
            let url = node.url.trim_start_matches("http://").to_owned();
            slow_calls.push((
                key != "guess",
                tokio::task::spawn_blocking(move || send_slowly(&url, &text)),
            ));
        }
    }
    check_other_calls(&node);
    for (known, call) in slow_calls {
        let answer = tokio::time::timeout(WAIT_TIMEOUT, call)
            .await
            .expect("the connection is closed")
            .expect("ends");
        let status = status(&answer);
        assert!(
            status == Some(400) || (!known && status == Some(403)),
            "{answer:.300}"
        );
        check_other_calls(&node);
    }
    assert!(
        rm.with(|received| !received.ends.contains_key(&id)),
        "the container still runs"
    );
}

/// Sends blanks until the agent closes the connection. Returns the response.
fn send_slowly(address: &str, beginning: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(beginning.as_bytes()).expect("writes");
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a deadline");
    let (mut text, mut buffer, end) = (Vec::new(), [0; 4096], Instant::now() + WAIT_TIMEOUT);
    while Instant::now() < end {
        let _ = stream.write_all(b" "); // the read below detects the end
        match stream.read(&mut buffer) {
            Ok(0) => return String::from_utf8_lossy(&text).into_owned(),
            Ok(n) => text.extend_from_slice(&buffer[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(_) => return String::from_utf8_lossy(&text).into_owned(),
        }
    }
    panic!("the agent does not close a slow connection")
}

/// Each of these names would lead to another file if it were not checked.
fn check_path_traversal(node: &Node, key: &str, id: &ContainerId) {
    assert!(
        get(node, key, &format!("/v1/containers/{id}/logs/stdout"))
            .1
            .contains("said")
    );
    let long = "a".repeat(5000);
    let names = [
        "..%2f..%2fnode.json",
        "%2e%2e%2fnode.json",
        "%2fetc%2fpasswd",
        "stdout%00",
        "..",
        ".token",
        "order.json",
        &long,
    ];
    for name in names {
        let (status, answer) = get(node, key, &format!("/v1/containers/{id}/logs/{name}"));
        assert!(
            matches!(status, Some(400 | 404 | 414)),
            "{name}: {answer:.300}"
        );
        let (status, answer) = get(
            node,
            key,
            &format!("/v1/containers/{id}/files/content?path=work/{name}%2f..%2f..%2forder.json"),
        );
        assert!(
            matches!(status, Some(400 | 404 | 414)),
            "{name}: {answer:.300}"
        );
        let (status, answer) = get(node, key, &format!("/v1/containers/{name}/logs/stdout"));
        assert!(
            matches!(status, Some(400 | 404 | 414)),
            "{name}: {answer:.300}"
        );
    }
    check_other_calls(node);
}

/// The task swaps its log directory and files with links to a secret while they are read. The
/// reader gets only the task's own bytes.
#[tokio::test(flavor = "multi_thread")]
async fn links_swapped_during_reads_do_not_lead_out() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let key = rm
        .until("the key of the node", |received| {
            received.registrations.last().and_then(|r| r.key.clone())
        })
        .await;
    let script = "cd ..; echo own > work/f; mkdir -p tasks real; echo own > tasks/map-0-1.out; echo own > real/map-0-1.out\n\
        while :; do ln -sfn /etc work/d; ln -sf /etc/shadow work/g; ln -sf /etc/shadow work/h; mv -f work/h work/f\n\
        echo own > work/i; mv -f work/i work/f; ln -sf /etc/shadow tasks/x; mv -f tasks/x tasks/map-0-1.out\n\
        echo own > tasks/y; mv -f tasks/y tasks/map-0-1.out; done";
    let id = rm.run(1, 64, sh(script));
    rm.running(&id).await;
    let link = node.file(&id, "work").join("g");
    rm.until("the links to be there", |_| {
        link.symlink_metadata().is_ok().then_some(())
    })
    .await;
    let (mut own, mut refused) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        for path in [
            "files/content?path=work/f",
            "files/content?path=work/d/shadow",
            "files/content?path=work/g",
            "logs/map-0-1.out",
        ] {
            let (status, answer) = get(&node, &key, &format!("/v1/containers/{id}/{path}"));
            assert!(!answer.contains("root:"), "{path}: {answer}");
            match status {
                Some(200) => own += usize::from(answer.contains("own")),
                _ => refused += 1,
            }
        }
    }
    assert!(
        own > 0 && refused > 0,
        "the test needs both results: {own} read, {refused} refused"
    );
    rm.stop(&id, StopCause::Asked);
    rm.exit(&id).await;
}
