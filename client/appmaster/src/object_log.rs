//! The journal of one application in a directory of an object store, and the fence between the attempts
//! of its master.
//!
//! Groups of records are objects with consecutive numbers, and each is created on the condition that it
//! does not exist:
//!
//! ```text
//! group-N         one group of records, or the take-over of an attempt: its first line, then records
//!                 that the last attempt could not append
//! part-N-M        the groups N to M of one attempt, merged; they may be removed
//! ```
//!
//! An attempt takes over with the first number that does not exist. The earlier attempt would use the
//! same number for its next group, finds the take-over there, and ends. So one request is the write, the
//! sync and the check of the fence. If an answer was lost, the object has the own text.
//!
//! Take-overs are never merged nor removed before the end of the application. So an earlier attempt finds
//! one even if it writes much later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use headroom_client::retry::ExponentialBackoff;
use headroom_objects::{CreateResult, ObjectDirectory};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::first_line::FirstLine;
use crate::journal::{JournalError, io_at};
use crate::journal_tail::JournalTail;

/// Number of groups that are merged into one object.
const GROUPS_PER_PART: u64 = 256;
/// Size from which groups are merged. Bytes.
const PART_SIZE: usize = 4 << 20;
/// Maximum size of groups that wait for a merge. Bytes. Further ones are not merged.
const MAX_WAITING: usize = 64 << 20;
/// Number of objects that are read at the same time.
const PARALLEL_READS: usize = 16;
/// Maximum number of lists until one is whole: others append and merge meanwhile.
const MAX_LISTS: usize = 100;
/// Time in which a take-over is tried again while the store does not answer.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(30);

fn group_name(number: u64) -> String {
    format!("group-{number:016}")
}

fn part_name(first: u64, last: u64) -> String {
    format!("part-{first:016}-{last:016}")
}

/// The objects of a journal.
#[derive(Debug, Default)]
struct ObjectList {
    groups: BTreeSet<u64>,
    /// Last group by the first one.
    parts: BTreeMap<u64, u64>,
}

impl ObjectList {
    fn of(names: &[String]) -> ObjectList {
        let mut list = ObjectList::default();
        for name in names {
            if let Some(number) = name.strip_prefix("group-") {
                list.groups.extend(number.parse::<u64>());
            } else if let Some((first, last)) = name
                .strip_prefix("part-")
                .and_then(|range| range.split_once('-'))
                && let (Ok(first), Ok(last)) = (first.parse(), last.parse())
            {
                list.parts.insert(first, last);
            }
        }
        list
    }

    /// Names of the objects with all groups from `next` on, with the number after each. Groups that a
    /// part has are skipped.
    fn from(&self, mut next: u64) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        loop {
            let name = match self.parts.get(&next) {
                Some(last) => {
                    let name = part_name(next, *last);
                    next = last + 1;
                    name
                }
                None if self.groups.contains(&next) => {
                    next += 1;
                    group_name(next - 1)
                }
                None => return names,
            };
            names.push((name, next));
        }
    }

    /// True if there is an object with a group after `next`.
    fn has_later(&self, next: u64) -> bool {
        let group = self.groups.last().is_some_and(|group| *group > next);
        group
            || self
                .parts
                .last_key_value()
                .is_some_and(|(first, _)| *first > next)
    }
}

/// The last attempt that has taken over.
#[derive(Debug)]
struct LastAttempt {
    attempt: u32,
    /// Its first line.
    line: Vec<u8>,
    /// Position of its first record in the file of the records.
    begin: u64,
}

/// The records of the earlier attempts, in a file of this node that has no name.
#[derive(Debug)]
struct ReadRecords {
    file: File,
    /// Path that the file had, for errors.
    path: PathBuf,
    length: u64,
    last: Option<LastAttempt>,
    /// Number of the next group.
    next: u64,
}

impl ReadRecords {
    /// No records yet. `path` is the name that the file has for a moment.
    fn new(path: PathBuf) -> Result<ReadRecords, JournalError> {
        let made = (|| {
            let mut options = File::options();
            let file = options
                .create(true)
                .truncate(true)
                .read(true)
                .write(true)
                .mode(0o600)
                .open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        })();
        Ok(ReadRecords {
            file: made.map_err(io_at(&path, "made"))?,
            path,
            length: 0,
            last: None,
            next: 1,
        })
    }

    /// Reads all groups that follow.
    async fn update(&mut self, directory: &ObjectDirectory) -> Result<(), JournalError> {
        let mut missing = String::new();
        for _ in 0..MAX_LISTS {
            let list = ObjectList::of(&directory.list().await?);
            let mut objects = futures_util::stream::iter(list.from(self.next))
                .map(async |(name, next)| {
                    directory.read(&name).await.map(|data| (name, next, data))
                })
                .buffered(PARALLEL_READS);
            let mut was_merged = false;
            while let Some((name, next, data)) = objects.try_next().await? {
                let Some(data) = data else {
                    (was_merged, missing) = (true, name);
                    break;
                };
                self.add(&data)?;
                self.next = next;
            }
            // A group that is missing in a list may have been merged while the list was read.
            if !was_merged && list.has_later(self.next) {
                (was_merged, missing) = (true, group_name(self.next));
            }
            if !was_merged {
                return Ok(());
            }
        }
        Err(JournalError::MissingObject {
            url: format!("{}/{missing}", directory.url()),
        })
    }

    /// The next group exists, and no list has it.
    fn missing_object(&self, directory: &ObjectDirectory) -> JournalError {
        JournalError::MissingObject {
            url: format!("{}/{}", directory.url(), group_name(self.next)),
        }
    }

    fn add(&mut self, text: &[u8]) -> Result<(), JournalError> {
        let records = match FirstLine::split(text) {
            Some((first, records)) => {
                let line = text.strip_suffix(records).unwrap_or(text);
                self.last = Some(LastAttempt {
                    attempt: first.attempt,
                    line: line.to_vec(),
                    begin: self.length,
                });
                records
            }
            None => text,
        };
        let written = self.file.write_all(records);
        written.map_err(io_at(&self.path, "written"))?;
        self.length += u64::try_from(records.len()).unwrap_or_default();
        Ok(())
    }

    /// The records from a position on.
    fn from(&self, begin: u64) -> Result<BufReader<File>, JournalError> {
        let opened = self.file.try_clone().and_then(|mut file| {
            file.seek(SeekFrom::Start(begin))?;
            Ok(file)
        });
        let file = opened.map_err(io_at(&self.path, "read"))?;
        Ok(BufReader::with_capacity(1 << 16, file))
    }

    /// The text of the last attempt, if this is its first line.
    fn text_of(&mut self, line: &str) -> Result<Option<Bytes>, JournalError> {
        let Some(last) = self
            .last
            .as_ref()
            .filter(|last| last.line == line.as_bytes())
        else {
            return Ok(None);
        };
        let mut text = last.line.clone();
        let read = self.from(last.begin)?.read_to_end(&mut text);
        read.map_err(io_at(&self.path, "read"))?;
        Ok(Some(text.into()))
    }

    /// Records of the last attempt that only its copy on this node has.
    fn missing(&mut self, copy: &JournalTail) -> Result<Vec<u8>, JournalError> {
        let Some(last) = &self.last else {
            return Ok(Vec::new());
        };
        let missing = copy.missing_records(last.line.chain(self.from(last.begin)?));
        // Both handles have one position.
        let end = self.file.seek(SeekFrom::End(0));
        end.map_err(io_at(&self.path, "read"))?;
        Ok(missing)
    }
}

/// Groups that wait for a merge.
#[derive(Debug)]
struct WaitingGroups {
    first: u64,
    text: Vec<u8>,
}

/// The journal, for the attempt that has taken over last.
#[derive(Debug)]
pub(crate) struct ObjectLog {
    directory: ObjectDirectory,
    /// Number of the next group.
    next: u64,
    waiting: WaitingGroups,
    merge: Option<AbortOnDropHandle<()>>,
    /// `None` after the replay.
    records: Option<ReadRecords>,
}

impl ObjectLog {
    /// Takes over the journal in `directory` for the attempt of `first`: from now on, no earlier attempt
    /// can append. Records that only `copy` has are appended, and `copy` begins again.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] after a later attempt; [`JournalError::AttemptUsed`]; errors of the
    /// store, and of the file system with `records`, a path for the records of the earlier attempts.
    pub(crate) async fn take_over(
        directory: ObjectDirectory,
        first: &FirstLine,
        records: PathBuf,
        copy: &mut JournalTail,
    ) -> Result<ObjectLog, JournalError> {
        let mut records = ReadRecords::new(records)?;
        let line = first
            .line()
            .map_err(|error| io_at(&records.path, "written")(error.into()))?;
        let (mut backoff, begun) = (ExponentialBackoff::usual(), Instant::now());
        let text = loop {
            match try_take_over(&directory, (first.attempt, &line), &mut records, copy).await {
                Ok(Some(text)) => break text,
                // An earlier attempt was faster. It can be so until it finds this one.
                Ok(None) if begun.elapsed() < TAKE_OVER_TIMEOUT => {}
                Ok(None) => return Err(records.missing_object(&directory)),
                Err(JournalError::Objects(error)) if begun.elapsed() < TAKE_OVER_TIMEOUT => {
                    tracing::warn!(%error, "the journal cannot be taken over; trying again");
                    tokio::time::sleep(backoff.wait()).await;
                }
                Err(error) => return Err(error),
            }
        };
        copy.begin(&text);
        let next = records.next;
        Ok(ObjectLog {
            directory,
            next,
            waiting: WaitingGroups {
                first: next,
                text: Vec::new(),
            },
            merge: None,
            records: Some(records),
        })
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &ObjectDirectory {
        &self.directory
    }

    /// The records of the earlier attempts. None after [`ObjectLog::forget_records`].
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn records(&self) -> Result<Box<dyn BufRead + Send + Sync>, JournalError> {
        match &self.records {
            Some(records) => Ok(Box::new(records.from(0)?)),
            None => Ok(Box::new(std::io::empty())),
        }
    }

    /// Frees the disk space of the records of the earlier attempts.
    pub(crate) fn forget_records(&mut self) {
        self.records = None;
    }

    /// Appends a group. Returns when it is durable, and no later attempt had taken over before. While the
    /// store does not answer, it waits.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] after a take-over; [`JournalError::Removed`].
    pub(crate) async fn append(&mut self, text: &[u8]) -> Result<(), JournalError> {
        let (name, data) = (group_name(self.next), Bytes::copy_from_slice(text));
        let mut backoff = ExponentialBackoff::usual();
        let mut is_silent = false;
        while let Err(error) = self.create(&name, &data).await {
            let JournalError::Objects(error) = error else {
                return Err(error);
            };
            if !is_silent {
                tracing::warn!(%error, "the object store does not confirm records of the journal; decisions wait, and tasks continue");
                is_silent = true;
            }
            tokio::time::sleep(backoff.wait()).await;
        }
        if is_silent {
            tracing::info!("the object store confirms records of the journal again");
        }
        self.next += 1;
        self.waiting.text.extend_from_slice(text);
        self.merge_if_due();
        Ok(())
    }

    async fn create(&self, name: &str, data: &Bytes) -> Result<(), JournalError> {
        match self.directory.create(name, data.clone()).await? {
            CreateResult::Created => return Ok(()),
            CreateResult::Exists => {}
        }
        let dir = || PathBuf::from(self.directory.url());
        match self.directory.read(name).await? {
            Some(present) if present == data => Ok(()), // the answer to an earlier request was lost
            Some(present) => Err(JournalError::Deposed {
                dir: dir(),
                by: FirstLine::split(&present).map_or(0, |(first, _)| first.attempt),
            }),
            None => Err(JournalError::Removed { dir: dir() }),
        }
    }

    /// Starts a merge if there are enough groups, and the last one has ended.
    fn merge_if_due(&mut self) {
        let (first, last) = (self.waiting.first, self.next - 1);
        let size = self.waiting.text.len();
        if last - first + 1 < GROUPS_PER_PART && size < PART_SIZE {
            return;
        }
        let is_merging = self
            .merge
            .as_ref()
            .is_some_and(|merge| !merge.is_finished());
        if is_merging && size < MAX_WAITING {
            return;
        }
        let text = std::mem::take(&mut self.waiting.text);
        self.waiting.first = self.next;
        if !is_merging && last > first {
            let merge = merge(self.directory.clone(), (first, last), text.into());
            self.merge = Some(AbortOnDropHandle::new(tokio::spawn(merge)));
        }
    }
}

/// Reads all groups, and creates the take-over of an attempt with this first line as the next one.
/// Returns its text; `None` if another group has its number.
async fn try_take_over(
    directory: &ObjectDirectory,
    (attempt, line): (u32, &str),
    records: &mut ReadRecords,
    copy: &JournalTail,
) -> Result<Option<Bytes>, JournalError> {
    records.update(directory).await?;
    if let Some(own) = records.text_of(line)? {
        return Ok(Some(own)); // the answer to an earlier request was lost
    }
    check_attempt(directory, attempt, records.last.as_ref())?;
    let missing = records.missing(copy)?;
    let text = Bytes::from([line.as_bytes(), &missing].concat());
    match directory
        .create(&group_name(records.next), text.clone())
        .await?
    {
        CreateResult::Created => {
            records.add(&text)?;
            records.next += 1;
            Ok(Some(text))
        }
        CreateResult::Exists => Ok(None),
    }
}

/// Writes groups as one object, and removes theirs.
async fn merge(directory: ObjectDirectory, (first, last): (u64, u64), text: Bytes) {
    let merged = async {
        directory.replace(&part_name(first, last), text).await?;
        directory
            .remove((first..=last).map(group_name).collect())
            .await
    };
    if let Err(error) = merged.await {
        tracing::warn!(%error, first, last, "groups of the journal were not merged; the next attempt reads them one by one");
    }
}

fn check_attempt(
    directory: &ObjectDirectory,
    attempt: u32,
    last: Option<&LastAttempt>,
) -> Result<(), JournalError> {
    let dir = PathBuf::from(directory.url());
    match last {
        Some(last) if last.attempt > attempt => Err(JournalError::Deposed {
            dir,
            by: last.attempt,
        }),
        Some(last) if last.attempt == attempt => Err(JournalError::AttemptUsed { dir, attempt }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
