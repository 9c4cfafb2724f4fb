//! A container with a real executor and its fake master, for all tests of the executor.
//!
//! Owned by one test; the drop kills every process and removes every cgroup of it. The harness
//! decides nothing: tests define the master's messages and check the responses.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headroom_node_cgroup::{EnforcedGroup, Enforcer, EnforcerRequest, GroupLimits, detect};
use headroom_node_exec::{ChildProcess, ExecArguments, ProcessEnd, SpawnCommand, spawn};
use headroom_types::{Bytes, EnforcerKind, TaskAttemptId, TaskReport};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor};

/// Timeout of each step. Generous, because guests on a busy machine are slow.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const TOKEN: &str = "the-secret";

/// Settings of the container.
#[derive(Clone, Debug)]
pub(crate) struct HarnessSetup {
    pub(crate) memory: Bytes,
    pub(crate) slots: u32,
    pub(crate) poll: bool,
    pub(crate) rm: Option<String>,
    /// False for an executor that starts along with the first master.
    pub(crate) knows_master: bool,
    pub(crate) args: Vec<OsString>,
    /// Another executor, with all its arguments.
    pub(crate) program: Option<(PathBuf, Vec<OsString>)>,
}

impl Default for HarnessSetup {
    fn default() -> Self {
        HarnessSetup {
            memory: Bytes::from_mib(384),
            slots: 4,
            poll: false,
            rm: None,
            knows_master: true,
            args: Vec::new(),
            program: None,
        }
    }
}

/// The container.
pub(crate) struct ExecutorHarness {
    pub(crate) listener: TcpListener,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) kind: EnforcerKind,
    pub(crate) group: Option<EnforcedGroup>,
    enforcer: Option<Enforcer>,
    executor: Option<ChildProcess>,
}

impl ExecutorHarness {
    pub(crate) fn new(name: &str) -> ExecutorHarness {
        ExecutorHarness::with(name, &HarnessSetup::default())
    }
    /// True if files are in memory, so that their pages can be neither reclaimed nor read again.
    pub(crate) fn files_are_memory(&self) -> bool {
        let kind = std::process::Command::new("stat")
            .args(["-f", "-c", "%T"])
            .arg(self.dir.path())
            .output()
            .expect("stat runs");
        kind.stdout.starts_with(b"tmpfs")
    }

    pub(crate) fn with(name: &str, setup: &HarnessSetup) -> ExecutorHarness {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let dir = tempfile::tempdir().expect("a directory");
        let (enforcer, group) = if setup.poll {
            (None, None)
        } else {
            let wanted = EnforcerRequest {
                kind: None,
                root: None,
                name: format!("headroom-test-{}-{name}", std::process::id()),
                attached: false,
            };
            let found = detect(&wanted).expect("an enforcer");
            assert!(
                found.enforcer.kind().is_kernel(),
                "these tests need the limits of the kernel: {:?}",
                found.notes
            );
            let limits = GroupLimits {
                memory: Some(setup.memory),
                ..GroupLimits::default()
            };
            let group = found
                .enforcer
                .create("c1", &limits)
                .expect("a container group");
            (Some(found.enforcer), Some(group))
        };
        let kind = enforcer.as_ref().map_or(EnforcerKind::Poll, Enforcer::kind);
        let mut world = ExecutorHarness {
            listener,
            dir,
            kind,
            group,
            enforcer,
            executor: None,
        };
        world.start(setup);
        world
    }

    fn start(&mut self, setup: &HarnessSetup) {
        let work = self.dir.path().join("work");
        std::fs::create_dir_all(&work).expect("a directory");
        let log = File::create(self.dir.path().join("stderr")).expect("a log");
        let procs_files = self
            .group
            .as_ref()
            .map(EnforcedGroup::procs_files)
            .unwrap_or_default();
        let env = self.environment(setup);
        let (program, args) = match &setup.program {
            Some((program, args)) => (program.as_path(), args),
            None => (Path::new(env!("CARGO_BIN_EXE_executor")), &setup.args),
        };
        let argv = std::iter::once(program.as_os_str()).chain(args.iter().map(AsRef::as_ref));
        let arguments = ExecArguments::new(argv, &env).expect("arguments without NUL");
        let command = SpawnCommand {
            stderr: Some(&log),
            procs_files: &procs_files,
            new_session: true,
            ..SpawnCommand::new(&arguments, &work)
        };
        self.executor = Some(spawn(&command).expect("the executor starts"));
    }

    fn environment(&self, setup: &HarnessSetup) -> Vec<(OsString, OsString)> {
        let port = self.listener.local_addr().expect("an address").port();
        let mut env: BTreeMap<&str, OsString> = BTreeMap::new();
        env.insert(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
        );
        env.insert("LANG", "C.UTF-8".into());
        env.insert("HEADROOM_LOG", "debug".into());
        if setup.knows_master {
            env.insert(
                "HEADROOM_MASTER_URL",
                format!("tcp://127.0.0.1:{port}").into(),
            );
        }
        env.insert("HEADROOM_APP_TOKEN", TOKEN.into());
        env.insert("HEADROOM_SLOTS", setup.slots.to_string().into());
        env.insert("HEADROOM_APP", "job.1".into());
        env.insert("HEADROOM_CONTAINER", "job.1.e1.c1".into());
        env.insert("HEADROOM_CONTAINER_DIR", self.dir.path().into());
        env.insert("HEADROOM_ENFORCER", self.kind.as_str().into());
        env.insert(
            "HEADROOM_MEMORY_BYTES",
            setup.memory.get().to_string().into(),
        );
        if let Some(path) = self.group.as_ref().and_then(EnforcedGroup::path) {
            env.insert("HEADROOM_CGROUP", path.into());
        }
        if let Some(rm) = &setup.rm {
            env.insert("HEADROOM_RM", rm.into());
        }
        env.into_iter().map(|(k, v)| (k.into(), v)).collect()
    }

    /// Accepts the next connection of the executor and reads its first line.
    pub(crate) fn accept(&self) -> (Master, Hello) {
        Master::accept(&self.listener)
    }

    /// Closes the listener to which the executor connects.
    pub(crate) fn close_listener(&mut self) {
        self.listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    }

    /// Accepts and closes every connection, until the executor has ended.
    pub(crate) fn hang_up_on_everybody(&self) {
        let listener = self.listener.try_clone().expect("clones");
        listener.set_nonblocking(false).expect("sets");
        std::thread::spawn(move || listener.incoming().for_each(drop));
    }

    pub(crate) fn signal(&self, signal: i32) {
        self.executor
            .as_ref()
            .expect("started")
            .signal(signal)
            .expect("signalled");
    }

    pub(crate) fn pid(&self) -> i32 {
        self.executor.as_ref().expect("started").pid
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.executor
            .as_ref()
            .is_some_and(|e| matches!(e.try_wait(), Ok(None)))
    }

    /// Waits for the end of the executor.
    pub(crate) fn ended(&mut self) -> ProcessEnd {
        let executor = self.executor.take().expect("started");
        let mut ended = None;
        until("the executor ends", || {
            ended = executor.try_wait().expect("waits");
            ended.is_some()
        });
        ended.expect("ended")
    }

    /// Processes of a running task.
    pub(crate) fn pids(&self, attempt: &TaskAttemptId) -> Vec<i32> {
        let group = self.group.as_ref().expect("a group");
        let tasks = group.tasks().expect("lists");
        tasks
            .iter()
            .find(|(name, _)| *name == attempt.file_name())
            .map(|(_, g)| g.pids().expect("lists"))
            .unwrap_or_default()
    }

    /// The cgroup of a running task.
    pub(crate) fn group_of(&self, attempt: &TaskAttemptId) -> EnforcedGroup {
        let group = self.group.as_ref().expect("a group");
        let tasks = group.tasks().expect("lists").into_iter();
        let mut of_attempt = tasks.filter(|(name, _)| *name == attempt.file_name());
        of_attempt.next().expect("the cgroup of the task").1
    }

    /// Number of directories of tasks' cgroups, with those that no task uses.
    pub(crate) fn group_directories(&self) -> usize {
        let group = self.group.as_ref().expect("a group");
        let entries = std::fs::read_dir(group.path().expect("a path")).expect("lists");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("task-"))
            .count()
    }

    /// Names of the existing task cgroups.
    pub(crate) fn groups(&self) -> Vec<String> {
        let group = self.group.as_ref().expect("a group");
        group
            .tasks()
            .expect("lists")
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    pub(crate) fn log_of(&self, attempt: &str, ending: &str) -> PathBuf {
        let attempt: TaskAttemptId = attempt.parse().expect("id");
        self.dir
            .path()
            .join("tasks")
            .join(format!("{}.{ending}", attempt.file_name()))
    }
}

impl Drop for ExecutorHarness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default();
            let _ = std::io::stderr()
                .write_all(format!("--- log of the executor\n{log}---\n").as_bytes());
        }
        if let Some(executor) = self.executor.take() {
            let _ = executor.signal(9);
            let _ = executor.wait();
        }
        if let Some(group) = self.group.take() {
            let _ = group.kill();
            group
                .remove(Duration::from_secs(10))
                .expect("removes the group");
        }
        if let Some(enforcer) = self.enforcer.take() {
            enforcer.remove_root().expect("removes the root");
        }
    }
}

/// The first line of a connection.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) slots: u32,
    pub(crate) task_groups: bool,
    pub(crate) inputs: bool,
    pub(crate) fork_servers: bool,
    pub(crate) running: Vec<TaskAttemptId>,
    pub(crate) unacked: Vec<TaskReport>,
}

/// The master's end of one connection.
pub(crate) struct Master {
    write: TcpStream,
    read: BufReader<TcpStream>,
    /// Results that arrived during a wait for another message.
    passed: Vec<TaskReport>,
}

impl Master {
    pub(crate) fn accept(listener: &TcpListener) -> (Master, Hello) {
        listener.set_nonblocking(true).expect("sets");
        let mut stream = None;
        until("the executor connects", || {
            stream = listener.accept().ok();
            stream.is_some()
        });
        let (write, _) = stream.expect("accepted");
        write.set_nonblocking(false).expect("sets");
        write.set_read_timeout(Some(TIMEOUT)).expect("sets");
        write.set_nodelay(true).expect("sets");
        let read = BufReader::new(write.try_clone().expect("clones"));
        let mut master = Master {
            write,
            read,
            passed: Vec::new(),
        };
        match master.line() {
            FromExecutor::Hello {
                token,
                slots,
                task_groups,
                inputs,
                fork_servers,
                running,
                unacked,
                ..
            } => {
                assert_eq!(token, TOKEN);
                (
                    master,
                    Hello {
                        slots,
                        task_groups,
                        inputs,
                        fork_servers,
                        running,
                        unacked,
                    },
                )
            }
            other @ (FromExecutor::Started { .. }
            | FromExecutor::Usage { .. }
            | FromExecutor::Ended { .. }
            | FromExecutor::Pressure { .. }
            | FromExecutor::Resized { .. }
            | FromExecutor::Leftover { .. }
            | FromExecutor::Alive) => panic!("first line: {other:?}"),
        }
    }

    pub(crate) fn send(&mut self, message: &ToExecutor) {
        let mut line = serde_json::to_vec(message).expect("writes");
        line.push(b'\n');
        self.write.write_all(&line).expect("sends");
    }

    pub(crate) fn start(&mut self, start: TaskStart) {
        self.send(&ToExecutor::Start(Box::new(start)));
    }

    pub(crate) fn ack(&mut self, attempt: &TaskAttemptId) {
        self.send(&ToExecutor::Ack {
            attempt: attempt.clone(),
        });
    }

    /// Sends raw bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).expect("sends");
    }

    /// Sends raw bytes; tolerates that the executor closes the connection in between.
    pub(crate) fn raw_lossy(&mut self, bytes: &[u8]) {
        let _ = self.write.write_all(bytes);
    }

    pub(crate) fn line(&mut self) -> FromExecutor {
        let mut line = String::new();
        let n = self.read.read_line(&mut line).expect("a line in time");
        assert!(n > 0, "the executor closed the connection");
        serde_json::from_str(&line).expect("a line of the protocol")
    }

    /// Returns the first result of `want` that is `Some`. Other lines are skipped; results among
    /// them are kept.
    pub(crate) fn wait<T>(
        &mut self,
        event: &str,
        mut want: impl FnMut(&FromExecutor) -> Option<T>,
    ) -> T {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            let line = self.line();
            if let Some(found) = want(&line) {
                return found;
            }
            if let FromExecutor::Ended { report } = line {
                self.passed.push(*report);
            }
        }
        panic!("{event}: timeout after {} s", TIMEOUT.as_secs())
    }

    pub(crate) fn started(&mut self, id: &str) {
        self.wait("started", |line| {
            matches!(line, FromExecutor::Started { attempt, .. } if attempt.to_string() == id)
                .then_some(())
        });
    }

    /// Waits for the result of `id` and acknowledges it.
    pub(crate) fn result(&mut self, id: &str) -> TaskReport {
        let report = self.unacked_result(id);
        self.ack(&report.attempt);
        report
    }

    /// Waits for the result of `id` without an acknowledgement.
    pub(crate) fn unacked_result(&mut self, id: &str) -> TaskReport {
        if let Some(at) = self.passed.iter().position(|r| r.attempt.to_string() == id) {
            return self.passed.remove(at);
        }
        self.wait(id, |line| match line {
            FromExecutor::Ended { report } if report.attempt.to_string() == id => {
                Some((**report).clone())
            }
            FromExecutor::Ended { .. }
            | FromExecutor::Hello { .. }
            | FromExecutor::Started { .. }
            | FromExecutor::Usage { .. }
            | FromExecutor::Pressure { .. }
            | FromExecutor::Resized { .. }
            | FromExecutor::Leftover { .. }
            | FromExecutor::Alive => None,
        })
    }
}

/// A start with default values.
pub(crate) fn task(id: &str, command: &[&str]) -> TaskStart {
    TaskStart {
        attempt: id.parse().expect("id"),
        command: command.iter().map(|w| (*w).to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: None,
        slots: 1,
        limit: Some(Bytes::from_mib(64)),
        heap: None,
        heap_exit_codes: Vec::new(),
        timeout_ms: None,
        freeze_timeout_ms: None,
        output: None,
        input: None,
        fork_server: Vec::new(),
    }
}

/// Polls until `is` returns true.
pub(crate) fn until(description: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is() {
        assert!(
            Instant::now() < deadline,
            "{description}: timeout after {} s",
            TIMEOUT.as_secs()
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
