//! The journal file: records as lines of JSON, made durable in groups.
//!
//! The loop owns it. A group is written with one write and made durable with one `fdatasync` before
//! anything that depends on it leaves the process. A last line that a crash tore had no effects and
//! is cut off. Damage at any other position is refused, and the file stays unchanged.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::record::{self, JournalHeader, JournalRecord};

/// An open journal, locked against a second master.
#[derive(Debug)]
pub struct MasterJournal {
    path: PathBuf,
    file: File,
}

/// An error of a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file or its directory cannot be used.
    #[error("the journal {path} cannot be {doing}; check the directory's rights and free space")]
    Io {
        /// The path.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another master uses the journal.
    #[error("the journal {path} is in use by another master of the same application")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// A line other than the last cannot be read.
    #[error(
        "line {line} of the journal {path} is damaged: {what}; move the file away to run the job from its start"
    )]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The parse error.
        what: String,
    },
    /// The journal belongs to another application or job.
    #[error("the journal {path} belongs to {what}; use another state directory")]
    Foreign {
        /// The path.
        path: PathBuf,
        /// Its owner.
        what: String,
    },
}

impl MasterJournal {
    /// Renames the journal at `path` to `journal.old`, replacing an earlier one. For a new
    /// application, which has no journal yet: the file belongs to an application with the same id
    /// in another cluster. Does nothing without such a file.
    ///
    /// # Errors
    /// [`JournalError::InUse`] while another master has it open; errors of the file system.
    pub fn set_aside(path: &Path) -> Result<(), JournalError> {
        let io = |doing| {
            move |source| JournalError::Io {
                path: path.to_owned(),
                doing,
                source,
            }
        };
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

    /// Opens or creates the journal at `path` and reads its records.
    pub fn open(path: &Path) -> Result<(MasterJournal, Vec<JournalRecord>), JournalError> {
        let io = |doing| {
            move |source| JournalError::Io {
                path: path.to_owned(),
                doing,
                source,
            }
        };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(io("made"))?;
        }
        let mut file = OpenOptions::new()
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
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let (records, good) = parse(path, &bytes)?;
        if good < bytes.len() {
            let good = u64::try_from(good).unwrap_or_default();
            file.set_len(good)
                .and_then(|()| file.sync_data())
                .map_err(io("truncated after its last whole record"))?;
        }
        file.seek(SeekFrom::End(0)).map_err(io("read"))?;
        if let Some(dir) = path.parent() {
            File::open(dir)
                .and_then(|d| d.sync_all())
                .map_err(io("synced"))?;
        }
        Ok((
            MasterJournal {
                path: path.to_owned(),
                file,
            },
            records,
        ))
    }

    /// Writes a group of records and returns when they are durable.
    pub fn append(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        let io = |doing| JournalErrorAt {
            path: self.path.clone(),
            doing,
        };
        let group = encode(records).map_err(|e| io("written").with(e.into()))?;
        self.file
            .write_all(&group)
            .map_err(|e| io("written").with(e))?;
        self.file.sync_data().map_err(|e| io("synced").with(e))
    }
}

struct JournalErrorAt {
    path: PathBuf,
    doing: &'static str,
}
impl JournalErrorAt {
    fn with(self, source: std::io::Error) -> JournalError {
        JournalError::Io {
            path: self.path,
            doing: self.doing,
            source,
        }
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

/// The records in `bytes`, and the number of bytes they occupy. `path` is used for errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<JournalRecord>, usize), JournalError> {
    let mut records = Vec::new();
    let mut good = 0;
    while let Some(length) = bytes
        .get(good..)
        .and_then(|rest| rest.iter().position(|b| *b == b'\n'))
    {
        let end = good + length;
        match serde_json::from_slice(bytes.get(good..end).unwrap_or_default()) {
            Ok(record) => records.push(record),
            // A torn write may leave zeros or old bytes with a newline in them, but no record
            // follows.
            Err(_) if !bytes.get(end + 1..).unwrap_or_default().contains(&b'{') => break,
            Err(e) => {
                let line = records.len() + 1;
                return Err(JournalError::Damaged {
                    path: path.to_owned(),
                    line,
                    what: e.to_string(),
                });
            }
        }
        good = end + 1;
    }
    Ok((records, good))
}

/// The first record, if the journal belongs to this job and application and its version can be
/// read.
pub fn check_owner(
    path: &Path,
    records: &[JournalRecord],
    app: &str,
    job: u64,
) -> Result<Option<JournalHeader>, JournalError> {
    let Some(first) = records.first() else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_journal_of_another_cluster_is_set_aside_unless_it_is_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal.ndjson");
        MasterJournal::set_aside(&path).expect("nothing to do");
        let (open, _) = MasterJournal::open(&path).expect("opens");
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
        let (mut journal, records) = MasterJournal::open(&path).expect("opens");
        assert!(records.is_empty());
        journal.append(&[begin(), gone(1)]).expect("writes");
        journal.append(&[gone(2)]).expect("writes");
        assert!(
            matches!(MasterJournal::open(&path), Err(JournalError::InUse { .. })),
            "only one master can open the journal"
        );
        drop(journal);
        let (_, records) = MasterJournal::open(&path).expect("opens");
        assert_eq!(records, [begin(), gone(1), gone(2)]);
        assert_eq!(
            check_owner(&path, &records, "job.1", 7)
                .expect("ours")
                .map(|b| b.port),
            Some(4711)
        );
        assert!(matches!(
            check_owner(&path, &records, "job.2", 7),
            Err(JournalError::Foreign { .. })
        ));
        assert!(matches!(
            check_owner(&path, &records, "job.1", 8),
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
            MasterJournal::open(&path),
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
            let (mut journal, _) = MasterJournal::open(&path).expect("opens");
            journal.append(&all).expect("writes");
            drop(journal);
            let bytes = std::fs::read(&path).expect("reads");
            let cut = cut.min(bytes.len());
            std::fs::write(&path, &bytes[..cut]).expect("writes");
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            let (mut journal, records) = MasterJournal::open(&path).expect("opens");
            prop_assert_eq!(&records, &all[..whole]);
            journal.append(&[gone(99)]).expect("writes");
            drop(journal);
            let (_, records) = MasterJournal::open(&path).expect("opens");
            prop_assert_eq!(records.len(), whole + 1);
        }
    }
}
