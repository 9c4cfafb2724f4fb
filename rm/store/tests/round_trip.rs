//! Tests that all saved records are restored in the next epoch.

#![allow(missing_docs)] // tests are read, not imported

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use headroom_rm_core::event::AfterDrain;
use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::QueueDefinition;
use headroom_rm_core::{
    AppSubmission, ApplicationOutcome, AttemptRecord, DurableRecord, EndedContainer, MasterKind,
    NodeTags, SavedDrainMark, SavedStage, SavedState,
};
use headroom_rm_store::{MAX_VALUE, OpenedStore, open};
use headroom_types::{
    AppId, Bytes, ContainerId, Cpus, Epoch, ExitReason, LaunchSpec, MasterGrowth, Resource,
    StoreBackend, UnixMillis,
};

mod backends;
use backends::on_every_backend;

on_every_backend!(
    an_application_is_restored_unchanged,
    all_stages_of_applications_are_restored,
    drain_marks_are_restored,
    operator_tags_are_restored,
    the_queue_tree_is_restored,
    removed_records_stay_removed_and_their_numbers_are_not_reused,
    documents_shrink_and_grow_and_are_never_stored_in_unsynced_files,
    each_incarnation_has_its_own_epoch,
);

fn id(text: &str) -> AppId {
    text.parse().expect("id")
}

fn managed() -> AppSubmission {
    let launch = LaunchSpec {
        command: vec!["appmaster".into(), "--job".into()],
        env: BTreeMap::from([("A".into(), "b".into())]),
        files: BTreeMap::from([("job.toml".into(), "x".repeat(200_000))]),
        fetch: vec![],
        aux_services: vec!["spark-shuffle".parse().expect("name")],
        heap: Some(Bytes::from_mib(64)),
        heap_exit_codes: vec![3],
        stop_grace_ms: Some(500),
        max_processes: Some(9),
        task_groups: true,
    };
    AppSubmission {
        name: "job".parse().expect("name"),
        queue: "default".parse().expect("name"),
        priority: -3,
        user: "ann".into(),
        lifetime: Some(std::time::Duration::from_secs(3600)),
        master: MasterKind::Managed {
            resource: Resource::new(Bytes::from_mib(128), Cpus::from_milli(500)),
            launch: Arc::new(launch),
            max_attempts: 4,
            growth: Some(MasterGrowth {
                max_memory: Bytes::from_gib(1),
            }),
            start_timeout: Some(std::time::Duration::from_secs(600)),
            first_request: None,
        },
        key: Some("once".into()),
    }
}

fn state(stage: SavedStage) -> SavedState {
    SavedState {
        stage,
        diagnostics: "so far".into(),
        attempt: 2,
        charged: 1,
        uncharged: 3,
        master: Some("job.7.e1.c4".parse().expect("id")),
        master_node: Some("n1".parse().expect("id")),
        master_size: Some(Resource::new(Bytes::from_mib(256), Cpus::from_cores(1))),
        master_heap: Some(Bytes::from_mib(128)),
        ended: matches!(stage, SavedStage::Ended(_)).then_some(UnixMillis(77)),
        queue: Some("root.etl.nightly".parse().expect("queue")),
        priority: Some(7),
        until: Some(UnixMillis(99)),
        runs: vec![run(1, Some(ApplicationOutcome::Failed)), run(2, None)],
    }
}

fn run(number: u32, outcome: Option<ApplicationOutcome>) -> AttemptRecord {
    AttemptRecord {
        number,
        container: Some("job.7.e1.c4".parse().expect("id")),
        node: Some("n1".parse().expect("id")),
        resource: Some(Resource::new(Bytes::from_mib(256), Cpus::from_cores(1))),
        started: Some(UnixMillis(5)),
        ended: outcome.map(|_| UnixMillis(9)),
        outcome,
        reason: outcome.map(|_| ExitReason::HeapOom),
        charged: outcome.is_some(),
        why: "out of memory".into(),
    }
}

fn finished(container: &str, ended: u64) -> EndedContainer {
    EndedContainer {
        container: container.parse().expect("id"),
        node: "n1".parse().expect("id"),
        request: Some("main".parse().expect("id")),
        attempt: 2,
        resource: Resource::new(Bytes::from_mib(32), Cpus::from_cores(1)),
        granted: UnixMillis(1),
        ended: UnixMillis(ended),
        reason: ExitReason::Exit { code: 3 },
        exit_code: Some(3),
        peak: Some(Bytes::from_mib(30)),
        why: "child processes".into(),
    }
}

fn an_application_is_restored_unchanged(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let spec = Arc::new(managed());
    {
        let OpenedStore {
            mut journal,
            mut store,
            ..
        } = open(dir.path(), backend).expect("opens");
        journal
            .append(&DurableRecord::App {
                app: id("job.7"),
                spec: spec.clone(),
                submitted: UnixMillis(5),
            })
            .expect("appends");
        journal
            .append(&DurableRecord::State {
                app: id("job.7"),
                state: Box::new(state(SavedStage::Running)),
            })
            .expect("appends");
        journal
            .append(&DurableRecord::Container(
                finished("job.7.e1.c9", 30).into(),
            ))
            .expect("appends");
        journal
            .append(&DurableRecord::Container(
                finished("job.7.e1.c10", 20).into(),
            ))
            .expect("appends");
        journal
            .append(&DurableRecord::Node("n1".parse().expect("id")))
            .expect("appends");
        journal.commit(&mut store).expect("commits");
    }
    let restored = open(dir.path(), backend).expect("opens").restored;
    assert_eq!((restored.epoch, restored.last_app), (Epoch(2), 7));
    assert_eq!(restored.apps.len(), 1);
    let app = &restored.apps[0];
    assert_eq!(
        (&app.id, &*app.spec, app.submitted),
        (&id("job.7"), &*spec, UnixMillis(5))
    );
    assert_eq!(app.state, state(SavedStage::Running));
    assert_eq!(
        restored.finished,
        [finished("job.7.e1.c10", 20), finished("job.7.e1.c9", 30)],
        "the oldest container is first"
    );
    assert_eq!(restored.nodes, ["n1".parse().expect("id")]);
}

fn all_stages_of_applications_are_restored(backend: StoreBackend) {
    let outcomes = [
        ApplicationOutcome::Succeeded,
        ApplicationOutcome::Failed,
        ApplicationOutcome::Killed,
    ];
    let mut stages = vec![SavedStage::Accepted, SavedStage::Running];
    stages.extend(outcomes.map(SavedStage::Finishing));
    stages.extend(outcomes.map(SavedStage::Ended));
    let dir = tempfile::tempdir().expect("a directory");
    let spec = Arc::new(AppSubmission {
        master: MasterKind::Unmanaged,
        key: None,
        ..managed()
    });
    {
        let OpenedStore {
            mut journal,
            mut store,
            ..
        } = open(dir.path(), backend).expect("opens");
        for (n, stage) in (1..).zip(&stages) {
            let app = AppId::new("job".parse().expect("name"), n);
            journal
                .append(&DurableRecord::App {
                    app: app.clone(),
                    spec: spec.clone(),
                    submitted: UnixMillis(1),
                })
                .expect("appends");
            journal
                .append(&DurableRecord::State {
                    app,
                    state: Box::new(state(*stage)),
                })
                .expect("appends");
        }
        journal.commit(&mut store).expect("commits");
    }
    let mut apps = open(dir.path(), backend).expect("opens").restored.apps;
    apps.sort_by_key(|a| a.id.seq());
    assert_eq!(
        apps.iter().map(|a| a.state.stage).collect::<Vec<_>>(),
        stages
    );
    assert!(apps.iter().all(|a| *a.spec == *spec));
}

fn drain_marks_are_restored(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let mark = |reason: &str, until, then, drained| SavedDrainMark {
        reason: reason.into(),
        until,
        then,
        drained,
    };
    let marks: [(headroom_types::NodeId, SavedDrainMark); 2] = [
        (
            "n1".parse().expect("id"),
            mark("new disk", Some(UnixMillis(99)), AfterDrain::Stay, false),
        ),
        (
            "n2".parse().expect("id"),
            mark("", None, AfterDrain::Decommission, true),
        ),
    ];
    {
        let OpenedStore {
            mut journal,
            mut store,
            ..
        } = open(dir.path(), backend).expect("opens");
        for (node, mark) in &marks {
            journal
                .append(&DurableRecord::Mark {
                    node: node.clone(),
                    mark: mark.clone(),
                })
                .expect("appends");
        }
        let (node, mark) = ("n3".parse().expect("id"), marks[0].1.clone());
        journal
            .append(&DurableRecord::Mark { node, mark })
            .expect("appends");
        journal.commit(&mut store).expect("commits");
        journal
            .append(&DurableRecord::MarkGone("n3".parse().expect("id")))
            .expect("appends");
        journal.commit(&mut store).expect("commits");
    }
    assert_eq!(
        open(dir.path(), backend).expect("opens").restored.marks,
        marks
    );
}

fn operator_tags_are_restored(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let (n1, n2): (headroom_types::NodeId, headroom_types::NodeId) =
        ("n1".parse().expect("id"), "n2".parse().expect("id"));
    let name = |text: &str| text.parse().expect("a name");
    let tags = NodeTags {
        cordon: Some("new disk".into()),
        labels: [name("gpu")].into(),
        attributes: [(name("zone"), "b".to_owned())].into(),
        taints: [(name("etl"), String::new())].into(),
    };
    {
        let OpenedStore {
            mut journal,
            mut store,
            ..
        } = open(dir.path(), backend).expect("opens");
        for node in [&n1, &n2] {
            journal
                .append(&DurableRecord::Tags {
                    node: node.clone(),
                    tags: Box::new(tags.clone()),
                })
                .expect("appends");
        }
        journal.commit(&mut store).expect("commits");
        journal
            .append(&DurableRecord::Tags {
                node: n2,
                tags: Box::default(),
            })
            .expect("appends");
        journal.commit(&mut store).expect("commits");
    }
    assert_eq!(
        open(dir.path(), backend).expect("opens").restored.tags,
        [(n1, tags)]
    );
}

fn the_queue_tree_is_restored(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let weighs = |weight| QueueDefinition {
        weight: Some(weight),
        max_apps: Some(9),
        ..QueueDefinition::default()
    };
    let tree = |names: [&str; 2]| {
        let children = names
            .into_iter()
            .zip(1..)
            .map(|(name, weight)| (name.parse().expect("name"), weighs(weight)))
            .collect();
        Box::new(
            QueueTree::new(QueueDefinition {
                children,
                ..QueueDefinition::default()
            })
            .expect("right"),
        )
    };
    {
        let OpenedStore {
            mut journal,
            mut store,
            ..
        } = open(dir.path(), backend).expect("opens");
        for (generation, names) in [(1, ["a", "b"]), (2, ["etl", "adhoc"])] {
            journal
                .append(&DurableRecord::Queues {
                    generation,
                    tree: tree(names),
                })
                .expect("appends");
            journal.commit(&mut store).expect("commits");
        }
    }
    let restored = open(dir.path(), backend).expect("opens").restored;
    assert_eq!(
        restored.queues,
        Some((2, *tree(["etl", "adhoc"]))),
        "the latest tree is restored completely"
    );
}

fn removed_records_stay_removed_and_their_numbers_are_not_reused(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let container: ContainerId = "job.7.e1.c9".parse().expect("id");
    {
        let mut opened = open(dir.path(), backend).expect("opens");
        let journal = &mut opened.journal;
        journal
            .append(&DurableRecord::App {
                app: id("job.7"),
                spec: Arc::new(managed()),
                submitted: UnixMillis(5),
            })
            .expect("appends");
        journal
            .append(&DurableRecord::State {
                app: id("job.7"),
                state: Box::new(state(SavedStage::Running)),
            })
            .expect("appends");
        journal
            .append_document(&id("job.7"), vec![b'1'; 100_000])
            .expect("appends");
        journal
            .append(&DurableRecord::Container(
                finished("job.7.e1.c9", 30).into(),
            ))
            .expect("appends");
        journal
            .append(&DurableRecord::Node("n1".parse().expect("id")))
            .expect("appends");
        journal.commit(&mut opened.store).expect("commits");
        journal
            .append(&DurableRecord::AppGone(id("job.7")))
            .expect("appends");
        journal
            .append(&DurableRecord::ContainerGone(container))
            .expect("appends");
        journal
            .append(&DurableRecord::NodeGone("n1".parse().expect("id")))
            .expect("appends");
        journal.commit(&mut opened.store).expect("commits");
        assert_eq!(opened.documents.get(&id("job.7")).expect("reads"), None);
    }
    let restored = open(dir.path(), backend).expect("opens").restored;
    assert!(restored.apps.is_empty() && restored.finished.is_empty() && restored.nodes.is_empty());
    assert_eq!(restored.last_app, 7);
}

fn documents_shrink_and_grow_and_are_never_stored_in_unsynced_files(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let app = id("job.7");
    let mut opened = open(dir.path(), backend).expect("opens");
    for length in [10, MAX_VALUE, 0, 70_000, 6 << 10, (6 << 10) + 1] {
        let document: Vec<u8> = (0..length)
            .map(|i| u8::try_from(i % 253).expect("small"))
            .collect();
        opened
            .journal
            .append_document(&app, document.clone())
            .expect("appends");
        opened.commit().expect("commits");
        assert_eq!(opened.documents.get(&app).expect("reads"), Some(document));
        if backend == StoreBackend::Sled {
            assert_eq!(
                fs::read_dir(dir.path().join("store/blobs"))
                    .expect("reads")
                    .count(),
                0,
                "at {length} bytes"
            );
        }
    }
    drop(opened);
    let documents = open(dir.path(), backend).expect("opens").documents;
    assert_eq!(
        documents.get(&app).expect("reads").map(|d| d.len()),
        Some((6 << 10) + 1)
    );
}

fn each_incarnation_has_its_own_epoch(backend: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    for life in 1..=4 {
        assert_eq!(
            open(dir.path(), backend).expect("opens").restored.epoch,
            Epoch(life)
        );
    }
}
