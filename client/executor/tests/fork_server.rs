//! Attempts that a fork server starts, with the fork server of Headroom for Python: in real cgroups,
//! and without any.

mod world;

use std::path::Path;
use std::time::Instant;

use headroom_types::{Bytes, Dimension, ExitReason, StopCause, TaskAttemptId, TaskReport};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor};
use world::{ExecutorHarness, HarnessSetup, Master, task, until};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/src");
const FORK_SERVER: [&str; 3] = ["python3", "-m", "headroom.fork_server"];
/// Keeps 96 MiB of anonymous memory, step by step.
const NEEDS_96_MIB: &str = "a = []\nfor n in range(96): a.append(bytearray(b'a' * (1 << 20)))";

/// A call that runs Python code.
fn call(id: &str, code: &str) -> TaskStart {
    command(id, &["-c", code])
}

fn command(id: &str, command: &[&str]) -> TaskStart {
    TaskStart {
        env: [("PYTHONPATH", SOURCES), ("PYTHONDONTWRITEBYTECODE", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        fork_server: FORK_SERVER.map(str::to_owned).to_vec(),
        ..task(id, command)
    }
}

/// Runs a call to its end.
fn run(master: &mut Master, start: TaskStart) -> TaskReport {
    let id = start.attempt.to_string();
    master.start(start);
    master.result(&id)
}

fn exit(code: i32) -> ExitReason {
    ExitReason::Exit { code }
}

fn attempt(id: &str) -> TaskAttemptId {
    id.parse().expect("id")
}

/// State and pid of all children of `parent`; the state of an ended one is `Z`.
fn children(parent: i32) -> Vec<(char, i32)> {
    let entries = std::fs::read_dir("/proc").expect("lists");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.next()?.parse() == Ok(parent)).then_some((state, pid))
    })
    .collect()
}

/// The fork servers of an executor without running calls.
fn fork_servers(world: &ExecutorHarness) -> Vec<i32> {
    let is_server = |pid: i32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains("headroom.fork_server"))
    };
    let children = children(world.pid()).into_iter();
    let running = children.filter(|(state, _)| *state != 'Z');
    running
        .map(|(_, pid)| pid)
        .filter(|pid| is_server(*pid))
        .collect()
}

fn fork_server_log(world: &ExecutorHarness, number: u32) -> String {
    let path = world.dir.path().join("tasks");
    std::fs::read_to_string(path.join(format!("fork-server-{number}.log"))).unwrap_or_default()
}

fn without_cgroups(name: &str) -> ExecutorHarness {
    ExecutorHarness::with(
        name,
        &HarnessSetup {
            poll: true,
            ..HarnessSetup::default()
        },
    )
}

/// Keeps four attempts running until all have succeeded. Returns the rate per second.
fn rate(master: &mut Master, count: u32, start: impl Fn(u32) -> TaskStart) -> f64 {
    let (began, mut sent) = (Instant::now(), 0);
    for done in 0..count {
        while sent < count && sent < done + 4 {
            master.start(start(sent));
            sent += 1;
        }
        let id = start(done).attempt.to_string();
        let report = master.result(&id);
        assert_eq!(report.reason, exit(0), "{report:?}");
        if start(done).input.is_some() {
            assert_eq!(report.value, Some(format!("{done}!")));
        }
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

#[test]
fn two_hundred_calls_run_in_forks_of_one_server() {
    let world = ExecutorHarness::new("warm");
    let (mut master, hello) = world.accept();
    assert!(hello.inputs && hello.fork_servers);
    let code = "import os
text = open(os.environ['HEADROOM_INPUT_FILE']).read()
open(os.environ['HEADROOM_VALUE_FILE'], 'w').write(text + '!')";
    let first = run(&mut master, call("first/0@1", "pass"));
    assert_eq!(first.reason, exit(0), "{first:?}");
    let warm = rate(&mut master, 200, |index| TaskStart {
        input: Some(index.to_string()),
        ..call(&format!("warm/{index}@1"), code)
    });
    let cold = rate(&mut master, 40, |index| {
        task(&format!("cold/{index}@1"), &["python3", "-c", "pass"])
    });
    println!("calls per second: {warm:.0} by a fork server, {cold:.0} as `python3 -c pass`");
    until("no cgroup is left", || world.groups().is_empty());
    let servers = fork_servers(&world);
    assert_eq!(servers.len(), 1, "{servers:?}");
    until("no ended process is left", || {
        children(world.pid()).len() == 1
    });
    let tasks = std::fs::read_dir(world.dir.path().join("tasks")).expect("lists");
    let left: Vec<_> = tasks
        .filter_map(|entry| entry.expect("reads").file_name().into_string().ok())
        .filter(|name| name.ends_with(".input") || name.ends_with(".value"))
        .collect();
    assert!(
        left.len() <= 8,
        "more than the files of four slots: {left:?}"
    );
}

#[test]
fn a_call_ends_as_the_same_program_of_python() {
    let world = ExecutorHarness::new("warm-codes");
    let (mut master, _) = world.accept();
    let work = world.dir.path().join("work");
    std::fs::write(
        work.join("script.py"),
        "import sys\nassert __name__ == '__main__', __name__\nsys.exit(len(sys.argv) + 10)\n",
    )
    .expect("writes");
    std::fs::write(
        work.join("functions.py"),
        "import os, sys\nclass Main:\n  def run():\n    return int(sys.argv[1]) + (os.getcwd() == os.environ['WANTED'])\n",
    )
    .expect("writes");
    let cases: [(&[&str], ExitReason, &str); 12] = [
        (&["-c", "pass"], exit(0), ""),
        (&["-c", "import sys; sys.exit(7)"], exit(7), ""),
        (&["-c", "raise SystemExit('a reason')"], exit(1), "a reason"),
        (
            &["-c", "import sys; sys.exit(len(sys.argv))", "a", "b"],
            exit(3),
            "",
        ),
        (
            &["-c", "def f(): 1 / 0\nf()"],
            exit(1),
            "in f\nZeroDivisionError",
        ),
        (&["-c", "import os; os._exit(9)"], exit(9), ""),
        (
            &["-c", "import os; os.abort()"],
            ExitReason::Signal { signal: 6 },
            "",
        ),
        (&["script.py", "one"], exit(12), ""),
        (&["-m", "script", "one", "two"], exit(13), ""),
        (&["functions:Main.run", "20"], exit(21), ""),
        (&["functions:missing"], exit(1), "AttributeError"),
        (&["no_such_module:main"], exit(1), "ModuleNotFoundError"),
    ];
    for (index, (words, reason, log)) in cases.into_iter().enumerate() {
        let mut start = command(&format!("codes/{index}@1"), words);
        start
            .env
            .insert("WANTED".into(), work.display().to_string());
        let report = run(&mut master, start);
        assert_eq!(report.reason, reason, "{words:?}: {}", report.log_tail);
        assert!(
            report.log_tail.contains(log),
            "{words:?}: {}",
            report.log_tail
        );
        assert!(
            !report.log_tail.contains("fork_server.py"),
            "{words:?}: {}",
            report.log_tail
        );
    }
}

#[test]
fn output_threads_and_exit_functions_are_complete() {
    let world = ExecutorHarness::new("warm-output");
    let (mut master, _) = world.accept();
    let code = "import atexit, os, sys, threading, time
def late():
    time.sleep(0.2)
    print('from the thread')
threading.Thread(target=late).start()
atexit.register(print, 'at the exit')
print('first', os.environ.get('HEADROOM_TASK'), os.environ.get('HEADROOM_FORK_SERVER_FD'))
print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', sorted(os.listdir('/proc/self/fd'))[:3])
print(len(os.listdir('/proc/self/fd')))";
    let report = run(&mut master, call("out/0@1", code));
    assert_eq!(report.reason, exit(0), "{}", report.log_tail);
    let text = std::fs::read_to_string(world.log_of("out/0@1", "out")).expect("reads");
    // Besides the three standard ones, the directory itself is open.
    let wanted = "first out/0 None\nTrue True ['0', '1', '2']\n4\nfrom the thread\nat the exit\n";
    assert_eq!(text, wanted);
}

#[test]
fn a_call_beyond_its_limit_is_killed_and_the_server_survives() {
    let world = ExecutorHarness::new("warm-oom");
    let (mut master, _) = world.accept();
    assert_eq!(run(&mut master, call("a/0@1", "pass")).reason, exit(0));
    let servers = fork_servers(&world);
    let report = run(&mut master, call("a/1@1", NEEDS_96_MIB));
    assert_eq!(
        (&report.reason, report.dimension),
        (&ExitReason::TaskOom, Some(Dimension::Native)),
        "{report:?}"
    );
    let peak = report.evidence.own.peak.expect("measured");
    assert!(
        peak > Bytes::from_mib(60) && peak <= Bytes::from_mib(64),
        "{peak}"
    );
    let small = run(&mut master, call("a/2@1", "pass"));
    assert_eq!(small.reason, exit(0));
    let peak = small.evidence.own.peak.expect("measured");
    assert!(
        peak < Bytes::from_mib(8),
        "memory of the server is not charged to the call: {peak}"
    );
    assert_eq!(fork_servers(&world), servers, "the fork server is the same");
}

#[test]
fn short_calls_share_a_process_and_its_cgroup() {
    let world = ExecutorHarness::new("warm-kept");
    let (mut master, _) = world.accept();
    let calls = |id: &str, code: &str| TaskStart {
        fork_server: [&FORK_SERVER[..], &["--calls", "100"]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        ..call(id, code)
    };
    let code = "import os\nopen(os.environ['HEADROOM_VALUE_FILE'], 'w').write(str(os.getpid()))";
    let pids: Vec<_> = (0..20)
        .map(|index| {
            let report = run(&mut master, calls(&format!("a/{index}@1"), code));
            assert_eq!(report.reason, exit(0), "{report:?}");
            report.value.expect("a value")
        })
        .collect();
    let repeated = pids.windows(2).filter(|two| two[0] == two[1]).count();
    assert!(repeated > 5, "{pids:?}");
    assert!(world.groups().len() <= 1, "{:?}", world.groups());
    let other_stage = run(&mut master, calls("b/0@1", code)).value;
    assert!(!pids.contains(&other_stage.expect("a value")));
    let report = run(&mut master, calls("a/30@1", NEEDS_96_MIB));
    assert_eq!(report.reason, ExitReason::TaskOom, "{report:?}");
    let failed = run(&mut master, calls("a/31@1", "raise SystemExit(7)"));
    assert_eq!(failed.reason, exit(7), "{failed:?}");
    assert_eq!(run(&mut master, calls("a/32@1", code)).reason, exit(0));
    master.start(calls("a/33@1", "import time\ntime.sleep(600)"));
    master.started("a/33@1");
    master.send(&ToExecutor::Stop {
        attempt: attempt("a/33@1"),
    });
    assert_eq!(master.result("a/33@1").reason, ExitReason::Stopped);
    assert_eq!(run(&mut master, calls("a/34@1", code)).reason, exit(0));
    until("a process that waits for long is ended", || {
        world.groups().is_empty() && children(world.pid()).len() == 1
    });
}

#[test]
fn refused_memory_is_reported_in_the_words_of_the_exception() {
    let world = ExecutorHarness::new("warm-refused");
    let (mut master, _) = world.accept();
    let code = "raise MemoryError('Unable to allocate 7.11 PiB for an array')";
    let report = run(&mut master, call("a/0@1", code));
    assert_eq!(report.evidence.exit_code, Some(3), "{report:?}");
    let marker = report.evidence.heap_marker.expect("a marker");
    assert_eq!(
        marker,
        "MemoryError: Unable to allocate 7.11 PiB for an array"
    );
}

#[test]
fn a_running_call_is_stopped_and_shows_its_stack() {
    let world = ExecutorHarness::new("warm-stop");
    let (mut master, _) = world.accept();
    master.start(call(
        "a/0@1",
        "import time\ndef wait_long():\n    print('waits', flush=True)\n    time.sleep(600)\nwait_long()",
    ));
    master.started("a/0@1");
    let out = world.log_of("a/0@1", "out");
    until("the call runs", || {
        std::fs::read_to_string(&out).is_ok_and(|text| text.contains("waits"))
    });
    let pids = world.pids(&attempt("a/0@1"));
    assert_eq!(pids.len(), 1, "{pids:?}");
    send_signal(pids[0], "USR2");
    let err = world.log_of("a/0@1", "err");
    until("the stack is printed", || {
        std::fs::read_to_string(&err).is_ok_and(|text| text.contains("in wait_long"))
    });
    master.send(&ToExecutor::Stop {
        attempt: attempt("a/0@1"),
    });
    let report = master.result("a/0@1");
    assert_eq!(
        (report.reason, report.evidence.stop_asked),
        (ExitReason::Stopped, Some(StopCause::Asked))
    );
    assert!(!Path::new(&format!("/proc/{}", pids[0])).exists());
}

fn send_signal(pid: i32, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(sent.success());
}

#[test]
fn a_killed_server_takes_no_call_with_it_and_is_started_again() {
    let world = ExecutorHarness::new("warm-killed");
    let (mut master, _) = world.accept();
    assert_eq!(run(&mut master, call("a/0@1", "pass")).reason, exit(0));
    let servers = fork_servers(&world);
    assert_eq!(servers.len(), 1);
    master.start(call(
        "a/1@1",
        "import time, os\nwhile not os.path.exists('go'): time.sleep(0.01)",
    ));
    master.started("a/1@1");
    send_signal(servers[0], "KILL");
    let report = run(&mut master, call("a/2@1", "pass"));
    assert_eq!(report.reason, exit(0), "{report:?}");
    std::fs::write(world.dir.path().join("work/go"), "").expect("writes");
    assert_eq!(master.result("a/1@1").reason, exit(0));
    let now = fork_servers(&world);
    assert!(now.len() == 1 && now != servers, "{servers:?} {now:?}");
}

#[test]
fn an_attempt_survives_a_server_that_ends_in_the_middle_of_its_start() {
    let world = ExecutorHarness::new("warm-middle");
    let (mut master, _) = world.accept();
    // The first process forks a child that waits at its gate, and ends without an answer.
    let code = "import os, socket, sys
if not os.path.exists('failed-once'):
    open('failed-once', 'w').close()
    channel = socket.socket(fileno=int(os.environ['HEADROOM_FORK_SERVER_FD']))
    channel.send(b'{\"kind\":\"ready\",\"version\":1}')
    packet, descriptors, _, _ = socket.recv_fds(channel, 1 << 17, 12)
    if os.fork() == 0:
        gate = socket.socket(fileno=descriptors[2])
        try:
            gate.send(b'ready')
            name = 'ran-twice' if gate.recv(16) == b'run' else 'gave-up'
        except OSError:
            name = 'gave-up'
        open(name, 'w').close()
    os._exit(5)
os.execv(sys.executable, [sys.executable, '-m', 'headroom.fork_server'])";
    let start = TaskStart {
        fork_server: vec!["python3".into(), "-c".into(), code.into()],
        ..call("a/0@1", "pass")
    };
    let report = run(&mut master, start);
    assert_eq!(report.reason, exit(0), "{report:?}");
    let work = world.dir.path().join("work");
    until("the first process gives up", || {
        work.join("gave-up").exists()
    });
    assert!(!work.join("ran-twice").exists());
    until("only the server is left", || {
        children(world.pid()).len() == 1
    });
}

#[test]
fn a_server_that_cannot_start_ends_its_attempts_with_its_log() {
    let world = ExecutorHarness::new("warm-broken");
    let (mut master, _) = world.accept();
    let server = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let import = server(&[&FORK_SERVER[..], &["--import", "no_such_module"]].concat());
    let cases = [
        (
            import,
            Some(1),
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            server(&["sh", "-c", "echo broken; exit 9"]),
            Some(9),
            "broken",
        ),
        (server(&["sh", "-c", "kill -9 $$"]), None, "signal 9"),
        (server(&["no-such-program"]), Some(127), "no-such-program"),
    ];
    for (index, (fork_server, code, words)) in cases.into_iter().enumerate() {
        let start = TaskStart {
            fork_server,
            ..call(&format!("a/{index}@1"), "pass")
        };
        let report = run(&mut master, start);
        assert_eq!(report.reason, ExitReason::LaunchFailed, "{report:?}");
        assert_eq!(report.evidence.exit_code, code, "{report:?}");
        assert!(report.log_tail.contains(words), "{}", report.log_tail);
    }
    until("no cgroup is left", || world.groups().is_empty());
    let mut start = call("b/0@1", "pass");
    start.cwd = Some("no-such-directory".into());
    let report = run(&mut master, start);
    assert_eq!(report.reason, ExitReason::LaunchFailed, "{report:?}");
    assert!(
        report.log_tail.contains("no-such-directory"),
        "{}",
        report.log_tail
    );
}

#[test]
fn a_call_is_stopped_while_its_server_starts() {
    let world = ExecutorHarness::new("warm-waits");
    let (mut master, _) = world.accept();
    let start = TaskStart {
        fork_server: vec!["sleep".into(), "600".into()],
        ..call("a/0@1", "pass")
    };
    master.start(start);
    until("the fork server is started", || {
        !children(world.pid()).is_empty()
    });
    master.send(&ToExecutor::Stop {
        attempt: attempt("a/0@1"),
    });
    assert_eq!(master.result("a/0@1").reason, ExitReason::Stopped);
    until("no cgroup is left", || world.groups().is_empty());
}

#[test]
fn a_module_that_starts_threads_is_imported_in_each_call() {
    let world = ExecutorHarness::new("warm-threads");
    let (mut master, _) = world.accept();
    let module = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nloaded = True\n";
    let work = world.dir.path().join("work");
    std::fs::write(work.join("threaded.py"), module).expect("writes");
    std::fs::write(work.join("plain.py"), "loaded = True\n").expect("writes");
    let words = ["--import", "threaded", "--import", "plain"];
    let start = TaskStart {
        fork_server: [&FORK_SERVER[..], &words]
            .concat()
            .iter()
            .map(|w| (*w).to_owned())
            .collect(),
        ..call(
            "a/0@1",
            "import sys; sys.exit(0 if 'threaded' in sys.modules and 'plain' in sys.modules else 5)",
        )
    };
    let report = run(&mut master, start);
    assert_eq!(report.reason, exit(0), "{report:?}");
    let log = fork_server_log(&world, 1);
    assert!(log.contains("threaded starts threads"), "{log}");
    assert!(!log.contains("plain starts"), "{log}");
}

#[test]
fn a_call_may_grow_while_it_runs() {
    let world = ExecutorHarness::new("warm-grows");
    let (mut master, _) = world.accept();
    let start = TaskStart {
        limit: Some(Bytes::from_mib(32)),
        freeze_timeout_ms: Some(60_000),
        ..call("a/0@1", NEEDS_96_MIB)
    };
    master.start(start);
    for to in [64, 160].map(Bytes::from_mib) {
        master.wait("a pressure message", |line| {
            matches!(line, FromExecutor::Pressure { .. }).then_some(())
        });
        master.send(&ToExecutor::Resize {
            attempt: attempt("a/0@1"),
            limit: to,
        });
    }
    let report = master.result("a/0@1");
    assert_eq!(report.reason, exit(0), "{report:?}");
    assert_eq!(report.evidence.own.limit, Some(Bytes::from_mib(160)));
}

#[test]
fn orphans_of_tasks_leave_no_ended_process() {
    let world = ExecutorHarness::new("warm-orphans");
    let (mut master, _) = world.accept();
    assert_eq!(run(&mut master, call("a/0@1", "pass")).reason, exit(0));
    let daemon = "setsid sleep 600 & setsid true & setsid sleep 600 &";
    for index in 1..4 {
        let start = task(&format!("a/{index}@1"), &["sh", "-c", daemon]);
        let report = run(&mut master, start);
        assert_eq!(report.reason, exit(0), "{report:?}");
    }
    until("no ended process is left", || {
        children(world.pid()).len() == 1
    });
}

#[test]
fn calls_run_without_cgroups() {
    let world = without_cgroups("warm-poll");
    let (mut master, _) = world.accept();
    let code = "import os\nopen(os.environ['HEADROOM_VALUE_FILE'], 'w').write('v' * 16385)";
    let report = run(&mut master, call("a/0@1", code));
    assert_eq!(report.reason, exit(0), "{report:?}");
    assert_eq!(
        (report.value, report.value_too_large),
        (None, Some(Bytes::new(16385)))
    );
    let code = format!("{NEEDS_96_MIB}\nimport time\ntime.sleep(600)");
    let report = run(&mut master, call("a/1@1", &code));
    assert_eq!(report.reason, ExitReason::TaskOom, "{report:?}");
    master.start(call(
        "a/2@1",
        "import subprocess; subprocess.run(['sleep', '601'])",
    ));
    master.started("a/2@1");
    master.send(&ToExecutor::Stop {
        attempt: attempt("a/2@1"),
    });
    assert_eq!(master.result("a/2@1").reason, ExitReason::Stopped);
    until("only the server is left", || {
        children(world.pid()).len() == 1
    });
    let servers = fork_servers(&world);
    world.signal(9);
    until("the server ends with its executor", || {
        servers.iter().all(|pid| !is_running(*pid))
    });
}

fn is_running(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn the_log_names_a_server_that_takes_more_than_the_reserve() {
    let world = ExecutorHarness::new("warm-reserve");
    let (mut master, _) = world.accept();
    // Four slots of 95 MiB leave 4 MiB of the container's 384.
    let start = TaskStart {
        limit: Some(Bytes::from_mib(95)),
        ..call("a/0@1", "pass")
    };
    assert_eq!(run(&mut master, start).reason, exit(0));
    let log = world.dir.path().join("stderr");
    until("the warning", || {
        std::fs::read_to_string(&log)
            .is_ok_and(|log| log.contains("raise `reserve` of the executors"))
    });
}
