//! Tests of groups that are throttled near their limit on the real kernel, cgroup v1 or v2.

mod support;

use std::os::fd::AsFd as _;
use std::time::Duration;

use headroom_node_cgroup::throttle::pressure_threshold;
use headroom_node_cgroup::{CgroupError, EnforcedGroup, MemoryEventWatch};
use headroom_types::Bytes;
use nix::poll::{PollFd, PollFlags, poll};
use support::{Host, TIMEOUT, run_in, signal_of, until};

const SMALL: Bytes = Bytes::from_mib(32);
const ENOUGH: Bytes = Bytes::from_mib(320);
/// A program that writes 96 MiB of its memory twice, in user mode: a v1 group can wait there.
const NEEDS_192_MIB: &str = "exec perl -e '$x = \"a\" x (96 << 20); exit 0'";

/// A task of 32 MiB in a larger container, throttled near its limit.
fn held(host: &Host) -> EnforcedGroup {
    let container = host.container("job.1.e1.c1", 400);
    let task = container
        .create_task("map-7-1", &support::memory(32))
        .expect("a task group");
    task.throttle_at(SMALL).expect("sets the throttle");
    task
}

fn rings(watch: &MemoryEventWatch) -> bool {
    let ms = u16::try_from(TIMEOUT.as_millis()).expect("short");
    let rang = poll(&mut [PollFd::new(watch.as_fd(), PollFlags::POLLIN)], ms).expect("polls") == 1;
    watch.clear().expect("clears");
    rang
}

/// The early warning of this kernel: a usage threshold (v1) or the memory events (v2).
fn warned(group: &EnforcedGroup) -> MemoryEventWatch {
    let early = MemoryEventWatch::usage(group, pressure_threshold(SMALL)).expect("watches");
    early.unwrap_or_else(|| {
        MemoryEventWatch::open(group)
            .expect("watches")
            .expect("a kernel group")
    })
}

#[test]
fn a_program_that_needs_six_times_its_limit_is_frozen_and_resumes() {
    let host = Host::new("hold");
    let task = held(&host);
    let watch = warned(&task);
    let mut program = run_in(&task, NEEDS_192_MIB);
    assert!(rings(&watch), "the watch did not fire");
    task.freeze().expect("pauses");
    until("the program is near its limit", || {
        task.facts().expect("facts").current >= pressure_threshold(SMALL)
    });
    // The program must still run after a time in which it would have finished.
    let _ = poll(
        &mut [],
        u16::try_from(Duration::from_millis(300).as_millis()).expect("short"),
    );
    assert_eq!(
        program.try_wait().expect("asks"),
        None,
        "the program is frozen"
    );
    assert!(task.facts().expect("facts").current <= SMALL);
    task.set_memory(ENOUGH)
        .and_then(|()| task.throttle_at(ENOUGH))
        .and_then(|()| task.thaw())
        .expect("raises the limit");
    assert!(program.wait().expect("ends").success());
    let facts = task.facts().expect("facts");
    assert_eq!(
        (facts.events.oom_kill, facts.limit),
        (0, Some(ENOUGH)),
        "{facts:?}"
    );
    assert!(
        facts.peak.is_none_or(|peak| peak >= Bytes::from_mib(190)),
        "{facts:?}"
    );
}

#[test]
fn a_released_group_is_killed_at_its_own_limit() {
    let host = Host::new("let-go");
    let task = held(&host);
    let watch = warned(&task);
    let mut program = run_in(&task, NEEDS_192_MIB);
    assert!(rings(&watch), "the watch did not fire");
    task.freeze()
        .and_then(|()| task.unthrottle())
        .expect("releases the group");
    assert_eq!(signal_of(&mut program), Some(9));
    let facts = task.facts().expect("facts");
    assert!(
        facts.events.oom_kill >= 1 && facts.local.oom >= 1,
        "the kernel killed at the limit of the group: {facts:?}"
    );
}

#[test]
fn a_frozen_group_can_be_killed_and_its_limit_stays_above_its_use() {
    let host = Host::new("held-kill");
    let task = held(&host);
    let watch = warned(&task);
    let mut program = run_in(&task, NEEDS_192_MIB);
    assert!(rings(&watch), "the watch did not fire");
    task.freeze().expect("pauses");
    until("memory is allocated", || {
        task.facts()
            .is_ok_and(|f| f.stat.demand().is_some_and(|d| d > Bytes::from_mib(24)))
    });
    let refused = task.set_memory(Bytes::from_mib(16));
    assert!(
        matches!(refused, Err(CgroupError::BelowDemand { .. })),
        "{refused:?}"
    );
    task.kill().expect("kills");
    assert_eq!(signal_of(&mut program), Some(9));
    assert_eq!(
        task.facts().expect("facts").events.oom_kill,
        0,
        "the kernel killed a process"
    );
}

#[test]
fn memory_stalls_can_be_watched_if_the_kernel_counts_them() {
    let file = std::path::Path::new("/proc/pressure/memory");
    let counted = std::fs::read_to_string(file).is_ok();
    assert_eq!(
        MemoryEventWatch::stalls_in(file).expect("opens").is_some(),
        counted
    );
}
