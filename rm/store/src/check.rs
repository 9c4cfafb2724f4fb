//! Checks a state directory without changing it. No resource manager may run in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_types::{Epoch, StoreBackend};
use serde::Serialize;

use crate::anchor::AnchorFile;
use crate::backup::refuse_unfinished;
use crate::engine::{database_path, present_backend};
use crate::integrity::{CheckedCopy, check_copy};
use crate::master_journal::is_group;
use crate::record::DOCUMENTS;
use crate::replay::replay;
use crate::scan::ScanResult;
use crate::{StoreError, lock, snapshot};

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateReport {
    /// The directory.
    pub dir: PathBuf,
    /// The backend of its database; `None` without a database.
    pub backend: Option<String>,
    /// The latest epoch; `None` when it is not readable.
    pub epoch: Option<Epoch>,
    /// The highest number of an application.
    pub last_app: Option<u32>,
    /// The last commit in the database.
    pub commit: Option<u64>,
    /// The last acknowledged commit, from the anchor file.
    pub acknowledged: Option<u64>,
    /// The number of records by kind.
    pub records: BTreeMap<String, usize>,
    /// Total size of all documents. In bytes.
    pub document_bytes: u64,
    /// Snapshots next to the database, oldest first.
    pub snapshots: Vec<SnapshotReport>,
    /// Problems; empty when a resource manager can start with the state.
    pub problems: Vec<StateProblem>,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotReport {
    /// The file.
    pub file: PathBuf,
    /// The number of its last commit.
    pub commit: Option<u64>,
    /// Its number of records.
    pub records: Option<usize>,
    /// Its damage.
    pub wrong: Option<String>,
}

/// A problem and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateProblem {
    /// The problem.
    pub what: String,
    /// The next step.
    pub advice: String,
}

/// Checks `dir`. It is an error only when the check is impossible; faults of the state are in the
/// report.
pub fn check(dir: &Path) -> Result<StateReport, StoreError> {
    let snapshots = if dir.is_dir() {
        snapshot::list(dir)?
    } else {
        Vec::new()
    };
    let backend = match present_backend(dir) {
        Ok(None) if snapshots.is_empty() && !dir.join(crate::anchor::NAME).exists() => {
            return Err(StoreError::Nothing {
                dir: dir.to_owned(),
            });
        }
        found => found,
    };
    let _lock = lock::lock_directory(dir, Duration::ZERO)?;
    let mut report = StateReport::empty(dir);
    report.directory(dir)?;
    if let Err(error) = refuse_unfinished(dir) {
        report.problems.push(problem(error));
    }
    match backend {
        Ok(Some(backend)) => report.database(backend)?,
        Ok(None) => report.nothing_but_snapshots(),
        Err(error) => report.problems.push(problem(error)),
    }
    report.damaged_snapshots();
    Ok(report)
}

impl StateReport {
    fn database(&mut self, backend: StoreBackend) -> Result<(), StoreError> {
        self.backend = Some(backend.to_string());
        match check_copy(&self.dir, backend) {
            Ok(whole) => self.whole(&whole, backend),
            // These errors are no evidence about the state.
            Err(
                error @ (StoreError::Full { .. }
                | StoreError::File { .. }
                | StoreError::Directory { .. }),
            ) => return Err(error),
            Err(error) => self.add(problem(error)),
        }
        Ok(())
    }

    fn whole(&mut self, whole: &CheckedCopy, backend: StoreBackend) {
        let database = database_path(&self.dir, backend);
        let dir = self.dir.clone();
        self.scanned(whole.seal.commit, &whole.scan, |error| {
            crate::damage::corrupt(&dir, &database, error)
        });
    }

    /// Adds what a scan found.
    pub(crate) fn scanned(
        &mut self,
        commit: u64,
        scan: &ScanResult,
        damaged: impl FnOnce(&dyn std::fmt::Display) -> StoreError,
    ) {
        self.commit = Some(commit);
        self.document_bytes = scan.document_bytes;
        for key in scan.pieces.keys() {
            *self.records.entry(kind(key).to_owned()).or_default() += 1;
        }
        match replay(&scan.records) {
            Ok((meta, _)) => (self.epoch, self.last_app) = (Some(meta.epoch), Some(meta.last_app)),
            Err(error) => self.add(problem(damaged(&error))),
        }
    }

    /// A report without findings.
    pub(crate) fn empty(dir: &Path) -> Self {
        StateReport {
            dir: dir.to_owned(),
            backend: None,
            epoch: None,
            last_app: None,
            commit: None,
            acknowledged: None,
            records: BTreeMap::new(),
            document_bytes: 0,
            snapshots: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Adds the snapshots and the last acknowledged commit of a state directory.
    pub(crate) fn directory(&mut self, dir: &Path) -> Result<(), StoreError> {
        if dir.is_dir() {
            self.snapshots = snapshot::list(dir)?.into_iter().map(copy).collect();
        }
        match AnchorFile::read(dir) {
            Ok(acknowledged) => self.acknowledged = acknowledged,
            Err(error) => self.problems.push(problem(error)),
        }
        Ok(())
    }

    /// Adds an error as a problem.
    pub(crate) fn failed(&mut self, error: StoreError) {
        self.add(problem(error));
    }

    fn nothing_but_snapshots(&mut self) {
        let usable = self.snapshots.iter().rev().find(|s| s.wrong.is_none());
        let advice = match usable {
            Some(newest) => format!("The next start continues from {}", newest.file.display()),
            None => format!(
                "Put the database back, or restore a backup: rmctl operator state restore --state {} --from FILE --replace",
                self.dir.display()
            ),
        };
        self.add(StateProblem {
            what: "there is no database".into(),
            advice,
        });
    }

    fn damaged_snapshots(&mut self) {
        let damaged = self
            .snapshots
            .iter()
            .filter_map(|s| Some((s.file.display().to_string(), s.wrong.clone()?)));
        let problems: Vec<StateProblem> = damaged
            .map(|(file, fault)| StateProblem {
                what: format!("{file} cannot be used: {fault}"),
                advice: "Remove the file; the next start writes a new snapshot".into(),
            })
            .collect();
        self.problems.extend(problems);
    }

    /// Adds a problem once, because an unreadable anchor also fails the check of the database.
    fn add(&mut self, problem: StateProblem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

fn copy(file: PathBuf) -> SnapshotReport {
    match snapshot::walk(&file, |_, _| Ok(())) {
        Ok(header) => SnapshotReport {
            file,
            commit: Some(header.commit),
            records: Some(header.records),
            wrong: None,
        },
        Err(wrong) => SnapshotReport {
            file,
            commit: None,
            records: None,
            wrong: Some(wrong),
        },
    }
}

fn problem(error: StoreError) -> StateProblem {
    if let StoreError::Corrupt { file, what, advice } = error {
        return StateProblem {
            what: format!("{}: {what}", file.display()),
            advice,
        };
    }
    StateProblem {
        what: error.to_string(),
        advice: "The state was not changed".into(),
    }
}

/// The displayed kind of the records of a key.
fn kind(key: &str) -> &'static str {
    match key.split_once('/').map_or(key, |(kind, _)| kind) {
        "app" => "applications",
        "state" => "states",
        "done" => "ended containers",
        "node" => "nodes",
        "mark" => "marks of nodes",
        "queues" => "trees of queues",
        "meta" => "numbers",
        "family" => "families of jobs",
        "profiles" => "sets of profiles",
        "access" => "sets of tokens and policies",
        "once" => "answers to repeated calls",
        "tags" => "tags of nodes",
        _ if key.starts_with(DOCUMENTS) && is_group(key) => "groups in journals of masters",
        _ if key.starts_with(DOCUMENTS) => "documents",
        _ => "of an unknown kind",
    }
}
