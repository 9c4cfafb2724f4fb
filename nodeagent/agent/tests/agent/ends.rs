//! Ends of containers, and their exit reports.

use headroom_types::{
    Bytes, ContainerId, EnforcerKind, ExitCharge, ExitReason, LaunchSpec, StopCause,
};
use headroom_wire::v1::nodes::NodeHealthState;

use crate::fake_rm::FakeRm;
use crate::node::{GREEDY, Node, kill, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_exits_0_is_reported_and_forgotten() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(
        1,
        32,
        LaunchSpec {
            command: vec!["/bin/true".into()],
            ..LaunchSpec::default()
        },
    );
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:#?}");
    assert!(
        report.started.is_some_and(|s| s <= report.ended) && report.diagnosis.is_empty(),
        "{report:#?}"
    );
    assert_eq!(report.evidence.own.limit, Some(Bytes::from_mib(32)));
    rm.with(|received| assert_eq!(received.registrations[0].health, NodeHealthState::Healthy));
    rm.forget(&id);
    rm.until("the container to be forgotten", |_| {
        node.file(&id, "forgotten").exists().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_files_placeholders_and_logs_are_provided() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let mut launch = sh(
        "cat greeting; ./hello $0 $A; echo $HEADROOM_CONTAINER $HEADROOM_MEMORY_BYTES $HEADROOM_HEAP_BYTES; pwd >&2; exit 7",
    );
    launch.command.push("{heap}/{node}".into());
    launch.env.insert("A".into(), "{memory}".into());
    launch
        .env
        .insert("HEADROOM_CONTAINER".into(), "another container".into());
    launch.files.insert("greeting".into(), "good day\n".into());
    launch
        .files
        .insert("hello".into(), "#!/bin/sh\necho hello $@\n".into());
    launch.heap = Some(Bytes::from_mib(24));
    let id = rm.run(1, 32, launch);
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 7 }, "{report:#?}");
    assert_eq!(
        report.log_tail.trim(),
        node.file(&id, "work")
            .canonicalize()
            .expect("work")
            .to_str()
            .expect("text")
    );
    let client = headroom_client::Client::new(&node.url).expect("client");
    let log = client.log(&id, "stdout", 4096).await.expect("log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "good day");
    assert!(
        lines[1].starts_with("hello 24m/test-") && lines[1].ends_with(" 33554432"),
        "{log}"
    );
    assert_eq!(lines[2], format!("{id} 33554432 25165824"));
    let wrong = client.log(&id, "order.json", 10).await.expect_err("no log");
    assert!(wrong.to_string().contains("is not a log"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_over_its_limit_is_killed_for_memory() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 24, sh(GREEDY));
    let report = rm.exit(&id).await;
    let e = &report.evidence;
    assert_eq!(report.reason, ExitReason::OverheadOom, "{report:#?}");
    assert_eq!(report.reason.charge(), ExitCharge::Memory);
    assert_eq!(
        (e.signal, e.own.limit),
        (Some(9), Some(Bytes::from_mib(24)))
    );
    assert!(e.own.peak.is_some_and(|p| p > Bytes::from_mib(8)), "{e:#?}");
    if e.enforcer.is_kernel() {
        assert!(e.own.events.oom_kill > 0 && !e.victims.is_empty(), "{e:#?}");
    }
    assert!(
        report.diagnosis.iter().any(|d| d.fix.contains("MiB")),
        "{:#?}",
        report.diagnosis
    );
    assert!(!node.file(&id, "stop").exists() || e.enforcer == EnforcerKind::Poll);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_over_the_limit_ends_the_whole_container() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(
        1,
        24,
        sh(&format!("/bin/sh -c '{GREEDY}'; echo survived; sleep 60")),
    );
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::OverheadOom, "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_poll_enforcer_kills_a_program_over_its_limit() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &["--enforcer=poll"]);
    let id = rm.run(1, 24, sh(GREEDY));
    let report = rm.exit(&id).await;
    assert_eq!(report.evidence.stop_asked, Some(StopCause::OverLimit));
    assert_eq!(
        (report.reason, report.evidence.enforcer),
        (ExitReason::OverheadOom, EnforcerKind::Poll),
        "{report:#?}"
    );
    assert!(
        report.evidence.own.peak > report.evidence.own.limit && !report.timeline.is_empty(),
        "{report:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_victim_of_the_limit_of_the_node_is_not_charged() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 48, &[]);
    // A real resource manager would never grant more than the node has. Here the size lets the
    // node's limit be hit first.
    let id = rm.run(1, 512, sh(GREEDY));
    let kind = rm
        .until("the registration", |received| {
            received.registrations.first().map(|r| r.enforcer)
        })
        .await;
    if !kind.is_kernel() {
        // Without kernel enforcement there is no limit around all containers.
        rm.running(&id).await;
        rm.stop(&id, StopCause::Asked);
        assert_eq!(rm.exit(&id).await.reason, ExitReason::Stopped);
        return;
    }
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.evidence.signal),
        (ExitReason::AncestorOom, Some(9)),
        "{report:#?}"
    );
    assert!(
        report.diagnosis[0].cause.contains("`containers` (48 MiB)"),
        "{:#?}",
        report.diagnosis
    );
}

/// The master has the most memory and asks for more when there is none; the kernel kills another
/// container. When the node is full, the master has 122 MiB and each other 92: half of the 60 MiB
/// by which the kernel counts a container as larger than a master.
#[tokio::test(flavor = "multi_thread")]
async fn at_the_limit_of_the_node_masters_are_killed_last() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 400, &[]);
    let kind = rm
        .until("the registration", |received| {
            received.registrations.first().map(|r| r.enforcer)
        })
        .await;
    if !kind.is_kernel() {
        // `poll` has no limit around all containers.
        return;
    }
    // `dd` keeps its one buffer, because nothing reads from the pipe.
    let hold = |mib: u64| format!("dd if=/dev/zero bs={mib}M count=1 | sleep 60");
    let holds = async |id: &ContainerId, mib: u64| {
        let enough = Some(Bytes::from_mib(mib));
        rm.until(&format!("{id} to hold {mib} MiB"), |received| {
            received
                .observed
                .get(id)
                .filter(|o| o.used >= enough)
                .map(|_| ())
        })
        .await;
    };
    let others: Vec<ContainerId> = (1..=3).map(|n| rm.run(n, 128, sh(&hold(92)))).collect();
    for id in &others {
        holds(id, 92).await;
    }
    let master = rm.run_master(4, 200, sh(&hold(150)));
    let report = rm
        .until("a kill", |received| {
            received.ends.values().next().map(|end| end.report.clone())
        })
        .await;
    assert_ne!(report.container, master, "{report:#?}");
    assert_eq!(
        (report.reason, report.evidence.signal),
        (ExitReason::AncestorOom, Some(9)),
        "{report:#?}"
    );
    holds(&master, 150).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_kill_is_not_charged() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 32, sh("sleep 60"));
    rm.running(&id).await;
    kill(node.pid(&id), 9);
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.evidence.signal),
        (ExitReason::KilledExternally, Some(9)),
        "{report:#?}"
    );
    assert_eq!(report.reason.charge(), ExitCharge::Free);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_heap_is_recognized_by_the_message_of_the_runtime() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &[]);
    let jvm = |script: &str| LaunchSpec {
        heap: Some(Bytes::from_mib(24)),
        heap_exit_codes: vec![3],
        ..sh(script)
    };
    let heap = rm.run(1, 32, jvm("exit 3"));
    let direct = rm.run(
        2,
        32,
        jvm("echo 'java.lang.OutOfMemoryError: Direct buffer memory' >&2; exit 1"),
    );
    let marker = rm.run(
        3,
        32,
        jvm("echo 'arena exhausted' > $HEADROOM_OOM_MARKER; exit 9"),
    );
    assert_eq!(rm.exit(&heap).await.reason, ExitReason::HeapOom);
    let report = rm.exit(&direct).await;
    assert_eq!(report.reason, ExitReason::OverheadOom, "{report:#?}");
    assert!(
        report.diagnosis[0].cause.contains("direct"),
        "{:#?}",
        report.diagnosis
    );
    let report = rm.exit(&marker).await;
    assert_eq!(
        (report.reason, report.evidence.heap_marker.as_deref()),
        (ExitReason::HeapOom, Some("arena exhausted"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_a_failed_launch() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(
        1,
        32,
        LaunchSpec {
            command: vec!["/no/such/program".into()],
            ..LaunchSpec::default()
        },
    );
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.started),
        (ExitReason::LaunchFailed, None),
        "{report:#?}"
    );
    let d = &report.diagnosis[0];
    assert!(
        d.cause.contains("/no/such/program") && d.fix.contains("check the program's name"),
        "{d:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_lists_the_task_groups_of_an_executor() {
    let rm = FakeRm::start();
    let _node = Node::start(rm.url(), 256, &[]);
    let mut launch =
        sh("[ -n \"$HEADROOM_CGROUP\" ] && mkdir $HEADROOM_CGROUP/task-map-7-1; exit 0");
    launch.task_groups = true;
    let id = rm.run(1, 32, launch);
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:#?}");
    let names: Vec<&str> = report.tasks.iter().map(|t| t.name.as_str()).collect();
    if report.evidence.enforcer.is_kernel() {
        assert_eq!(names, ["map-7-1"]);
    }
}
