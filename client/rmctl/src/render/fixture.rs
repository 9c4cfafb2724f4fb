//! Fixed states for tests of screens.

use headroom_types::exit::{
    CgroupStats, HeapReport, MemoryEvents, MemorySample, MemoryStat, OuterLevel, SubCause,
    VictimProcess,
};
use headroom_types::{
    Bytes, Certainty, Cpus, Diagnosis, Dimension, EnforcerKind, Epoch, Evidence, ExitReason,
    Profile, Resource, UnixMillis,
};
use headroom_wire::v1::apps::{
    AppState, AppView, ClusterView, ContainerView, MemoryFailureStats, NodeFitExplanation,
    PendingExplanation,
};
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use headroom_wire::v1::job::{
    AttemptRow, JobTotals, JobView, MemoryFailureMode, TaskRow, TaskState,
};
use headroom_wire::v1::nodes::NodeView;

/// 2026-11-21T10:40:00Z, the submission of the job.
pub(crate) const START: u64 = 1_795_257_600_000;
/// Two minutes later.
pub(crate) const NOW: UnixMillis = UnixMillis(START + 120_000);

fn gib(tenths: u64) -> Bytes {
    Bytes::from_gib(tenths).mul_ratio(1, 10)
}
fn profile(heap: u64, overhead: u64) -> Profile {
    Profile {
        heap: gib(heap),
        overhead: gib(overhead),
        cpus: Cpus::from_cores(1),
    }
}
fn room(memory: u64, cpus: u32) -> Resource {
    Resource {
        memory: gib(memory),
        cpus: Cpus::from_cores(cpus),
        extra: Default::default(),
    }
}

/// A running job.
pub(crate) fn app() -> AppView {
    let totals = JobTotals {
        mode: MemoryFailureMode::Headroom,
        tasks: 24,
        done: 20,
        failed: 0,
        running: 2,
        memory_kills: 2,
        collateral_reruns: 0,
        transient: 1,
        escalated: 1,
        grown: 0,
        evicted: 0,
        spans_dropped: 0,
        rerun_byte_ms: u128::from(gib(34).get()) * 60_000,
        allocated_byte_ms: u128::from(gib(340).get()) * 60_000,
        inputs: Vec::new(),
        shadow: None,
        folded: Vec::new(),
    };
    AppView {
        id: "wordcount.7".parse().expect("id"),
        queue: "default".parse().expect("name"),
        priority: 0,
        user: "ada".into(),
        state: AppState::Running,
        diagnostics: String::new(),
        master_url: Some("tcp://127.0.0.1:4711".into()),
        attempt: 1,
        until: None,
        attempts: Vec::new(),
        managed: true,
        submitted: UnixMillis(START),
        ended: None,
        containers: 4,
        memory: gib(158),
        pending: 1,
        job: Some(JobView {
            totals,
            tasks: vec![done(), retried(), escalated(), waiting()],
        }),
    }
}

fn row(
    task: &str,
    state: TaskState,
    profile: Profile,
    rung: u32,
    attempts: Vec<AttemptRow>,
) -> TaskRow {
    TaskRow {
        task: task.parse().expect("id"),
        state,
        profile,
        rung,
        note: String::new(),
        attempts,
        frozen: None,
        ahead: Vec::new(),
        priority: 0,
        tags: Default::default(),
    }
}

fn attempt(
    id: &str,
    profile: Profile,
    rung: u32,
    from_s: u64,
    to_s: Option<u64>,
    reason: Option<ExitReason>,
) -> AttemptRow {
    AttemptRow {
        attempt: id.parse().expect("id"),
        profile,
        slots: 1,
        rung,
        container: format!("wordcount.7.e1.c{}", rung + 1).parse().expect("id"),
        node: format!("worker-0{}", 3 - rung.min(2))
            .parse()
            .expect("node"),
        started: UnixMillis(START + from_s * 1000),
        ended: to_s.map(|s| UnixMillis(START + s * 1000)),
        peak: None,
        used: None,
        reason,
        dimension: None,
        evidence: None,
        diagnosis: Vec::new(),
        decision: String::new(),
        timeline: Vec::new(),
        log_tail: String::new(),
        grown: Vec::new(),
        why: String::new(),
        shadow: None,
        input: None,
        treatment: None,
        remedies: Vec::new(),
        log_marker: None,
        silent: false,
    }
}

/// A task that finished at its first size.
pub(crate) fn done() -> TaskRow {
    let mut a = attempt(
        "map/2@1",
        profile(20, 4),
        1,
        2,
        Some(64),
        Some(ExitReason::Exit { code: 0 }),
    );
    a.peak = Some(gib(9));
    row("map/2", TaskState::Done, profile(20, 4), 1, vec![a])
}

/// A task that lost its node and runs again at the same size.
pub(crate) fn retried() -> TaskRow {
    let lost = attempt(
        "map/4@1",
        profile(20, 4),
        1,
        2,
        Some(60),
        Some(ExitReason::NodeLost),
    );
    let mut again = attempt("map/4@2", profile(20, 4), 1, 62, None, None);
    again.used = Some(gib(15));
    again.peak = Some(gib(16));
    TaskRow {
        frozen: None,
        ahead: vec![gib(48), gib(96), gib(150)],
        ..row(
            "map/4",
            TaskState::Running,
            profile(20, 4),
            1,
            vec![lost, again],
        )
    }
}

/// A task that was killed twice and runs at its third size.
pub(crate) fn escalated() -> TaskRow {
    let mut first = attempt(
        "map/7@1",
        profile(20, 4),
        1,
        2,
        Some(42),
        Some(ExitReason::OverheadOom),
    );
    first.peak = Some(gib(24));
    first.dimension = Some(Dimension::Overhead);
    let mut third = attempt("map/7@3", profile(40, 48), 3, 70, None, None);
    third.used = Some(gib(46));
    third.peak = Some(gib(51));
    TaskRow {
        frozen: None,
        ahead: vec![gib(150)],
        ..row(
            "map/7",
            TaskState::Running,
            profile(40, 48),
            3,
            vec![first, killed(), third],
        )
    }
}

/// The attempt that the tests of diagnosis show.
pub(crate) fn killed() -> AttemptRow {
    let mut a = attempt(
        "map/7@2",
        profile(40, 4),
        2,
        43,
        Some(67),
        Some(ExitReason::OverheadOom),
    );
    a.peak = Some(gib(44));
    a.dimension = Some(Dimension::Overhead);
    a.decision = "overhead × 2: 8.8 GiB in a container of its own".into();
    a.log_tail = "reading part 7\n120000 records\nspilling to direct buffers\n".into();
    a.diagnosis = vec![
        Diagnosis::new(
            SubCause::DirectBuffers,
            Certainty::Certain,
            "direct buffers outside the heap: 1.7 GiB where the overhead allows 0.4",
            "profiles.map.overhead = \"2GiB\"",
        )
        .with_trade_off("1.6 GiB more for each running task"),
        Diagnosis::new(
            SubCause::BesideHeap,
            Certainty::Possible,
            "many fetches at once",
            "-XX:MaxDirectMemorySize=1g",
        )
        .with_trade_off("slower fetches"),
    ];
    let point = |i: u64| MemorySample {
        at_ms: i * 1000,
        current: gib(4 + i * 40 / 24),
        anon: Some(gib(3 + i * 39 / 24)),
        file: Some(gib(1)),
        heap: Some(gib(2 + i)),
        limit: Some(gib(44)),
        mark: None,
    };
    a.timeline = (0..=24).map(point).collect();
    a.evidence = Some(evidence());
    a
}

/// The evidence of the killed attempt, from the kernel and the runtime.
pub(crate) fn evidence() -> Evidence {
    let events = MemoryEvents {
        high: 0,
        max: 181,
        oom: 1,
        oom_kill: 2,
        oom_group_kill: 1,
    };
    let stat = MemoryStat {
        anon: Some(gib(41)),
        file: Some(gib(2)),
        shmem: Some(Bytes::ZERO),
        kernel: Some(gib(1)),
        ..MemoryStat::default()
    };
    let heap = HeapReport {
        used: gib(27),
        committed: gib(28),
        max: gib(40),
        threads: Some(41),
        ..HeapReport::default()
    };
    Evidence {
        exit_code: None,
        signal: Some(9),
        own: CgroupStats {
            limit: Some(gib(44)),
            current: gib(44),
            peak: Some(gib(44)),
            stat,
            events,
            local: events,
        },
        outer: vec![
            OuterLevel::counted("container", Some(gib(104)), MemoryEvents::default()),
            OuterLevel::counted("host", None, MemoryEvents::default()),
        ],
        heap_budget: Some(gib(40)),
        heap: Some(heap),
        victims: vec![VictimProcess {
            pid: 4711,
            name: "java".into(),
            rss: gib(43),
        }],
        ..Evidence::empty(EnforcerKind::Cgroup2)
    }
}

fn waiting() -> TaskRow {
    let mut t = row("map/9", TaskState::Pending, profile(20, 4), 1, Vec::new());
    t.note = "waits for a slot: 4 of 4 taken on every executor".into();
    t
}

/// A task that was killed at the largest size.
pub(crate) fn task_given_up() -> TaskRow {
    let mut a = attempt(
        "map/11@6",
        profile(150, 0),
        5,
        50,
        Some(99),
        Some(ExitReason::TaskOom),
    );
    a.peak = Some(gib(150));
    let mut t = row("map/11", TaskState::Failed, profile(150, 0), 5, vec![a]);
    t.note = "killed alone at 15 GiB, the largest there is".into();
    t
}

/// A busy cluster.
pub(crate) fn cluster() -> ClusterView {
    ClusterView {
        version: "0.1.0".into(),
        epoch: Epoch(3),
        up_s: 532_800,
        nodes_ready: 2,
        nodes: 3,
        memory: gib(750),
        allocated: gib(443),
        used: gib(279),
        cpus: Cpus::from_cores(32),
        cpus_allocated: Cpus::from_cores(20),
        apps_live: 2,
        containers: 12,
        pending: 3,
        oom_1h: 6,
        memory_1h: Some(MemoryFailureStats {
            kills: 6,
            escalated: 6,
            recovered: 5,
            going_on: 1,
            exhausted: 0,
            wasted_byte_s: gib(34).get() * 60,
        }),
        longest_wait: Some(
            "sort.3/own-2 for 130 s: needs 10 GiB on one node, best is worker-03 with 9.5 GiB"
                .into(),
        ),
        enforcers: vec!["cgroup2".into()],
    }
}

/// The nodes of the cluster.
pub(crate) fn nodes() -> Vec<NodeView> {
    let node = |id: &str, state: &str, offers, alloc, heap: u64, used: u64, containers| NodeView {
        id: id.parse().expect("node"),
        state: state.into(),
        reason: None,
        enforcer: EnforcerKind::Cgroup2,
        offers: room(offers, 8),
        allocated: room(alloc, 4),
        allocated_heap: gib(heap),
        used: gib(used),
        host_used: gib(used + 12),
        unattributed: Bytes::ZERO,
        left_by: Vec::new(),
        containers,
        url: "http://10.0.0.1:7072".into(),
        version: "0.1.0".into(),
        traits: Default::default(),
        tags: Default::default(),
        silent_ms: 400,
        mark: None,
        peak_1h: Some(gib(used + used / 2)).filter(|peak| !peak.is_zero()),
    };
    let mut lost = node("worker-04", "unhealthy", 150, 25, 20, 17, 1);
    lost.reason = Some("the enforcer's trial run was not killed at its limit".into());
    lost.silent_ms = 12_000;
    vec![
        node("worker-01", "ready", 150, 108, 90, 68, 4),
        node("worker-03", "ready", 300, 204, 170, 132, 2),
        lost,
        node("worker-05", "ready", 150, 0, 0, 0, 0),
    ]
}

/// A node with marks of operators.
pub(crate) fn tagged() -> NodeView {
    let mut node = nodes().remove(0);
    let name = |text: &str| text.parse().expect("a name");
    node.state = "cordoned".into();
    node.traits.labels = [name("gpu"), name("ssd")].into();
    node.traits.attributes = [
        (name("kernel"), "6.1".to_owned()),
        (name("zone"), "b".to_owned()),
    ]
    .into();
    node.traits.taints = [
        (name("etl"), String::new()),
        (name("team"), "ada".to_owned()),
    ]
    .into();
    node.tags.cordon = Some("a slow disk".into());
    node.tags.labels = [name("gpu")].into();
    node.tags.attributes = [(name("zone"), "b".to_owned())].into();
    node.tags.taints = node.traits.taints.clone();
    node
}

/// Waiting requests.
pub(crate) fn why() -> Vec<PendingExplanation> {
    let node = |id: &str, free: u64, offers: u64, verdict: &str| NodeFitExplanation {
        node: id.parse().expect("node"),
        free: room(free, 2),
        offers: room(offers, 8),
        verdict: verdict.into(),
        out: verdict.contains("unhealthy"),
    };
    vec![PendingExplanation {
        request: "own-map-9-r2".parse().expect("request"),
        asks: room(100, 2),
        missing: 1,
        waiting_ms: 130_000,
        ahead: 0,
        sentence: "needs 10 GiB on one node; best is worker-03 with 9.5 GiB".into(),
        reserved: None,
        nodes: vec![
            node("worker-03", 95, 300, "0.5 GiB short now"),
            node("worker-01", 42, 150, "5.8 GiB short now"),
            node("worker-04", 125, 150, "would fit, but unhealthy"),
        ],
    }]
}

/// The containers of the cluster.
pub(crate) fn containers() -> Vec<ContainerView> {
    let c = |id: &str, request: Option<&str>, memory, state: &str, reason| ContainerView {
        id: id.parse().expect("id"),
        node: "worker-01".parse().expect("node"),
        request: request.map(|r| r.parse().expect("request")),
        resource: room(memory, 1),
        state: state.into(),
        used: Some(gib(memory / 2)),
        granted: UnixMillis(START + 1000),
        reason,
        version: 1,
        attempt: 1,
        ended: None,
        exit_code: None,
        peak: None,
        wanted: None,
    };
    vec![
        c("wordcount.7.e1.c1", None, 1, "running", None),
        c(
            "wordcount.7.e1.c2",
            Some("executor-main"),
            104,
            "running",
            None,
        ),
        c(
            "wordcount.7.e1.c3",
            Some("own-map-7-r2"),
            48,
            "exited",
            Some(ExitReason::OverheadOom),
        ),
    ]
}

/// The end of an event log.
pub(crate) fn events() -> Vec<LoggedEvent> {
    let event = |index, s: u64, level, reason: &str, object: &str, message: &str| LoggedEvent {
        index,
        time: UnixMillis(START + s * 1000),
        level,
        reason: reason.into(),
        object: object.into(),
        app: Some("wordcount.7".parse().expect("id")),
        node: None,
        message: message.into(),
    };
    use EventLevel::{Normal, Warning};
    vec![
        event(
            8801,
            0,
            Normal,
            "JobSubmitted",
            "wordcount.7",
            "submitted by ada to queue default",
        ),
        event(
            8812,
            67,
            Warning,
            "OomKilled",
            "map/7@2",
            "map/7@2 killed at 4.4 GiB on worker-01 (overhead)",
        ),
        event(
            8813,
            68,
            Warning,
            "Escalated",
            "map/7",
            "map/7 rung 2 → 3 (4.4 → 8.8 GiB, own container)",
        ),
        event(8820, 90, Normal, "TaskFinished", "map/2@1", "peak 0.9 GiB"),
        event(
            8829,
            150,
            Warning,
            "NodeSuspect",
            "worker-04",
            "no sign of life for 3 s (lost at 30 s)",
        ),
    ]
}
