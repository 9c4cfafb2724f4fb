//! A root of its own for each test, on whatever this host can enforce with; removed at the end, also after a failure.

// Each test program takes what it needs of this, and sees nothing of it from outside.
#![allow(dead_code, unreachable_pub)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headroom_node_cgroup::{Enforcer, Group, Limits, OomGroup, Wanted, detect};
use headroom_types::{Bytes, EnforcerKind};

/// How long anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The enforcer under test.
pub struct Host {
    pub enforcer: Enforcer,
    pub notes: Vec<String>,
}

impl Host {
    /// Kernel enforcement of this host, in a root named after the test and this process.
    pub fn new(test: &str) -> Host {
        let prefix = std::env::var("HEADROOM_TEST_ROOT_NAME").unwrap_or_else(|_| "headroom-test".into());
        let wanted = Wanted { kind: None, root: None, name: format!("{prefix}-{}-{test}", std::process::id()), attached: false };
        let found = detect(&wanted).expect("an enforcer");
        assert!(found.enforcer.kind().is_kernel(), "these tests need root and a cgroup memory controller: {:?}", found.notes);
        Host { enforcer: found.enforcer, notes: found.notes }
    }

    pub fn is_v1(&self) -> bool {
        self.enforcer.kind() == EnforcerKind::Cgroup1
    }

    pub fn container(&self, name: &str, mib: u64) -> Group {
        self.enforcer.create(name, &memory(mib)).expect("a container group")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let root = self.enforcer.root();
        if let Err(error) = self.enforcer.remove_root() {
            assert!(std::thread::panicking(), "{error}");
        }
        if let Some(root) = root {
            assert!(std::thread::panicking() || !root.exists(), "{} stays behind", root.display());
        }
    }
}

pub fn memory(mib: u64) -> Limits {
    Limits { memory: Some(Bytes::from_mib(mib)), processes: None, cpu_weight: None, oom_group: OomGroup::Yes, low: None }
}

/// A shell script that runs inside the group from its first instruction on.
pub fn run_in(group: &Group, script: &str) -> Child {
    run_with(&group.procs_files(), script)
}

pub fn run_with(procs: &[PathBuf], script: &str) -> Child {
    let joins: String = procs.iter().map(|p| format!("echo 0 > {} || exit 99\n", p.display())).collect();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{joins}{script}")]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a shell")
}

/// Fills memory until somebody stops it: `tail` keeps the last line, and this line never ends.
pub const HOG: &str = "exec tail /dev/zero";

/// Holds so many MiB of anonymous memory: `dd` fills its buffer and cannot get rid of it.
pub fn holder(mib: u64) -> String {
    format!("dd if=/dev/zero bs={mib}M count=1 | sleep 600")
}

/// Waits for a condition, with a deadline.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        // A short wait for nothing in particular: the kernel has no event for what is asked here.
        let _ = nix::poll::poll(&mut [], 5u8);
    }
}

/// The signal that ended it.
pub fn signal_of(child: &mut Child) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&child.wait().expect("reaps"))
}
