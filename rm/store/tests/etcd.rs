//! Tests of a state in a real etcd.

#![allow(missing_docs)] // tests are read, not imported

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headroom_config::etcd::EtcdConfig;
use headroom_rm_core::DurableRecord;
use headroom_rm_etcd::{
    Candidate, ElectionView, EtcdClient, EtcdKeys, EtcdThread, Leadership, ManagerRecord,
    StateFollower, StateWriter,
};
use headroom_rm_store::backup::ExistingStatePolicy;
use headroom_rm_store::etcd::EtcdEngine;
use headroom_rm_store::etcd_state::EtcdState;
use headroom_rm_store::{
    JournalGroup, OpenedStore, RecordStore as _, StoreError, open, open_in_etcd,
};
use headroom_test_fakes::EtcdCluster;
use headroom_types::{AppId, NodeId, StoreBackend};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A manager of the test: its thread, and the means to lead.
struct Manager {
    runtime: Runtime,
    thread: Arc<EtcdThread>,
    client: EtcdClient,
    keys: EtcdKeys,
    id: &'static str,
}

impl Manager {
    fn new(etcd: &EtcdCluster, prefix: &str, id: &'static str) -> Self {
        let settings = EtcdConfig {
            endpoints: etcd.endpoints(),
            prefix: prefix.into(),
            ..EtcdConfig::default()
        };
        Manager {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
            thread: Arc::new(EtcdThread::start().expect("a thread")),
            client: EtcdClient::new(&settings).expect("a client"),
            keys: EtcdKeys::new(prefix),
            id,
        }
    }

    fn lead(&self) -> Leadership {
        let record = ManagerRecord {
            id: self.id.to_owned(),
            ..ManagerRecord::default()
        };
        let lease = Duration::from_secs(10);
        let candidate = Candidate::new(self.client.clone(), self.keys.clone(), record, lease);
        let view = watch::Sender::new(ElectionView::default());
        self.runtime
            .block_on(candidate.campaign(&self.thread, view))
    }

    fn engine(&self, won: &Leadership) -> EtcdEngine {
        let writer = StateWriter::new(self.client.clone(), self.keys.clone(), won.fence());
        let (thread, client) = (self.thread.clone(), self.client.clone());
        EtcdEngine::new(thread, client, self.keys.clone(), writer, None)
    }

    fn open(&self, dir: &Path, won: &Leadership) -> Result<OpenedStore, StoreError> {
        open_in_etcd(dir, self.engine(won))
    }

    fn resign(&self, won: Leadership) {
        self.runtime.block_on(won.resign(&self.thread));
    }
}

fn node(n: usize) -> DurableRecord {
    let id: NodeId = format!("n{n}").parse().expect("id");
    DurableRecord::Node(id)
}

fn app(n: u32) -> AppId {
    AppId::new("job".parse().expect("name"), n)
}

#[test]
fn the_next_leader_has_every_record_and_the_earlier_one_cannot_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
    let (first, second) = (
        Manager::new(&etcd, "/one", "a"),
        Manager::new(&etcd, "/one", "b"),
    );
    let won = first.lead();
    let mut opened = first.open(&dir.path().join("a"), &won).expect("opens");
    let epoch = opened.restored.epoch;
    // More entries than one transaction may have, and a document of many pieces.
    for n in 0..400 {
        opened.journal.append(&node(n)).expect("appends");
    }
    let document = vec![b'd'; 3 << 20];
    let journal = &mut opened.journal;
    journal
        .append_document(&app(1), document.clone())
        .expect("appends");
    let groups = [
        JournalGroup::new(1, 0, b"one\n"),
        JournalGroup::new(1, 4, b"two\n"),
    ];
    for (group, records) in groups.iter().zip([&b"one\n"[..], b"two\n"]) {
        for owner in [1, 2] {
            journal
                .append_journal_group(&app(owner), group, records.to_vec())
                .expect("appends");
        }
    }
    journal.commit(&mut opened.store).expect("commits");
    journal.remove_master_journal(&app(1));
    journal
        .append_document(&app(1), document[..100].to_vec())
        .expect("appends");
    journal
        .append_document(&app(2), document.clone())
        .expect("appends");
    journal
        .append(&DurableRecord::NodeGone("n7".parse().expect("id")))
        .expect("appends");
    journal.commit(&mut opened.store).expect("commits");
    assert!(opened.store.snapshot().expect("a snapshot").exists());

    first.resign(won);
    let won = second.lead();
    let later = second.open(&dir.path().join("b"), &won).expect("opens");
    assert_eq!(later.restored.epoch.0, epoch.0 + 1);
    assert_eq!(later.restored.nodes.len(), 399);
    let read = |n| later.documents.get(&app(n)).expect("reads");
    assert_eq!(read(1), Some(document[..100].to_vec()));
    assert_eq!(read(2), Some(document));
    assert_eq!(read(3), None);
    assert_eq!(later.journals, groups.map(|group| (2, group)));
    let records = |n| later.documents.master_journal(&app(n)).expect("reads");
    assert_eq!((records(1), records(2)), (vec![], b"one\ntwo\n".to_vec()));

    opened.journal.append(&node(1000)).expect("appends");
    let refused = opened.commit().expect_err("it is deposed").to_string();
    assert!(refused.contains("no longer leads"), "{refused}");
    let refused = opened.commit();
    assert!(refused.is_ok(), "nothing waits any more");
}

#[test]
fn a_standby_opens_the_state_from_the_image_that_it_followed() {
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
    let (first, second) = (
        Manager::new(&etcd, "/one", "a"),
        Manager::new(&etcd, "/one", "b"),
    );
    let won = first.lead();
    let mut opened = first.open(&dir.path().join("a"), &won).expect("opens");
    let view = watch::Sender::new(ElectionView::default());
    let (client, keys) = (second.client.clone(), second.keys.clone());
    let mut follower = StateFollower::start(
        &second.thread,
        client,
        keys,
        view.clone(),
        watch::Sender::new(0),
    );
    for n in 0..300 {
        opened.journal.append(&node(n)).expect("appends");
    }
    opened.commit().expect("commits");
    opened
        .journal
        .append(&DurableRecord::NodeGone("n7".parse().expect("id")))
        .expect("appends");
    opened.commit().expect("commits");
    first.resign(won);
    let won = second.lead();
    let within = Duration::from_secs(10);
    second
        .runtime
        .block_on(follower.reach(won.revision(), within))
        .expect("catches up");
    assert_eq!(
        view.borrow().leader.as_ref().map(|l| l.id.as_str()),
        Some("b")
    );
    let image = follower.into_image();
    let writer = StateWriter::new(second.client.clone(), second.keys.clone(), won.fence());
    let engine = EtcdEngine::new(
        second.thread.clone(),
        second.client.clone(),
        second.keys.clone(),
        writer,
        Some(image.entries),
    );
    let later = open_in_etcd(&dir.path().join("b"), engine).expect("opens");
    assert_eq!(later.restored.nodes.len(), 299);
}

#[test]
fn another_cluster_and_an_older_state_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
    let state = dir.path().join("a");
    let one = Manager::new(&etcd, "/one", "a");
    let won = one.lead();
    let mut opened = one.open(&state, &won).expect("opens");
    opened.journal.append(&node(1)).expect("appends");
    opened.commit().expect("commits");
    drop(opened);

    // Another cluster, which has more commits than this manager knows.
    let two = Manager::new(&etcd, "/two", "a");
    let other = two.lead();
    let mut opened = two.open(&dir.path().join("b"), &other).expect("opens");
    for n in 0..9 {
        opened.journal.append(&node(n)).expect("appends");
        opened.commit().expect("commits");
    }
    drop(opened);
    let refused = two
        .open(&state, &other)
        .expect_err("another cluster")
        .to_string();
    assert!(refused.contains("belongs to cluster"), "{refused}");

    // The state of the own cluster, without its last commits.
    two.engine(&other).clear().expect("clears");
    etcd.etcdctl(0, &["del", "--prefix", "/one/state/"])
        .expect("deletes");
    let refused = one.open(&state, &won).expect_err("it is older").to_string();
    assert!(refused.contains("commit 2 was acknowledged"), "{refused}");
}

#[test]
fn a_local_state_is_not_replaced_by_an_empty_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
    let state = dir.path().join("a");
    drop(open(&state, StoreBackend::Sled).expect("opens"));
    let one = Manager::new(&etcd, "/one", "a");
    let won = one.lead();
    let refused = one
        .open(&state, &won)
        .expect_err("not migrated")
        .to_string();
    assert!(
        refused.contains("rmctl operator state migrate"),
        "{refused}"
    );
}

#[test]
fn a_full_etcd_refuses_the_commit_with_the_next_step() {
    let dir = tempfile::tempdir().expect("a directory");
    let quota = ["--quota-backend-bytes", "20000000"];
    let etcd = EtcdCluster::start_with(dir.path(), 1, &quota).expect("etcd runs");
    let one = Manager::new(&etcd, "/one", "a");
    let won = one.lead();
    let mut opened = one.open(&dir.path().join("a"), &won).expect("opens");
    let refused = (0..20)
        .find_map(|n| {
            opened
                .journal
                .append_document(&app(n), vec![1; 2 << 20])
                .expect("appends");
            opened.commit().err()
        })
        .expect("it becomes full")
        .to_string();
    assert!(refused.contains("etcdctl alarm disarm"), "{refused}");
}

#[test]
fn a_state_moves_from_a_directory_to_etcd_and_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
    let config = EtcdConfig {
        endpoints: etcd.endpoints(),
        prefix: "/one".into(),
        lease: Duration::from_secs(2),
        ..EtcdConfig::default()
    };
    let state = dir.path().join("a");
    let document = vec![b'd'; 1 << 20];
    let mut opened = open(&state, StoreBackend::Sled).expect("opens");
    let journal = &mut opened.journal;
    (0..50).for_each(|n| journal.append(&node(n)).expect("appends"));
    journal
        .append_document(&app(1), document.clone())
        .expect("appends");
    journal.commit(&mut opened.store).expect("commits");
    let epoch = opened.restored.epoch;
    drop(opened);

    let there = EtcdState::new(&config).expect("a client");
    let moved = there.take_from(&state).expect("moves");
    assert_eq!((moved.backend.as_str(), moved.records), ("etcd", 52));
    let refused = there
        .take_from(&state)
        .expect_err("nothing is left")
        .to_string();
    assert!(refused.contains("no state in"), "{refused}");

    let one = Manager::new(&etcd, "/one", "a");
    let won = one.lead();
    let mut opened = one.open(&state, &won).expect("opens");
    assert!(opened.restored.epoch > epoch);
    assert_eq!(opened.restored.nodes.len(), 50);
    assert_eq!(
        opened.documents.get(&app(1)).expect("reads"),
        Some(document.clone())
    );
    opened.journal.append(&node(50)).expect("appends");
    opened.commit().expect("commits");

    // A manager leads: a backup is possible, a change is not.
    let file = dir.path().join("backup.jsonl");
    let kept = there.backup(&file).expect("backs up");
    assert_eq!(kept.records, 53);
    let refused = there.restore(&state, &file, ExistingStatePolicy::MoveAside);
    let refused = refused.expect_err("a manager leads").to_string();
    assert!(refused.contains("stop all resource managers"), "{refused}");
    drop(opened);
    one.resign(won);

    let refused = there.restore(&state, &file, ExistingStatePolicy::No);
    assert!(
        refused
            .expect_err("it has a state")
            .to_string()
            .contains("--replace")
    );
    let filled = there
        .restore(&state, &file, ExistingStatePolicy::MoveAside)
        .expect("restores");
    assert!(filled.aside.is_some_and(|file| file.exists()));

    there
        .move_to(&state, StoreBackend::Redb)
        .expect("moves back");
    let opened = open(&state, StoreBackend::Redb).expect("opens");
    assert_eq!(opened.restored.nodes.len(), 51);
    assert_eq!(
        opened.documents.get(&app(1)).expect("reads"),
        Some(document)
    );
    drop(opened);
    let won = one.lead();
    let refused = one
        .open(&dir.path().join("b"), &won)
        .expect_err("it was moved")
        .to_string();
    assert!(refused.contains("it was moved to"), "{refused}");
}
