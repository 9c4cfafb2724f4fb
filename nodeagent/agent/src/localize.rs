//! Localizes the files of a launch into the container's working directory: fetches, checks, unpacks
//! and links them.
//!
//! Blocking; a part of preparing a container. Files with a SHA-256 go through the cache. A path on
//! this host is read by a process of the container's user, so that the agent's rights do not expose
//! files that the user cannot read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use headroom_client::Client;
use headroom_client::retry::ExponentialBackoff;
use headroom_config::FileCacheLimits as Bounds;
use headroom_node_core::LaunchFailureKind;
use headroom_node_exec::{
    ExecArguments, ProcessEnd, RlimitKind, RlimitSetting, SpawnCommand, spawn,
};
use headroom_types::{Bytes, ContainerId, FetchedFile, FetchedFileKind, Sha256};
use sha2::Digest as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::cache::{CacheEntryKey, NodeFileCache};
use crate::container_user::ContainerUser;
use crate::download::{DownloadError, FileDownloader};
use crate::launch_failure::LaunchError;
use crate::process_wait::{end_within, ends_within};
use crate::{unpack, uploaded_file};

/// Maximum number of containers that fetch at once. The jobs of the agent share threads; the other
/// threads serve jobs that end containers.
const AT_ONCE: usize = 8;
/// Number of attempts for an unreachable server.
const TRIES: u32 = 3;
/// First wait between two attempts; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest wait between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Interval at which a copy checks whether its container was abandoned.
const GLANCE: Duration = Duration::from_millis(50);

/// Localizes files for all containers of a node.
#[derive(Debug)]
pub(crate) struct Localizer {
    cache: NodeFileCache,
    bounds: Bounds,
    web: FileDownloader,
    /// The resource manager, which has uploaded files.
    manager: Client,
    turns: Arc<Semaphore>,
    /// Containers that fetch or wait for a permit, each with the token that cancels its fetches.
    under_way: Mutex<BTreeMap<ContainerId, CancellationToken>>,
}

/// One fetch of one file.
struct ContainerFetch<'a> {
    of: &'a Localizer,
    id: &'a ContainerId,
    file: &'a FetchedFile,
    identity: &'a ContainerUser,
    deadline: Instant,
    given_up: &'a CancellationToken,
}

impl Localizer {
    /// A localizer with its cache in `state`, which fetches uploaded files from `manager`.
    pub(crate) fn open(state: &Path, bounds: Bounds, manager: Client) -> anyhow::Result<Localizer> {
        Ok(Localizer {
            cache: NodeFileCache::open(state.join("cache"), bounds.size.get())?,
            web: FileDownloader::new(bounds.ca_file.clone()),
            manager,
            bounds,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            under_way: Mutex::default(),
        })
    }

    /// Registers a container. From then on [`Localizer::abandon`] cancels its waits.
    pub(crate) fn expect(&self, id: &ContainerId) -> CancellationToken {
        self.under_way().entry(id.clone()).or_default().clone()
    }

    /// Cancels the fetches of a container that will not run.
    pub(crate) fn abandon(&self, id: &ContainerId) {
        if let Some(given_up) = self.under_way().get(id) {
            given_up.cancel();
        }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<ContainerId, CancellationToken>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The permits to fetch. A container without a permit waits.
    pub(crate) fn turns(&self) -> Arc<Semaphore> {
        Arc::clone(&self.turns)
    }

    /// Localizes all of `files` into `work`.
    pub(crate) fn bring(
        &self,
        id: &ContainerId,
        files: &[FetchedFile],
        work: &Path,
        identity: &ContainerUser,
    ) -> anyhow::Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let (deadline, given_up) = (Instant::now() + self.bounds.deadline, self.expect(id));
        files.iter().try_for_each(|file| {
            let fetch = ContainerFetch {
                of: self,
                id,
                file,
                identity,
                deadline,
                given_up: &given_up,
            };
            fetch.run(&work.join(&file.name)).map_err(|error| {
                let sentence = format!("fetching {} from {}", file.name, file.from);
                LaunchError::around(error, LaunchFailureKind::FetchFailed, sentence)
            })
        })
    }

    /// Removes a container whose fetches are finished.
    pub(crate) fn done(&self, id: &ContainerId) {
        self.under_way().remove(id);
    }
}

impl ContainerFetch<'_> {
    /// Returns an error after the container was abandoned.
    fn still_wanted(&self) -> anyhow::Result<()> {
        ensure!(
            !self.given_up.is_cancelled(),
            "the container was stopped before its files were fetched"
        );
        Ok(())
    }

    /// The error of a fetch that reached its deadline.
    fn late(&self) -> LaunchError {
        LaunchError::new(
            LaunchFailureKind::FetchTimeout,
            format!(
                "the fetch did not finish within {:?}",
                self.of.bounds.deadline
            ),
        )
    }

    fn run(&self, at: &Path) -> anyhow::Result<()> {
        self.still_wanted()?;
        let remote = !self.file.from.starts_with('/');
        let Some(sum) = self.file.expected_digest() else {
            ensure!(!remote, "the URL has no sha256");
            self.make(at)?;
            return self.give(at);
        };
        // A file from a URL is shared by all users. A file from this host is shared by containers
        // of one user only.
        let whose = if remote {
            None
        } else {
            Some(self.identity.user.as_ref().map_or(u32::MAX, |u| u.uid))
        };
        let key = CacheEntryKey::new(sum, whose, self.file.kind.as_str());
        let pinned = self
            .of
            .cache
            .get(&key, self.deadline, &|| self.still_wanted(), |path| {
                self.make(path)
            })?;
        self.take(&pinned.content, at)
    }

    /// Fetches, checks and unpacks. Returns the size of the result. Bytes.
    fn make(&self, at: &Path) -> anyhow::Result<u64> {
        let name = at.file_name().unwrap_or_default().to_string_lossy();
        let raw = at.with_file_name(format!(".fetching-{name}"));
        let most = self
            .file
            .most
            .map_or(self.of.bounds.file, |most| most.min(self.of.bounds.file));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&raw)
            .context("cannot create a file")?;
        let made = self
            .fetch(&mut file, &raw, most)
            .and_then(|()| self.check(&mut file))
            .and_then(|size| match self.file.kind {
                FetchedFileKind::Archive => {
                    let (bytes, entries) = (self.of.bounds.unpacked.get(), self.of.bounds.entries);
                    unpack::unpack(&mut file, at, bytes, entries).map_err(|error| {
                        let kind = LaunchFailureKind::ArchiveRefused;
                        LaunchError::around(error, kind, "the archive is refused")
                    })
                }
                kind @ (FetchedFileKind::File | FetchedFileKind::Program) => {
                    let mode = if kind == FetchedFileKind::Program {
                        0o555
                    } else {
                        0o444
                    };
                    file.set_permissions(fs::Permissions::from_mode(mode))?;
                    fs::rename(&raw, at)?;
                    Ok(size)
                }
            });
        match fs::remove_file(&raw) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %raw.display(), error = %e, "a temporary file cannot be removed")
            }
            Ok(()) | Err(_) => {}
        }
        made
    }

    fn fetch(&self, file: &mut File, raw: &Path, most: Bytes) -> anyhow::Result<()> {
        let from = self.file.from.as_str();
        if from.starts_with('/') {
            return self.read_as_user(file, raw, most);
        }
        let runtime =
            tokio::runtime::Handle::try_current().context("no tokio runtime for the download")?;
        let (upload, mut pauses) = (
            self.file.upload(),
            ExponentialBackoff::new(PAUSE, LONGEST_PAUSE),
        );
        // The resource manager may restart meanwhile, so only the deadline limits its attempts.
        let most_tries = if upload.is_some() { u32::MAX } else { TRIES };
        let all = async {
            let mut tries = 1;
            loop {
                file.set_len(0)?;
                file.rewind()?;
                let fetched = match upload {
                    Some(sum) => uploaded_file::fetch(&self.of.manager, sum, most, file).await,
                    None => self.of.web.fetch(from, most, file).await,
                };
                match fetched {
                    Err(DownloadError::Net(error)) if tries < most_tries => {
                        tracing::info!(container_id = %self.id, from, %error, "a download failed; trying again");
                        tries += 1;
                        tokio::time::sleep(pauses.wait()).await;
                    }
                    Err(DownloadError::Net(error) | DownloadError::Final(error)) => {
                        return Err(error);
                    }
                    Ok(()) => return Ok(()),
                }
            }
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let in_time = runtime.block_on(async {
            tokio::select! {
                done = tokio::time::timeout(left, all) => Some(done),
                () = self.given_up.cancelled() => None,
            }
        });
        let Some(in_time) = in_time else {
            return self.still_wanted();
        };
        in_time.with_context(|| self.late())?
    }

    /// Reads the file with a process that has only the rights of the container's user.
    fn read_as_user(&self, file: &File, raw: &Path, most: Bytes) -> anyhow::Result<()> {
        let words = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(raw.with_extension("err"))?;
        fs::remove_file(raw.with_extension("err"))?;
        let limits = [RlimitSetting {
            limit: RlimitKind::FileSize,
            soft: most.get(),
            hard: most.get(),
        }];
        let env = [("PATH".into(), "/usr/bin:/bin".into())];
        let arguments = ExecArguments::new(["cat", "--", self.file.from.as_str()], &env)?;
        let command = SpawnCommand {
            stdout: Some(file),
            stderr: Some(&words),
            limits: &limits,
            user: self.identity.user.as_ref(),
            new_session: true,
            ..SpawnCommand::new(&arguments, Path::new("/"))
        };
        let child = spawn(&command)?;
        // A copy on the same host: an abandoned copy ends after one interval at most.
        while !self.given_up.is_cancelled()
            && Instant::now() < self.deadline
            && !ends_within(&child, GLANCE)?
        {}
        let left = if self.given_up.is_cancelled() {
            Duration::ZERO
        } else {
            self.deadline.saturating_duration_since(Instant::now())
        };
        match end_within(&child, left)? {
            Some(ProcessEnd::Code(0)) => Ok(()),
            Some(ProcessEnd::Signal(_)) => bail!("the file is larger than {most}"),
            Some(ProcessEnd::Code(_)) => {
                let (mut text, mut words) = (String::new(), words);
                words.rewind()?;
                words.take(500).read_to_string(&mut text)?;
                bail!("the container's user cannot read it: {}", text.trim())
            }
            None => {
                self.still_wanted()?;
                bail!(self.late())
            }
        }
    }

    /// The size of the file. An error if its SHA-256 differs from the requested one.
    fn check(&self, file: &mut File) -> anyhow::Result<u64> {
        file.rewind()?;
        let mut hasher = sha2::Sha256::new();
        let (mut size, mut piece) = (0, vec![0; 256 << 10]);
        loop {
            let n = file.read(&mut piece)?;
            if n == 0 {
                break;
            }
            size += n as u64;
            hasher.update(piece.get(..n).unwrap_or_default());
        }
        let sum = Sha256::new(hasher.finalize().into());
        match self.file.expected_digest() {
            Some(wanted) if wanted != sum => {
                bail!(LaunchError::new(
                    LaunchFailureKind::DigestMismatch,
                    format!("its SHA-256 is {sum}, not {wanted} as requested"),
                ))
            }
            Some(_) | None => Ok(size),
        }
    }

    /// Takes content from the cache: a hard link if the container's user cannot change the file,
    /// otherwise a copy.
    fn take(&self, content: &Path, at: &Path) -> anyhow::Result<()> {
        let facts = fs::symlink_metadata(content)?;
        if facts.is_dir() {
            fs::create_dir(at).with_context(|| format!("cannot create {}", at.display()))?;
            for entry in fs::read_dir(content)? {
                let entry = entry?;
                self.take(&entry.path(), &at.join(entry.file_name()))?;
            }
            return self.own(at);
        }
        if facts.is_symlink() {
            symlink(fs::read_link(content)?, at)?;
            return self.own(at);
        }
        let linked = self.identity.user.as_ref().is_some_and(|u| u.uid != 0)
            && fs::hard_link(content, at).is_ok();
        if linked {
            return Ok(());
        }
        fs::copy(content, at).with_context(|| format!("cannot copy to {}", at.display()))?;
        self.own(at)
    }

    fn own(&self, at: &Path) -> anyhow::Result<()> {
        let Some(user) = &self.identity.user else {
            return Ok(());
        };
        lchown(at, Some(user.uid), Some(user.gid))
            .with_context(|| format!("cannot give {} to its user", at.display()))
    }

    /// Gives the whole tree to the container's user. Nothing in it is shared.
    fn give(&self, at: &Path) -> anyhow::Result<()> {
        let facts = fs::symlink_metadata(at)?;
        if facts.is_dir() {
            for entry in fs::read_dir(at)? {
                self.give(&entry?.path())?;
            }
        }
        match &self.identity.user {
            Some(user) if !facts.is_symlink() => Ok(chown(at, Some(user.uid), Some(user.gid))?),
            Some(_) | None => Ok(()),
        }
    }
}
