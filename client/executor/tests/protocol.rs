//! Requirements of `docs/executor-protocol.md` on every executor, tested with a scripted master:
//! once with Headroom's executor, once with the Python example. Neither has a cgroup, so that both
//! report the same verdicts.

mod world;

use std::path::{Path, PathBuf};

use headroom_node_exec::ProcessEnd;
use headroom_types::{Bytes, Dimension, EnforcerKind, ExitReason, StopCause};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor, VERSION};
use world::{ExecutorHarness, HarnessSetup, TOKEN, task, until};

/// The tested executor.
#[derive(Clone, Copy)]
enum ExecutorKind {
    House,
    Python,
}

impl ExecutorKind {
    fn world(self, name: &str) -> ExecutorHarness {
        let setup = HarnessSetup {
            poll: true,
            ..HarnessSetup::default()
        };
        match self {
            ExecutorKind::House => ExecutorHarness::with(name, &setup),
            ExecutorKind::Python => {
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/executor.py");
                let program = Some((
                    PathBuf::from("/usr/bin/env"),
                    vec!["python3".into(), script.into()],
                ));
                ExecutorHarness::with(name, &HarnessSetup { program, ..setup })
            }
        }
    }
}

/// Defines each scenario as a test for both executors.
macro_rules! for_both {
    ($($test:ident),+ $(,)?) => {
        mod house {
            $(#[test] fn $test() { super::$test(super::ExecutorKind::House); })+
        }
        mod python {
            $(#[test] fn $test() { super::$test(super::ExecutorKind::Python); })+
        }
    };
}

for_both!(
    an_executor_sends_hello_and_reports_the_end_of_each_task,
    an_executor_runs_each_attempt_once,
    an_executor_creates_the_output_directory_of_an_attempt,
    an_executor_passes_inputs_and_reports_values,
    values_are_repeated_in_full_on_a_new_connection,
    an_executor_repeats_results_until_acknowledged,
    a_stop_sends_sigterm_and_sigkill_after_the_grace,
    a_task_is_ended_at_its_timeout,
    external_kills_and_signals_are_reported,
    messages_of_runtimes_are_recognized,
    a_task_beyond_its_limit_is_killed,
    processes_of_an_ended_task_are_killed,
    a_start_that_cannot_run_is_refused,
    unknown_messages_and_keys_are_ignored,
    an_executor_ends_if_the_master_has_another_version,
    sigterm_ends_the_executor,
    an_executor_shuts_down_when_idle,
    an_executor_names_invalid_variables,
);

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn an_executor_sends_hello_and_reports_the_end_of_each_task(who: ExecutorKind) {
    let world = who.world("codes");
    let (mut master, hello) = world.accept();
    assert_eq!(
        (
            hello.slots,
            hello.task_groups,
            hello.running.len(),
            hello.unacked.len()
        ),
        (4, false, 0, 0)
    );
    let mut start = task(
        "a/0@1",
        &[
            "sh",
            "-c",
            "echo $HEADROOM_TASK $GREETING; pwd; env > env; echo oh no >&2; exit 3",
        ],
    );
    start.env.insert("GREETING".into(), "hello there".into());
    master.start(start);
    master.started("a/0@1");
    let report = master.result("a/0@1");
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::Exit { code: 3 }, None)
    );
    assert_eq!(
        (
            report.evidence.exit_code,
            report.evidence.signal,
            report.evidence.stop_asked
        ),
        (Some(3), None, None)
    );
    assert_eq!(
        (report.evidence.enforcer, report.evidence.own.limit),
        (EnforcerKind::Poll, Some(Bytes::from_mib(64)))
    );
    assert_eq!(
        (
            report.log_tail.as_str(),
            report.container.to_string().as_str()
        ),
        ("oh no\n", "job.1.e1.c1")
    );
    assert!(report.started.is_some_and(|at| at <= report.ended));
    let work = world
        .dir
        .path()
        .join("work")
        .canonicalize()
        .expect("a directory");
    assert_eq!(
        read(&world.log_of("a/0@1", "out")),
        format!("a/0 hello there\n{}\n", work.display())
    );
    let env = read(&work.join("env"));
    assert!(
        env.contains("HEADROOM_INDEX=0\n")
            && env.contains("HEADROOM_ATTEMPT=1\n")
            && env.contains("HEADROOM_SLOTS=1\n"),
        "{env}"
    );
    assert!(
        env.contains(&format!("HEADROOM_MEMORY_BYTES={}\n", 64 << 20))
            && env.contains("HEADROOM_OOM_MARKER="),
        "{env}"
    );
    assert!(
        !env.contains(TOKEN) && !env.contains("HEADROOM_MASTER_URL"),
        "{env}"
    );
    let mut elsewhere = task("a/1@1", &["pwd"]);
    elsewhere.cwd = Some("/".into());
    master.start(elsewhere);
    assert_eq!(master.result("a/1@1").reason, ExitReason::Exit { code: 0 });
    assert_eq!(read(&world.log_of("a/1@1", "out")), "/\n");
}

fn an_executor_runs_each_attempt_once(who: ExecutorKind) {
    let world = who.world("once");
    let (mut master, _) = world.accept();
    let start = task("a/0@1", &["sh", "-c", "echo ran >> ran; sleep 0.3"]);
    master.start(start.clone());
    master.start(start.clone());
    let first = master.unacked_result("a/0@1");
    master.start(start.clone()); // known and not acknowledged: the result is repeated
    assert_eq!(master.result("a/0@1"), first);
    master.start(start); // acknowledged: no message
    master.start(task("b/0@1", &["true"]));
    assert_eq!(master.result("b/0@1").reason, ExitReason::Exit { code: 0 });
    assert_eq!(read(&world.dir.path().join("work/ran")), "ran\n");
}

fn an_executor_creates_the_output_directory_of_an_attempt(who: ExecutorKind) {
    let world = who.world("output");
    let (mut master, _) = world.accept();
    let directory = world.dir.path().join("out/.headroom/job.1/a-0-1");
    let mut start = task(
        "a/0@1",
        &[
            "sh",
            "-c",
            "cd $OUT && [ -z \"$(ls -A)\" ] && echo done > result",
        ],
    );
    start
        .env
        .insert("OUT".into(), directory.display().to_string());
    start.output = Some(directory.display().to_string());
    master.start(start.clone());
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
    assert_eq!(read(&directory.join("result")), "done\n");
    start.attempt = "a/0@2".parse().expect("id");
    master.start(start);
    let refused = master.result("a/0@2");
    assert_eq!(
        refused.reason,
        ExitReason::LaunchFailed,
        "the directory belongs to another attempt"
    );
    assert!(refused.log_tail.contains("a-0-1"), "{}", refused.log_tail);
}

/// An attempt whose input is `input`, and which runs a shell script.
fn with_input(id: &str, input: &str, script: &str) -> TaskStart {
    TaskStart {
        input: Some(input.to_owned()),
        ..task(id, &["sh", "-c", script])
    }
}

fn an_executor_passes_inputs_and_reports_values(who: ExecutorKind) {
    let world = who.world("values");
    let (mut master, hello) = world.accept();
    assert!(hello.inputs);
    let text = "a \"text\" with ä\r\nand no end of a line";
    let copy = "cat \"$HEADROOM_INPUT_FILE\" > \"$HEADROOM_VALUE_FILE\"";
    let many = "head -c 16385 /dev/zero > \"$HEADROOM_VALUE_FILE\"";
    let link = "ln -s /etc/hostname \"$HEADROOM_VALUE_FILE\"";
    let cases = [
        ("copied", copy, Some(text), None),
        ("failed", &format!("{copy}; exit 7"), Some(text), None),
        ("killed", &format!("{copy}; kill -9 $$"), Some(text), None),
        ("absent", "true", None, None),
        ("large", many, None, Some(Bytes::new(16385))),
        (
            "binary",
            "printf '\\377' > \"$HEADROOM_VALUE_FILE\"",
            None,
            None,
        ),
        ("link", link, None, None),
    ];
    for (stage, script, value, too_large) in cases {
        let id = format!("{stage}/0@1");
        master.start(with_input(&id, text, script));
        let report = master.result(&id);
        let found = (report.value.as_deref(), report.value_too_large);
        assert_eq!(found, (value, too_large), "{stage}: {report:?}");
        for ending in ["input", "value"] {
            let path = world.log_of(&id, ending);
            until("the file is removed", || path.symlink_metadata().is_err());
        }
    }
    master.start(task(
        "plain/0@1",
        &[
            "sh",
            "-c",
            "test -z \"$HEADROOM_INPUT_FILE$HEADROOM_VALUE_FILE\"",
        ],
    ));
    assert_eq!(
        master.result("plain/0@1").reason,
        ExitReason::Exit { code: 0 },
        "a task without an input has no files"
    );
}

/// Fifty values of 16 KiB exceed the length of a line.
fn values_are_repeated_in_full_on_a_new_connection(who: ExecutorKind) {
    const COUNT: usize = 50;
    let world = who.world("many-values");
    let (mut master, _) = world.accept();
    let copy = "cat \"$HEADROOM_INPUT_FILE\" > \"$HEADROOM_VALUE_FILE\"";
    let text = "\"v\"".repeat(5000);
    let ids: Vec<String> = (0..COUNT).map(|n| format!("v/{n}@1")).collect();
    for id in &ids {
        master.start(with_input(id, &text, copy));
        master.unacked_result(id);
    }
    drop(master);
    let (mut master, hello) = world.accept();
    assert_eq!(hello.running.len() + hello.unacked.len(), COUNT);
    assert!(!hello.running.is_empty(), "not all values fit into a line");
    let mut reports = hello.unacked;
    for attempt in &hello.running {
        reports.push(master.result(&attempt.to_string()));
    }
    assert_eq!(reports.len(), COUNT);
    for report in &reports {
        assert_eq!(report.value.as_ref(), Some(&text), "{}", report.attempt);
    }
}

fn an_executor_repeats_results_until_acknowledged(who: ExecutorKind) {
    let world = who.world("repeat");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sh", "-c", "exit 4"]));
    master.start(task(
        "long/0@1",
        &["sh", "-c", "while ! [ -e go ]; do sleep 0.05; done; exit 9"],
    ));
    master.started("long/0@1");
    let first = master.unacked_result("a/0@1");
    for _ in 0..2 {
        drop(master);
        let (next, hello) = world.accept();
        assert_eq!(
            hello
                .running
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            ["long/0@1"],
            "tasks continue without a master"
        );
        assert_eq!(hello.unacked, std::slice::from_ref(&first));
        master = next;
    }
    master.ack(&first.attempt);
    master.ack(&first.attempt); // idempotent
    std::fs::write(world.dir.path().join("work/go"), "").expect("writes");
    assert_eq!(
        master.unacked_result("long/0@1").reason,
        ExitReason::Exit { code: 9 }
    );
    drop(master);
    let (_master, hello) = world.accept();
    assert_eq!(
        hello
            .unacked
            .iter()
            .map(|r| r.attempt.to_string())
            .collect::<Vec<_>>(),
        ["long/0@1"]
    );
    assert!(hello.running.is_empty());
}

fn a_stop_sends_sigterm_and_sigkill_after_the_grace(who: ExecutorKind) {
    let world = who.world("stop");
    let (mut master, _) = world.accept();
    let ready = |name: &str| world.dir.path().join("work").join(name);
    for (id, line) in [
        (
            "gentle/0@1",
            "trap 'echo bye; exit 0' TERM; touch gentle; while :; do sleep 0.05; done",
        ),
        (
            "firm/0@1",
            "trap '' TERM; touch firm; while :; do sleep 0.2; done",
        ),
    ] {
        master.start(task(id, &["sh", "-c", line]));
        master.started(id);
    }
    until("both have set their traps", || {
        ready("gentle").exists() && ready("firm").exists()
    });
    let firm = ToExecutor::Stop {
        attempt: "firm/0@1".parse().expect("id"),
    };
    master.send(&ToExecutor::Stop {
        attempt: "gentle/0@1".parse().expect("id"),
    });
    master.send(&firm);
    master.send(&firm); // idempotent
    master.send(&ToExecutor::Stop {
        attempt: "absent/7@3".parse().expect("id"),
    });
    let gentle = master.result("gentle/0@1");
    assert_eq!(
        (
            gentle.reason,
            gentle.evidence.stop_asked,
            gentle.evidence.exit_code
        ),
        (ExitReason::Stopped, Some(StopCause::Asked), Some(0))
    );
    assert_eq!(read(&world.log_of("gentle/0@1", "out")), "bye\n");
    let killed = master.result("firm/0@1");
    assert_eq!(
        (killed.reason, killed.evidence.signal),
        (ExitReason::Stopped, Some(9))
    );
}

fn a_task_is_ended_at_its_timeout(who: ExecutorKind) {
    let world = who.world("timeout");
    let (mut master, _) = world.accept();
    let mut start = task("a/0@1", &["sleep", "1000"]);
    start.timeout_ms = Some(300);
    master.start(start);
    let report = master.result("a/0@1");
    assert_eq!(
        (report.reason, report.evidence.stop_asked),
        (ExitReason::Timeout, Some(StopCause::Timeout))
    );
    assert_eq!(report.reason.charge(), headroom_types::ExitCharge::Plain);
}

fn external_kills_and_signals_are_reported(who: ExecutorKind) {
    let world = who.world("outside");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sh", "-c", "kill -KILL $$"]));
    let report = master.result("a/0@1");
    assert_eq!(
        (
            report.reason,
            report.evidence.signal,
            report.evidence.exit_code
        ),
        (ExitReason::KilledExternally, Some(9), None)
    );
    master.start(task("a/1@1", &["sh", "-c", "kill -SEGV $$"]));
    assert_eq!(
        master.result("a/1@1").reason,
        ExitReason::Signal { signal: 11 }
    );
    master.start(task("a/2@1", &["sh", "-c", "exit 137"]));
    assert_eq!(
        master.result("a/2@1").reason,
        ExitReason::Exit { code: 137 },
        "the code alone proves nothing"
    );
}

fn messages_of_runtimes_are_recognized(who: ExecutorKind) {
    let world = who.world("words");
    let (mut master, _) = world.accept();
    let full = |id: &str, line: &str, heap: Option<Bytes>| {
        let mut start = task(id, &["sh", "-c", line]);
        (start.heap, start.heap_exit_codes) = (heap, vec![3, 52]);
        start
    };
    let heap = Some(Bytes::from_mib(32));
    let full_of = |dimension| (ExitReason::HeapOom, Some(dimension));
    let cases = [
        (
            full("code/0@1", "exit 52", heap),
            None,
            full_of(Dimension::Heap),
        ),
        (
            full(
                "marker/0@1",
                "echo full > $HEADROOM_OOM_MARKER; exit 1",
                heap,
            ),
            Some("full"),
            full_of(Dimension::Heap),
        ),
        // The failed allocation is far below its size: nothing was full.
        (
            full(
                "python/0@1",
                "echo 'MemoryError: no room' >&2; exit 1",
                None,
            ),
            Some("MemoryError: no room"),
            (ExitReason::Exit { code: 1 }, None),
        ),
        (
            full(
                "jvm/0@1",
                "echo java.lang.OutOfMemoryError: Java heap space; exit 1",
                heap,
            ),
            Some("java.lang.OutOfMemoryError: Java heap space"),
            full_of(Dimension::Heap),
        ),
    ];
    for (start, marker, verdict) in cases {
        let id = start.attempt.to_string();
        master.start(start);
        let report = master.result(&id);
        assert_eq!(
            (report.reason, report.dimension),
            verdict,
            "{id}: {:?}",
            report.evidence
        );
        assert_eq!(report.evidence.heap_marker.as_deref(), marker, "{id}");
    }
    master.start(full("well/0@1", "echo MemoryError >&2; exit 0", heap));
    assert_eq!(
        master.result("well/0@1").reason,
        ExitReason::Exit { code: 0 },
        "exit 0 is a success"
    );
}

fn a_task_beyond_its_limit_is_killed(who: ExecutorKind) {
    let world = who.world("limit");
    let (mut master, _) = world.accept();
    master.start(task("small/0@1", &["sh", "-c", "sleep 2"]));
    // Allocates one buffer of 100 MB and keeps it, because nothing reads from the pipe; the limit
    // is 64 MiB.
    master.start(task(
        "large/0@1",
        &[
            "sh",
            "-c",
            "dd if=/dev/zero bs=100000000 count=1 | sleep 60",
        ],
    ));
    let report = master.result("large/0@1");
    assert_eq!(
        (report.evidence.enforcer, report.evidence.stop_asked),
        (EnforcerKind::Poll, Some(StopCause::OverLimit))
    );
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::TaskOom, Some(Dimension::Native))
    );
    assert!(
        report
            .evidence
            .own
            .peak
            .is_some_and(|peak| peak > Bytes::from_mib(64)),
        "{:?}",
        report.evidence.own
    );
    assert_eq!(
        master.result("small/0@1").reason,
        ExitReason::Exit { code: 0 },
        "the other task is not affected"
    );
    let mut open = task(
        "open/0@1",
        &[
            "sh",
            "-c",
            "head -c 50000000 /dev/zero | tail > /dev/null; sleep 1.5",
        ],
    );
    open.limit = None;
    master.start(open);
    let usage = master.wait("the memory use", |line| match line {
        FromExecutor::Usage { tasks } => tasks
            .iter()
            .find(|t| t.attempt.to_string() == "open/0@1")
            .cloned(),
        FromExecutor::Hello { .. }
        | FromExecutor::Started { .. }
        | FromExecutor::Ended { .. }
        | FromExecutor::Pressure { .. }
        | FromExecutor::Resized { .. }
        | FromExecutor::Leftover { .. }
        | FromExecutor::Alive => None,
    });
    assert!(
        usage.heap.is_none() && usage.peak >= usage.current,
        "{usage:?}"
    );
    assert_eq!(
        master.result("open/0@1").reason,
        ExitReason::Exit { code: 0 }
    );
}

fn processes_of_an_ended_task_are_killed(who: ExecutorKind) {
    let world = who.world("daemon");
    let (mut master, _) = world.accept();
    // The process leaves the session of its task. Without a cgroup, it is found because it was
    // observed before.
    let line = "setsid sh -c 'echo $$ > daemon; exec sleep 1000' & while ! [ -s daemon ]; do sleep 0.02; done; sleep 1";
    master.start(task("a/0@1", &["sh", "-c", line]));
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
    let pid = read(&world.dir.path().join("work/daemon"));
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let gone = state.is_empty()
        || state
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'));
    assert!(gone, "the daemon still runs after the result: {state}");
}

fn a_start_that_cannot_run_is_refused(who: ExecutorKind) {
    let world = who.world("refused");
    let (mut master, _) = world.accept();
    let wide = |slots| {
        let mut start = task(&format!("wide/{slots}@1"), &["true"]);
        start.slots = slots;
        start
    };
    let mut nowhere = task("nowhere/0@1", &["true"]);
    nowhere.cwd = Some("/no/such/directory".into());
    let cases = [
        (wide(5), "slots"),
        (wide(0), "slots"),
        (nowhere, "/no/such/directory"),
        (task("none/0@1", &[]), "not started"),
        (
            task("absent/0@1", &["no-such-program-anywhere"]),
            "no-such-program-anywhere",
        ),
    ];
    for (start, named) in cases {
        let id = start.attempt.to_string();
        master.start(start);
        let report = master.result(&id);
        assert_eq!(
            (report.reason, report.started),
            (ExitReason::LaunchFailed, None),
            "{id}"
        );
        assert!(
            report.evidence.missing.join(" ").contains(named),
            "{id}: {:?}",
            report.evidence.missing
        );
    }
    let mut three = task(
        "three/0@1",
        &["sh", "-c", "while ! [ -e go ]; do sleep 0.05; done"],
    );
    three.slots = 3;
    master.start(three);
    master.started("three/0@1");
    master.start(wide(2));
    assert_eq!(
        master.result("wide/2@1").reason,
        ExitReason::LaunchFailed,
        "one slot is free"
    );
    master.start(wide(1));
    assert_eq!(
        master.result("wide/1@1").reason,
        ExitReason::Exit { code: 0 }
    );
    std::fs::write(world.dir.path().join("work/go"), "").expect("writes");
    assert_eq!(
        master.result("three/0@1").reason,
        ExitReason::Exit { code: 0 }
    );
    master.start(wide(4));
    assert_eq!(
        master.result("wide/4@1").reason,
        ExitReason::Exit { code: 0 },
        "all slots are free again"
    );
}

fn unknown_messages_and_keys_are_ignored(who: ExecutorKind) {
    let world = who.world("noise");
    let (mut master, _) = world.accept();
    master.raw(b"{\"kind\":\"of-the-future\",\"attempt\":\"a/0@1\"}\nnot json at all\n\n{\"kind\":\"start\"}\n[1]\n");
    let mut line = serde_json::to_value(ToExecutor::Start(Box::new(task("a/0@1", &["true"]))))
        .expect("writes");
    line["of_the_future"] = serde_json::json!({ "more": [1, 2] });
    master.raw(format!("{line}\r\n").as_bytes());
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
    master.raw_lossy(&vec![b'x'; 3 << 20]);
    drop(master);
    let (mut master, _) = world.accept();
    master.start(task("b/0@1", &["true"]));
    assert_eq!(master.result("b/0@1").reason, ExitReason::Exit { code: 0 });
}

fn an_executor_ends_if_the_master_has_another_version(who: ExecutorKind) {
    let mut world = who.world("versions");
    let (mut master, _) = world.accept();
    master.send(&ToExecutor::Refused {
        why: "its first line is not right".into(),
        oldest: VERSION,
        newest: VERSION,
    });
    drop(master);
    let (mut master, _) = world.accept(); // no version mismatch, so the executor reconnects
    master.send(&ToExecutor::Refused {
        why: "it is too old".into(),
        oldest: VERSION + 1,
        newest: VERSION + 2,
    });
    assert_eq!(world.ended(), ProcessEnd::Code(3));
}

fn sigterm_ends_the_executor(who: ExecutorKind) {
    let mut world = who.world("sigterm");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sleep", "1000"]));
    master.start(task(
        "b/0@1",
        &[
            "sh",
            "-c",
            "trap '' TERM; touch trapped; while :; do sleep 0.2; done",
        ],
    ));
    master.started("b/0@1");
    until("the task ignores SIGTERM", || {
        world.dir.path().join("work/trapped").exists()
    });
    world.signal(15);
    assert_eq!(master.unacked_result("a/0@1").reason, ExitReason::Stopped);
    assert_eq!(master.unacked_result("b/0@1").reason, ExitReason::Stopped);
    assert_eq!(world.ended(), ProcessEnd::Code(0));
}

fn an_executor_shuts_down_when_idle(who: ExecutorKind) {
    let mut world = who.world("shutdown");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sleep", "0.5"]));
    master.started("a/0@1");
    master.send(&ToExecutor::Shutdown);
    master.start(task("late/0@1", &["true"]));
    let late = master.result("late/0@1");
    assert_eq!(late.reason, ExitReason::LaunchFailed);
    assert!(late.log_tail.contains("ending"), "{}", late.log_tail);
    let last = master.unacked_result("a/0@1");
    assert!(
        world.is_alive(),
        "the executor waits for the acknowledgement"
    );
    master.ack(&last.attempt);
    assert_eq!(world.ended(), ProcessEnd::Code(0));
}

fn an_executor_names_invalid_variables(who: ExecutorKind) {
    let mut command = match who {
        ExecutorKind::House => std::process::Command::new(env!("CARGO_BIN_EXE_executor")),
        ExecutorKind::Python => {
            let mut command = std::process::Command::new("/usr/bin/env");
            command.args([
                "python3",
                concat!(env!("CARGO_MANIFEST_DIR"), "/examples/executor.py"),
            ]);
            command
        }
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let output = command
        .env_clear()
        .env("PATH", path)
        .env("HEADROOM_SLOTS", "many")
        .output()
        .expect("runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    for variable in [
        "HEADROOM_SLOTS",
        "HEADROOM_MASTER_URL",
        "HEADROOM_APP_TOKEN",
        "HEADROOM_CONTAINER",
    ] {
        assert!(printed.contains(variable), "{printed}");
    }
}
