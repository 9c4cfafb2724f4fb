//! Backup and restore of a state in etcd, and its migration from and to a state directory.
//!
//! A backup reads one revision of etcd and may run beside the managers. All changes need the
//! leadership, so no manager can lead meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headroom_config::etcd::EtcdConfig;
use headroom_rm_etcd::{
    Candidate, ElectionView, EtcdClient, EtcdError, EtcdKeys, EtcdThread, Leadership,
    ManagerRecord, StateWriter,
};
use headroom_types::StoreBackend;
use tokio::sync::watch;

use crate::anchor::AnchorFile;
use crate::backup::{
    self, BackupSummary, ExistingStatePolicy, RestoreSummary, fill, move_aside, occupied, verify,
    write_file,
};
use crate::check::StateReport;
use crate::database::DatabaseStore;
use crate::engine::StorageEngine;
use crate::etcd::EtcdEngine;
use crate::make::ahead;
use crate::open::{etcd_place, older};
use crate::record::MetaRecord;
use crate::replay::replay;
use crate::scan::{ScanError, ScanResult, scan};
use crate::{StoreError, lock};

/// Reads of a state that managers change at the same time, before the difference is an error.
const READS: usize = 5;
/// Time beyond the lease of an earlier leader.
const ELECTION: Duration = Duration::from_secs(3);
/// The name of the backend in summaries.
const ETCD: &str = "etcd";
/// The file of a migration, in the state directory.
const MIGRATION: &str = "migration.jsonl";

/// The state of a cluster in etcd.
#[derive(Debug)]
pub struct EtcdState {
    thread: Arc<EtcdThread>,
    client: EtcdClient,
    keys: EtcdKeys,
    lease: Duration,
    place: PathBuf,
}

impl EtcdState {
    /// The state that a configuration names. Nothing is called yet.
    pub fn new(config: &EtcdConfig) -> Result<Self, StoreError> {
        let place = etcd_place(&config.prefix);
        let failed = |source: EtcdError| StoreError::database(&place, &place, source.into());
        let thread = EtcdThread::start().map_err(|source| StoreError::File {
            file: place.clone(),
            source,
        })?;
        Ok(EtcdState {
            client: EtcdClient::new(config).map_err(failed)?,
            keys: EtcdKeys::new(&config.prefix),
            thread: Arc::new(thread),
            lease: config.lease,
            place,
        })
    }

    /// Writes the whole state into the file `to`, which must not exist yet.
    pub fn backup(&self, to: &Path) -> Result<BackupSummary, StoreError> {
        if to.exists() {
            return Err(StoreError::NotEmpty {
                place: to.to_owned(),
                holds: "exists already".into(),
                advice: "name another file".into(),
            });
        }
        let (thread, client) = (self.thread.clone(), self.client.clone());
        let reader = EtcdEngine::reader(thread, client, self.keys.clone());
        let mut found = reader.scan_once();
        for _ in 1..READS {
            // A manager may write a large batch, which is not one transaction.
            if matches!(found, Err(ScanError::Count { .. } | ScanError::Frame(_))) {
                found = reader.scan_once();
            }
        }
        let (scan, engine) = found.map_err(|e| self.damaged(&e))?;
        self.write_backup(&scan, &engine, to)
    }

    /// Checks the state. `dir` has the snapshots and the last commit that this host knows.
    pub fn check(&self, dir: &Path) -> Result<StateReport, StoreError> {
        let mut report = StateReport::empty(&self.place);
        report.directory(dir)?;
        let (thread, client) = (self.thread.clone(), self.client.clone());
        let reader = EtcdEngine::reader(thread, client, self.keys.clone());
        let failed = |source| StoreError::database(&self.place, &self.place, source);
        if let Some(reason) = reader.closed().map_err(failed)? {
            report.failed(StoreError::Closed {
                state: self.place.clone(),
                reason,
            });
        }
        match reader.scan_once() {
            Err(ScanError::Database(source)) => return Err(failed(source)),
            Err(error) => report.failed(self.damaged(&error)),
            Ok((scan, _)) => {
                let seal = scan.seal.ok_or_else(|| StoreError::Nothing {
                    dir: self.place.clone(),
                })?;
                report.backend = Some(ETCD.to_owned());
                report.scanned(seal.commit, &scan, |error| self.damaged(error));
                if let Some(acknowledged) = report.acknowledged.filter(|known| *known > seal.commit)
                {
                    report.failed(older(dir, &self.place, seal.commit, acknowledged));
                }
            }
        }
        Ok(report)
    }

    fn write_backup(
        &self,
        scan: &ScanResult,
        engine: &StorageEngine,
        to: &Path,
    ) -> Result<BackupSummary, StoreError> {
        let seal = scan.seal.ok_or_else(|| StoreError::Nothing {
            dir: self.place.clone(),
        })?;
        replay(&scan.records).map_err(|e| self.damaged(&e))?;
        let bytes = write_file(to, seal.commit, scan, Some(engine))?;
        Ok(BackupSummary {
            file: to.to_owned(),
            backend: ETCD.to_owned(),
            commit: seal.commit,
            records: scan.pieces.len(),
            bytes,
        })
    }

    /// Fills the state from a backup or snapshot. With [`ExistingStatePolicy::MoveAside`], an
    /// existing state is written to a file in `dir` first.
    pub fn restore(
        &self,
        dir: &Path,
        from: &Path,
        replace: ExistingStatePolicy,
    ) -> Result<RestoreSummary, StoreError> {
        let (header, kept) = verify(from)?;
        let (_leads, etcd) = self.lead()?;
        let failed = |source| StoreError::database(&self.place, &self.place, source);
        let (present, engine) = match etcd.scan_once() {
            Ok(found) => found,
            Err(ScanError::Database(source)) => return Err(failed(source)),
            Err(error) if replace == ExistingStatePolicy::No => {
                return Err(StoreError::NotEmpty {
                    place: self.place.clone(),
                    holds: format!("contains a state that cannot be read: {error}"),
                    advice: "add --replace to replace it without a copy".into(),
                });
            }
            // A damaged state, or one of another version, is replaced on request.
            Err(_) => (ScanResult::default(), StorageEngine::Etcd(etcd.clone())),
        };
        let mut aside = None;
        if present.seal.is_some() {
            if replace == ExistingStatePolicy::No {
                return Err(StoreError::NotEmpty {
                    place: self.place.clone(),
                    holds: format!("contains a state of {} records", present.pieces.len()),
                    advice: "add --replace to write it to a file and replace it".into(),
                });
            }
            let file = dir.join(format!("replaced-{}.jsonl", unix_seconds()));
            fs::create_dir_all(dir).map_err(|source| StoreError::directory(dir, source))?;
            self.write_backup(&present, &engine, &file)?;
            aside = Some(file);
        }
        let known = replay(&present.records).map_or(MetaRecord::default(), |(meta, _)| meta);
        let meta = ahead(MetaRecord {
            epoch: kept.epoch.max(known.epoch),
            last_app: kept.last_app.max(known.last_app),
        });
        let interrupted = "a restore of it was interrupted; run it again: rmctl operator state restore --config FILE --from FILE --replace";
        etcd.set_closed(Some(interrupted)).map_err(failed)?;
        etcd.clear().map_err(failed)?;
        let known = present.seal.map_or(0, |seal| seal.commit);
        let acknowledged = AnchorFile::read(dir).ok().flatten().unwrap_or(0);
        let commit = header.commit.max(known).max(acknowledged);
        let place = &self.place;
        let mut store = DatabaseStore::new(place, place, engine, ScanResult::default(), commit);
        fill(&mut store, from, meta)?;
        etcd.set_closed(None).map_err(failed)?;
        Ok(RestoreSummary {
            dir: self.place.clone(),
            backend: ETCD.to_owned(),
            commit: header.commit,
            records: header.records,
            epoch: meta.epoch,
            last_app: meta.last_app,
            aside,
        })
    }

    /// Moves the state of the directory `dir` into etcd, which must have none. The earlier database
    /// is moved aside.
    pub fn take_from(&self, dir: &Path) -> Result<RestoreSummary, StoreError> {
        let copy = fresh(dir.join(MIGRATION))?;
        backup::backup(dir, &copy)?;
        let filled = self.restore(dir, &copy, ExistingStatePolicy::No)?;
        let _lock = lock::lock_directory(dir, Duration::ZERO)?;
        let aside = move_aside(dir, &occupied(dir)?)?;
        remove(&dir.join(backup::REPLACING))?;
        remove(&copy)?;
        Ok(RestoreSummary {
            aside: Some(aside),
            ..filled
        })
    }

    /// Moves the state in etcd into the directory `dir`. etcd keeps a copy that no manager uses.
    pub fn move_to(&self, dir: &Path, backend: StoreBackend) -> Result<RestoreSummary, StoreError> {
        let (_leads, etcd) = self.lead()?;
        fs::create_dir_all(dir).map_err(|source| StoreError::directory(dir, source))?;
        let copy = fresh(dir.join(MIGRATION))?;
        self.backup(&copy)?;
        // The last commit is that of the state in etcd.
        remove(&dir.join(crate::anchor::NAME))?;
        let filled = backup::restore(dir, &copy, backend, ExistingStatePolicy::MoveAside)?;
        let moved = format!(
            "it was moved to {} of a resource manager; remove [etcd] from the configuration there and stop the others, or \
             move it back: rmctl operator state migrate --config FILE --state {}",
            dir.display(),
            dir.display()
        );
        etcd.set_closed(Some(&moved))
            .map_err(|source| StoreError::database(&self.place, &self.place, source))?;
        remove(&copy)?;
        Ok(filled)
    }

    /// Leads, so that no manager does. Waits for the lease of a leader that was just ended.
    fn lead(&self) -> Result<(ExclusiveUse, EtcdEngine), StoreError> {
        let record = ManagerRecord {
            id: format!("rmctl-{}", std::process::id()),
            url: "rmctl".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ManagerRecord::default()
        };
        let (client, keys) = (self.client.clone(), self.keys.clone());
        let candidate = Candidate::new(client, keys, record, self.lease);
        let view = watch::Sender::new(ElectionView::default());
        let (thread, seen, within) = (self.thread.clone(), view.clone(), self.lease + ELECTION);
        let won = self.thread.wait(async move {
            let campaign = candidate.campaign(&thread, seen);
            tokio::time::timeout(within, campaign).await.ok()
        });
        let failed =
            |source: EtcdError| StoreError::database(&self.place, &self.place, source.into());
        let Some(won) = won.flatten() else {
            if let Some(problem) = view.borrow().problem.clone() {
                return Err(failed(EtcdError::Refused(problem)));
            }
            let (client, key) = (self.client.clone(), self.keys.leader());
            let leader = self.thread.wait(async move { client.value(key).await });
            let leader = leader.and_then(Result::ok).flatten();
            let leader =
                leader.and_then(|value| serde_json::from_slice::<ManagerRecord>(&value).ok());
            return Err(StoreError::Led {
                state: self.place.clone(),
                leader: leader.map_or_else(|| "an unknown address".to_owned(), |l| l.url),
            });
        };
        let writer = StateWriter::new(self.client.clone(), self.keys.clone(), won.fence());
        let (thread, client) = (self.thread.clone(), self.client.clone());
        let engine = EtcdEngine::new(thread, client, self.keys.clone(), writer, None);
        let exclusive = ExclusiveUse {
            thread: self.thread.clone(),
            leadership: Some(won),
        };
        Ok((exclusive, engine))
    }

    fn damaged(&self, what: &dyn std::fmt::Display) -> StoreError {
        crate::damage::corrupt_in_etcd(&self.place, what)
    }
}

/// The leadership of a command. It is handed over when this value is dropped.
struct ExclusiveUse {
    thread: Arc<EtcdThread>,
    leadership: Option<Leadership>,
}

impl Drop for ExclusiveUse {
    fn drop(&mut self) {
        let (thread, leadership) = (self.thread.clone(), self.leadership.take());
        if let Some(leadership) = leadership {
            // If it fails, the lease expires.
            let _ = self
                .thread
                .wait(async move { leadership.resign(&thread).await });
        }
    }
}

impl EtcdEngine {
    /// Reads all entries of one revision.
    fn scan_once(&self) -> Result<(ScanResult, StorageEngine), ScanError> {
        self.read_image()?;
        let engine = StorageEngine::Etcd(self.clone());
        Ok((scan(&engine)?, engine))
    }
}

/// A path whose file, left by an earlier try, is removed.
fn fresh(path: PathBuf) -> Result<PathBuf, StoreError> {
    remove(&path)?;
    Ok(path)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::file(path, source))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}
