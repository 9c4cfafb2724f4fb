//! The first command of the README after the build: `rmctl demo`, as a machine reads it.

#![allow(missing_docs)] // tests are read, not imported

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use headroom_types::Bytes;
use integration::cluster::Ran;
use integration::guest::{Guest, in_guest};
use integration::{on_host_and_in_guest, programs, sweep};
use serde_json::Value;

fn guest() -> Guest {
    Guest::new().with_programs().memory(Bytes::from_gib(2)).timeout(Duration::from_secs(280))
}

fn the_demo_repairs_what_plain_retry_loses() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(programs::path("rmctl").expect("built"));
    let keep = dir.path().join("demo");
    // Six small partitions: the same story, with programs that were not built for speed.
    command.args(["demo", "-o", "json", "--partitions", "6", "--share", "16MiB", "--keep"]).arg(&keep);
    command.env_remove("HEADROOM_ADDR").env(programs::DIR_VARIABLE, programs::dir().expect("built"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let pid = child.id();
    let told = Ran::from(child.wait_with_output().expect("runs"));
    sweep::processes_of(&keep);
    assert_eq!(told.code, 0, "{}{}", told.stdout, told.stderr);
    let report: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|e| panic!("{e}: {}", told.stdout));
    assert_eq!((&report["finished"], &report["result_equal"]), (&Value::Bool(true), &Value::Bool(true)), "{report}");
    assert_eq!(report["fixed_mode"], "failed", "{report}");
    assert_eq!(report["innocent_reruns"], 0, "{report}");
    assert!(report["kills"].as_u64().is_some_and(|kills| kills >= 3), "{report}");
    let enforcer = report["enforcer"].as_str().expect("an enforcer");
    if in_guest() {
        assert_eq!(enforcer, "cgroup2");
    }
    let left = clusters_of(pid);
    assert!(left.is_empty(), "cgroups that the demo left behind: {left:?}");
}
on_host_and_in_guest!(demo, guest(), the_demo_repairs_what_plain_retry_loses);

/// Cgroups of the clusters inside one `rmctl`, which carry its process id.
fn clusters_of(pid: u32) -> Vec<String> {
    let base = if Path::new("/sys/fs/cgroup/memory").is_dir() { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" };
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with(&format!("headroom-dev-{pid}-"))).collect()
}
