//! The shim as the agent uses it: a directory with a specification, a pipe for one line, and the
//! files that it writes.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use headroom_container_shim::LaunchStep;
use headroom_container_shim::record::{
    ExitRecord, ProcessIdentity, ProgramEnd, ProgramSpec, ProgramUser, RlimitRecord, StartResult,
};
use headroom_node_cgroup::{EnforcedGroup, Enforcer, EnforcerRequest, GroupLimits, detect};
use headroom_types::Bytes;

const SHIM: &str = env!("CARGO_BIN_EXE_container-shim");

/// A container's directory and, after the start, its shim.
struct Container {
    dir: tempfile::TempDir,
    spec: ProgramSpec,
}

struct Running {
    dir: tempfile::TempDir,
    shim: Child,
    pipe: BufReader<ChildStdout>,
}

impl Container {
    fn new(script: &str) -> Container {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let argv = ["/bin/sh", "-c", script]
            .iter()
            .map(OsString::from)
            .collect();
        let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let spec = ProgramSpec {
            argv,
            env,
            cwd: dir.path().into(),
            stdout: path("stdout"),
            stderr: path("stderr"),
            ..ProgramSpec::default()
        };
        Container { dir, spec }
    }

    fn in_group(mut self, group: &EnforcedGroup) -> Container {
        self.spec.procs_files = group.procs_files();
        self.spec.counters = group.counter_files();
        self
    }

    fn start(self) -> Running {
        std::fs::write(self.dir.path().join("spec"), self.spec.encode()).expect("writes");
        self.start_as_it_is()
    }

    fn start_as_it_is(self) -> Running {
        let mut shim = Command::new(SHIM)
            .arg(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shim starts");
        let pipe = BufReader::new(shim.stdout.take().expect("a pipe"));
        Running {
            dir: self.dir,
            shim,
            pipe,
        }
    }
}

impl Running {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn answer(&mut self) -> StartResult {
        let mut line = String::new();
        self.pipe.read_line(&mut line).expect("a line");
        StartResult::decode(&line).unwrap_or_else(|| panic!("{line:?}"))
    }

    fn pid(&mut self) -> i32 {
        match self.answer() {
            StartResult::Started { pid } => pid,
            failed @ StartResult::Failed { .. } => panic!("{failed:?}: {:?}", self.record()),
        }
    }

    /// The exit record, after the shim is gone.
    fn record(&mut self) -> ExitRecord {
        assert!(self.shim.wait().expect("the shim ends").success());
        let names: Vec<_> = std::fs::read_dir(self.dir.path())
            .expect("lists")
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect();
        assert!(
            !names.iter().any(|n| n.ends_with(".tmp")),
            "temporary files are left: {names:?}"
        );
        ExitRecord::decode(&std::fs::read(self.file("exit")).expect("a record")).expect("whole")
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect("reads")
    }
}

fn until(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let moment = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "timeout while waiting until: {description}"
        );
        // A short pause: files and processes of other programs raise no event here.
        let _ = rustix::event::poll(&mut [], Some(&moment));
    }
}

fn send(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).expect("a pid"), signal)
        .expect("sends");
}

/// Kernel enforcement below a separate root.
struct Host(Enforcer);

impl Host {
    fn new(test: &str) -> Host {
        let prefix =
            std::env::var("HEADROOM_TEST_ROOT_NAME").unwrap_or_else(|_| "headroom-test".into());
        let name = format!("{prefix}-{}-shim-{test}", std::process::id());
        let found = detect(&EnforcerRequest {
            kind: None,
            root: None,
            name,
            attached: false,
        })
        .expect("an enforcer");
        assert!(
            found.enforcer.kind().is_kernel(),
            "needs root and a cgroup memory controller: {:?}",
            found.notes
        );
        Host(found.enforcer)
    }
    fn group(&self, mib: u64) -> EnforcedGroup {
        self.0
            .create(
                "job.1.e1.c1",
                &GroupLimits {
                    memory: Some(Bytes::from_mib(mib)),
                    ..GroupLimits::default()
                },
            )
            .expect("a group")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let removed = self.0.remove_root();
        assert!(std::thread::panicking() || removed.is_ok(), "{removed:?}");
    }
}

#[test]
fn the_exit_of_a_program_is_recorded() {
    let mut container = Container::new("echo out; echo err >&2; pwd; exit 3");
    container.spec.counters = vec!["/proc/uptime".into(), "/no/such/file".into()];
    let mut run = container.start();
    let pid = run.pid();
    let record = run.record();
    assert_eq!(record.how, ProgramEnd::Code(3));
    assert_eq!(
        run.text("stdout"),
        format!("out\n{}\n", run.dir.path().display())
    );
    assert_eq!(run.text("stderr"), "err\n");
    assert_eq!(
        ProcessIdentity::decode(&run.text("pid"))
            .expect("whole")
            .pid,
        pid
    );
    assert_eq!(
        ProcessIdentity::decode(&run.text("shim.pid"))
            .expect("whole")
            .pid,
        i32::try_from(run.shim.id()).expect("a pid")
    );
    assert!(
        record.started_ms.expect("it ran") <= record.ended_ms && record.max_rss > 100 << 10,
        "{record:?}"
    );
    assert!(
        record.counters[0]
            .1
            .as_ref()
            .is_some_and(|t| t.ends_with('\n')),
        "{:?}",
        record.counters
    );
    assert_eq!(record.counters[1], ("/no/such/file".into(), None));
}

#[test]
fn the_record_contains_an_out_of_memory_kill_with_its_counters() {
    let host = Host::new("oom");
    let group = host.group(32);
    let mut run = Container::new("exec tail /dev/zero")
        .in_group(&group)
        .start();
    run.pid();
    let record = run.record();
    assert_eq!(
        record.how,
        ProgramEnd::Signal {
            signal: 9,
            core: false
        }
    );
    // The counters that the shim read are enough, even after the group is gone.
    group.remove(Duration::from_secs(10)).expect("removes");
    let texts: Vec<(PathBuf, String)> = record
        .counters
        .into_iter()
        .filter_map(|(p, t)| Some((p, t?)))
        .collect();
    let facts = EnforcedGroup::facts_from_texts(host.0.kind(), &texts).expect("facts");
    assert!(
        facts.events.oom_kill >= 1 && facts.local.oom >= 1,
        "{facts:?}"
    );
    assert_eq!(facts.limit, Some(Bytes::from_mib(32)));
    assert!(
        facts.peak >= Some(Bytes::from_mib(31)) && record.max_rss >= 16 << 20,
        "{facts:?} {}",
        record.max_rss
    );
}

#[test]
fn only_the_program_is_in_its_group() {
    let host = Host::new("inside");
    let group = host.group(64);
    let mut run = Container::new("exec sleep 600").in_group(&group).start();
    let pid = run.pid();
    assert_eq!(group.pids().expect("pids"), [pid]);
    group.kill().expect("kills");
    assert_eq!(
        run.record().how,
        ProgramEnd::Signal {
            signal: 9,
            core: false
        }
    );
}

/// A write to `cgroup.procs` can be observed. On cgroup v2 the shim writes nothing, because the
/// program is cloned into the group. A v1 group always needs the write.
#[test]
fn on_cgroup_v2_the_program_is_cloned_into_its_group() {
    use rustix::fs::inotify;
    let host = Host::new("cloned");
    let group = host.group(64);
    let witness = inotify::init(inotify::CreateFlags::NONBLOCK).expect("a witness");
    for file in group.procs_files() {
        inotify::add_watch(&witness, &file, inotify::WatchFlags::MODIFY).expect("watches");
    }
    let mut run = Container::new("exec sleep 600").in_group(&group).start();
    let pid = run.pid();
    assert_eq!(group.pids().expect("pids"), [pid]);
    let moved = rustix::io::read(&witness, &mut [0u8; 512]).map_or(0, |length| length) > 0;
    assert_eq!(
        moved,
        host.0.kind() == headroom_types::EnforcerKind::Cgroup1
    );
    group.kill().expect("kills");
    assert_eq!(
        run.record().how,
        ProgramEnd::Signal {
            signal: 9,
            core: false
        }
    );
}

#[test]
fn a_kill_from_outside_moves_no_counter() {
    let host = Host::new("external");
    let group = host.group(64);
    let mut run = Container::new("exec sleep 600").in_group(&group).start();
    send(run.pid(), rustix::process::Signal::KILL);
    let record = run.record();
    assert_eq!(
        record.how,
        ProgramEnd::Signal {
            signal: 9,
            core: false
        }
    );
    let texts: Vec<(PathBuf, String)> = record
        .counters
        .into_iter()
        .filter_map(|(p, t)| Some((p, t?)))
        .collect();
    let facts = EnforcedGroup::facts_from_texts(host.0.kind(), &texts).expect("facts");
    assert_eq!((facts.events.oom_kill, facts.local.oom), (0, 0));
}

/// Starts a program that cannot start. Returns step, errno and object of the failure.
fn failure(container: Container) -> (LaunchStep, i32, String) {
    let mut run = container.start();
    let answer = run.answer();
    let record = run.record();
    assert_eq!(record.started_ms, None);
    assert!(!run.file("pid").exists());
    match (record.how, answer) {
        (
            ProgramEnd::Failed { step, errno, what },
            StartResult::Failed {
                step: said,
                errno: errno_said,
            },
        ) => {
            assert_eq!((&step, errno), (&said, errno_said));
            (step, errno, what)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_record_names_a_missing_program() {
    let mut container = Container::new("");
    container.spec.argv = vec!["/no/such/program".into()];
    assert_eq!(
        failure(container),
        (LaunchStep::Exec, 2, "/no/such/program".into())
    );
    let mut container = Container::new("");
    container.spec.argv = vec!["no-such-program".into()];
    assert_eq!(
        failure(container),
        (LaunchStep::Exec, 2, "no-such-program".into())
    );
}

#[test]
fn the_record_names_a_missing_directory_group_or_log() {
    let mut container = Container::new("exit 0");
    container.spec.cwd = "/no/such dir".into();
    assert_eq!(
        failure(container),
        (LaunchStep::Chdir, 2, "/no/such dir".into())
    );
    let mut container = Container::new("exit 0");
    container.spec.procs_files = vec!["/no/such/cgroup.procs".into()];
    assert_eq!(
        failure(container),
        (LaunchStep::Cgroup, 2, "/no/such/cgroup.procs".into())
    );
    let mut container = Container::new("exit 0");
    container.spec.stdout = "/no/such/log".into();
    assert_eq!(
        failure(container),
        (LaunchStep::Stdio, 2, "/no/such/log".into())
    );
}

#[test]
fn a_truncated_specification_starts_no_program() {
    let container = Container::new("touch ran");
    let text = container.spec.encode();
    std::fs::write(container.dir.path().join("spec"), &text[..text.len() - 3]).expect("writes");
    let mut run = container.start_as_it_is();
    assert!(matches!(
        run.answer(),
        StartResult::Failed {
            step: LaunchStep::Spec,
            ..
        }
    ));
    assert!(matches!(run.record().how, ProgramEnd::Failed { .. }) && !run.file("ran").exists());
}

/// An agent without a free descriptor can lose the answers of a shim, and request another one.
#[test]
fn a_second_shim_leaves_the_container_to_the_first() {
    let mut run = Container::new("echo ran; exec sleep 600").start();
    let pid = run.pid();
    let identity = run.text("shim.pid");
    // The specification is still there, as for a shim that is slow.
    let second = Command::new(SHIM)
        .arg(run.dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert_eq!(second.status.code(), Some(1));
    let line = String::from_utf8(second.stdout).expect("text");
    let answer = StartResult::decode(&line).expect("an answer");
    assert!(answer.is_second_shim(), "{answer:?}");
    assert_eq!(run.text("shim.pid"), identity);
    assert!(!run.file("exit").exists(), "the program still runs");
    send(pid, rustix::process::Signal::TERM);
    assert_eq!(
        run.record().how,
        ProgramEnd::Signal {
            signal: 15,
            core: false
        }
    );
    assert_eq!(run.text("stdout"), "ran\n", "it ran once");
}

#[test]
fn the_exit_is_recorded_after_the_end_of_the_agent() {
    let container = Container::new("sleep 0.2; exit 7");
    std::fs::write(container.dir.path().join("spec"), container.spec.encode()).expect("writes");
    let dir = container.dir.path().display().to_string();
    // The "agent" ends at once: the pipe has no reader, and the shim gets another parent.
    let agent = Command::new("/bin/sh")
        .args(["-c", &format!("{SHIM} {dir} & exit 0")])
        .stdout(Stdio::piped())
        .spawn();
    let mut agent = agent.expect("starts");
    drop(agent.stdout.take());
    agent.wait().expect("ends");
    let exit = container.dir.path().join("exit");
    until("the record is there", || exit.exists());
    assert_eq!(
        ExitRecord::decode(&std::fs::read(exit).expect("reads"))
            .expect("whole")
            .how,
        ProgramEnd::Code(7)
    );
}

#[test]
fn the_shim_ignores_signals_and_its_program_does_not() {
    let mut run = Container::new("grep SigIgn /proc/$$/status; exec sleep 600").start();
    let pid = run.pid();
    let shim = i32::try_from(run.shim.id()).expect("a pid");
    for signal in [
        rustix::process::Signal::TERM,
        rustix::process::Signal::HUP,
        rustix::process::Signal::INT,
    ] {
        send(shim, signal);
    }
    until("the program has written its output", || {
        run.text("stdout").ends_with('\n')
    });
    send(pid, rustix::process::Signal::TERM);
    assert_eq!(
        run.record().how,
        ProgramEnd::Signal {
            signal: 15,
            core: false
        },
        "the program does not ignore SIGTERM"
    );
    assert_eq!(run.text("stdout"), "SigIgn:\t0000000000000000\n");
}

#[test]
fn orphans_are_reaped_by_the_shim() {
    let mut run =
        Container::new("(sh -c 'echo $$ > orphan; exec sleep 0.3' &); exec sleep 600").start();
    let pid = run.pid();
    let orphan = run.file("orphan");
    until("the orphan has written its process id", || {
        std::fs::read_to_string(&orphan).is_ok_and(|t| t.ends_with('\n'))
    });
    let stat = PathBuf::from(format!("/proc/{}/stat", run.text("orphan").trim()));
    let parent = |text: String| {
        text.rsplit_once(") ")
            .and_then(|(_, t)| t.split(' ').nth(1)?.parse::<u32>().ok())
    };
    let shim = run.shim.id();
    until("the shim is the parent", || {
        std::fs::read_to_string(&stat)
            .ok()
            .and_then(parent)
            .is_none_or(|p| p == shim)
    });
    until("the orphan is reaped", || !stat.exists());
    send(pid, rustix::process::Signal::KILL);
    assert_eq!(
        run.record().how,
        ProgramEnd::Signal {
            signal: 9,
            core: false
        }
    );
}

#[test]
fn the_shim_closes_the_pipe_after_one_line() {
    let mut run = Container::new("exec sleep 600").start();
    let pid = run.pid();
    let mut rest = String::new();
    run.pipe
        .read_to_string(&mut rest)
        .expect("end of file while the program still runs");
    assert_eq!(rest, "");
    send(pid, rustix::process::Signal::KILL);
    run.record();
}

#[test]
fn limits_user_oom_score_and_session_follow_the_specification() {
    let script = "ulimit -n; id -u; id -G; cat /proc/$$/oom_score_adj; ls /proc/$$/fd | tr '\\n' ' '; env; cut -d' ' -f6 /proc/$$/stat; echo $$";
    let mut container = Container::new(script);
    container.spec.rlimits = vec![RlimitRecord {
        resource: 7,
        soft: 55,
        hard: 66,
    }];
    container.spec.user = Some(ProgramUser {
        uid: 65534,
        gid: 65534,
        groups: vec![12],
    });
    container.spec.oom_score_adj = Some(300);
    container.spec.cwd = "/".into();
    let mut run = container.start();
    run.pid();
    assert_eq!(run.record().how, ProgramEnd::Code(0));
    let text = run.text("stdout");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(&lines[..4], ["55", "65534", "65534 12", "300"]);
    assert!(lines[4].starts_with("0 1 2 "), "{text}");
    assert!(
        lines
            .iter()
            .any(|l| *l == "PATH=/usr/bin:/bin" || l.ends_with(" PATH=/usr/bin:/bin")),
        "{text}"
    );
    assert!(
        !text.contains("CARGO"),
        "the program inherited variables of the test: {text}"
    );
    assert_eq!(
        lines[lines.len() - 1],
        lines[lines.len() - 2],
        "the program leads its session"
    );
}

#[test]
fn logs_are_appended() {
    let container = Container::new("echo second");
    std::fs::write(&container.spec.stdout, "first\n").expect("writes");
    let mut run = container.start();
    run.pid();
    run.record();
    assert_eq!(run.text("stdout"), "first\nsecond\n");
}

#[test]
fn wrong_usage_is_refused() {
    for args in [&[][..], &["--frobnicate"][..], &["a", "b"][..]] {
        let out = Command::new(SHIM).args(args).output().expect("runs");
        assert_eq!(out.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&out.stderr).starts_with("usage:"));
    }
    let out = Command::new(SHIM).arg("--version").output().expect("runs");
    assert!(out.status.success() && out.stdout.starts_with(b"container-shim "));
}

/// A delegated v2 cgroup, as systemd would create it. `None` if v2 has no memory controller.
fn delegated() -> Option<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let offered = std::fs::read_to_string(top.join("cgroup.controllers")).ok()?;
    if !offered.split_whitespace().any(|c| c == "memory") {
        return None;
    }
    std::fs::write(top.join("cgroup.subtree_control"), "+memory +pids +cpu").expect("enables");
    let dir = top.join(format!("headroom-test-{}-keeper", std::process::id()));
    std::fs::create_dir(&dir).expect("makes");
    Some(dir)
}

#[test]
fn the_cgroup_holder_prepares_its_group_and_ends_on_sigterm() {
    let place = tempfile::tempdir().expect("a directory");
    let output = place.path().join("output");
    let group = delegated();
    let join = group
        .as_ref()
        .map(|g| format!("echo 0 > {}/cgroup.procs && ", g.display()))
        .unwrap_or_default();
    let line = format!("{join}exec {SHIM} --keeper >{}", output.display());
    // The started process exits when the groups are ready, as a service manager expects.
    assert!(
        Command::new("/bin/sh")
            .args(["-c", &line])
            .status()
            .expect("starts")
            .success()
    );
    let output = std::fs::read_to_string(&output).expect("reads");
    let pid = output
        .split_whitespace()
        .find_map(|word| word.parse::<i32>().ok())
        .expect("a process id in the output");
    if let Some(dir) = &group {
        assert!(output.contains("holds "), "{output}");
        assert_eq!(
            std::fs::read_to_string(dir.join("keeper/cgroup.procs"))
                .expect("reads")
                .trim(),
            pid.to_string()
        );
        // The agent finds a usable root at once, although it is not in it.
        let wanted = EnforcerRequest {
            kind: None,
            root: Some(dir.clone()),
            name: "unused".into(),
            attached: false,
        };
        let enforcer = detect(&wanted).expect("an enforcer").enforcer;
        assert_eq!(enforcer.root().as_ref(), Some(dir));
        let limits = GroupLimits {
            memory: Some(Bytes::from_mib(32)),
            ..GroupLimits::default()
        };
        enforcer
            .create("job.1.e1.c1", &limits)
            .expect("a container");
        enforcer
            .remove_root()
            .expect("removes the groups of containers and shims");
        assert!(
            dir.join("keeper").exists() && !dir.join("containers").exists(),
            "the cgroup of the holder remains"
        );
    } else {
        assert!(output.contains("holds no cgroup"), "{output}");
    }
    let stays = || {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert!(stays(), "{output}");
    send(pid, rustix::process::Signal::TERM);
    until("the cgroup holder has ended", || !stays());
    if let Some(dir) = group {
        std::fs::remove_dir(dir.join("keeper"))
            .and_then(|()| std::fs::remove_dir(&dir))
            .expect("empty");
    }
}
