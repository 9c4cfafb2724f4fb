//! Tests of the fallback: process trees by pid, without privileges.

mod support;

use headroom_node_cgroup::{
    EnforcedGroup, Enforcer, EnforcerRequest, GroupLimits, MemoryEventWatch, detect,
};
use headroom_types::{Bytes, EnforcerKind};
use support::{holder, memory, run_with, signal_of, until};

fn poll() -> Enforcer {
    detect(&EnforcerRequest {
        kind: Some(EnforcerKind::Poll),
        root: None,
        name: "unused".into(),
        attached: false,
    })
    .expect("always there")
    .enforcer
}

fn start(group: &EnforcedGroup, script: &str) -> std::process::Child {
    let child = run_with(&group.procs_files(), script);
    group.set_root_pid(i32::try_from(child.id()).expect("a pid"));
    child
}

#[test]
fn the_sum_of_proportional_sizes_covers_the_whole_tree() {
    let group = poll().create("job.1.e1.c1", &memory(64)).expect("a group");
    let mut main = start(
        &group,
        &format!("({}) & ({}) & wait", holder(20), holder(12)),
    );
    until("32 MiB are held", || {
        group.sample().expect("samples").1.anon >= Some(Bytes::from_mib(32))
    });
    let facts = group.facts().expect("facts");
    assert!(
        facts.current >= Bytes::from_mib(32) && facts.current <= Bytes::from_mib(48),
        "{facts:?}"
    );
    assert_eq!(
        (facts.limit, facts.events),
        (Some(Bytes::from_mib(64)), Default::default())
    );
    assert_eq!(group.largest(1)[0].name, "dd");
    group.kill().expect("kills");
    assert_eq!(signal_of(&mut main), Some(9));
    let after = group.facts().expect("facts");
    assert!(
        after.peak >= Some(facts.current) && after.current.is_zero(),
        "the peak outlives the processes: {after:?}"
    );
    assert!(!group.populated().expect("asks"));
}

#[test]
fn a_known_process_that_leaves_the_tree_is_not_forgotten() {
    let group = poll().create("job.1.e1.c1", &memory(64)).expect("a group");
    // The inner shell ends when the file appears. Its child becomes an orphan in a separate
    // session.
    let flag = tempfile::tempdir().expect("a directory");
    let go = flag.path().join("go");
    let script = format!(
        "sh -c 'setsid sleep 600 & until [ -e {} ]; do sleep 0.01; done' & exec sleep 600",
        go.display()
    );
    let mut main = start(&group, &script);
    until("the process that becomes an orphan is seen", || {
        group
            .largest(9)
            .iter()
            .filter(|v| v.name == "sleep")
            .count()
            >= 2
    });
    let before: Vec<i32> = group.pids().expect("pids");
    std::fs::write(&go, "").expect("writes");
    until("the inner shell is gone", || {
        !group.largest(9).iter().any(|v| v.name == "sh")
    });
    let after = group.pids().expect("pids");
    assert!(
        after.len() >= 2
            && after
                .iter()
                .any(|pid| before.contains(pid) && *pid != i32::try_from(main.id()).unwrap_or(0)),
        "{before:?} {after:?}"
    );
    group.kill().expect("kills");
    assert!(
        after.iter().all(
            |pid| !std::path::Path::new(&format!("/proc/{pid}/mem")).exists() || is_zombie(*pid)
        )
    );
    assert_eq!(signal_of(&mut main), Some(9));
}

fn is_zombie(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |s| s.contains(") Z "))
}

#[test]
fn a_group_without_a_process_is_empty_and_harmless() {
    let enforcer = poll();
    let group = enforcer
        .open("job.1.e1.c1")
        .expect("opens")
        .expect("always");
    assert!(
        group.pids().expect("pids").is_empty()
            && group.path().is_none()
            && group.procs_files().is_empty()
    );
    group.kill().expect("a kill of an empty group succeeds");
    group
        .remove(std::time::Duration::from_millis(10))
        .expect("the removal of an empty group succeeds");
    assert!(MemoryEventWatch::open(&group).expect("asks").is_none());
    assert!(enforcer.list().expect("lists").is_empty() && enforcer.shim_procs_files().is_empty());
}

#[test]
fn an_executor_sees_its_own_tree_and_spares_itself() {
    let group =
        EnforcedGroup::attach(EnforcerKind::Poll, std::path::Path::new("")).expect("attaches");
    let task = group
        .create_task("map-1-1", &GroupLimits::default())
        .expect("a task");
    let mut child = start(&task, "exec sleep 600");
    until("both groups contain the child", || {
        let pid = i32::try_from(child.id()).expect("a pid");
        group.pids().expect("pids").contains(&pid) && task.pids().expect("pids") == [pid]
    });
    task.kill().expect("kills");
    assert_eq!(signal_of(&mut child), Some(9));
    group.kill().expect("the kill spares this process");
}
