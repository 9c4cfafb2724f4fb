//! Jobs that leave memory behind, one after the other on one node: none affects another.

#![allow(missing_docs, clippy::print_stdout)] // a test binary has no public API

use headroom_types::Bytes;
use integration::guest::{Guest, in_guest};
use integration::leftovers::{JobShape, LeftoverBench, LeftoverCase, LeftoverTaskEnd, TaskUser};
use integration::on_host_and_in_guest;

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_mib(2000))
        .timeout(std::time::Duration::from_secs(280))
}

/// A size in MiB on a host. A guest needs seconds to touch as many pages, so it uses half.
fn scaled(mib: u32) -> u32 {
    if in_guest() { mib / 2 } else { mib }
}

fn shape() -> JobShape {
    JobShape {
        task: Bytes::from_mib(scaled(200).into()),
        ..JobShape::default()
    }
}

/// Together the jobs leave 2.8 GiB on a node of 3 GiB.
fn three_jobs_leave_memory_and_the_fourth_has_all_of_its_own() {
    let bench = LeftoverBench::new(
        Bytes::from_mib(scaled(3072).into()),
        None,
        TaskUser::Agent,
        "private_tmp = false\n",
    )
    .expect("a cluster");
    let mut bench = bench.shaped(JobShape {
        slots: 4,
        task: Bytes::from_mib(scaled(256).into()),
    });
    let job = |program, tasks, mib| LeftoverCase {
        program,
        tasks,
        mib: scaled(mib),
        ends: LeftoverTaskEnd::Well,
    };
    for case in [
        job("sysv-shm", 4, 200),
        job("python-shared-memory", 4, 200),
        job("dev-shm-file", 40, 30),
    ] {
        let row = bench.play(&case).expect("both jobs end");
        println!("{row:?}");
        assert!(
            row.right && row.skipped.is_none(),
            "the task succeeds: {row:?}"
        );
        assert_eq!(
            (row.collateral, row.left, row.poisoned),
            (0, 0, false),
            "{row:?}"
        );
    }
}

/// Without namespaces the agent removes a job's leftovers, and no older objects.
#[allow(clippy::print_stderr)] // the reason for the skip
fn the_agent_removes_leftovers_without_namespaces() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "SKIPPED: the_agent_removes_leftovers_without_namespaces: only root can start programs as another user"
        );
        return;
    }
    let user = nix::unistd::User::from_name("games")
        .expect("asks")
        .expect("a user without processes");
    let before =
        std::path::PathBuf::from(format!("/dev/shm/headroom-before-{}", std::process::id()));
    std::fs::write(&before, "made before the container").expect("writes");
    std::os::unix::fs::chown(&before, Some(user.uid.as_raw()), None).expect("gives it away");
    let isolation = "ipc = \"host\"\nprivate_tmp = false\n";
    let bench = LeftoverBench::new(
        Bytes::from_mib(scaled(1024).into()),
        None,
        TaskUser::Games,
        isolation,
    )
    .expect("a cluster");
    let mut bench = bench.shaped(shape());
    let job = |program, tasks, mib| LeftoverCase {
        program,
        tasks,
        mib: scaled(mib),
        ends: LeftoverTaskEnd::Well,
    };
    for case in [
        job("sysv-shm", 3, 100),
        job("dev-shm-file", 3, 100),
        job("sysv-semaphores", 1, 2),
        job("sysv-messages", 1, 2),
    ] {
        let row = bench.play(&case).expect("both jobs end");
        println!("{row:?}");
        assert_eq!(
            (row.right, row.left, row.poisoned),
            (true, 0, false),
            "{row:?}\n{}",
            bench.cluster().log("node-1")
        );
    }
    let log = bench.cluster().log("node-1");
    assert!(log.contains("a leftover object is removed"), "{log}");
    let kept = before.exists();
    std::fs::remove_file(&before).expect("removes it");
    assert!(kept, "an older file does not belong to the container");
}
/// A file on a tmpfs of the host is charged to the node after its container ended. The node counts
/// it as used until it is removed.
fn a_file_on_a_host_tmpfs_counts_as_used_until_its_removal() {
    let bench = LeftoverBench::new(
        Bytes::from_mib(scaled(1024).into()),
        None,
        TaskUser::Agent,
        "private_tmp = false\n",
    )
    .expect("a cluster");
    let bench = bench.shaped(shape());
    let leak = bench
        .leak_on_host_tmpfs(Bytes::from_mib(scaled(300).into()))
        .unwrap_or_else(|e| panic!("{e:#}\n{}", bench.cluster().log("node-1")));
    println!("{leak:?}");
    let after = bench.ordinary().expect("an ordinary job ends");
    assert_eq!(
        after.state,
        headroom_wire::v1::apps::AppState::Finished,
        "{:?}",
        after.diagnostics
    );
}

on_host_and_in_guest!(
    host_ipc,
    guest(),
    the_agent_removes_leftovers_without_namespaces
);

on_host_and_in_guest!(
    three_jobs,
    guest(),
    three_jobs_leave_memory_and_the_fourth_has_all_of_its_own
);

on_host_and_in_guest!(
    host_tmpfs,
    guest(),
    a_file_on_a_host_tmpfs_counts_as_used_until_its_removal
);
