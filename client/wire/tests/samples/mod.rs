//! Sample values that the golden files contain.

use headroom_types::exit::{
    CgroupStats, LeftoverOwner, MemoryEvents, MemorySample, MemoryStat, OuterLevel, SubCause,
    TimelineMark, Unattributed, VictimProcess,
};
use headroom_types::{
    AppId, AppliedTreatment, AttemptId, Bytes, Certainty, ContainerId, Cpus, Diagnosis, Dimension,
    EnforcerKind, Epoch, Evidence, ExitReason, ExitReport, FetchedFile, FetchedFileKind, OwnLimit,
    OwnLimitKind, Profile, Remedy, Resource, TaskAttemptId, TaskReport, Treatment, UnixMillis,
};
use headroom_wire::v1::{application_master, events, job, job_history};

pub(crate) fn app() -> AppId {
    "word-count.7".parse().expect("app id")
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId {
        app: app(),
        attempt: 1,
    }
}

pub(crate) fn container() -> ContainerId {
    ContainerId {
        app: app(),
        epoch: Epoch(3),
        seq: 12,
    }
}

pub(crate) fn size() -> Resource {
    Resource::new(Bytes::from_mib(288), Cpus::from_milli(2500))
}

pub(crate) fn launch() -> headroom_types::LaunchSpec {
    headroom_types::LaunchSpec {
        command: vec!["executor".into()],
        env: [("HEADROOM_SLOTS".into(), "4".into())].into(),
        files: [("job.toml".into(), "version = 1\n".into())].into(),
        fetch: vec![FetchedFile {
            name: "app.jar".into(),
            from: "https://repo.example/app.jar".into(),
            sha256: "ab".repeat(32).parse().ok(),
            kind: FetchedFileKind::File,
            most: Some(Bytes::from_mib(64)),
        }],
        aux_services: vec!["spark-shuffle".parse().expect("a name")],
        heap: Some(Bytes::from_mib(256)),
        heap_exit_codes: vec![3],
        stop_grace_ms: Some(500),
        max_processes: Some(512),
        task_groups: true,
    }
}

pub(crate) fn evidence() -> Evidence {
    let moved = MemoryEvents {
        high: 0,
        max: 14,
        oom: 1,
        oom_kill: 2,
        oom_group_kill: 1,
    };
    Evidence {
        signal: Some(9),
        own: CgroupStats {
            limit: Some(Bytes::from_mib(64)),
            current: Bytes::from_mib(1),
            peak: Some(Bytes::from_mib(64)),
            stat: MemoryStat {
                anon: Some(Bytes::from_mib(60)),
                file: Some(Bytes::from_mib(3)),
                ..MemoryStat::default()
            },
            events: moved,
            local: moved,
        },
        outer: vec![OuterLevel {
            unattributed: Some(Unattributed {
                memory: Bytes::from_mib(100),
                left_by: left_by(),
            }),
            ..OuterLevel::counted(
                "container",
                Some(Bytes::from_mib(288)),
                MemoryEvents::default(),
            )
        }],
        heap_budget: Some(Bytes::from_mib(48)),
        victims: vec![VictimProcess {
            pid: 4711,
            name: "java".into(),
            rss: Bytes::from_mib(60),
        }],
        own_limits: vec![OwnLimit {
            kind: OwnLimitKind::AddressSpace,
            value: Bytes::from_mib(40),
        }],
        ..Evidence::empty(EnforcerKind::Cgroup2)
    }
}

pub(crate) fn left_by() -> Vec<LeftoverOwner> {
    vec![LeftoverOwner {
        name: "map-6-1".into(),
        memory: Bytes::from_mib(99),
    }]
}

pub(crate) fn diagnosis() -> Vec<Diagnosis> {
    vec![
        Diagnosis::new(
            SubCause::DirectBuffers,
            Certainty::Likely,
            "direct buffers",
            "raise overhead to 96 MiB",
        )
        .with_trade_off("32 MiB more on each node")
        .with_would_fit(Bytes::from_mib(80)),
    ]
}

pub(crate) fn sample() -> MemorySample {
    MemorySample {
        at_ms: 250,
        current: Bytes::from_mib(30),
        anon: Some(Bytes::from_mib(28)),
        file: None,
        heap: None,
        limit: Some(Bytes::from_mib(64)),
        mark: Some(TimelineMark::LimitRaised),
    }
}

pub(crate) fn exit_report() -> ExitReport {
    ExitReport {
        container: container(),
        node: "worker-01".parse().expect("node"),
        reason: ExitReason::OverheadOom,
        evidence: evidence(),
        diagnosis: diagnosis(),
        started: Some(UnixMillis(1_790_000_000_000)),
        ended: UnixMillis(1_790_000_002_500),
        timeline: vec![sample()],
        log_tail: "processed 12000 rows\n".into(),
        tasks: Vec::new(),
    }
}

pub(crate) fn task_attempt() -> TaskAttemptId {
    "map/7@2".parse().expect("task attempt")
}

pub(crate) fn task_report() -> TaskReport {
    TaskReport {
        attempt: task_attempt(),
        container: container(),
        reason: ExitReason::TaskOom,
        dimension: Some(Dimension::Native),
        evidence: evidence(),
        diagnosis: Vec::new(),
        started: Some(UnixMillis(1_790_000_000_000)),
        ended: UnixMillis(1_790_000_002_500),
        timeline: vec![sample()],
        log_tail: String::new(),
        read: Some(Bytes::from_mib(96)),
        value: None,
        value_too_large: None,
        silent: true,
    }
}

pub(crate) fn profile() -> Profile {
    Profile {
        heap: Bytes::from_mib(48),
        overhead: Bytes::from_mib(16),
        cpus: Cpus::from_cores(1),
    }
}

pub(crate) fn input() -> job::AttemptInput {
    let (planned, read) = (Some(Bytes::from_mib(64)), Some(Bytes::from_mib(128)));
    job::AttemptInput {
        planned,
        read,
        locality: Some(job::DataLocality::Remote),
        gap: Some(job::InputGap::More),
    }
}

pub(crate) fn totals() -> job::JobTotals {
    job::JobTotals {
        tasks: 20,
        running: 4,
        memory_kills: 1,
        rerun_byte_ms: 1 << 70,
        inputs: vec![job::StageInputs {
            kills: 4,
            ..job::StageInputs::new("map".parse().expect("name"))
        }],
        folded: vec![job::FoldedTasks {
            stage: "map".parse().expect("name"),
            done: 7,
            failed: 0,
        }],
        shadow: Some(job::ShadowTotals {
            fit: 3,
            killed: 1,
            perhaps: 0,
            given_byte_ms: 1 << 70,
            learned_byte_ms: 1 << 69,
        }),
        ..job::JobTotals::default()
    }
}

pub(crate) fn treatment() -> AppliedTreatment {
    let remedy = Some(Remedy::OneArena);
    AppliedTreatment {
        cause: SubCause::NativeArenas,
        treatment: Treatment::Remedy,
        quantity: None,
        remedy,
    }
}

pub(crate) fn shadow() -> job::ShadowSize {
    let why = "learned from kind map by the median".into();
    job::ShadowSize {
        profile: profile(),
        why,
        outcome: Some(job::ShadowOutcome::Fits),
    }
}

pub(crate) fn patch() -> job::JobViewPatch {
    job::JobViewPatch {
        full: true,
        folded: vec!["map/10007".parse().expect("task")],
        totals: totals(),
        tasks: vec![job::TaskRow {
            task: task_attempt().task,
            state: job::TaskState::Running,
            profile: profile(),
            rung: 2,
            note: String::new(),
            frozen: None,
            ahead: vec![Bytes::from_mib(192), Bytes::from_mib(256)],
            priority: 2,
            tags: [("day".to_owned(), "monday".to_owned())].into(),
            attempts: vec![job::AttemptRow {
                attempt: task_attempt(),
                profile: profile(),
                slots: 2,
                rung: 2,
                container: container(),
                node: "worker-01".parse().expect("node"),
                started: UnixMillis(1_790_000_000_000),
                ended: None,
                peak: Some(Bytes::from_mib(51)),
                used: Some(Bytes::from_mib(50)),
                reason: None,
                dimension: None,
                evidence: None,
                diagnosis: Vec::new(),
                decision: String::new(),
                timeline: Vec::new(),
                log_tail: String::new(),
                grown: vec![job::AttemptGrowth {
                    at: UnixMillis(1_790_000_000_000),
                    from: Bytes::from_mib(64),
                    to: Bytes::from_mib(96),
                    frozen_us: Some(4711),
                }],
                why: "learned from kind map by the median".into(),
                shadow: Some(shadow()),
                input: Some(input()),
                treatment: Some(treatment()),
                remedies: vec![Remedy::TmpOnDisk],
                log_marker: Some("(TID 45)".into()),
                silent: true,
            }],
        }],
        events: vec![job::JobEvent {
            time: UnixMillis(1_790_000_000_000),
            level: events::EventLevel::Warning,
            reason: "OomKilled".into(),
            object: "map/7@1".into(),
            message: "killed at 64 MiB".into(),
        }],
        enlarged: vec![enlarged_task()],
    }
}

fn enlarged_task() -> job_history::EnlargedTask {
    let part = |name: &str, mib| (name.parse().expect("a name"), Bytes::from_mib(mib));
    job_history::EnlargedTask {
        name: "collect at skew.py:9, 40 tasks/5".into(),
        rung: 3,
        cpus: 1,
        memory: [part("heap", 1024), part("overhead", 384)].into(),
    }
}

pub(crate) fn ask() -> application_master::PlacementRequest {
    application_master::PlacementRequest {
        request: "set-main".parse().expect("request"),
        resource: size(),
        count: 2,
        ended: 1,
        priority: 5,
        avoid_nodes: vec!["worker-02".parse().expect("node")],
        nodes: Vec::new(),
        placement: Box::default(),
        deadline_ms: None,
        waited_ms: 0,
        launch: Box::new(launch()),
    }
}

pub(crate) fn granted() -> application_master::ContainerGrant {
    application_master::ContainerGrant {
        container: container(),
        request: ask().request,
        node: "worker-01".parse().expect("node"),
        resource: size(),
        attempt: 2,
        running: false,
    }
}

pub(crate) fn job_history() -> job_history::JobHistory {
    let (peak, first) = (Bytes::from_mib(300), Bytes::from_mib(512));
    let need = job_history::TaskMemoryNeed {
        peak,
        first,
        last: first,
        kills: 0,
        runtime_ms: 61_000,
    };
    job_history::JobHistory {
        user: "ann".into(),
        name: "count".parse().expect("a name"),
        runs: 2,
        last: UnixMillis(7),
        kinds: vec![job_history::TaskKindHistory {
            name: "map".into(),
            tasks: vec![need],
        }],
        enlarged: vec![enlarged_task()],
    }
}
