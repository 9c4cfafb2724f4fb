//! Real tasks in real cgroups: the verdict of each kind of end, with the best enforcer of the test
//! machine.

mod world;

use std::time::{Duration, Instant};

use headroom_node_exec::ProcessEnd;
use headroom_types::exit::VictimProcess;
use headroom_types::{Bytes, Dimension, EnforcerKind, ExitReason, StopCause};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor};
use world::{ExecutorHarness, HarnessSetup, task, until};

/// Allocates 128 MiB at once.
const LARGE: [&str; 4] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=128M"];
/// Allocates one buffer of 100 MB and keeps it, because nothing reads from the pipe.
const HOLDS_100_MB: &str = "dd if=/dev/zero bs=100000000 count=1 | sleep 60";

fn kill_9(pid: i32) {
    let done = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(done.success());
}

#[test]
fn exit_codes_and_output_are_returned() {
    let world = ExecutorHarness::new("codes");
    let (mut master, hello) = world.accept();
    assert_eq!(
        (
            hello.slots,
            hello.task_groups,
            hello.running.len(),
            hello.unacked.len()
        ),
        (4, true, 0, 0)
    );
    master.start(task("a/0@1", &["true"]));
    let report = master.result("a/0@1");
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::Exit { code: 0 }, None)
    );
    assert!(report.started.is_some_and(|at| at <= report.ended));
    assert_eq!(report.evidence.own.limit, Some(Bytes::from_mib(64)));
    assert!(
        report.evidence.missing.is_empty(),
        "{:?}",
        report.evidence.missing
    );
    master.start(task(
        "a/1@1",
        &["sh", "-c", "echo $HEADROOM_TASK; echo oh no >&2; exit 3"],
    ));
    let report = master.result("a/1@1");
    assert_eq!(report.reason, ExitReason::Exit { code: 3 });
    assert_eq!(report.log_tail, "oh no\n");
    assert_eq!(
        std::fs::read_to_string(world.log_of("a/1@1", "out")).expect("a log"),
        "a/1\n"
    );
    until("no cgroup is left", || world.groups().is_empty());
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
        until("the process is frozen", || {
            std::fs::read_to_string(frozen.0.join("freezer.state"))
                .is_ok_and(|state| state.starts_with("FROZEN"))
        });
        Some(frozen)
    }

    fn set(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).expect("writes");
    }
}

impl Drop for FrozenProcess {
    fn drop(&mut self) {
        self.set("THAWED");
        until("the process has left the freezer", || {
            std::fs::remove_dir(&self.0).is_ok()
        });
    }
}

#[test]
fn a_task_whose_process_cannot_end_holds_up_no_other_task() {
    let world = ExecutorHarness::new("hangs");
    let (mut master, _) = world.accept();
    let script = "trap '' TERM; sleep 600 & wait";
    master.start(task("a/0@1", &["sh", "-c", script]));
    master.started("a/0@1");
    let attempt = "a/0@1".parse().expect("an id");
    until("both processes run", || world.pids(&attempt).len() == 2);
    let pids = world.pids(&attempt);
    let (main, child) = (
        *pids.iter().min().expect("a shell"),
        *pids.iter().max().expect("a child"),
    );
    let Some(frozen) = FrozenProcess::new(child) else {
        return; // cgroup v2 lets a frozen process end
    };
    master.send(&ToExecutor::Stop {
        attempt: attempt.clone(),
    });
    until("the main process is killed", || {
        std::fs::read_to_string(format!("/proc/{main}/stat"))
            .map_or(true, |stat| stat.contains(") Z "))
    });
    master.start(task("b/0@1", &["true"]));
    let report = master.result("b/0@1");
    assert_eq!(report.reason, ExitReason::Exit { code: 0 });
    drop(frozen);
    let report = master.result("a/0@1");
    assert_eq!(report.reason, ExitReason::Stopped);
    // A kill that waits would have given up by now.
    assert_eq!(report.evidence.missing, Vec::<String>::new());
}

#[test]
fn reads_of_a_task_and_its_children_are_reported() {
    let world = ExecutorHarness::new("reads");
    let (mut master, _) = world.accept();
    // 6 MiB read by a reaped child, 2 MiB by the process that replaces the shell.
    let script = "dd if=/dev/zero of=/dev/null bs=1M count=6 2>&1; exec dd if=/dev/zero of=/dev/null bs=1M count=2";
    master.start(task("a/0@1", &["sh", "-c", script]));
    let read = master.result("a/0@1").read.expect("the bytes read");
    assert!(
        (Bytes::from_mib(8)..Bytes::from_mib(9)).contains(&read),
        "{read}"
    );
}

#[test]
fn a_declared_exit_code_or_marker_is_a_full_heap() {
    let world = ExecutorHarness::new("declared");
    let (mut master, _) = world.accept();
    let mut start = task("a/0@1", &["sh", "-c", "exit 52"]);
    start.heap_exit_codes = vec![3, 52];
    start.heap = Some(Bytes::from_mib(32));
    master.start(start);
    let report = master.result("a/0@1");
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::HeapOom, Some(Dimension::Heap))
    );
    assert_eq!(report.evidence.exit_code, Some(52));
    let mut start = task(
        "a/1@1",
        &["sh", "-c", "echo full > $HEADROOM_OOM_MARKER; exit 1"],
    );
    start.heap = Some(Bytes::from_mib(32));
    master.start(start);
    let report = master.result("a/1@1");
    assert_eq!(
        (report.reason, report.evidence.heap_marker.as_deref()),
        (ExitReason::HeapOom, Some("full"))
    );
}

#[test]
fn a_task_beyond_its_limit_is_killed_alone() {
    let world = ExecutorHarness::new("alone");
    let (mut master, _) = world.accept();
    master.start(task("good/0@1", &["sh", "-c", "sleep 2; echo still here"]));
    master.started("good/0@1");
    master.start(task("bad/0@1", &LARGE));
    let report = master.result("bad/0@1");
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::TaskOom, Some(Dimension::Native)),
        "{:?}",
        report.evidence
    );
    assert_eq!(report.evidence.signal, Some(9));
    assert!(
        report
            .evidence
            .own
            .peak
            .is_some_and(|peak| peak >= Bytes::from_mib(62)),
        "{:?}",
        report.evidence.own
    );
    assert!(report.evidence.own.events.oom_kill > 0);
    assert!(
        report
            .timeline
            .iter()
            .any(|s| s.current >= Bytes::from_mib(62)),
        "{:?}",
        report.timeline
    );
    assert!(world.is_alive(), "the executor still runs");
    let neighbour = master.result("good/0@1");
    assert_eq!(neighbour.reason, ExitReason::Exit { code: 0 });
    assert_eq!(neighbour.evidence.own.events.oom_kill, 0);
    assert!(
        std::fs::read_to_string(world.log_of("good/0@1", "out"))
            .expect("a log")
            .contains("still here")
    );
}

#[test]
fn a_memory_kill_of_a_child_ends_the_whole_task() {
    let world = ExecutorHarness::new("child");
    let (mut master, _) = world.accept();
    // The shell would run forever: it does not end with its child.
    master.start(task(
        "a/0@1",
        &[
            "sh",
            "-c",
            "dd if=/dev/zero of=/dev/null bs=128M; sleep 1000",
        ],
    ));
    let report = master.result("a/0@1");
    assert_eq!(report.reason, ExitReason::TaskOom, "{:?}", report.evidence);
    until("no cgroup is left", || world.groups().is_empty());
}

#[test]
fn an_external_kill_is_not_charged_to_the_task() {
    let world = ExecutorHarness::new("outside");
    let (mut master, _) = world.accept();
    let start = task("a/0@1", &["sleep", "1000"]);
    let attempt = start.attempt.clone();
    master.start(start);
    master.started("a/0@1");
    let pids = world.pids(&attempt);
    assert_eq!(pids.len(), 1, "{pids:?}");
    kill_9(pids[0]);
    let report = master.result("a/0@1");
    assert_eq!(
        (report.reason, report.evidence.stop_asked),
        (ExitReason::KilledExternally, None)
    );
    master.start(task("a/1@1", &["sh", "-c", "kill -SEGV $$"]));
    assert_eq!(
        master.result("a/1@1").reason,
        ExitReason::Signal { signal: 11 }
    );
}

#[test]
fn a_victim_of_the_containers_limit_is_not_charged() {
    // Each task stays far below its own 200 MiB; together they exceed the container's 128 MiB.
    let world = ExecutorHarness::with(
        "bystander",
        &HarnessSetup {
            memory: Bytes::from_mib(128),
            ..HarnessSetup::default()
        },
    );
    let (mut master, _) = world.accept();
    for id in ["a/0@1", "a/1@1"] {
        let mut start = task(
            id,
            &["sh", "-c", "dd if=/dev/zero bs=70000000 count=1 | sleep 60"],
        );
        start.limit = Some(Bytes::from_mib(200));
        master.start(start);
        master.started(id);
    }
    let report = master.wait("the end of a task", |line| match line {
        FromExecutor::Ended { report } => Some((**report).clone()),
        FromExecutor::Hello { .. }
        | FromExecutor::Started { .. }
        | FromExecutor::Usage { .. }
        | FromExecutor::Pressure { .. }
        | FromExecutor::Resized { .. }
        | FromExecutor::Leftover { .. }
        | FromExecutor::Alive => None,
    });
    assert_eq!(
        report.reason,
        ExitReason::AncestorOom,
        "{:?}",
        report.evidence
    );
    let container = report
        .evidence
        .outer
        .iter()
        .find(|o| o.level == "container")
        .expect("the container's counters");
    assert!(container.local.max > 0, "{container:?}");
    assert!(world.is_alive());
}

#[test]
fn a_stop_sends_sigterm_and_sigkill_after_two_seconds() {
    let world = ExecutorHarness::new("stop");
    let (mut master, _) = world.accept();
    master.start(task(
        "gentle/0@1",
        &[
            "sh",
            "-c",
            "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done",
        ],
    ));
    master.started("gentle/0@1");
    master.send(&ToExecutor::Stop {
        attempt: "gentle/0@1".parse().expect("id"),
    });
    let report = master.result("gentle/0@1");
    assert_eq!(
        (report.reason, report.evidence.stop_asked),
        (ExitReason::Stopped, Some(StopCause::Asked))
    );

    master.start(task(
        "firm/0@1",
        &["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
    ));
    master.started("firm/0@1");
    until("the task runs its loop", || {
        world.pids(&"firm/0@1".parse().expect("id")).len() == 2
    });
    let asked = Instant::now();
    master.send(&ToExecutor::Stop {
        attempt: "firm/0@1".parse().expect("id"),
    });
    let report = master.result("firm/0@1");
    assert_eq!(
        (report.reason, report.evidence.signal),
        (ExitReason::Stopped, Some(9))
    );
    assert!(
        asked.elapsed() >= Duration::from_millis(1900),
        "{:?}",
        asked.elapsed()
    );
}

#[test]
fn a_task_is_ended_at_its_timeout() {
    let world = ExecutorHarness::new("timeout");
    let (mut master, _) = world.accept();
    let mut start = task("a/0@1", &["sleep", "1000"]);
    start.timeout_ms = Some(300);
    let began = Instant::now();
    master.start(start);
    let report = master.result("a/0@1");
    assert_eq!(
        (report.reason, report.evidence.stop_asked),
        (ExitReason::Timeout, Some(StopCause::Timeout))
    );
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(
        report.ran_for() >= Duration::from_millis(290),
        "{:?}",
        report.ran_for()
    );
}

#[test]
fn a_start_that_cannot_run_is_refused_with_its_reason() {
    let world = ExecutorHarness::new("refused");
    let (mut master, _) = world.accept();
    let mut wide = task("wide/0@1", &["true"]);
    wide.slots = 5;
    let mut nowhere = task("nowhere/0@1", &["true"]);
    nowhere.cwd = Some("/no/such/directory".into());
    let cases = [
        (wide, "slots"),
        (nowhere, "/no/such/directory"),
        (task("none/0@1", &[]), "command"),
        (
            task("absent/0@1", &["no-such-program-anywhere"]),
            "no-such-program-anywhere",
        ),
        (task("text/0@1", &["/etc/hostname"]), "/etc/hostname"),
    ];
    for (start, named) in cases {
        let id = start.attempt.to_string();
        master.start(start);
        let report = master.result(&id);
        assert_eq!(report.reason, ExitReason::LaunchFailed);
        let code = match named {
            "no-such-program-anywhere" => Some(127),
            "/etc/hostname" => Some(126),
            _ => None,
        };
        assert_eq!(
            report.evidence.exit_code, code,
            "{named}: the exit code of a shell, for a program only"
        );
        assert!(
            report.evidence.missing.join(" ").contains(named) && report.started.is_none(),
            "{:?}",
            report.evidence.missing
        );
    }
    assert!(
        world.groups().is_empty(),
        "a cgroup is left: {:?}",
        world.groups()
    );
    master.start(task("fine/0@1", &["true"]));
    assert_eq!(
        master.result("fine/0@1").reason,
        ExitReason::Exit { code: 0 }
    );
}

#[test]
fn a_repeated_start_runs_once() {
    let world = ExecutorHarness::new("once");
    let (mut master, _) = world.accept();
    let start = task("a/0@1", &["sh", "-c", "echo ran; sleep 0.3"]);
    master.start(start.clone());
    master.start(start.clone());
    let first = master.unacked_result("a/0@1");
    master.start(start.clone()); // known and not acknowledged: the result is repeated
    assert_eq!(master.result("a/0@1"), first);
    master.start(start); // acknowledged: no message
    master.start(task("b/0@1", &["true"]));
    assert_eq!(master.result("b/0@1").reason, ExitReason::Exit { code: 0 });
    assert_eq!(
        std::fs::read_to_string(world.log_of("a/0@1", "out")).expect("a log"),
        "ran\n"
    );
}

#[test]
fn processes_left_by_a_task_are_killed() {
    let world = ExecutorHarness::new("daemon");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sh", "-c", "setsid sleep 1000 & exit 0"]));
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
    until("the cgroup is removed, and so the daemon has ended", || {
        world.groups().is_empty()
    });
}

#[test]
fn use_is_reported_every_second_and_at_once_near_the_limit() {
    let world = ExecutorHarness::new("usage");
    let (mut master, _) = world.accept();
    let mut start = task("a/0@1", &["sh", "-c", HOLDS_100_MB]);
    start.limit = Some(Bytes::from_mib(104));
    master.start(start);
    master.started("a/0@1");
    let usage = master.wait("use near the limit", |line| match line {
        FromExecutor::Usage { tasks } => tasks
            .iter()
            .find(|t| t.current >= Bytes::from_mib(94))
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
        usage.peak >= usage.current && usage.heap.is_none(),
        "{usage:?}"
    );
    master.send(&ToExecutor::Stop {
        attempt: "a/0@1".parse().expect("id"),
    });
    let report = master.result("a/0@1");
    assert_eq!(report.reason, ExitReason::Stopped);
    let named: Vec<&VictimProcess> = report
        .evidence
        .victims
        .iter()
        .filter(|v| v.name == "dd")
        .collect();
    assert!(
        named.first().is_some_and(|v| v.rss >= Bytes::from_mib(90)),
        "{:?}",
        report.evidence.victims
    );
}

#[test]
fn without_a_kernel_limit_the_executor_kills_by_measurement() {
    let world = ExecutorHarness::with(
        "poll",
        &HarnessSetup {
            poll: true,
            ..HarnessSetup::default()
        },
    );
    let (mut master, hello) = world.accept();
    assert!(!hello.task_groups);
    let mut within = task("small/0@1", &["sh", "-c", "sleep 1"]);
    within.limit = Some(Bytes::from_mib(16));
    master.start(within);
    master.start(task("large/0@1", &["sh", "-c", HOLDS_100_MB]));
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
        ExitReason::Exit { code: 0 }
    );
}

/// The host's counter of memory stalls so far.
fn waits_for_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    text.lines()
        .filter(|l| l.starts_with("allocstall"))
        .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

#[test]
fn a_kill_in_another_cgroup_is_not_a_kill_of_the_host() {
    let world = ExecutorHarness::with(
        "others",
        &HarnessSetup {
            poll: true,
            ..HarnessSetup::default()
        },
    );
    let (mut master, _) = world.accept();
    let pid_file = world.dir.path().join("pid");
    for n in 0..20 {
        let waits = waits_for_memory();
        let (id, line) = (
            format!("a/{n}@1"),
            format!("echo $$ > {}; exec sleep 1000", pid_file.display()),
        );
        master.start(task(&id, &["sh", "-c", &line]));
        let mut pid = None;
        until("the task has written its process id", || {
            pid = std::fs::read_to_string(&pid_file)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            pid.is_some()
        });
        kill_in_a_cgroup();
        kill_9(pid.expect("a process id"));
        let report = master.result(&id);
        std::fs::remove_file(&pid_file).expect("goes");
        // If the host stalled on memory meanwhile, a kill by the host cannot be excluded; then the
        // test tries again.
        if waits_for_memory() == waits {
            assert_eq!(
                report.reason,
                ExitReason::KilledExternally,
                "{:?}",
                report.evidence
            );
            return;
        }
    }
    println!("SKIPPED: this host always waits for memory");
}

/// An unrelated cgroup with a process that the kernel kills for its limit.
fn kill_in_a_cgroup() {
    let other = ExecutorHarness::new("beside-poll");
    let (mut master, _) = other.accept();
    let mut large = task("b/0@1", &LARGE);
    large.limit = Some(Bytes::from_mib(16));
    master.start(large);
    assert_eq!(master.result("b/0@1").reason, ExitReason::TaskOom);
}

#[test]
fn sigterm_stops_the_tasks_before_the_executor() {
    let mut world = ExecutorHarness::new("sigterm");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sleep", "1000"]));
    master.start(task(
        "b/0@1",
        &["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
    ));
    master.started("b/0@1");
    until("the task ignores SIGTERM", || {
        world.pids(&"b/0@1".parse().expect("id")).len() == 2
    });
    world.signal(15);
    assert_eq!(master.unacked_result("a/0@1").reason, ExitReason::Stopped);
    assert_eq!(master.unacked_result("b/0@1").reason, ExitReason::Stopped);
    assert_eq!(world.ended(), ProcessEnd::Code(0));
    assert!(world.groups().is_empty(), "{:?}", world.groups());
}

#[test]
fn tasks_ended_by_a_signal_to_all_processes_are_stopped() {
    let mut world = ExecutorHarness::new("sigterm-to-all");
    let (mut master, _) = world.accept();
    let traps = [
        "sh",
        "-c",
        "trap 'exit 143' TERM; while :; do sleep 0.1; done",
    ];
    // One after the other, because a wait for one message discards others.
    for (id, command) in [
        ("a/0@1", &["sleep", "1000"][..]),
        ("b/0@1", &traps[..]),
        ("c/0@1", &["sleep", "1000"][..]),
    ] {
        master.start(task(id, command));
        master.started(id);
    }
    until("the task catches SIGTERM", || {
        world.pids(&"b/0@1".parse().expect("id")).len() == 2
    });
    // A task that ends alone has failed.
    let terminate = |id: &str| {
        for pid in world.pids(&id.parse().expect("id")) {
            // A process that has already ended is fine.
            let _ = std::process::Command::new("kill")
                .arg(pid.to_string())
                .stderr(std::process::Stdio::null())
                .status();
        }
    };
    terminate("c/0@1");
    assert_eq!(
        master.result("c/0@1").reason,
        ExitReason::Signal { signal: 15 }
    );
    terminate("a/0@1");
    terminate("b/0@1");
    world.signal(15);
    assert_eq!(master.unacked_result("a/0@1").reason, ExitReason::Stopped);
    assert_eq!(master.unacked_result("b/0@1").reason, ExitReason::Stopped);
    assert_eq!(world.ended(), ProcessEnd::Code(0));
}

#[test]
fn a_shutdown_waits_for_idle_slots_and_acknowledgements() {
    let mut world = ExecutorHarness::new("shutdown");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sleep", "0.5"]));
    master.started("a/0@1");
    master.send(&ToExecutor::Shutdown);
    master.start(task("late/0@1", &["true"]));
    let late = master.result("late/0@1");
    assert_eq!(late.reason, ExitReason::LaunchFailed);
    assert!(late.log_tail.contains("ending"), "{}", late.log_tail);
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
    assert_eq!(world.ended(), ProcessEnd::Code(0));
}

#[test]
fn a_task_that_stalls_at_its_limit_is_ended() {
    let world = ExecutorHarness::new("stall");
    if world.files_are_memory() {
        println!(
            "SKIPPED: the temporary directory is in memory, so its pages cannot be reclaimed and read again"
        );
        return;
    }
    let (mut master, _) = world.accept();
    // Most of 64 MiB is held. A file that does not fit into the rest is mapped and touched
    // repeatedly.
    let script = "import mmap, os, tempfile\nheld = b'\\1' * (44 << 20)\nf = tempfile.TemporaryFile(dir='.')\n\
                  for _ in range(40):\n    f.write(b'\\2' * (1 << 20))\n    f.flush()\n    os.fsync(f.fileno())\n\
                  m = mmap.mmap(f.fileno(), 40 << 20, prot=mmap.PROT_READ)\n\
                  while True:\n    for i in range(10240):\n        m[(i * 7919 % 10240) << 12]\n";
    master.start(task("a/0@1", &["python3", "-c", script]));
    let report = master.result("a/0@1");
    assert_eq!(
        report.evidence.stop_asked,
        Some(StopCause::Stalled),
        "{:?}",
        report.evidence
    );
    assert_eq!(
        (report.reason, report.dimension),
        (ExitReason::StalledAtLimit, Some(Dimension::Native))
    );
    assert!(report.ran_for() >= headroom_node_core::stall::MIN_STALL_DURATION);
}

#[test]
fn a_clean_cgroup_serves_the_next_task_with_counters_of_its_own() {
    let world = ExecutorHarness::new("clean");
    let (mut master, hello) = world.accept();
    assert!(hello.task_groups);
    // The kernel rounds the limit to whole pages.
    let task = |id: &str, command: &[&str]| TaskStart {
        limit: Some(Bytes::new((64 << 20) + 1000)),
        ..task(id, command)
    };
    let mut peaks = Vec::new();
    for index in 0..20 {
        let id = format!("a/{index}@1");
        // Every fifth task needs much more memory than the others.
        let large = ["dd", "if=/dev/zero", "of=/dev/null", "bs=32M", "count=1"];
        let command: &[&str] = if index % 5 == 0 { &large } else { &["true"] };
        master.start(task(&id, command));
        let report = master.result(&id);
        assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:?}");
        assert_eq!(report.evidence.own.limit, Some(Bytes::from_mib(64)));
        assert_eq!(report.evidence.own.events, Default::default());
        peaks.push(report.evidence.own.peak.expect("a peak"));
    }
    for (index, peak) in peaks.iter().enumerate() {
        let is_large = *peak > Bytes::from_mib(16);
        assert_eq!(is_large, index % 5 == 0, "task {index}: {peaks:?}");
    }
    let last = "a/20@1";
    master.start(task(last, &["sleep", "0.3"]));
    master.started(last);
    let used = world.group_of(&last.parse().expect("an id"));
    let directory = used.path().and_then(|path| path.file_name());
    let is_again = directory.is_some_and(|name| name != "task-a-20-1");
    assert!(is_again, "{directory:?} was made for an earlier task");
    master.result(last);
    until("a cgroup that no task needs is removed", || {
        world.group_directories() == 0
    });
}

#[test]
fn a_changed_cgroup_serves_no_other_task() {
    let world = ExecutorHarness::new("changed");
    let (mut master, _) = world.accept();
    let wanted = Some(Bytes::from_mib(64));
    for (index, change) in ["limit", "child", "kill"].into_iter().enumerate() {
        let id = format!("{change}/0@1");
        if change == "kill" {
            master.start(task(&id, &LARGE));
            assert_eq!(master.result(&id).reason, ExitReason::TaskOom);
        } else {
            master.start(task(&id, &["sleep", "0.2"]));
            master.started(&id);
            let group = world.group_of(&id.parse().expect("an id"));
            let path = group.path().expect("a path");
            match change {
                "limit" => group.set_memory(Bytes::from_mib(128)).expect("changes"),
                _ => std::fs::create_dir(path.join("own")).expect("creates"),
            }
            master.result(&id);
        }
        let next = format!("next/{index}@1");
        master.start(task(&next, &["true"]));
        let report = master.result(&next);
        assert_eq!(report.evidence.own.limit, wanted, "after {change}");
        assert_eq!(
            report.evidence.own.events,
            Default::default(),
            "after {change}"
        );
    }
}
