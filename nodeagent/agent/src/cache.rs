//! Cache of fetched files and archives that many containers use.
//!
//! The key of an entry is its SHA-256 (with the user, if only that user may read it). An entry
//! never changes: it is created under another name, checked, and renamed; before its removal it is
//! renamed again, so that a partial one never has the name of an entry. A container gets hard
//! links to its files, so the file system counts the uses of an entry, across restarts of the
//! agent. When the cache exceeds its limit, unused entries are removed, least recently used first.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use headroom_node_core::LaunchFailureKind;
use headroom_types::Sha256;

use crate::launch_failure::LaunchError;

/// The content of an entry: a file, or the directory of an unpacked archive.
pub(crate) const CONTENT: &str = "content";
/// Disk use of an entry in bytes, as text. The file's modification time is the last use.
const SIZE: &str = "size";
/// Prefix of entries that are being created or removed.
const UNFINISHED: &str = "unfinished-";

/// Interval at which a waiter for another container's fetch checks whether its own container was
/// abandoned.
const GLANCE: Duration = Duration::from_millis(100);

/// The key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheEntryKey(String);

impl CacheEntryKey {
    /// Key of content that all users may read (`user` is `None`), or only `user`; as a file or
    /// unpacked.
    pub(crate) fn new(sum: Sha256, user: Option<u32>, form: &str) -> CacheEntryKey {
        let whose = user.map_or_else(|| "all".to_owned(), |uid| uid.to_string());
        CacheEntryKey(format!("{sum}-{whose}-{form}"))
    }
}

/// The cache of one node.
#[derive(Debug)]
pub(crate) struct NodeFileCache {
    dir: PathBuf,
    most: u64,
    state: Mutex<FileCacheState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FileCacheState {
    /// Number of containers that are taking an entry now.
    pins: BTreeMap<CacheEntryKey, u32>,
    /// Entries that are being created.
    making: BTreeMap<CacheEntryKey, ()>,
    count: u64,
}

/// An entry that is not evicted while this value exists.
#[derive(Debug)]
pub(crate) struct PinnedCacheEntry<'a> {
    cache: &'a NodeFileCache,
    key: CacheEntryKey,
    /// Its content.
    pub(crate) content: PathBuf,
}

impl NodeFileCache {
    /// The cache in `dir`, which is created. Unfinished and incomplete entries of an earlier agent are
    /// removed.
    pub(crate) fn open(dir: PathBuf, most: u64) -> anyhow::Result<NodeFileCache> {
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot close {}", dir.display()))?;
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            let path = entry.path();
            let complete = !entry.file_name().to_string_lossy().starts_with(UNFINISHED)
                && path.join(SIZE).exists()
                && path.join(CONTENT).exists();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !complete {
                fs::remove_dir_all(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(NodeFileCache {
            dir,
            most,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The entry of that key. If it does not exist, `make` creates its content at the given path
    /// and returns its size in bytes. Concurrent callers wait until the entry is created.
    pub(crate) fn get(
        &self,
        key: &CacheEntryKey,
        deadline: Instant,
        still_wanted: &dyn Fn() -> anyhow::Result<()>,
        make: impl FnOnce(&Path) -> anyhow::Result<u64>,
    ) -> anyhow::Result<PinnedCacheEntry<'_>> {
        let home = self.dir.join(&key.0);
        let unfinished = match self.reserve(key, deadline, still_wanted)? {
            None => return self.used(key, &home),
            Some(unfinished) => unfinished,
        };
        let made = self.make(&unfinished, &home, make);
        let mut state = self.lock();
        state.making.remove(key);
        match &made {
            Ok(()) => *state.pins.entry(key.clone()).or_default() += 1,
            Err(_) => drop(fs::remove_dir_all(&unfinished)),
        }
        drop(state);
        self.changed.notify_all();
        made?;
        let pinned = self.used(key, &home);
        self.evict();
        pinned
    }

    /// Waits until no other caller is creating the entry. Returns `None` if it exists (it is then
    /// pinned), otherwise the path at which to create it.
    fn reserve(
        &self,
        key: &CacheEntryKey,
        deadline: Instant,
        still_wanted: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<PathBuf>> {
        let mut state = self.lock();
        while state.making.contains_key(key) {
            still_wanted()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!(LaunchError::new(
                    LaunchFailureKind::FetchTimeout,
                    "another container fetches the same file and did not finish in time",
                ));
            }
            state = self
                .changed
                .wait_timeout(state, left.min(GLANCE))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if self.dir.join(&key.0).join(SIZE).exists() {
            *state.pins.entry(key.clone()).or_default() += 1;
            return Ok(None);
        }
        state.making.insert(key.clone(), ());
        Ok(Some(self.unfinished(&mut state)))
    }

    /// A new path for an entry that is being created or removed.
    fn unfinished(&self, state: &mut FileCacheState) -> PathBuf {
        state.count += 1;
        self.dir.join(format!("{UNFINISHED}{}", state.count))
    }

    fn make(
        &self,
        unfinished: &Path,
        home: &Path,
        make: impl FnOnce(&Path) -> anyhow::Result<u64>,
    ) -> anyhow::Result<()> {
        fs::create_dir(unfinished)
            .with_context(|| format!("cannot make {}", unfinished.display()))?;
        let size = make(&unfinished.join(CONTENT))?;
        fs::write(unfinished.join(SIZE), size.to_string())
            .context("cannot write into the cache")?;
        // A complete entry must survive a power loss: first sync its bytes, then its name.
        synced(unfinished).context("the cache cannot be synced to the disk")?;
        fs::rename(unfinished, home).with_context(|| format!("cannot make {}", home.display()))?;
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .context("the cache cannot be synced to the disk")
    }

    fn used(&self, key: &CacheEntryKey, home: &Path) -> anyhow::Result<PinnedCacheEntry<'_>> {
        let pinned = PinnedCacheEntry {
            cache: self,
            key: key.clone(),
            content: home.join(CONTENT),
        };
        let touched = File::options()
            .write(true)
            .open(home.join(SIZE))
            .and_then(|f| f.set_modified(SystemTime::now()));
        touched.with_context(|| format!("the cache entry {} is damaged", home.display()))?;
        Ok(pinned)
    }

    /// Removes unused entries until the cache is within its limit. Returns the removed size. Bytes.
    pub(crate) fn evict(&self) -> u64 {
        let mut state = self.lock();
        let mut entries: Vec<(SystemTime, u64, CacheEntryKey)> = self.entries();
        entries.sort();
        let mut all: u64 = entries.iter().map(|(_, size, _)| size).sum();
        let mut removed = 0;
        for (_, size, key) in entries {
            if all <= self.most {
                break;
            }
            let content = self.dir.join(&key.0).join(CONTENT);
            if state.pins.contains_key(&key) || in_use(&content).unwrap_or(true) {
                continue;
            }
            let done = self.set_aside(&mut state, &key).and_then(|aside| {
                all = all.saturating_sub(size);
                fs::remove_dir_all(aside)
            });
            match done {
                Ok(()) => removed += size,
                Err(error) => {
                    tracing::warn!(entry = key.0, %error, "a cache entry cannot be removed, ignoring")
                }
            }
        }
        removed
    }

    /// Renames an entry that will be removed. Returns its path. An interrupted removal thus leaves no
    /// part of it under its name.
    fn set_aside(&self, state: &mut FileCacheState, key: &CacheEntryKey) -> io::Result<PathBuf> {
        let aside = self.unfinished(state);
        fs::rename(self.dir.join(&key.0), &aside)?;
        Ok(aside)
    }

    /// Last use, size and key of each entry.
    fn entries(&self) -> Vec<(SystemTime, u64, CacheEntryKey)> {
        let found = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let facts = |entry: fs::DirEntry| {
            let key = CacheEntryKey(
                entry
                    .file_name()
                    .into_string()
                    .ok()
                    .filter(|name| !name.starts_with(UNFINISHED))?,
            );
            let path = entry.path().join(SIZE);
            let size = fs::read_to_string(&path).ok()?.parse().ok()?;
            Some((
                fs::metadata(path).and_then(|m| m.modified()).ok()?,
                size,
                key,
            ))
        };
        found.filter_map(facts).collect()
    }

    fn lock(&self) -> MutexGuard<'_, FileCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PinnedCacheEntry<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if let Some(pins) = state.pins.get_mut(&self.key) {
            *pins -= 1;
            if *pins == 0 {
                state.pins.remove(&self.key);
            }
        }
    }
}

/// Writes a new entry through to the disk. A single file is synced by itself. An archive has
/// thousands of files, so one call for the whole file system is faster.
fn synced(entry: &Path) -> io::Result<()> {
    if entry.join(CONTENT).is_dir() {
        return Ok(rustix::fs::syncfs(File::open(entry)?)?);
    }
    [entry.join(CONTENT), entry.join(SIZE), entry.to_owned()]
        .iter()
        .try_for_each(|path| File::open(path)?.sync_all())
}

/// Whether a file of the entry has a second hard link, which belongs to a container.
fn in_use(content: &Path) -> io::Result<bool> {
    let facts = fs::symlink_metadata(content)?;
    if facts.is_dir() {
        for entry in fs::read_dir(content)? {
            if in_use(&entry?.path())? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    Ok(facts.is_file() && facts.nlink() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn key(n: u8) -> CacheEntryKey {
        CacheEntryKey::new(Sha256::new([n; 32]), None, "file")
    }
    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }
    fn put<'c>(cache: &'c NodeFileCache, n: u8, size: usize) -> PinnedCacheEntry<'c> {
        let make = |path: &Path| {
            fs::write(path, vec![n; size])?;
            Ok(size as u64)
        };
        cache.get(&key(n), soon(), &|| Ok(()), make).expect("makes")
    }

    #[test]
    fn an_existing_entry_is_not_created_again_by_a_later_agent() {
        let dir = tempfile::tempdir().expect("dir");
        let cache = NodeFileCache::open(dir.path().join("cache"), 100).expect("opens");
        assert_eq!(
            fs::read(&put(&cache, 1, 10).content).expect("reads").len(),
            10
        );
        fs::create_dir(dir.path().join("cache/unfinished-7")).expect("makes");
        let later = NodeFileCache::open(dir.path().join("cache"), 100).expect("opens");
        assert!(!dir.path().join("cache/unfinished-7").exists());
        later
            .get(&key(1), soon(), &|| Ok(()), |_| bail!("made again"))
            .expect("is there");
        assert!(
            later
                .get(&key(2), soon(), &|| Ok(()), |_| bail!("no"))
                .is_err()
        );
        later
            .get(&key(2), soon(), &|| Ok(()), |path| {
                Ok(fs::write(path, "x").map(|()| 1)?)
            })
            .expect("a failed fetch does not block the entry");
    }

    #[test]
    fn an_interrupted_removal_leaves_no_partial_entry() {
        let dir = tempfile::tempdir().expect("dir");
        let open = || NodeFileCache::open(dir.path().join("cache"), 100).expect("opens");
        let cache = open();
        for n in 1..=3 {
            drop(put(&cache, n, 10));
        }
        let aside = cache
            .set_aside(&mut cache.lock(), &key(1))
            .expect("renames");
        let again = cache.get(&key(1), soon(), &|| Ok(()), |_| bail!("made again"));
        assert!(again.is_err(), "the entry does not count as present");
        // Left by an agent that did not rename them.
        for (n, part) in [(2, CONTENT), (3, SIZE)] {
            fs::remove_file(dir.path().join("cache").join(key(n).0).join(part)).expect("removes");
        }
        let later = open();
        assert!(!aside.exists());
        for n in 1..=3 {
            let pinned = put(&later, n, 20);
            assert_eq!(fs::read(&pinned.content).expect("reads").len(), 20);
        }
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let dir = tempfile::tempdir().expect("dir");
        let cache = NodeFileCache::open(dir.path().join("cache"), 100).expect("opens");
        let kept = dir.path().join("a hard link of a container");
        for n in 1..=3 {
            let pinned = put(&cache, n, 40);
            if n == 1 {
                fs::hard_link(&pinned.content, &kept).expect("links");
            }
            // File systems store times with limited resolution.
            let old = SystemTime::now() - Duration::from_secs(100 - u64::from(n));
            File::options()
                .write(true)
                .open(pinned.content.with_file_name(SIZE))
                .and_then(|f| f.set_modified(old))
                .expect("ages");
        }
        let there = |n: u8| dir.path().join("cache").join(key(n).0).exists();
        assert_eq!(
            (there(1), there(2), there(3)),
            (true, false, true),
            "the first entry is in use, and the third was used last"
        );
        fs::remove_file(&kept).expect("the container is gone");
        drop(put(&cache, 4, 40));
        assert_eq!((there(1), there(3), there(4)), (false, true, true));
        let held = put(&cache, 5, 90);
        assert!(
            there(5) && !there(3) && !there(4),
            "a pinned entry of any size remains"
        );
        drop(held);
        assert_eq!(
            (cache.evict(), there(5)),
            (0, true),
            "an entry remains while the cache is within its limit"
        );
    }

    #[test]
    fn concurrent_requests_create_an_entry_once() {
        let dir = tempfile::tempdir().expect("dir");
        let cache = NodeFileCache::open(dir.path().join("cache"), 100).expect("opens");
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let make = |path: &Path| {
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok(fs::write(path, "once").map(|()| 4)?)
                    };
                    let pinned = cache.get(&key(9), soon(), &|| Ok(()), make).expect("gets");
                    assert_eq!(fs::read_to_string(&pinned.content).expect("reads"), "once");
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}
