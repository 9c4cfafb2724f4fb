//! One agent as a separate process, with its own state directory and cgroup, which are removed
//! after the test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use headroom_types::{ContainerId, LaunchSpec};
use tempfile::{NamedTempFile, TempDir};

/// An agent process.
pub(crate) struct Node {
    name: String,
    rm: String,
    dir: TempDir,
    config: NamedTempFile,
    child: Option<Child>,
    extra: Vec<String>,
    pub(crate) url: String,
}

/// The directory with the programs. Builds the shim if it is missing.
pub(crate) fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("HEADROOM_BIN_DIR") {
        return dir.into();
    }
    let dir = Path::new(env!("CARGO_BIN_EXE_nodeagent"))
        .parent()
        .expect("has a directory")
        .to_owned();
    if !dir.join("container-shim").exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "-q",
            "-p",
            "headroom-container-shim",
            "--bin",
            "container-shim",
        ]);
        if let Some(target) = dir.parent() {
            build.env("CARGO_TARGET_DIR", target);
        }
        assert!(
            build.status().expect("cargo runs").success(),
            "container-shim can be built"
        );
    }
    dir
}

/// The agent's program.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("HEADROOM_BIN_DIR").map_or_else(
        || env!("CARGO_BIN_EXE_nodeagent").into(),
        |d| PathBuf::from(d).join("nodeagent"),
    )
}

impl Node {
    /// Starts an agent that offers `memory_mib`, with further arguments.
    pub(crate) fn start(rm: &str, memory_mib: u64, extra: &[&str]) -> Node {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let mut extra: Vec<String> = extra.iter().map(|s| (*s).to_owned()).collect();
        extra.push(format!("--memory={memory_mib}MiB"));
        let dir = tempfile::tempdir().expect("dir");
        let config = NamedTempFile::new().expect("a file");
        fs::write(config.path(), on_any_disk("")).expect("writes");
        let mut node = Node {
            name,
            rm: rm.to_owned(),
            dir,
            config,
            child: None,
            extra,
            url: String::new(),
        };
        node.start_again();
        node
    }

    /// Starts the agent (again) and waits until it is ready.
    pub(crate) fn start_again(&mut self) {
        let mut child = Command::new(program())
            .args([
                "--rm",
                &self.rm,
                "--name",
                &self.name,
                "--listen",
                "127.0.0.1:0",
            ])
            .arg("--state")
            .arg(self.dir.path())
            .arg("--bin-dir")
            .arg(bin_dir())
            .args(self.isolation())
            .args(self.configuration())
            .args(&self.extra)
            .env("HEADROOM_LOG", "info")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        let log = child.stderr.take().expect("piped");
        self.child = Some(child);
        let mut lines = BufReader::new(log).lines();
        let mut output = Vec::new();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .inspect(|l| output.push(l.clone()))
            .any(|l| l.contains("agent is ready"));
        assert!(ready, "the agent did not become ready: {output:#?}");
        // The rest of its log belongs to the output of the test.
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| eprintln!("agent: {line}"))
        });
        let record = fs::read_to_string(self.dir.path().join("node.json")).expect("node.json");
        let record: serde_json::Value = serde_json::from_str(&record).expect("json");
        self.url = record["url"].as_str().expect("url").to_owned();
    }

    /// Isolation arguments. By default programs run as the user of the test and share its `/tmp`,
    /// because most tests do not test isolation.
    fn isolation(&self) -> &[&'static str] {
        if self
            .extra
            .iter()
            .any(|arg| arg.starts_with("--run-as") || arg.starts_with("--config"))
        {
            &[]
        } else {
            &["--run-as=agent", "--allow-root", "--shared-tmp"]
        }
    }

    /// The configuration of the node, unless the test has its own.
    fn configuration(&self) -> Option<String> {
        let given = self.extra.iter().any(|arg| arg.starts_with("--config"));
        (!given).then(|| format!("--config={}", self.config.path().display()))
    }

    /// Kills the agent, as a crash would.
    pub(crate) fn crash(&mut self) {
        self.signal(9);
    }

    /// Ends the agent as an operator would.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        self.signal(15)
    }

    /// Makes the agent reload its configuration.
    pub(crate) fn hang_up(&self) {
        let child = self.child.as_ref().expect("it runs");
        kill(i32::try_from(child.id()).expect("pid"), 1);
    }

    fn signal(&mut self, signal: i32) -> Option<i32> {
        let mut child = self.child.take()?;
        kill(i32::try_from(child.id()).expect("pid"), signal);
        child.wait().expect("the agent ends").code()
    }

    /// The pid of the agent's launcher process.
    pub(crate) fn launcher(&self) -> Option<i32> {
        let agent = self.child.as_ref()?.id().to_string();
        let is_it = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.split(' ').nth(1).map(str::to_owned));
            line.windows(10).any(|w| w == b"--launcher") && parent.as_deref() == Some(&agent)
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .find(is_it)
    }

    /// The agent's own pid.
    pub(crate) fn agent(&self) -> i32 {
        self.child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok())
            .expect("it runs")
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &Path {
        self.dir.path()
    }

    /// A file of a container.
    pub(crate) fn file(&self, id: &ContainerId, name: &str) -> PathBuf {
        self.dir
            .path()
            .join("containers")
            .join(id.to_string())
            .join(name)
    }

    /// The text of a file of a container. Empty if it does not exist.
    pub(crate) fn text(&self, id: &ContainerId, name: &str) -> String {
        fs::read_to_string(self.file(id, name)).unwrap_or_default()
    }

    /// The program's pid.
    pub(crate) fn pid(&self, id: &ContainerId) -> i32 {
        let text = self.text(id, "pid");
        text.split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or_else(|| panic!("no pid in {text:?}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.crash();
        for root in [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/pids",
        ] {
            remove(Path::new(root), &format!("headroom-{}", self.name), 4);
        }
    }
}

/// Ends and removes the cgroup `name` at any depth below `dir`.
fn remove(dir: &Path, name: &str, depth: u32) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        if entry.file_name() == name {
            remove_tree(&path);
        } else if depth > 0 {
            remove(&path, name, depth - 1);
        }
    }
}

fn remove_tree(dir: &Path) {
    let pids = || fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for pid in pids().lines().filter_map(|l| l.parse().ok()) {
        kill(pid, 9);
    }
    for entry in fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.path().is_dir())
    {
        remove_tree(&entry.path());
    }
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while fs::remove_dir(dir).is_err() && dir.exists() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
}

/// Sends a signal to one process.
pub(crate) fn kill(pid: i32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("a signal");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).ok();
}

/// The configuration `text` with health checks that pass even if the disk of the test machine is
/// full.
pub(crate) fn on_any_disk(text: &str) -> String {
    let checks = "[health]\ndisk_full = 100\ninodes_full = 100\n";
    if text.contains("[health]\n") {
        text.replace("[health]\n", checks)
    } else {
        format!("{text}{checks}")
    }
}

/// A launch of `/bin/sh -c script`.
pub(crate) fn sh(script: &str) -> LaunchSpec {
    LaunchSpec {
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        ..LaunchSpec::default()
    }
}

/// Allocates 64 MiB and more in any POSIX shell, and keeps them. Bounded, for slow enforcers.
pub(crate) const GREEDY: &str =
    "x=0123456789abcdef; n=0; while [ $n -lt 22 ]; do x=$x$x; n=$((n+1)); done; sleep 62";
