//! Writes of the leader: each transaction holds only while the leader's key is the leader's own.
//!
//! A transaction without an answer may take effect at any later time, for example when a member
//! continues that was stopped. It must not undo a later write then. So the leader writes its key
//! again before it repeats a transaction: each transaction names the revision of that write, and an
//! earlier one fails.
//!
//! A batch that exceeds etcd's limits of one transaction is written in parts first. One key then
//! makes all parts valid at once, and their entries are applied. A successor finishes what a leader
//! left: valid parts are applied again, others are removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::client::{CALL, EtcdClient};
use crate::error::EtcdError;
use crate::keys::{EtcdKeys, after};
use crate::lease_clock::LeaseClock;
use crate::message::{Compare, DeleteRequest, RequestOp, TxnRequest};

/// Operations in one transaction. etcd's default limit is 128.
const MAX_OPS: usize = 120;
/// Bytes of keys and values in one transaction. etcd's default limit is 1.5 MiB.
const MAX_BYTES: usize = 1 << 20;
/// Transactions of one batch that are under way at once.
const PARALLEL: usize = 8;
/// Bytes of a transaction that a member has half the lease to answer. Renewals wait behind it.
const MAX_QUICK_BYTES: usize = 128 << 10;
/// Shortest time in which a member answers a transaction.
const MIN_ANSWER: Duration = Duration::from_millis(250);
/// Pause before a transaction is sent again.
const AGAIN: Duration = Duration::from_millis(50);

/// One entry of the state; `None` removes it.
type Entry = (String, Option<Vec<u8>>);

/// The condition of all writes of a leader.
#[derive(Clone, Debug)]
pub struct LeaderFence {
    /// The creation revision of the leader's key.
    pub(crate) created: i64,
    /// The revision of its last write.
    pub(crate) modified: Arc<AtomicI64>,
    /// A write of the key with the same value.
    pub(crate) put: Arc<RequestOp>,
    /// Time without a renewal after which a standby replaces the leader.
    pub(crate) lease: Duration,
    pub(crate) clock: Arc<LeaseClock>,
}

/// Writes entries of the state under a fence.
#[derive(Clone, Debug)]
pub struct StateWriter {
    client: EtcdClient,
    keys: EtcdKeys,
    fence: LeaderFence,
}

impl StateWriter {
    /// A writer of the leader with this fence.
    pub fn new(client: EtcdClient, keys: EtcdKeys, fence: LeaderFence) -> Self {
        StateWriter {
            client,
            keys,
            fence,
        }
    }

    /// Writes all entries or none; durable on a majority of the members when this returns. Each key
    /// may occur once.
    ///
    /// # Errors
    /// The outcome is unknown, except for [`EtcdError::Deposed`] and [`EtcdError::Full`], after
    /// which nothing was written.
    pub async fn write(&self, entries: Vec<Entry>) -> Result<(), EtcdError> {
        let mut groups = split(entries);
        match groups.len() {
            0 => Ok(()),
            1 => self.commit(self.operations(groups.remove(0))).await,
            _ => self.write_in_parts(groups).await,
        }
    }

    async fn write_in_parts(&self, groups: Vec<Vec<Entry>>) -> Result<(), EtcdError> {
        let parts = pack(&groups);
        let count = parts.len();
        let puts = parts
            .into_iter()
            .enumerate()
            .map(|(n, bytes)| vec![RequestOp::put(self.keys.part(n), bytes)])
            .collect();
        self.commit_all(puts).await?;
        let complete = RequestOp::put(self.keys.parts_complete(), count.to_string().into_bytes());
        self.commit(vec![complete]).await?;
        self.apply(groups).await
    }

    async fn apply(&self, groups: Vec<Vec<Entry>>) -> Result<(), EtcdError> {
        let all = groups.into_iter().map(|group| self.operations(group));
        self.commit_all(all.collect()).await?;
        self.remove_parts().await
    }

    async fn remove_parts(&self) -> Result<(), EtcdError> {
        let parts = self.keys.parts();
        self.commit(vec![
            RequestOp::delete(self.keys.parts_complete(), None),
            RequestOp::delete(parts.clone(), Some(after(&parts))),
        ])
        .await
    }

    /// Finishes a batch that an earlier leader began. Returns whether there was one. Call it before
    /// the state is read.
    pub async fn finish_batch(&self) -> Result<bool, EtcdError> {
        let complete = self.client.value(self.keys.parts_complete()).await?;
        let mut pages = self.client.pages_of(self.keys.parts());
        let mut parts = Vec::new();
        while let Some(page) = pages.next().await? {
            parts.extend(page.entries.into_iter().map(|(_, bytes)| bytes));
        }
        if complete.is_none() && parts.is_empty() {
            return Ok(false);
        }
        let Some(count) = complete else {
            self.remove_parts().await?;
            return Ok(true);
        };
        let whole = std::str::from_utf8(&count)
            .ok()
            .and_then(|n| n.parse().ok())
            == Some(parts.len());
        let entries = whole.then(|| unpack(&parts)).flatten();
        let Some(entries) = entries else {
            return Err(EtcdError::Answer(format!(
                "the batch below {} is damaged; restore a backup",
                String::from_utf8_lossy(&self.keys.parts())
            )));
        };
        self.apply(split(entries)).await?;
        Ok(true)
    }

    /// Removes all entries of the state.
    pub async fn clear(&self) -> Result<(), EtcdError> {
        let state = self.keys.state();
        self.commit(vec![RequestOp::delete(state.clone(), Some(after(&state)))])
            .await?;
        self.remove_parts().await
    }

    /// Sets a key outside the entries.
    pub async fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), EtcdError> {
        self.commit(vec![RequestOp::put(key, value)]).await
    }

    /// Removes a key outside the entries.
    pub async fn remove(&self, key: Vec<u8>) -> Result<(), EtcdError> {
        self.commit(vec![RequestOp::delete(key, None)]).await
    }

    fn operations(&self, entries: Vec<Entry>) -> Vec<RequestOp> {
        entries
            .into_iter()
            .map(|(key, bytes)| {
                let key = self.keys.entry(key.as_bytes());
                match bytes {
                    Some(bytes) => RequestOp::put(key, bytes),
                    None => RequestOp::delete(key, None),
                }
            })
            .collect()
    }

    /// Commits independent transactions, several at a time.
    async fn commit_all(&self, all: Vec<Vec<RequestOp>>) -> Result<(), EtcdError> {
        let (mut waiting, mut running) = (all.into_iter(), JoinSet::new());
        loop {
            while running.len() < PARALLEL
                && let Some(ops) = waiting.next()
            {
                let writer = self.clone();
                running.spawn(async move { writer.commit(ops).await });
            }
            match running.join_next().await {
                None => return Ok(()),
                Some(Ok(done)) => done?,
                Some(Err(fault)) => return Err(EtcdError::Answer(fault.to_string())),
            }
        }
    }

    /// Commits one transaction, and sends it again while its outcome is unknown and the leader waits
    /// for a renewal of its lease.
    async fn commit(&self, ops: Vec<RequestOp>) -> Result<(), EtcdError> {
        let mut last = None;
        loop {
            let left = self.fence.clock.remaining_grace();
            if left.is_zero() {
                // Nothing was written if nothing was sent.
                return Err(last.map_or(EtcdError::Deposed, EtcdError::Unconfirmed));
            }
            // A member that is cut off must not hold the leader for longer.
            let sent = tokio::time::timeout(left, self.send(&ops, last.is_some()));
            match sent.await {
                Ok(Ok(SendEnd::Committed)) => return Ok(()),
                Ok(Ok(SendEnd::FenceMoved)) => {}
                Ok(Err(error)) if !error.is_transient() => return Err(error),
                Ok(Err(error)) => {
                    last = Some(error.to_string());
                    tokio::time::sleep(AGAIN).await;
                }
                Err(_) => last = Some("no member has answered".to_owned()),
            }
        }
    }

    /// Sends one transaction. If it `repeats` an earlier one, that one has no effect afterwards.
    async fn send(&self, ops: &[RequestOp], repeats: bool) -> Result<SendEnd, EtcdError> {
        if repeats {
            self.move_fence().await?;
        }
        let within = answer_timeout(self.fence.lease, ops);
        let request = self.guarded(ops);
        let answer = self.client.transaction_once(&request, within).await?;
        if answer.succeeded {
            return Ok(SendEnd::Committed);
        }
        let found = answer.responses.into_iter().next();
        let found = found.and_then(|found| found.response_range?.kvs.pop());
        let own = found.filter(|key| key.create_revision.0 == self.fence.created);
        // Another transaction of this leader has moved the fence.
        let own = own.ok_or(EtcdError::Deposed)?;
        self.fence_is_at(own.mod_revision.0);
        Ok(SendEnd::FenceMoved)
    }

    /// A transaction that holds while this manager leads and the fence does not move. Otherwise it
    /// reads the leader's key.
    fn guarded(&self, ops: &[RequestOp]) -> TxnRequest {
        let modified = self.fence.modified.load(Ordering::Acquire);
        TxnRequest {
            compare: vec![
                Compare::created(self.keys.leader(), self.fence.created),
                Compare::modified(self.keys.leader(), modified),
            ],
            success: ops.to_vec(),
            failure: vec![RequestOp::read(self.keys.leader())],
        }
    }

    /// Writes the leader's key again. Transactions that were sent before have no effect afterwards.
    async fn move_fence(&self) -> Result<(), EtcdError> {
        let request = TxnRequest {
            compare: vec![Compare::created(self.keys.leader(), self.fence.created)],
            success: vec![(*self.fence.put).clone()],
            failure: Vec::new(),
        };
        let within = answer_timeout(self.fence.lease, &request.success);
        let answer = self.client.transaction_once(&request, within).await?;
        if !answer.succeeded {
            return Err(EtcdError::Deposed);
        }
        self.fence_is_at(answer.header.revision.0);
        Ok(())
    }

    fn fence_is_at(&self, revision: i64) {
        self.fence.modified.fetch_max(revision, Ordering::AcqRel);
    }
}

/// The end of a transaction that a member decided.
enum SendEnd {
    Committed,
    /// Nothing was written. The transaction can be sent again.
    FenceMoved,
}

/// Time for which one member may leave a transaction without an answer: half the lease. A member
/// loses the transactions that it passes to a leader of etcd that has ended, and another member has
/// found the next leader sooner than a long wait ends. Large transactions, and those that remove any
/// number of keys, take longer.
fn answer_timeout(lease: Duration, ops: &[RequestOp]) -> Duration {
    let mut bytes = 0;
    for op in ops {
        bytes += match op {
            RequestOp::Put(put) => put.key.0.len() + put.value.0.len(),
            RequestOp::Delete(DeleteRequest {
                range_end: None,
                key,
            }) => key.0.len(),
            RequestOp::Delete(_) | RequestOp::Range(_) => return CALL,
        };
    }
    if bytes > MAX_QUICK_BYTES {
        return CALL;
    }
    (lease / 2).clamp(MIN_ANSWER, CALL)
}

fn size((key, bytes): &Entry) -> usize {
    key.len() + bytes.as_ref().map_or(0, Vec::len)
}

/// Groups of entries that fit into one transaction each.
fn split(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let (mut groups, mut group, mut bytes) = (Vec::new(), Vec::new(), 0);
    for entry in entries {
        if group.len() == MAX_OPS || (!group.is_empty() && bytes + size(&entry) > MAX_BYTES) {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
        bytes += size(&entry);
        group.push(entry);
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

/// Groups as bytes, several groups in one part as far as they fit.
fn pack(groups: &[Vec<Entry>]) -> Vec<Vec<u8>> {
    let (mut parts, mut part) = (Vec::new(), Vec::new());
    for group in groups {
        let mut bytes = Vec::new();
        for (key, value) in group {
            append(&mut bytes, key.as_bytes());
            bytes.push(u8::from(value.is_some()));
            append(&mut bytes, value.as_deref().unwrap_or_default());
        }
        if !part.is_empty() && part.len() + bytes.len() > MAX_BYTES {
            parts.push(std::mem::take(&mut part));
        }
        part.extend(bytes);
    }
    parts.push(part);
    parts
}

fn append(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend_from_slice(bytes);
}

/// The entries of all parts; `None` if a part is damaged.
fn unpack(parts: &[Vec<u8>]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for part in parts {
        let mut rest = part.as_slice();
        while !rest.is_empty() {
            let key = String::from_utf8(take(&mut rest)?.to_vec()).ok()?;
            let (present, after) = rest.split_first()?;
            rest = after;
            let value = take(&mut rest)?.to_vec();
            entries.push((key, (*present == 1).then_some(value)));
        }
    }
    Some(entries)
}

fn take<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = from.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Candidate, ElectionView, EtcdThread, Leadership, ManagerRecord};
    use headroom_config::etcd::EtcdConfig;
    use headroom_test_fakes::EtcdCluster;
    use proptest::prelude::*;
    use tokio::sync::watch;

    proptest! {
        #[test]
        fn groups_fit_and_parts_restore_all_entries(
            sizes in prop::collection::vec(prop::option::of(0usize..300_000), 0..200),
        ) {
            let entries: Vec<Entry> = sizes
                .iter()
                .enumerate()
                .map(|(n, size)| (format!("app/{n}"), size.map(|size| vec![7; size])))
                .collect();
            let groups = split(entries.clone());
            for group in &groups {
                prop_assert!(group.len() <= MAX_OPS);
                prop_assert!(group.iter().map(size).sum::<usize>() <= MAX_BYTES);
            }
            prop_assert_eq!(groups.concat(), entries.clone());
            let parts = pack(&groups);
            // A part has the lengths of its entries too.
            prop_assert!(parts.iter().all(|part| part.len() <= MAX_BYTES + MAX_OPS * 9));
            prop_assert_eq!(unpack(&parts), Some(entries));
        }

        #[test]
        fn a_cut_part_is_noticed(cut in 1usize..30) {
            let parts = pack(&[vec![("app/1".to_owned(), Some(vec![1; 30]))]]);
            let cut = parts[0][..parts[0].len() - cut].to_vec();
            prop_assert_eq!(unpack(&[cut]), None);
        }
    }

    #[test]
    fn a_member_has_half_the_lease_to_answer_a_small_transaction() {
        let seconds = Duration::from_secs;
        let small = [
            RequestOp::put(b"k".to_vec(), vec![0; 1_000]),
            RequestOp::delete(b"d".to_vec(), None),
        ];
        let wait = |lease| answer_timeout(lease, &small);
        assert_eq!(wait(seconds(1)), Duration::from_millis(500));
        assert_eq!(wait(Duration::from_millis(300)), MIN_ANSWER);
        assert_eq!(wait(seconds(60)), CALL);
        let large = [RequestOp::put(b"k".to_vec(), vec![0; MAX_QUICK_BYTES])];
        assert_eq!(answer_timeout(seconds(1), &large), CALL);
        let range = [RequestOp::delete(b"a".to_vec(), Some(b"b".to_vec()))];
        assert_eq!(answer_timeout(seconds(1), &range), CALL);
    }

    fn client_of(endpoints: Vec<String>) -> EtcdClient {
        let settings = EtcdConfig {
            endpoints,
            ..EtcdConfig::default()
        };
        EtcdClient::new(&settings).expect("a client")
    }

    /// A leader of a real etcd with a lease of 10 s, and the client of its calls.
    fn leader(
        thread: &EtcdThread,
        endpoints: Vec<String>,
        id: &str,
    ) -> (StateWriter, Leadership, EtcdClient) {
        let lease = Duration::from_secs(10);
        let client = client_of(endpoints);
        let keys = EtcdKeys::new("/test");
        let record = ManagerRecord {
            id: id.to_owned(),
            ..ManagerRecord::default()
        };
        let candidate = Candidate::new(client.clone(), keys.clone(), record, lease);
        let view = watch::Sender::new(ElectionView::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let won = runtime.block_on(candidate.campaign(thread, view));
        (
            StateWriter::new(client.clone(), keys, won.fence()),
            won,
            client,
        )
    }

    fn entries(count: usize, fill: u8) -> Vec<Entry> {
        (0..count)
            .map(|n| (format!("app/{n:04}"), Some(vec![fill; 6_000])))
            .collect()
    }

    async fn read(client: EtcdClient) -> Vec<Entry> {
        let mut pages = client.pages_of(b"/test/state/".to_vec());
        let mut all = Vec::new();
        while let Some(page) = pages.next().await.expect("reads") {
            let entry = |(key, value): (Vec<u8>, Vec<u8>)| {
                let key = String::from_utf8(key).expect("text");
                (key.replace("/test/state/", ""), Some(value))
            };
            all.extend(page.entries.into_iter().map(entry));
        }
        all
    }

    #[test]
    fn a_write_that_is_repeated_undoes_no_later_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
        let thread = EtcdThread::start().expect("a thread");
        let (writer, _won, client) = leader(&thread, etcd.endpoints(), "a");
        let value = |fill| vec![RequestOp::put(writer.keys.entry(b"app/1"), vec![fill])];

        // The first sending has no answer yet.
        let late = writer.guarded(&value(1));
        let (repeating, ops) = (writer.clone(), value(1));
        let repeated = thread.wait(async move { repeating.send(&ops, true).await });
        let repeated = repeated.expect("runs").expect("writes");
        assert!(matches!(repeated, SendEnd::Committed));
        let later = writer.clone();
        thread
            .wait(async move { later.write(vec![("app/1".into(), Some(vec![2]))]).await })
            .expect("runs")
            .expect("writes");
        let (delayed, reader) = (client.clone(), client.clone());
        let arrives = thread.wait(async move { delayed.transaction(&late).await });
        assert!(!arrives.expect("runs").expect("answers").succeeded);
        assert_eq!(
            thread.wait(read(reader)),
            Some(vec![("app/1".to_owned(), Some(vec![2]))])
        );

        // A leader whose fence was moved by a late call finds it again.
        writer.fence.modified.store(0, Ordering::Release);
        thread
            .wait(async move { writer.write(vec![("app/1".into(), Some(vec![3]))]).await })
            .expect("runs")
            .expect("writes");
        assert_eq!(
            thread.wait(read(client)),
            Some(vec![("app/1".to_owned(), Some(vec![3]))])
        );
    }

    #[test]
    fn a_silent_member_is_left_after_half_the_lease() {
        let dir = tempfile::tempdir().expect("a directory");
        let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
        let thread = EtcdThread::start().expect("a thread");
        let (leading, _won, client) = leader(&thread, etcd.endpoints(), "a");
        // Connections wait in the backlog of a listener that accepts none.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let silent = format!("http://{}", listener.local_addr().expect("an address"));
        let mut writer = leading;
        writer.client = client_of([vec![silent], etcd.endpoints()].concat());
        writer.fence.lease = Duration::from_secs(1);
        let created = writer.fence.created;

        let (first, repeating) = (writer.clone(), writer.clone());
        let value = vec![RequestOp::put(writer.keys.entry(b"app/1"), vec![1])];
        let again = value.clone();
        let sent = thread.wait(async move { first.send(&value, false).await });
        let unanswered = sent.expect("runs").err().expect("no answer");
        assert!(
            unanswered.to_string().contains("no answer within 500 ms"),
            "{unanswered}"
        );
        // The first sending may still arrive, so the fence moves before the second one.
        let sent = thread.wait(async move { repeating.send(&again, true).await });
        let sent = sent.expect("runs").expect("the other member answers");
        assert!(matches!(sent, SendEnd::Committed));
        assert!(writer.fence.modified.load(Ordering::Acquire) > created);
        assert_eq!(
            thread.wait(read(client)),
            Some(vec![("app/1".to_owned(), Some(vec![1]))])
        );
    }

    #[test]
    fn a_large_batch_is_written_whole_or_finished_by_the_next_leader() {
        let dir = tempfile::tempdir().expect("a directory");
        let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
        let thread = EtcdThread::start().expect("a thread");
        let (writer, won, client) = leader(&thread, etcd.endpoints(), "a");
        let whole = writer.clone();
        thread
            .wait(async move { whole.write(entries(500, 1)).await })
            .expect("runs")
            .expect("writes");
        let reader = client.clone();
        assert_eq!(thread.wait(read(reader)), Some(entries(500, 1)));

        // A leader that ends after the parts are valid, and before their entries are applied.
        let ending = writer.clone();
        let parts = pack(&split(entries(500, 2)));
        thread
            .wait(async move {
                let mut puts: Vec<_> = (0..)
                    .zip(&parts)
                    .map(|(n, part)| RequestOp::put(ending.keys.part(n), part.clone()))
                    .collect();
                let count = parts.len().to_string().into_bytes();
                puts.push(RequestOp::put(ending.keys.parts_complete(), count));
                ending
                    .commit_all(puts.into_iter().map(|op| vec![op]).collect())
                    .await
            })
            .expect("runs")
            .expect("writes");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(won.resign(&thread));
        let (next, _won, _) = leader(&thread, etcd.endpoints(), "b");
        let finished = thread.wait(async move { next.finish_batch().await });
        assert_eq!(finished, Some(Ok(true)));
        assert_eq!(thread.wait(read(client.clone())), Some(entries(500, 2)));

        // The deposed leader can write neither a small nor a large batch.
        for count in [1, 500] {
            let old = writer.clone();
            let refused = thread.wait(async move { old.write(entries(count, 3)).await });
            assert_eq!(refused, Some(Err(EtcdError::Deposed)));
        }
        assert_eq!(thread.wait(read(client)), Some(entries(500, 2)));
    }

    #[test]
    fn parts_without_their_end_are_removed_by_the_next_leader() {
        let dir = tempfile::tempdir().expect("a directory");
        let etcd = EtcdCluster::start(dir.path(), 1).expect("etcd runs");
        let thread = EtcdThread::start().expect("a thread");
        let (writer, _won, client) = leader(&thread, etcd.endpoints(), "a");
        let (begun, next) = (writer.clone(), writer);
        let key = begun.keys.part(0);
        thread
            .wait(async move { begun.put(key, b"half".to_vec()).await })
            .expect("runs")
            .expect("writes");
        let again = next.clone();
        assert_eq!(
            thread.wait(async move { next.finish_batch().await }),
            Some(Ok(true))
        );
        assert_eq!(
            thread.wait(async move { again.finish_batch().await }),
            Some(Ok(false))
        );
        assert_eq!(thread.wait(read(client)), Some(Vec::new()));
    }
}
