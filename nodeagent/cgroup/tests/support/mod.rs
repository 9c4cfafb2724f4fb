//! A separate root for each test, with the enforcer of this host. It is removed at the end, also
//! after a failure.

// Each test program uses a part of this module.
#![allow(dead_code, unreachable_pub)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headroom_node_cgroup::{
    EnforcedGroup, Enforcer, EnforcerRequest, GroupLimits, OomGroup, detect,
};
use headroom_types::{Bytes, EnforcerKind};

/// Time limit of each wait.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The enforcer under test.
pub struct Host {
    pub enforcer: Enforcer,
    pub notes: Vec<String>,
}

impl Host {
    /// The kernel enforcer of this host, in a root named after the test and this process.
    pub fn new(test: &str) -> Host {
        let prefix =
            std::env::var("HEADROOM_TEST_ROOT_NAME").unwrap_or_else(|_| "headroom-test".into());
        let wanted = EnforcerRequest {
            kind: None,
            root: None,
            name: format!("{prefix}-{}-{test}", std::process::id()),
            attached: false,
        };
        let found = detect(&wanted).expect("an enforcer");
        assert!(
            found.enforcer.kind().is_kernel(),
            "these tests need root and a cgroup memory controller: {:?}",
            found.notes
        );
        Host {
            enforcer: found.enforcer,
            notes: found.notes,
        }
    }

    pub fn is_v1(&self) -> bool {
        self.enforcer.kind() == EnforcerKind::Cgroup1
    }

    pub fn container(&self, name: &str, mib: u64) -> EnforcedGroup {
        self.enforcer
            .create(name, &memory(mib))
            .expect("a container group")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let root = self.enforcer.root();
        if let Err(error) = self.enforcer.remove_root() {
            assert!(std::thread::panicking(), "{error}");
        }
        if let Some(root) = root {
            assert!(
                std::thread::panicking() || !root.exists(),
                "{} was not removed",
                root.display()
            );
        }
    }
}

pub fn memory(mib: u64) -> GroupLimits {
    GroupLimits {
        memory: Some(Bytes::from_mib(mib)),
        processes: None,
        cpu_weight: None,
        oom_group: OomGroup::Yes,
        low: None,
    }
}

/// Starts a shell script that runs inside the group from its first instruction on.
pub fn run_in(group: &EnforcedGroup, script: &str) -> Child {
    run_with(&group.procs_files(), script)
}

pub fn run_with(procs: &[PathBuf], script: &str) -> Child {
    let joins: String = procs
        .iter()
        .map(|p| format!("echo 0 > {} || exit 99\n", p.display()))
        .collect();
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("{joins}{script}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("a shell")
}

/// A program that allocates memory until it is killed: `tail` keeps the last line, and this line
/// never ends.
pub const HOG: &str = "exec tail /dev/zero";

/// A script that holds `mib` MiB of anonymous memory: `dd` fills its buffer and blocks on the pipe.
pub fn holder(mib: u64) -> String {
    format!("dd if=/dev/zero bs={mib}M count=1 | sleep 600")
}

/// Waits for a condition, with a deadline.
pub fn until(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "timeout while waiting until: {description}"
        );
        // A fixed wait, because the kernel has no event for these conditions.
        let _ = nix::poll::poll(&mut [], 5u8);
    }
}

/// The signal that ended the process.
pub fn signal_of(child: &mut Child) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&child.wait().expect("reaps"))
}
