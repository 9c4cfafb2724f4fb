//! The journal of one application in a directory that all nodes can read, and the fence between the
//! attempts of its master.
//!
//! Each attempt writes to a file of its own, because a lock does not hold across hosts:
//!
//! ```text
//! attempt.2   empty while attempt 2 is the newest; contains the number of a later attempt otherwise
//! journal.2   first line: the parts of earlier files that count; then the records of attempt 2
//! ```
//!
//! A take-over by attempt N has this order: create `attempt.N` exclusively; end if a later
//! `attempt.M` exists; write N into each earlier `attempt.K`; read the newest earlier journal; write
//! the first line of `journal.N`. An attempt opens its `attempt.K` after each sync, before anything
//! that depends on the sync leaves the process. If it is empty then, the records were durable before
//! the take-over, and attempt N reads them. Later records of attempt K are not part of the journal:
//! the first line of `journal.N` names how many bytes count.
//!
//! The check opens an existing file instead of looking for a new one. NFS revalidates an opened file,
//! and may serve the absence of a file from a cache for a minute.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use headroom_types::{AppId, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::journal_error::{JournalError, io_at};

/// Version of the first line.
const VERSION: u32 = 1;
/// Maximum length of the number in an attempt file. Bytes.
const MAX_NUMBER_LENGTH: usize = 16;

/// Directory of the journal of one application below the directory of all journals.
pub fn dir(journals: &Path, app: &AppId, submitted: UnixMillis) -> PathBuf {
    journals.join(app.journal_directory(submitted))
}

/// The first line of a journal file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct JournalFileHeader {
    /// [`VERSION`].
    version: u32,
    /// The attempt that writes the file.
    attempt: u32,
    /// The earlier files, oldest first.
    earlier: Vec<JournalPart>,
}

/// The part of an earlier journal file that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JournalPart {
    /// The attempt that wrote the file.
    attempt: u32,
    /// Bytes of its records, without the first line.
    bytes: u64,
}

/// The fence of one attempt.
#[derive(Clone, Debug)]
pub struct JournalFence {
    dir: PathBuf,
    file: PathBuf,
}

impl JournalFence {
    /// Checks that no later attempt has taken over. Three system calls.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] after a take-over; [`JournalError::Removed`]; errors of the file
    /// system.
    pub fn check(&self) -> Result<(), JournalError> {
        // A file handle of NFS can become stale between lookup and open.
        let opened = File::open(&self.file).or_else(|error| {
            if error.kind() == ErrorKind::StaleNetworkFileHandle {
                File::open(&self.file)
            } else {
                Err(error)
            }
        });
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(JournalError::Removed {
                    dir: self.dir.clone(),
                });
            }
            Err(error) => return Err(io_at(&self.file, "opened")(error)),
        };
        let mut text = [0; MAX_NUMBER_LENGTH];
        let length = file.read(&mut text).map_err(io_at(&self.file, "read"))?;
        match text.get(..length) {
            None | Some([]) => Ok(()),
            Some(number) => Err(JournalError::Deposed {
                dir: self.dir.clone(),
                by: String::from_utf8_lossy(number).trim().parse().unwrap_or(0),
            }),
        }
    }
}

/// The shared journal of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct SharedJournal {
    dir: PathBuf,
    attempt: u32,
    fence: JournalFence,
    /// The parts of the earlier files. The last one has no length before the end of the replay.
    earlier: Vec<JournalPart>,
}

impl SharedJournal {
    /// Takes over the journal in `dir`. Returns the path of this attempt's file, and the file, which
    /// is empty until [`SharedJournal::begin`].
    pub(crate) fn take_over(
        dir: &Path,
        attempt: u32,
    ) -> Result<(SharedJournal, PathBuf, File), JournalError> {
        make_private(dir)?;
        let fence = claim(dir, attempt)?;
        let mut journals = depose(dir, attempt)?;
        journals.sort_unstable();
        let earlier = earlier_parts(dir, &journals)?;
        let path = journal_file(dir, attempt);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(io_at(&path, "made"))?;
        sync_dir(dir)?;
        let shared = SharedJournal {
            dir: dir.to_owned(),
            attempt,
            fence,
            earlier,
        };
        Ok((shared, path, file))
    }

    pub(crate) fn fence(&self) -> &JournalFence {
        &self.fence
    }

    /// Path of the file with the last records.
    pub(crate) fn last_path(&self) -> PathBuf {
        let last = self.earlier.last().map_or(self.attempt, |p| p.attempt);
        journal_file(&self.dir, last)
    }

    /// The records of the earlier attempts.
    pub(crate) fn records(&self) -> Result<Box<dyn BufRead + Send + Sync>, JournalError> {
        let mut all: Box<dyn BufRead + Send + Sync> = Box::new(io::empty());
        for (n, part) in self.earlier.iter().enumerate() {
            let path = journal_file(&self.dir, part.attempt);
            let file = File::open(&path).map_err(io_at(&path, "opened"))?;
            let mut lines = BufReader::with_capacity(1 << 16, file);
            lines.skip_until(b'\n').map_err(io_at(&path, "read"))?;
            let is_last = n + 1 == self.earlier.len();
            let bytes = if is_last { u64::MAX } else { part.bytes };
            all = Box::new(all.chain(lines.take(bytes)));
        }
        Ok(all)
    }

    /// Ends the replay of the earlier records, of which `good` bytes count, and writes the first line
    /// of this attempt's file.
    pub(crate) fn begin(
        &mut self,
        good: u64,
        file: &mut File,
        path: &Path,
    ) -> Result<(), JournalError> {
        if let Some((last, before)) = self.earlier.split_last_mut() {
            let before: u64 = before.iter().map(|part| part.bytes).sum();
            last.bytes = good
                .checked_sub(before)
                .ok_or_else(|| JournalError::Damaged {
                    path: journal_file(&self.dir, last.attempt),
                    line: 1,
                    what: format!("the earlier files have {good} of {before} bytes of records"),
                })?;
        }
        let header = JournalFileHeader {
            version: VERSION,
            attempt: self.attempt,
            earlier: self.earlier.clone(),
        };
        let mut line = serde_json::to_vec(&header).map_err(|e| io_at(path, "written")(e.into()))?;
        line.push(b'\n');
        file.write_all(&line).map_err(io_at(path, "written"))?;
        file.sync_data().map_err(io_at(path, "synced"))?;
        self.fence.check()
    }
}

/// Makes the directory, and refuses one to which other users may have written.
fn make_private(dir: &Path) -> Result<(), JournalError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_at(dir, "made")(error)),
    }
    let facts = std::fs::symlink_metadata(dir).map_err(io_at(dir, "read"))?;
    let (own, mode) = (rustix::process::geteuid().as_raw(), facts.mode() & 0o7777);
    if facts.is_dir() && facts.uid() == own && mode & 0o077 == 0 {
        return Ok(());
    }
    Err(JournalError::NotPrivate {
        dir: dir.to_owned(),
        uid: facts.uid(),
        mode,
        own,
    })
}

/// Creates the file of this attempt, which no other process can have created.
fn claim(dir: &Path, attempt: u32) -> Result<JournalFence, JournalError> {
    let file = attempt_file(dir, attempt);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&file);
    match made {
        Ok(_) => sync_dir(dir)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(JournalError::AttemptUsed {
                dir: dir.to_owned(),
                attempt,
            });
        }
        Err(error) => return Err(io_at(&file, "made")(error)),
    }
    Ok(JournalFence {
        dir: dir.to_owned(),
        file,
    })
}

/// Writes this attempt into the files of all earlier ones. Returns the attempts that have a journal
/// file.
fn depose(dir: &Path, attempt: u32) -> Result<Vec<u32>, JournalError> {
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io_at(dir, "read"))? {
        let name = entry.map_err(io_at(dir, "read"))?.file_name();
        let Some((kind, number)) = name.to_str().and_then(|name| name.rsplit_once('.')) else {
            continue;
        };
        let Ok(other) = number.parse::<u32>() else {
            continue;
        };
        match kind {
            "attempt" if other > attempt => {
                return Err(JournalError::Deposed {
                    dir: dir.to_owned(),
                    by: other,
                });
            }
            "attempt" if other < attempt => write_deposed(&attempt_file(dir, other), attempt)?,
            "journal" if other < attempt => journals.push(other),
            _ => {}
        }
    }
    Ok(journals)
}

fn write_deposed(path: &Path, by: u32) -> Result<(), JournalError> {
    let mut file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(io_at(path, "opened"))?;
    file.write_all(format!("{by}\n").as_bytes())
        .map_err(io_at(path, "written"))?;
    file.sync_all().map_err(io_at(path, "synced"))
}

/// The parts of the newest journal file with a whole first line. An attempt without one has made
/// nothing durable.
fn earlier_parts(dir: &Path, journals: &[u32]) -> Result<Vec<JournalPart>, JournalError> {
    for attempt in journals.iter().rev() {
        let path = journal_file(dir, *attempt);
        let file = File::open(&path).map_err(io_at(&path, "opened"))?;
        let mut line = Vec::new();
        BufReader::new(file)
            .read_until(b'\n', &mut line)
            .map_err(io_at(&path, "read"))?;
        if line.pop() != Some(b'\n') || line.contains(&0) {
            continue;
        }
        let foreign = |what: String| JournalError::Foreign {
            path: path.clone(),
            what,
        };
        let header: JournalFileHeader = serde_json::from_slice(&line)
            .map_err(|error| foreign(format!("another program: its first line is {error}")))?;
        if header.version != VERSION {
            return Err(foreign(format!(
                "version {} of this program",
                header.version
            )));
        }
        let mut parts = header.earlier;
        parts.push(JournalPart {
            attempt: *attempt,
            bytes: 0,
        });
        return Ok(parts);
    }
    Ok(Vec::new())
}

fn attempt_file(dir: &Path, attempt: u32) -> PathBuf {
    dir.join(format!("attempt.{attempt}"))
}

fn journal_file(dir: &Path, attempt: u32) -> PathBuf {
    dir.join(format!("journal.{attempt}"))
}

fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(io_at(dir, "synced"))
}
