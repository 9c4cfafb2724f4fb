//! One golden sample of every message. A change that breaks a reader of version 1 appears as a
//! difference.
//!
//! `HEADROOM_UPDATE_GOLDEN=1` rewrites the files; review the difference before the commit.

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;
mod samples;

use headroom_types::{Bytes, EnforcerKind, Epoch, ExitReason, MasterGrowth, StopCause, UnixMillis};
use headroom_wire::v1::{
    acl, application_master, apps, error, events, job, known_containers, nodes, queues, task,
};
use kept::golden;
use samples::{
    app, ask, attempt, container, exit_report, granted, job_history, launch, left_by, patch,
    sample, size, task_attempt, task_report,
};

#[test]
fn submissions_match_the_golden_files() {
    let managed = apps::SubmitApplicationRequest {
        name: "word-count".parse().expect("name"),
        queue: None,
        priority: 1,
        user: Some("ana".into()),
        lifetime_ms: None,
        master: apps::ApplicationMaster::Managed {
            resource: size(),
            launch: Box::new(launch()),
            max_attempts: 2,
            growth: None,
            start_timeout_ms: None,
            first_request: None,
        },
        idempotency_key: Some("2026-11-21-a".into()),
        access: acl::AppAccess {
            view: vec!["bob".into(), "@etl".into()],
            change: Vec::new(),
        },
    };
    golden("submit_app_managed", &managed);
    golden(
        "submit_app_unmanaged",
        &apps::SubmitApplicationRequest {
            master: apps::ApplicationMaster::Unmanaged,
            access: acl::AppAccess::default(),
            ..managed.clone()
        },
    );
    golden(
        "submit_app_growing",
        &apps::SubmitApplicationRequest {
            master: apps::ApplicationMaster::Managed {
                resource: size(),
                launch: Box::new(launch()),
                max_attempts: 2,
                growth: Some(MasterGrowth {
                    max_memory: Bytes::from_gib(1),
                }),
                start_timeout_ms: Some(600_000),
                first_request: None,
            },
            access: acl::AppAccess::default(),
            ..managed
        },
    );
}

#[test]
fn application_messages_match_the_golden_files() {
    golden(
        "submitted",
        &apps::SubmissionResult {
            app: app(),
            attempt: attempt(),
            epoch: Epoch(3),
        },
    );
    golden(
        "kill_app",
        &apps::KillApplicationRequest {
            reason: Some("wrong input".into()),
        },
    );
    golden(
        "app_view",
        &apps::AppView {
            id: app(),
            queue: "default".parse().expect("queue"),
            priority: 1,
            user: "ana".into(),
            state: apps::AppState::Running,
            diagnostics: String::new(),
            master_url: Some("tcp://127.0.0.1:4711".into()),
            attempt: 1,
            until: Some(UnixMillis(1_790_000_600_000)),
            attempts: vec![apps::AttemptView {
                id: attempt(),
                state: "registered".into(),
                container: Some(container()),
                node: Some("worker-01".parse().expect("node")),
                resource: Some(size()),
                started: Some(UnixMillis(1_790_000_000_000)),
                ended: None,
                reason: None,
                charged: false,
                diagnostics: String::new(),
            }],
            managed: true,
            submitted: UnixMillis(1_790_000_000_000),
            ended: None,
            containers: 3,
            memory: Bytes::from_mib(640),
            pending: 1,
            job: Some(job::JobView {
                totals: patch().totals,
                tasks: patch().tasks,
            }),
        },
    );
}

fn numbers() -> known_containers::ContainerNumbers {
    let mut numbers = known_containers::ContainerNumbers::default();
    numbers.insert(&container());
    numbers
}

#[test]
fn master_registrations_match_the_golden_files() {
    golden("ask", &ask());
    golden(
        "register_master",
        &application_master::RegisterMaster {
            attempt: attempt(),
            master_url: Some("tcp://127.0.0.1:4711".into()),
            submission_token: None,
            nodes: None,
            containers: numbers(),
        },
    );
    let traces = Some("http://127.0.0.1:4318".to_owned());
    golden(
        "registered",
        &application_master::MasterRegistered {
            epoch: Epoch(3),
            largest: size(),
            containers: vec![granted()],
            confirmed: vec![known_containers::ConfirmedContainers {
                resource: size(),
                running: true,
                containers: numbers(),
            }],
            cursor: 9,
            known: Some(Box::new(job_history())),
            traces,
        },
    );
}

#[test]
fn master_heartbeats_match_the_golden_files() {
    golden(
        "master_sync",
        &application_master::MasterSync {
            attempt: attempt(),
            epoch: Epoch(3),
            ack: 9,
            asks: vec![ask()],
            drop: vec!["own-map-7-r3".parse().expect("request")],
            release: vec![container()],
            job: Some(patch()),
        },
    );
    let never = application_master::PlacementVerdict::Never {
        sentence: "the largest node is worker-01 with 2 GiB".into(),
        largest: size(),
    };
    let answers = vec![
        application_master::PlacementResponse {
            request: ask().request,
            verdict: application_master::PlacementVerdict::Fits,
        },
        application_master::PlacementResponse {
            request: ask().request,
            verdict: application_master::PlacementVerdict::Waits {
                sentence: "0.5 GiB short on worker-01".into(),
            },
        },
        application_master::PlacementResponse {
            request: ask().request,
            verdict: never,
        },
    ];
    golden(
        "master_sync_reply",
        &application_master::MasterSyncReply {
            verdicts: answers,
            stop: false,
        },
    );
    golden(
        "append_to_journal",
        &application_master::AppendToJournal {
            attempt: attempt(),
            offset: 4711,
            records: "{\"record\":\"granted\"}\n".into(),
            moved: false,
        },
    );
    golden(
        "journal_appended",
        &application_master::JournalAppended { end: 4733 },
    );
    golden(
        "stored_journal",
        &application_master::StoredJournal {
            records: "{\"record\":\"granted\"}\n".into(),
            moved: false,
            limit: Bytes::from_mib(1),
        },
    );
    golden(
        "finish_app",
        &application_master::FinishApplicationRequest {
            attempt: attempt(),
            succeeded: true,
            diagnostics: "25 ok".into(),
            job: Some(patch()),
        },
    );
}

#[test]
fn application_updates_match_the_golden_files() {
    golden(
        "update_allocated",
        &application_master::ApplicationUpdate {
            cursor: 10,
            what: application_master::ApplicationUpdateKind::Allocated(granted()),
        },
    );
    golden(
        "update_running",
        &application_master::ApplicationUpdate {
            cursor: 11,
            what: application_master::ApplicationUpdateKind::Running {
                container: container(),
            },
        },
    );
    let exited = application_master::ApplicationUpdateKind::Exited {
        request: ask().request,
        report: Box::new(exit_report()),
    };
    golden(
        "update_exited",
        &application_master::ApplicationUpdate {
            cursor: 12,
            what: exited,
        },
    );
    golden(
        "update_alive",
        &application_master::ApplicationUpdate {
            cursor: 12,
            what: application_master::ApplicationUpdateKind::Alive,
        },
    );
}

fn reload() -> nodes::ConfigReload {
    nodes::ConfigReload {
        at: UnixMillis(1_790_000_000_000),
        refused: true,
        message: "nothing has changed".into(),
    }
}

fn observed() -> nodes::ObservedContainer {
    nodes::ObservedContainer {
        container: container(),
        request: Some(ask().request),
        attempt: 1,
        resource: size(),
        version: 1,
        refused: None,
        phase: nodes::NodeContainerPhase::Running,
        used: Some(Bytes::from_mib(120)),
        anon: None,
        granted: UnixMillis(1_790_000_000_000),
    }
}

#[test]
fn node_messages_match_the_golden_files() {
    let observed = observed();
    golden(
        "register_node",
        &nodes::RegisterNode {
            serial: 1_763_700_000_000,
            offers: size(),
            enforcer: EnforcerKind::Cgroup1,
            url: "http://127.0.0.1:7072".into(),
            health: nodes::NodeHealthState::Unhealthy {
                reason: "the self-test was not killed".into(),
            },
            version: "0.1.0".into(),
            traits: nodes::NodeTraits::default(),
            containers: vec![observed.clone()],
            exits: vec![exit_report()],
            key: Some("3f0a".into()),
            unattributed: Bytes::from_mib(300),
            left_by: left_by(),
        },
    );
    golden(
        "node_registered",
        &nodes::NodeRegistered {
            epoch: Epoch(3),
            acked: vec![container()],
            heartbeat_ms: Some(1000),
        },
    );
    let order = nodes::RunOrder {
        app: app(),
        request: Some(ask().request),
        attempt: 1,
        resource: size(),
        version: 1,
        launch: launch(),
        user: Some("ann".into()),
        granted: UnixMillis(1_790_000_000_000),
        token: Some(acl::SecretText("hra_sort.1@1_00".into())),
    };
    let wants = [
        nodes::ContainerDesiredState::Run(Box::new(order)),
        nodes::ContainerDesiredState::Stop {
            cause: StopCause::Asked,
        },
        nodes::ContainerDesiredState::Forget,
    ];
    let containers = wants
        .map(|want| nodes::DesiredContainer {
            container: container(),
            want,
        })
        .to_vec();
    golden(
        "desired",
        &nodes::DesiredStateLine {
            epoch: Epoch(3),
            full: true,
            containers,
        },
    );
    golden(
        "node_report",
        &nodes::NodeReport {
            epoch: Epoch(3),
            containers: vec![observed],
            exits: vec![exit_report()],
            host_used: Bytes::from_gib(3),
            health: nodes::NodeHealthState::Healthy,
            reload: Some(reload()),
            unattributed: Bytes::from_mib(300),
            left_by: left_by(),
        },
    );
    golden(
        "node_report_reply",
        &nodes::NodeReportReply {
            received: vec![container()],
            heartbeat_ms: Some(1000),
        },
    );
}

#[test]
fn messages_of_executors_match_the_golden_files() {
    golden(
        "executor_hello",
        &task::FromExecutor::Hello {
            version: task::VERSION,
            container: container(),
            token: "secret".into(),
            slots: 4,
            task_groups: true,
            inputs: true,
            fork_servers: true,
            running: vec![task_attempt()],
            unacked: vec![task_report()],
        },
    );
    golden(
        "executor_started",
        &task::FromExecutor::Started {
            attempt: task_attempt(),
            at: UnixMillis(1_790_000_000_000),
        },
    );
    let usage = task::TaskUsage {
        attempt: task_attempt(),
        current: Bytes::from_mib(50),
        peak: Bytes::from_mib(51),
        heap: Some(Bytes::from_mib(30)),
        starved: true,
    };
    golden(
        "executor_usage",
        &task::FromExecutor::Usage { tasks: vec![usage] },
    );
    golden(
        "executor_ended",
        &task::FromExecutor::Ended {
            report: Box::new(task_report()),
        },
    );
    let limit = Bytes::from_mib(96);
    golden(
        "executor_pressure",
        &task::FromExecutor::Pressure {
            attempt: task_attempt(),
            limit,
            current: Bytes::from_mib(88),
        },
    );
    let resized = task::FromExecutor::Resized {
        attempt: task_attempt(),
        limit,
        frozen_us: Some(4711),
        error: None,
    };
    golden("executor_resized", &resized);
    let leftover = task::FromExecutor::Leftover {
        memory: Bytes::from_mib(100),
        left_by: left_by(),
    };
    golden("executor_leftover", &leftover);
    golden("executor_alive", &task::FromExecutor::Alive);
}

#[test]
fn messages_to_executors_match_the_golden_files() {
    let (attempt, limit) = (task_attempt(), Bytes::from_mib(96));
    golden(
        "master_resize",
        &task::ToExecutor::Resize {
            attempt: attempt.clone(),
            limit,
        },
    );
    golden("master_unfreeze", &task::ToExecutor::Unfreeze { attempt });
    golden(
        "master_start",
        &task::ToExecutor::Start(Box::new(task::TaskStart {
            attempt: task_attempt(),
            command: vec!["wc".into(), "part-7".into()],
            env: [("HEADROOM_INDEX".into(), "7".into())].into(),
            cwd: Some("/data".into()),
            slots: 2,
            limit: Some(Bytes::from_mib(128)),
            heap: None,
            heap_exit_codes: vec![3],
            timeout_ms: Some(60_000),
            freeze_timeout_ms: Some(30_000),
            output: Some("/data/out/.headroom/word-count.7/9f86d081/map-7-2".into()),
            input: None,
            fork_server: Vec::new(),
        })),
    );
    golden(
        "master_stop",
        &task::ToExecutor::Stop {
            attempt: task_attempt(),
        },
    );
    golden(
        "master_ack",
        &task::ToExecutor::Ack {
            attempt: task_attempt(),
        },
    );
    golden("master_shutdown", &task::ToExecutor::Shutdown);
    let why = "its protocol version is 2, this master speaks 1 to 1".into();
    golden(
        "master_refused",
        &task::ToExecutor::Refused {
            why,
            oldest: task::OLDEST_VERSION,
            newest: task::VERSION,
        },
    );
}

#[test]
fn change_requests_match_the_golden_files() {
    golden(
        "change_app",
        &apps::ChangeApplicationRequest {
            queue: Some("etl".parse().expect("queue")),
            priority: Some(7),
            lifetime_ms: Some(0),
        },
    );
    let resize = apps::ResizeContainer {
        version: Some(1),
        resource: size(),
        heap: Some(Bytes::from_mib(256)),
    };
    golden("resize_container", &resize);
    golden("resizing", &apps::ResizeAccepted { version: 2 });
    let drain = nodes::DrainNodeRequest {
        deadline_s: Some(600),
        reason: "kernel upgrade".into(),
        decommission: true,
    };
    golden("drain_node", &drain);
}

#[test]
fn container_and_node_views_match_the_golden_files() {
    golden(
        "container_view",
        &apps::ContainerView {
            id: container(),
            node: "worker-01".parse().expect("node"),
            request: Some(ask().request),
            resource: size(),
            state: "running".into(),
            used: Some(Bytes::from_mib(120)),
            granted: UnixMillis(1_790_000_000_000),
            reason: None,
            version: 1,
            attempt: 1,
            ended: None,
            exit_code: None,
            peak: None,
            wanted: Some(apps::DesiredSize {
                resource: size(),
                version: 2,
            }),
        },
    );
    golden(
        "container_timeline",
        &apps::ContainerTimeline {
            container: container(),
            node: "worker-01".parse().expect("node"),
            reason: Some(ExitReason::OverheadOom),
            samples: vec![sample()],
        },
    );
    golden(
        "node_view",
        &nodes::NodeView {
            id: "worker-01".parse().expect("node"),
            state: "draining".into(),
            reason: Some("kernel upgrade".into()),
            enforcer: EnforcerKind::Cgroup2,
            offers: size(),
            allocated: size(),
            allocated_heap: Bytes::from_mib(256),
            used: Bytes::from_mib(120),
            host_used: Bytes::from_gib(3),
            unattributed: Bytes::from_mib(300),
            left_by: left_by(),
            containers: 1,
            url: "http://127.0.0.1:7072".into(),
            version: "0.1.0".into(),
            traits: nodes::NodeTraits::default(),
            tags: serde_json::from_value(
                serde_json::json!({"cordon": "kernel upgrade", "labels": ["gpu"],
                "attributes": {"zone": "b"}, "taints": {"etl": ""}}),
            )
            .expect("reads"),
            silent_ms: 200,
            mark: Some(nodes::NodeDrainMark {
                reason: "kernel upgrade".into(),
                until: Some(UnixMillis(1_790_000_600_000)),
                decommission: true,
                drained: false,
            }),
            peak_1h: Some(Bytes::from_mib(240)),
        },
    );
}

#[test]
fn why_pending_matches_the_golden_file() {
    golden(
        "why_pending",
        &apps::PendingExplanation {
            request: ask().request,
            asks: size(),
            missing: 1,
            waiting_ms: 130_000,
            ahead: 2,
            sentence: "needs 288 MiB on one node; best is worker-01 with 64 MiB free".into(),
            reserved: Some(apps::NodeReservation {
                node: "worker-01".parse().expect("node"),
                free: size(),
                for_ms: 90_000,
            }),
            nodes: vec![apps::NodeFitExplanation {
                node: "worker-01".parse().expect("node"),
                free: size(),
                offers: size(),
                verdict: "224 MiB of memory short".into(),
                out: true,
            }],
        },
    );
}

#[test]
fn events_and_problems_match_the_golden_files() {
    golden(
        "event",
        &events::LoggedEvent {
            index: 8812,
            time: UnixMillis(1_790_000_000_000),
            level: events::EventLevel::Warning,
            reason: "OomKilled".into(),
            object: "word-count.7/map/7@1".into(),
            app: Some(app()),
            node: Some("worker-01".parse().expect("node")),
            message: "killed at its own limit of 64 MiB".into(),
        },
    );
    let wrong = queues::QueueProblem {
        queue: "root.etl".into(),
        key: "guaranteed".into(),
        what: "60% here and 60% in root.adhoc are 120% of root".into(),
        fix: "let the guarantees of one queue's children sum to at most 100%".into(),
    };
    let bad =
        error::ProblemDetails::new(error::ErrorCode::HR0400, "1 problem in the tree of queues");
    golden(
        "problem_queues",
        &error::ProblemDetails {
            instance: Some("urn:headroom:request:1-7".into()),
            problems: vec![wrong],
            ..bad
        },
    );
    golden(
        "problem",
        &error::ProblemDetails::new(error::ErrorCode::HR0422, "8 GiB fits on no node")
            .hint("lower the profile"),
    );
    let late = "registration 6 of node n1 is not newer than its registration 7";
    let late = error::ProblemDetails::new(error::ErrorCode::HR0409, late);
    golden(
        "problem_above",
        &error::ProblemDetails {
            above: Some(7),
            ..late
        },
    );
}

#[test]
fn an_unknown_field_in_a_request_is_named() {
    let text = r#"{"name":"a","master":{"kind":"unmanaged"},"prioritty":3}"#;
    let error = serde_json::from_str::<apps::SubmitApplicationRequest>(text)
        .expect_err("an unknown field")
        .to_string();
    assert!(
        error.contains("prioritty") && error.contains("priority"),
        "{error}"
    );
}
