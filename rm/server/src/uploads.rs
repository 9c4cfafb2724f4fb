//! Store of files that users upload for their applications, by content.
//!
//! A file is `uploads/SHA256` in the state directory; its modification time is its last use. It is
//! written under another name, synced and renamed, so a file with its digest as its name is whole.
//! What a killed resource manager left unfinished is removed at the next start. The functions here
//! block.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use headroom_config::UploadLimits;
use headroom_types::{Bytes, FetchedFile, LaunchSpec, Sha256, UPLOAD_SCHEME};
use headroom_wire::v1::error::{ProblemDetails, ProblemReason};
use sha2::Digest as _;
use tokio::sync::Semaphore;

use crate::clock::ManagerClock;

/// Prefix of files that are being written.
const UNFINISHED: &str = "unfinished-";
/// Space that uploads leave free on the disk, because the state of the cluster is on it too.
const MIN_FREE: Bytes = Bytes::from_mib(256);
/// Maximum number of files that are received at once.
const MAX_UPLOADS: usize = 32;
/// Maximum number of files that are sent to nodes at once. Further nodes try again later.
const MAX_DOWNLOADS: usize = 256;

/// A copy of a file that the leader has is marked as used after this part of the time for which
/// files are kept.
const REFRESHES: u32 = 8;

/// The store.
#[derive(Debug)]
pub(crate) struct UploadStore {
    dir: PathBuf,
    limits: UploadLimits,
    /// Slots for uploads.
    pub(crate) uploads: Arc<Semaphore>,
    /// Slots for downloads.
    pub(crate) downloads: Arc<Semaphore>,
    accounts: Mutex<UploadAccounts>,
    clock: ManagerClock,
}

#[derive(Debug, Default)]
struct UploadAccounts {
    /// Size of each stored file. Bytes.
    stored: BTreeMap<Sha256, u64>,
    /// Size of all files that are being written. Bytes.
    reserved: u64,
    /// Number of the next file that is being written.
    next: u64,
}

impl UploadAccounts {
    fn total(&self) -> u64 {
        self.stored
            .values()
            .sum::<u64>()
            .saturating_add(self.reserved)
    }
}

/// The reason why a file was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("the file has {size}, and the resource manager accepts at most {most}")]
    TooLarge { size: Bytes, most: Bytes },
    #[error(
        "the file has {size}, and uploaded files already have {used} of {most} on the resource \
         manager"
    )]
    StoreFull {
        size: Bytes,
        used: Bytes,
        most: Bytes,
    },
    #[error(
        "the file has {size}, and the disk of the resource manager has {free} free, of which uploads \
         leave {MIN_FREE} for the state of the cluster"
    )]
    DiskFull { size: Bytes, free: Bytes },
    #[error("the body has the SHA-256 {found}, not {named} as its address names")]
    OtherContent { named: Sha256, found: Sha256 },
    #[error("the body ended after {got} of {size} bytes")]
    Incomplete { got: u64, size: u64 },
    #[error("the body has more than the {size} bytes of its Content-Length")]
    TooLong { size: u64 },
    #[error("the file cannot be stored: {0}")]
    Disk(#[from] io::Error),
}

impl From<UploadError> for ProblemDetails {
    fn from(error: UploadError) -> ProblemDetails {
        let sentence = error.to_string();
        let elsewhere = "name a file that the nodes have with local:/PATH; it is not uploaded";
        match error {
            UploadError::TooLarge { .. } => ProblemDetails::too_large(sentence)
                .hint(elsewhere)
                .hint("raise max_file under [uploads] in resourcemanager.toml"),
            UploadError::StoreFull { .. } => ProblemDetails::uploads_full(sentence)
                .hint(elsewhere)
                .hint("raise max_total or lower keep under [uploads] in resourcemanager.toml"),
            UploadError::DiskFull { .. } => ProblemDetails::uploads_full(sentence)
                .hint(elsewhere)
                .hint("free space on the disk of its state directory"),
            UploadError::OtherContent { .. } => ProblemDetails::bad_request(sentence)
                .reason(ProblemReason::DigestMismatch)
                .hint("if the file changed while it was sent, send it again"),
            UploadError::Incomplete { .. } | UploadError::TooLong { .. } => {
                ProblemDetails::bad_request(sentence).hint("send the file again")
            }
            UploadError::Disk(cause) if cause.kind() == io::ErrorKind::StorageFull => {
                ProblemDetails::uploads_full("the disk of the resource manager is full")
                    .hint(elsewhere)
                    .hint("free space on the disk of its state directory")
            }
            UploadError::Disk(_) => ProblemDetails::internal(sentence)
                .hint("check the disk of the resource manager's state directory"),
        }
    }
}

/// Uploads that a launch names: as files to be fetched, or in the text of a small file, such as the
/// job file of a master.
pub(crate) fn named(launch: &LaunchSpec) -> impl Iterator<Item = Sha256> {
    let in_text = |text: &'_ String| {
        let found = text.match_indices(UPLOAD_SCHEME);
        let digest = |(at, scheme): (usize, &str)| {
            let start = at + scheme.len();
            text.get(start..start + 64)?.parse().ok()
        };
        found.filter_map(digest).collect::<Vec<Sha256>>()
    };
    let fetched = launch.fetch.iter().filter_map(FetchedFile::upload);
    fetched.chain(launch.files.values().flat_map(in_text))
}

/// The result of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadOutcome {
    /// The file is new.
    Stored,
    /// The store had the file already.
    Known,
}

/// A file that is being received. Dropped before [`UploadWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub(crate) struct UploadWriter {
    store: Arc<UploadStore>,
    named: Sha256,
    size: u64,
    got: u64,
    hasher: sha2::Sha256,
    /// `None` if the store has the file: then the body is only verified.
    file: Option<(File, PathBuf)>,
}

impl UploadStore {
    /// The store in `dir`, which is created. Files that an earlier incarnation did not finish are
    /// removed.
    pub(crate) fn open(
        dir: PathBuf,
        limits: UploadLimits,
        clock: ManagerClock,
    ) -> io::Result<UploadStore> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        let mut accounts = UploadAccounts::default();
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(UNFINISHED) {
                fs::remove_file(entry.path())?;
            } else if let Ok(sum) = name.parse() {
                accounts.stored.insert(sum, entry.metadata()?.len());
            } else {
                tracing::warn!(path = %entry.path().display(), "not an uploaded file, ignoring");
            }
        }
        Ok(UploadStore {
            dir,
            limits,
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
            accounts: Mutex::new(accounts),
            clock,
        })
    }

    /// Begins to receive a file of `size` bytes.
    pub(crate) fn begin(
        self: &Arc<Self>,
        named: Sha256,
        size: u64,
    ) -> Result<UploadWriter, UploadError> {
        let most = self.limits.max_file;
        if size > most.get() {
            let size = Bytes::new(size);
            return Err(UploadError::TooLarge { size, most });
        }
        let mut writer = UploadWriter {
            store: Arc::clone(self),
            named,
            size,
            got: 0,
            hasher: sha2::Sha256::new(),
            file: None,
        };
        let mut accounts = self.accounts();
        if self.open_used(named, &mut accounts)?.is_some() {
            return Ok(writer);
        }
        let (used, most) = (accounts.total(), self.limits.max_total);
        if used.saturating_add(size) > most.get() {
            let (size, used) = (Bytes::new(size), Bytes::new(used));
            return Err(UploadError::StoreFull { size, used, most });
        }
        let free = self.free()?;
        if free
            < size
                .saturating_add(accounts.reserved)
                .saturating_add(MIN_FREE.get())
        {
            let (size, free) = (Bytes::new(size), Bytes::new(free));
            return Err(UploadError::DiskFull { size, free });
        }
        let path = self.dir.join(format!("{UNFINISHED}{}", accounts.next));
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        accounts.next += 1;
        accounts.reserved += size;
        drop(accounts);
        writer.file = Some((file, path));
        Ok(writer)
    }

    /// Free space of the disk. Bytes.
    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.dir)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Opens a stored file and marks it as used. Returns it with its size in bytes; `None` if the
    /// store does not have it.
    pub(crate) fn read(&self, sum: Sha256) -> io::Result<Option<(File, u64)>> {
        self.open_used(sum, &mut self.accounts())
    }

    /// [`UploadStore::read`] under the lock, so that the file is not removed in between.
    fn open_used(
        &self,
        sum: Sha256,
        accounts: &mut UploadAccounts,
    ) -> io::Result<Option<(File, u64)>> {
        if !accounts.stored.contains_key(&sum) {
            return Ok(None);
        }
        match File::options().read(true).write(true).open(self.path(sum)) {
            Ok(file) => {
                file.set_modified(self.now())?;
                let size = file.metadata()?.len();
                Ok(Some((file, size)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(%sum, "an uploaded file was removed by another program");
                accounts.stored.remove(&sum);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The first of these files that the store does not have. The others are marked as used.
    pub(crate) fn missing(&self, sums: &BTreeSet<Sha256>) -> io::Result<Option<Sha256>> {
        for sum in sums {
            if self.read(*sum)?.is_none() {
                return Ok(Some(*sum));
            }
        }
        Ok(None)
    }

    /// All files.
    pub(crate) fn names(&self) -> BTreeSet<Sha256> {
        self.accounts().stored.keys().copied().collect()
    }

    /// Marks those of these files as used whose last use was some time ago.
    pub(crate) fn refresh(&self, sums: &BTreeSet<Sha256>) -> io::Result<()> {
        let now = self.now();
        for sum in sums {
            if self.is_older(*sum, now, self.limits.keep / REFRESHES) {
                self.read(*sum)?;
            }
        }
        Ok(())
    }

    /// Files whose last use was longer ago than they are kept.
    pub(crate) fn stale(&self, now: SystemTime) -> BTreeSet<Sha256> {
        let accounts = self.accounts();
        let known = accounts.stored.keys().copied();
        known.filter(|sum| self.is_stale(*sum, now)).collect()
    }

    fn is_stale(&self, sum: Sha256, now: SystemTime) -> bool {
        self.is_older(sum, now, self.limits.keep)
    }

    /// True if the last use of a file was longer ago than `age`.
    fn is_older(&self, sum: Sha256, now: SystemTime, age: Duration) -> bool {
        let used = fs::metadata(self.path(sum)).and_then(|facts| facts.modified());
        used.is_ok_and(|used| now.duration_since(used).is_ok_and(|past| past > age))
    }

    /// Removes those of the `stale` files that are not in `needed`, and marks the others as used.
    /// Returns the number of removed files.
    pub(crate) fn expire(
        &self,
        stale: &BTreeSet<Sha256>,
        needed: &BTreeSet<Sha256>,
        now: SystemTime,
    ) -> u32 {
        let mut removed = 0;
        for sum in stale {
            let mut accounts = self.accounts();
            // It may have been used since the list was made.
            if !self.is_stale(*sum, now) {
                continue;
            }
            let path = self.path(*sum);
            let done = if needed.contains(sum) {
                let opened = File::options().write(true).open(&path);
                opened.and_then(|file| file.set_modified(now))
            } else {
                fs::remove_file(&path).map(|()| {
                    accounts.stored.remove(sum);
                    removed += 1;
                })
            };
            if let Err(error) = done {
                tracing::warn!(path = %path.display(), %error, "cannot remove an old upload");
            }
        }
        removed
    }

    /// Present time, as the file system counts it.
    pub(crate) fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.clock.unix_now().0)
    }

    fn path(&self, sum: Sha256) -> PathBuf {
        self.dir.join(sum.to_string())
    }

    fn accounts(&self) -> MutexGuard<'_, UploadAccounts> {
        // Poisoning is harmless: no panic can leave the accounts half changed.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UploadWriter {
    /// Writes the next piece of the body.
    pub(crate) fn write(&mut self, piece: &[u8]) -> Result<(), UploadError> {
        self.got = self.got.saturating_add(piece.len() as u64);
        if self.got > self.size {
            return Err(UploadError::TooLong { size: self.size });
        }
        self.hasher.update(piece);
        if let Some((file, _)) = &mut self.file {
            file.write_all(piece)?;
        }
        Ok(())
    }

    /// Verifies the body, and stores the file durably.
    pub(crate) fn finish(mut self) -> Result<UploadOutcome, UploadError> {
        let (got, size, named) = (self.got, self.size, self.named);
        if got != size {
            return Err(UploadError::Incomplete { got, size });
        }
        let found = Sha256::new(std::mem::take(&mut self.hasher).finalize().into());
        if found != named {
            return Err(UploadError::OtherContent { named, found });
        }
        let Some((file, path)) = &self.file else {
            return Ok(UploadOutcome::Known);
        };
        file.sync_all()?;
        let store = Arc::clone(&self.store);
        let mut accounts = store.accounts();
        if accounts.stored.contains_key(&named) {
            drop(accounts);
            return Ok(UploadOutcome::Known);
        }
        file.set_modified(store.now())?;
        fs::rename(path, store.path(named))?;
        accounts.stored.insert(named, size);
        drop(accounts);
        File::open(&store.dir)?.sync_all()?;
        Ok(UploadOutcome::Stored)
    }
}

impl Drop for UploadWriter {
    fn drop(&mut self) {
        let Some((_, path)) = &self.file else { return };
        let mut accounts = self.store.accounts();
        accounts.reserved = accounts.reserved.saturating_sub(self.size);
        drop(accounts);
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot remove an unfinished upload");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::FetchedFileKind;

    const DAY: Duration = Duration::from_secs(86_400);

    fn sum(text: &[u8]) -> Sha256 {
        Sha256::new(sha2::Sha256::digest(text).into())
    }
    fn limits(max_file: u64, max_total: u64) -> UploadLimits {
        UploadLimits {
            max_file: Bytes::new(max_file),
            max_total: Bytes::new(max_total),
            keep: DAY,
        }
    }
    fn store(dir: &tempfile::TempDir, max_file: u64, max_total: u64) -> Arc<UploadStore> {
        let opened = UploadStore::open(
            dir.path().join("uploads"),
            limits(max_file, max_total),
            ManagerClock::start(),
        );
        Arc::new(opened.expect("opens"))
    }
    fn put(store: &Arc<UploadStore>, text: &[u8]) -> Result<UploadOutcome, UploadError> {
        let mut writer = store.begin(sum(text), text.len() as u64)?;
        text.chunks(3).try_for_each(|piece| writer.write(piece))?;
        writer.finish()
    }
    fn names(dir: &tempfile::TempDir) -> BTreeSet<String> {
        let entries = fs::read_dir(dir.path().join("uploads")).expect("lists");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("text");
        entries.flatten().map(name).collect()
    }
    fn text(store: &UploadStore, of: Sha256) -> Option<String> {
        let (file, size) = store.read(of).expect("reads")?;
        let text = io::read_to_string(file).expect("text");
        assert_eq!(text.len() as u64, size);
        Some(text)
    }

    #[test]
    fn a_file_is_stored_once_and_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = store(&dir, 100, 1000);
        assert_eq!(
            put(&first, b"a jar").expect("stores"),
            UploadOutcome::Stored
        );
        assert_eq!(put(&first, b"a jar").expect("knows"), UploadOutcome::Known);
        assert_eq!(put(&first, b"").expect("stores"), UploadOutcome::Stored);
        drop(first);
        let second = store(&dir, 100, 1000);
        assert_eq!(text(&second, sum(b"a jar")).as_deref(), Some("a jar"));
        assert_eq!(text(&second, sum(b"")).as_deref(), Some(""));
        assert_eq!(text(&second, sum(b"other")), None);
        fs::remove_file(second.path(sum(b""))).expect("removes");
        assert_eq!(put(&second, b"").expect("stores"), UploadOutcome::Stored);
        let both = BTreeSet::from([sum(b"a jar"), sum(b"other")]);
        assert_eq!(second.missing(&both).expect("reads"), Some(sum(b"other")));
        assert_eq!(names(&dir).len(), 2);
    }

    #[test]
    fn a_refused_body_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(&dir, 10, 1000);
        let named = sum(b"one");
        let write = |pieces: &[&[u8]], size| {
            let mut writer = store.begin(named, size)?;
            pieces.iter().try_for_each(|piece| writer.write(piece))?;
            writer.finish()
        };
        let other = write(&[b"t", b"wo"], 3).expect_err("another content");
        assert!(matches!(&other, UploadError::OtherContent { found, .. } if *found == sum(b"two")));
        let problem = ProblemDetails::from(other);
        assert_eq!(problem.reason, Some(ProblemReason::DigestMismatch));
        let short = write(&[b"on"], 3).expect_err("is short");
        assert!(matches!(short, UploadError::Incomplete { got: 2, size: 3 }));
        let long = write(&[b"one", b"!"], 3).expect_err("is long");
        assert!(matches!(long, UploadError::TooLong { size: 3 }));
        let large = store.begin(named, 11).expect_err("is large");
        assert!(matches!(large, UploadError::TooLarge { .. }));
        assert_eq!(names(&dir), BTreeSet::new());
        assert_eq!(store.accounts().total(), 0, "nothing stays reserved");
        assert_eq!(write(&[b"one"], 3).expect("stores"), UploadOutcome::Stored);
    }

    #[test]
    fn a_full_store_refuses_new_content_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(&dir, 10, 10);
        put(&store, b"12345678").expect("stores");
        let full = put(&store, b"abc").expect_err("is full");
        let problem = ProblemDetails::from(full);
        assert_eq!(problem.code.to_string(), "HR0507");
        assert!(problem.detail.contains("8 B of 10 B"), "{}", problem.detail);
        assert_eq!(
            put(&store, b"12345678").expect("knows"),
            UploadOutcome::Known
        );
        let unfinished = store.begin(sum(b"ab"), 2).expect("fits");
        assert!(put(&store, b"x").is_err(), "unfinished files count too");
        drop(unfinished);
        assert_eq!(put(&store, b"x").expect("fits"), UploadOutcome::Stored);
    }

    #[test]
    fn concurrent_uploads_of_one_file_store_it_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(&dir, 100, 100);
        let begin = || store.begin(sum(b"same"), 4).expect("begins");
        let (mut one, mut two) = (begin(), begin());
        one.write(b"sa").expect("writes");
        two.write(b"same").expect("writes");
        one.write(b"me").expect("writes");
        assert_eq!(one.finish().expect("stores"), UploadOutcome::Stored);
        assert_eq!(two.finish().expect("knows"), UploadOutcome::Known);
        assert_eq!(names(&dir), BTreeSet::from([sum(b"same").to_string()]));
        assert_eq!(store.accounts().total(), 4);
    }

    #[test]
    fn the_next_start_removes_what_a_killed_one_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let killed = store(&dir, 100, 100);
        let mut writer = killed.begin(sum(b"whole"), 5).expect("begins");
        writer.write(b"who").expect("writes");
        assert_eq!(names(&dir), BTreeSet::from(["unfinished-0".to_owned()]));
        std::mem::forget(writer); // a killed process drops nothing
        let next = store(&dir, 100, 100);
        assert_eq!(names(&dir), BTreeSet::new());
        assert_eq!(text(&next, sum(b"whole")), None);
        assert_eq!(put(&next, b"whole").expect("stores"), UploadOutcome::Stored);
    }

    #[test]
    fn unused_files_expire_and_needed_files_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(&dir, 100, 1000);
        for text in [b"old".as_slice(), b"needed", b"read"] {
            put(&store, text).expect("stores");
        }
        let all = BTreeSet::from([sum(b"old"), sum(b"needed"), sum(b"read")]);
        let now = store.now() + Duration::from_secs(10);
        assert_eq!(store.stale(now), BTreeSet::new(), "all were used just now");
        let now = now + DAY;
        assert_eq!(store.stale(now), all);
        let used = File::options().write(true).open(store.path(sum(b"read")));
        used.and_then(|file| file.set_modified(now))
            .expect("marks as used");
        assert_eq!(
            store.expire(&all, &BTreeSet::from([sum(b"needed")]), now),
            1
        );
        assert_eq!(text(&store, sum(b"old")), None);
        assert!(text(&store, sum(b"read")).is_some() && text(&store, sum(b"needed")).is_some());
        assert_eq!(
            store.accounts().total(),
            10,
            "the removed file is not counted"
        );
    }

    #[test]
    fn other_files_in_the_directory_are_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("uploads");
        fs::create_dir(&place).expect("makes");
        fs::write(place.join("notes.txt"), "of an operator").expect("writes");
        let store = store(&dir, 100, 100);
        assert_eq!(store.accounts().total(), 0);
        assert!(place.join("notes.txt").exists());
    }

    #[test]
    fn a_launch_names_uploads_as_files_and_in_the_text_of_its_job() {
        let file = FetchedFile::uploaded("a", sum(b"a"), FetchedFileKind::File);
        let text = format!("from = \"upload:{}\" # upload:\nupload:abc", sum(b"b"));
        let launch = LaunchSpec {
            fetch: vec![file],
            files: [("job.toml".to_owned(), text)].into(),
            ..LaunchSpec::default()
        };
        let found: BTreeSet<Sha256> = named(&launch).collect();
        assert_eq!(found, BTreeSet::from([sum(b"a"), sum(b"b")]));
    }
}
