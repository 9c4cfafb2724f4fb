//! The generated data set with the real kernel: partitions that should fit a slot fit, and the
//! others are killed.

#![cfg(feature = "dev")]
#![allow(missing_docs)] // tests are read, not imported

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const V1: &str = "/sys/fs/cgroup/memory";
const SHARE: u64 = 32 << 20;
const LIGHT: u32 = 0;
const HEAVY: u32 = 2;
const MEGA: u32 = 11;

/// A memory cgroup of version 1, removed on drop.
struct Group(PathBuf);

impl Group {
    fn new(name: &str, limit: u64) -> Group {
        let path = Path::new(V1).join(format!("headroom-test-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a cgroup");
        fs::write(path.join("memory.limit_in_bytes"), limit.to_string()).expect("a limit");
        Group(path)
    }
}
impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether the grouping of one partition ends by itself within `limit`, and not by SIGKILL of the
/// kernel.
fn fits(dir: &Path, part: u32, limit: u64) -> bool {
    let group = Group::new(&format!("{part}-{limit}"), limit);
    let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let (input, output) = (
        dir.join(format!("part-{part}.csv")),
        dir.join(format!("out-{part}-{limit}.csv")),
    );
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(&group.0)
        .arg(env!("CARGO_BIN_EXE_rmctl"))
        .args(["sample", "group-by", "--input"])
        .arg(input)
        .arg("--output")
        .arg(&output)
        .status()
        .expect("runs");
    assert!(status.success() || status.signal() == Some(9), "{status:?}");
    assert_eq!(
        status.success(),
        output.exists(),
        "a killed attempt leaves no result"
    );
    let _ = fs::remove_file(output);
    status.success()
}

#[test]
fn every_partition_needs_its_planned_memory() {
    if fs::create_dir(format!("{V1}/headroom-test-{}-probe", std::process::id())).is_err() {
        println!("SKIPPED: cgroups of version 1 cannot be made here");
        return;
    }
    let _ = fs::remove_dir(format!("{V1}/headroom-test-{}-probe", std::process::id()));
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let made = Command::new(env!("CARGO_BIN_EXE_rmctl"))
        .args(["sample", "skewed", "--dir"])
        .arg(dir.path())
        .output()
        .expect("runs");
    assert!(made.status.success(), "{made:?}");
    let bytes = fs::metadata(dir.path().join("data.csv"))
        .expect("written")
        .len();
    assert!((60 << 20..100 << 20).contains(&bytes), "{bytes} bytes");
    let d = dir.path();
    assert!(fits(d, LIGHT, SHARE), "light in a slot");
    assert!(
        !fits(d, LIGHT, SHARE * 6 / 10),
        "a light partition has real data"
    );
    assert!(
        !fits(d, HEAVY, 2 * SHARE) && fits(d, HEAVY, 3 * SHARE),
        "heavy: three slots and not two"
    );
    assert!(
        !fits(d, MEGA, 5 * SHARE) && fits(d, MEGA, 6 * SHARE),
        "more than an executor with its reserve"
    );
}
