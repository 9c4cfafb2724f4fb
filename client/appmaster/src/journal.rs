//! The journal file: records as lines of JSON, made durable in groups.
//!
//! The loop owns it. A group is written with one write and made durable with one `fdatasync` before
//! anything that depends on it leaves the process. Only starts of attempts without an output
//! directory follow the write at once: see `docs/decisions/0042-starts-follow-the-write.md`. A last
//! line that a crash tore had no effects and is cut off. Damage at any other position is refused,
//! and the file stays unchanged.
//!
//! A journal is one file in a directory of this host, or one file for each attempt in a directory
//! that the nodes share: see [`crate::shared_journal`]. It may also be in an object store, see
//! `object_log`, and a small one in the resource manager, see `manager_journal`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use headroom_types::UnixMillis;

pub use crate::journal_error::JournalError;
pub(crate) use crate::journal_error::io_at;
use crate::record::{self, JournalHeader, JournalRecord};
use crate::shared_journal::{JournalFence, SharedJournal};

/// An open journal, protected against a second master: by a lock in a directory of this host, by a
/// fence in a shared directory.
#[derive(Debug)]
pub struct MasterJournal {
    path: PathBuf,
    file: File,
    shared: Option<SharedJournal>,
}

impl MasterJournal {
    /// Renames the journal at `path` to `journal.old`, replacing an earlier one. For a new
    /// application, which has no journal yet: the file belongs to an application with the same id
    /// in another cluster. Does nothing without such a file.
    ///
    /// # Errors
    /// [`JournalError::InUse`] while another master has it open; errors of the file system.
    pub fn set_aside(path: &Path) -> Result<(), JournalError> {
        let io = |doing| io_at(path, doing);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(io("read")(source)),
        };
        match file.try_lock() {
            Ok(()) => std::fs::rename(path, path.with_extension("old")).map_err(io("renamed")),
            Err(TryLockError::WouldBlock) => Err(JournalError::InUse {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(io("locked")(source)),
        }
    }

    /// Opens or creates the journal at `path`. Its records must be read with
    /// [`MasterJournal::replay`] before one is appended.
    ///
    /// # Errors
    /// [`JournalError::InUse`] while another master has it open; errors of the file system.
    pub fn open(path: &Path) -> Result<MasterJournal, JournalError> {
        let io = |doing| io_at(path, doing);
        make_dir_of(path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io("opened"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io("locked")(source)),
        }
        if let Some(dir) = path.parent() {
            File::open(dir)
                .and_then(|d| d.sync_all())
                .map_err(io("synced"))?;
        }
        Ok(MasterJournal {
            path: path.to_owned(),
            file,
            shared: None,
        })
    }

    /// Replaces the journal at `path` by one with the records in `lines`, opens it, and returns when
    /// it is durable.
    ///
    /// # Errors
    /// As [`MasterJournal::open`].
    pub(crate) fn replace(path: &Path, lines: &[u8]) -> Result<MasterJournal, JournalError> {
        let io = |doing| io_at(path, doing);
        make_dir_of(path)?;
        let new = path.with_extension("new");
        let mut file = File::create(&new).map_err(io("made"))?;
        file.write_all(lines).map_err(io("written"))?;
        file.sync_all().map_err(io("synced"))?;
        std::fs::rename(&new, path).map_err(io("renamed"))?;
        let mut journal = MasterJournal::open(path)?;
        let replay = journal.replay()?;
        journal.finish_replay(replay)?;
        Ok(journal)
    }

    /// Takes over the journal in the shared directory `dir` for `attempt`: from now on, no earlier
    /// attempt can make a record durable unnoticed. Its records must be read with
    /// [`MasterJournal::replay`] before one is appended.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] after a later attempt; [`JournalError::AttemptUsed`];
    /// [`JournalError::NotPrivate`]; errors of the file system.
    pub fn take_over(dir: &Path, attempt: u32) -> Result<MasterJournal, JournalError> {
        let (shared, path, file) = SharedJournal::take_over(dir, attempt)?;
        Ok(MasterJournal {
            path,
            file,
            shared: Some(shared),
        })
    }

    /// Path of the file that this master writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fence between the attempts, if the directory is shared.
    pub fn fence(&self) -> Option<&JournalFence> {
        self.shared.as_ref().map(SharedJournal::fence)
    }

    /// Reads the records one by one: the journal of a long job does not fit into memory.
    ///
    /// # Errors
    /// The file, or its first line, cannot be read.
    pub fn replay(&self) -> Result<JournalReplay, JournalError> {
        let io = io_at(&self.path, "read");
        let mut replay = match &self.shared {
            Some(shared) => {
                let lines = shared.records()?;
                JournalReplay::of_shared(shared.last_path(), lines)
            }
            None => {
                let mut file = self.file.try_clone().map_err(&io)?;
                file.seek(SeekFrom::Start(0)).map_err(io)?;
                let lines = BufReader::with_capacity(1 << 16, file);
                JournalReplay::new(self.path.clone(), Box::new(lines))
            }
        };
        match std::mem::replace(&mut replay.state, ReplayState::Ended) {
            ReplayState::Broken(error) => return Err(error),
            state @ (ReplayState::Reading | ReplayState::Ended) => replay.state = state,
        }
        Ok(replay)
    }

    /// Ends the replay, so that records can be appended. Cuts off a last line that a crash tore; in
    /// a shared directory, the file of this attempt names the part of the earlier files that counts.
    ///
    /// # Errors
    /// The journal is damaged before its end, or cannot be written. The file is unchanged then.
    pub fn finish_replay(&mut self, replay: JournalReplay) -> Result<(), JournalError> {
        let io = |doing| io_at(&self.path, doing);
        let good = replay.finish()?;
        if let Some(shared) = &mut self.shared {
            return shared.begin(good, &mut self.file, &self.path);
        }
        let length = self.file.metadata().map_err(io("read"))?.len();
        if good < length {
            self.file
                .set_len(good)
                .and_then(|()| self.file.sync_data())
                .map_err(io("truncated after its last whole record"))?;
        }
        self.file
            .seek(SeekFrom::End(0))
            .map(drop)
            .map_err(io("read"))
    }

    /// Writes a group of records and returns when they are durable.
    pub fn append(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        self.write(records)?;
        self.sync()
    }

    /// Writes a group of records. From now on they survive the end of this process, but not that of
    /// the host.
    pub fn write(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        let group = encode(records).map_err(|e| io_at(&self.path, "written")(e.into()))?;
        self.write_lines(&group)
    }

    /// As [`MasterJournal::write`], with encoded records.
    pub(crate) fn write_lines(&mut self, lines: &[u8]) -> Result<(), JournalError> {
        let written = self.file.write_all(lines);
        written.map_err(io_at(&self.path, "written"))
    }

    /// Returns when all written records are durable and no later attempt had taken over before.
    pub fn sync(&self) -> Result<(), JournalError> {
        let synced = self.file.sync_data();
        synced.map_err(io_at(&self.path, "synced"))?;
        self.check_fence()
    }

    /// Checks that no later attempt has taken over. Always true in a directory of this host.
    ///
    /// # Errors
    /// [`JournalError::Deposed`]; errors of the file system.
    pub fn check_fence(&self) -> Result<(), JournalError> {
        self.fence().map_or(Ok(()), JournalFence::check)
    }

    /// A second handle of the same file, for syncs in another thread.
    pub fn try_clone(&self) -> Result<MasterJournal, JournalError> {
        let file = self.file.try_clone();
        Ok(MasterJournal {
            path: self.path.clone(),
            file: file.map_err(io_at(&self.path, "opened"))?,
            shared: self.shared.clone(),
        })
    }
}

/// A group of records in the format of the file.
pub fn encode(records: &[JournalRecord]) -> serde_json::Result<Vec<u8>> {
    let mut group = Vec::new();
    for record in records {
        serde_json::to_writer(&mut group, record)?;
        group.push(b'\n');
    }
    Ok(group)
}

/// The records of a journal, in order. It ends at the first line that cannot be read;
/// [`JournalReplay::finish`] reports whether that line is damaged or torn.
pub struct JournalReplay {
    path: PathBuf,
    lines: Box<dyn BufRead + Send + Sync>,
    /// The first record, before it is returned.
    first: Option<JournalRecord>,
    /// Number of records so far.
    count: usize,
    /// Number of bytes that they occupy.
    good: u64,
    state: ReplayState,
    /// Time of the first registration, once that record was read.
    job_started: Option<UnixMillis>,
    /// True if a line with a zero byte ends the records, even if records follow.
    ends_at_hole: bool,
}

/// The state of a replay.
#[derive(Debug)]
enum ReplayState {
    Reading,
    /// All whole records are read.
    Ended,
    /// A line cannot be read.
    Broken(JournalError),
}

headroom_types::debug_fields!(JournalReplay { path, count, state });

impl Iterator for JournalReplay {
    type Item = JournalRecord;

    fn next(&mut self) -> Option<JournalRecord> {
        self.first.take().or_else(|| self.read())
    }
}

impl JournalReplay {
    /// The records in `lines`. `path` is used for errors.
    pub fn new(path: PathBuf, lines: Box<dyn BufRead + Send + Sync>) -> JournalReplay {
        JournalReplay::begin(path, lines, false)
    }

    /// The records in `lines` of a shared directory. They end at a line with a zero byte: the host
    /// of an attempt that still runs may write the last pages of its file in any order. These pages
    /// are later than the last sync, so nothing depends on them.
    fn of_shared(path: PathBuf, lines: Box<dyn BufRead + Send + Sync>) -> JournalReplay {
        JournalReplay::begin(path, lines, true)
    }

    fn begin(
        path: PathBuf,
        lines: Box<dyn BufRead + Send + Sync>,
        ends_at_hole: bool,
    ) -> JournalReplay {
        let mut replay = JournalReplay {
            path,
            lines,
            first: None,
            count: 0,
            good: 0,
            state: ReplayState::Reading,
            job_started: None,
            ends_at_hole,
        };
        replay.first = replay.read();
        replay
    }

    /// The first record; `None` after it was returned, and for an empty journal.
    pub fn first(&self) -> Option<&JournalRecord> {
        self.first.as_ref()
    }

    /// True for a journal without records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of records that were read.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Time of the first registration, among the records that were read.
    pub fn job_started(&self) -> Option<UnixMillis> {
        self.job_started
    }

    /// Reads the remaining records and returns the number of bytes of all whole records.
    ///
    /// # Errors
    /// A line other than the last cannot be read.
    pub fn finish(mut self) -> Result<u64, JournalError> {
        while self.next().is_some() {}
        match self.state {
            ReplayState::Reading | ReplayState::Ended => Ok(self.good),
            ReplayState::Broken(error) => Err(error),
        }
    }

    fn read(&mut self) -> Option<JournalRecord> {
        match self.state {
            ReplayState::Reading => {}
            ReplayState::Ended | ReplayState::Broken(_) => return None,
        }
        let mut line = Vec::new();
        let read = self.lines.read_until(b'\n', &mut line);
        if let Err(source) = read {
            self.state = ReplayState::Broken(io_at(&self.path, "read")(source));
            return None;
        }
        if line.pop() != Some(b'\n') {
            self.state = ReplayState::Ended; // the last line has no end: it is torn
            return None;
        }
        match serde_json::from_slice(&line) {
            Ok(record) => {
                self.good += u64::try_from(line.len() + 1).unwrap_or_default();
                self.count += 1;
                if let JournalRecord::JobStarted { at } = &record {
                    self.job_started.get_or_insert(*at);
                }
                Some(record)
            }
            Err(_) if self.ends_at_hole && line.contains(&0) => {
                self.state = ReplayState::Ended;
                None
            }
            Err(error) => {
                self.state = match self.has_another_record() {
                    Err(source) => ReplayState::Broken(io_at(&self.path, "read")(source)),
                    // A torn write may leave zeros or old bytes with a newline in them, but no
                    // record follows.
                    Ok(false) => ReplayState::Ended,
                    Ok(true) => ReplayState::Broken(JournalError::Damaged {
                        path: self.path.clone(),
                        line: self.count + 1,
                        what: error.to_string(),
                    }),
                };
                None
            }
        }
    }

    /// True if the rest may contain a record.
    fn has_another_record(&mut self) -> std::io::Result<bool> {
        loop {
            let rest = self.lines.fill_buf()?;
            if rest.contains(&b'{') {
                return Ok(true);
            }
            let length = rest.len();
            if length == 0 {
                return Ok(false);
            }
            self.lines.consume(length);
        }
    }
}

/// The records in `bytes`, and the number of bytes they occupy. `path` is used for errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<JournalRecord>, usize), JournalError> {
    let lines = std::io::Cursor::new(bytes.to_vec());
    let mut replay = JournalReplay::new(path.to_owned(), Box::new(lines));
    let records = replay.by_ref().collect();
    let good = replay.finish()?;
    Ok((records, usize::try_from(good).unwrap_or(usize::MAX)))
}

/// The first record, if the journal belongs to this job and application and its version can be
/// read.
pub fn check_owner(
    path: &Path,
    first: Option<&JournalRecord>,
    app: &str,
    job: u64,
) -> Result<Option<JournalHeader>, JournalError> {
    let Some(first) = first else {
        return Ok(None);
    };
    let foreign = |what: String| JournalError::Foreign {
        path: path.to_owned(),
        what,
    };
    let JournalRecord::Begin(begin) = first else {
        return Err(foreign(
            "another program: its first record is no header".to_owned(),
        ));
    };
    if begin.version != record::VERSION {
        return Err(foreign(format!(
            "version {} of this program",
            begin.version
        )));
    }
    if begin.app != app {
        return Err(foreign(format!("application {}", begin.app)));
    }
    if begin.job != job {
        return Err(foreign(
            "the same application with another job file or mode".to_owned(),
        ));
    }
    Ok(Some(begin.clone()))
}

/// Creates the directory of a journal.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn make_dir_of(path: &Path) -> Result<(), JournalError> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.map_err(io_at(path, "made"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Opens a journal and reads all its records.
    fn open(path: &Path) -> Result<(MasterJournal, Vec<JournalRecord>), JournalError> {
        let mut journal = MasterJournal::open(path)?;
        let mut replay = journal.replay()?;
        let records = replay.by_ref().collect();
        journal.finish_replay(replay)?;
        Ok((journal, records))
    }

    #[test]
    fn a_journal_of_another_cluster_is_set_aside_unless_it_is_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal.ndjson");
        MasterJournal::set_aside(&path).expect("nothing to do");
        let (open, _) = open(&path).expect("opens");
        let refused = MasterJournal::set_aside(&path).expect_err("it is in use");
        assert!(matches!(refused, JournalError::InUse { .. }), "{refused}");
        drop(open);
        std::fs::write(&path, "{}\n").expect("writes");
        MasterJournal::set_aside(&path).expect("renames");
        let old = std::fs::read_to_string(dir.path().join("journal.old")).expect("it is kept");
        assert_eq!((old.as_str(), path.exists()), ("{}\n", false));
    }

    fn begin() -> JournalRecord {
        JournalRecord::Begin(JournalHeader {
            version: record::VERSION,
            job: 7,
            app: "job.1".into(),
            token: "secret".into(),
            port: 4711,
            submission_token: None,
        })
    }
    fn gone(seq: u64) -> JournalRecord {
        let container = format!("job.1.e1.c{seq}").parse().expect("id");
        JournalRecord::Gone {
            container,
            request: "set-main".parse().expect("id"),
            unused: false,
            failed: false,
        }
    }

    #[test]
    fn appended_records_are_read_after_reopening() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("app").join("journal.ndjson");
        let (mut journal, records) = open(&path).expect("opens");
        assert!(records.is_empty());
        journal.append(&[begin(), gone(1)]).expect("writes");
        journal.append(&[gone(2)]).expect("writes");
        assert!(
            matches!(open(&path), Err(JournalError::InUse { .. })),
            "only one master can open the journal"
        );
        drop(journal);
        let (_, records) = open(&path).expect("opens");
        assert_eq!(records, [begin(), gone(1), gone(2)]);
        assert_eq!(
            check_owner(&path, records.first(), "job.1", 7)
                .expect("ours")
                .map(|b| b.port),
            Some(4711)
        );
        assert!(matches!(
            check_owner(&path, records.first(), "job.2", 7),
            Err(JournalError::Foreign { .. })
        ));
        assert!(matches!(
            check_owner(&path, records.first(), "job.1", 8),
            Err(JournalError::Foreign { .. })
        ));
    }

    #[test]
    fn damage_before_the_end_is_refused_and_the_file_stays_unchanged() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("journal.ndjson");
        let text = format!(
            "{}\nrubbish\n{}\n",
            serde_json::to_string(&begin()).expect("w"),
            serde_json::to_string(&gone(1)).expect("w")
        );
        std::fs::write(&path, &text).expect("writes");
        assert!(matches!(
            open(&path),
            Err(JournalError::Damaged { line: 2, .. })
        ));
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), text);
    }

    proptest! {
        /// Safety: for every length that a crash leaves, all complete records remain, and later
        /// records are appended after them.
        #[test]
        fn a_torn_end_costs_only_the_torn_record(cut in 0usize..400, more in 0u64..5) {
            let dir = tempfile::tempdir().expect("directory");
            let path = dir.path().join("journal.ndjson");
            let all: Vec<JournalRecord> = std::iter::once(begin()).chain((0..more).map(gone)).collect();
            let (mut journal, _) = open(&path).expect("opens");
            journal.append(&all).expect("writes");
            drop(journal);
            let bytes = std::fs::read(&path).expect("reads");
            let cut = cut.min(bytes.len());
            std::fs::write(&path, &bytes[..cut]).expect("writes");
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            let (mut journal, records) = open(&path).expect("opens");
            prop_assert_eq!(&records, &all[..whole]);
            journal.append(&[gone(99)]).expect("writes");
            drop(journal);
            let (_, records) = open(&path).expect("opens");
            prop_assert_eq!(records.len(), whole + 1);
        }
    }
}
