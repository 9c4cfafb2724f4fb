//! Resize of a running container.

use headroom_types::{Bytes, ContainerId, ExitReason};
use headroom_wire::v1::nodes::ObservedContainer;

use crate::fake_rm::FakeRm;
use crate::node::{Node, sh};

/// Prints its launch size. When the file `go` appears, it allocates 16 MiB and more, prints `grown`
/// and keeps the memory. When `end` appears, it exits with 0.
const GROWS: &str = "echo $HEADROOM_MEMORY_BYTES; while [ ! -e go ]; do sleep 0.05; done; \
                     x=0123456789abcdef; n=0; while [ $n -lt 20 ]; do x=$x$x; n=$((n+1)); done; \
                     echo grown; while [ ! -e end ]; do sleep 0.05; done; exit 0";

fn create_work_file(node: &Node, id: &ContainerId, file: &str) {
    std::fs::write(node.file(id, &format!("work/{file}")), "").expect("writes");
}

async fn has_version(rm: &FakeRm, id: &ContainerId, version: u32) -> ObservedContainer {
    rm.until(&format!("version {version}"), |received| {
        received
            .observed
            .get(id)
            .filter(|o| o.version == version)
            .cloned()
    })
    .await
}

async fn is_refused(rm: &FakeRm, id: &ContainerId, version: u32) -> ObservedContainer {
    let refused = |o: &&ObservedContainer| o.refused.as_ref().is_some_and(|r| r.version == version);
    rm.until(&format!("a refusal of version {version}"), |received| {
        received.observed.get(id).filter(refused).cloned()
    })
    .await
}

async fn grown(rm: &FakeRm, node: &Node, id: &ContainerId) {
    rm.until("the allocation of the program", |_| {
        node.text(id, "stdout").ends_with("grown\n").then_some(())
    })
    .await;
    let enough = Some(Bytes::from_mib(16));
    rm.until("the use of the container", |received| {
        received
            .observed
            .get(id)
            .filter(|o| o.used >= enough)
            .map(|_| ())
    })
    .await;
}

/// The same scenario for each enforcer.
async fn grows_within_the_raised_limit_and_shrinks_no_further_than_its_use(more: &[&str]) {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, more);
    let id = rm.run(1, 12, sh(GROWS));
    rm.running(&id).await;
    rm.resize(&id, 2, 120);
    let seen = has_version(&rm, &id, 2).await;
    assert_eq!(
        (
            seen.resource.memory,
            seen.resource.cpus.milli(),
            seen.refused
        ),
        (Bytes::from_mib(120), 2000, None)
    );
    create_work_file(&node, &id, "go");
    grown(&rm, &node, &id).await;

    rm.resize(&id, 3, 8);
    let seen = is_refused(&rm, &id, 3).await;
    let why = seen.refused.expect("a refusal").why;
    assert_eq!(
        (seen.version, seen.resource.memory),
        (2, Bytes::from_mib(120)),
        "the container keeps its size"
    );
    assert!(
        why.contains("a limit of 8 MiB is below the ")
            && why.contains("the container keeps 120 MiB"),
        "{why}"
    );
    rm.resize(&id, 4, 96);
    assert_eq!(has_version(&rm, &id, 4).await.refused, None);

    create_work_file(&node, &id, "end");
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:#?}");
    assert_eq!(report.evidence.own.limit, Some(Bytes::from_mib(96)));
    assert!(
        report.evidence.own.peak > Some(Bytes::from_mib(12)),
        "the peak exceeds the first limit: {:#?}",
        report.evidence.own
    );
    let limits: Vec<Option<Bytes>> = report.timeline.iter().map(|s| s.limit).collect();
    assert!(
        limits.contains(&Some(Bytes::from_mib(120))),
        "the timeline contains the change: {limits:?}"
    );
    assert!(
        node.text(&id, "stdout").starts_with("12582912\n"),
        "the environment has the size at launch"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_with_the_enforcer_of_this_host() {
    grows_within_the_raised_limit_and_shrinks_no_further_than_its_use(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_with_the_poll_enforcer() {
    grows_within_the_raised_limit_and_shrinks_no_further_than_its_use(&["--enforcer=poll"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_beyond_the_raised_limit_is_killed_at_that_limit() {
    let rm = FakeRm::start();
    let node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 8, sh(GROWS));
    rm.running(&id).await;
    rm.resize(&id, 2, 16);
    has_version(&rm, &id, 2).await;
    create_work_file(&node, &id, "go");
    let report = rm.exit(&id).await;
    assert_eq!(
        (report.reason, report.evidence.own.limit),
        (ExitReason::OverheadOom, Some(Bytes::from_mib(16))),
        "{report:#?}"
    );
}

/// Rewrites the record of an order as an agent leaves it that is killed during a change.
fn torn(node: &Node, id: &ContainerId, version: u32, memory_mib: u64) {
    let text = node.text(id, "order.json");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("json");
    let mut resource = record["order"]["resource"].clone();
    resource["memory"] = (memory_mib << 20).into();
    record["resizing"] = serde_json::json!({ "version": version, "resource": resource });
    std::fs::write(node.file(id, "order.json"), record.to_string()).expect("writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_agent_reports_the_size_in_the_kernel() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let id = rm.run(1, 12, sh(GROWS));
    rm.running(&id).await;
    let first = node.text(&id, "order.json");
    rm.resize(&id, 2, 120);
    has_version(&rm, &id, 2).await;
    let kernel = rm.with(|received| received.registrations[0].enforcer.is_kernel());
    let registered = async |node: &mut Node, n: usize| {
        node.start_again();
        let registration = rm
            .until("a registration", |received| {
                received.registrations.get(n).cloned()
            })
            .await;
        (
            registration.containers[0].version,
            registration.containers[0].resource.memory,
        )
    };

    node.crash();
    assert_eq!(registered(&mut node, 1).await, (2, Bytes::from_mib(120)));

    // Killed before the limit was changed: the order is unchanged.
    node.crash();
    rm.set_faults(|faults| faults.unavailable = true);
    torn(&node, &id, 3, 60);
    rm.set_faults(|faults| faults.unavailable = false);
    assert_eq!(registered(&mut node, 2).await, (2, Bytes::from_mib(120)));

    // Killed after the limit was changed: only the kernel has the new size.
    node.crash();
    std::fs::write(node.file(&id, "order.json"), first).expect("writes");
    torn(&node, &id, 2, 120);
    let wanted = if kernel {
        (2, Bytes::from_mib(120))
    } else {
        (1, Bytes::from_mib(12))
    };
    assert_eq!(registered(&mut node, 3).await, wanted);
    create_work_file(&node, &id, "go");
    create_work_file(&node, &id, "end");
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
}
