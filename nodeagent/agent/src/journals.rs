//! The shared directory or the object store of the journals of masters, as this node sees it: checked at
//! the start, at intervals, before each launch of a master, and by the doctor.
//!
//! A file server that does not answer blocks a system call for any time. So each check and each removal
//! has a thread of its own, and there is at most one of either.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use headroom_config::{JournalPlace, MasterJournals, NodeAgentConfig, ObjectUrl, RunAsUser};
use headroom_objects::{ObjectDirectory, ProbeError, StoreVariables, VariablesError};
use headroom_types::{AppId, UnixMillis};
use tokio::sync::oneshot;

/// Timeout of one check.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the removal of one journal.
const REMOVAL: Duration = Duration::from_secs(30);
/// The fix of a silent or wrong file server.
const CHECK_SERVER: &str = "check the file server and the mount";
/// Size of the file that the check writes. Bytes.
const PROBE_SIZE: usize = 4096;
/// Permissions of a directory in which every user creates entries and removes only their own.
const SHARED_BY_USERS: u32 = 0o1777;

/// The reason why a place cannot be used, and the next step of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalsProblem {
    pub(crate) found: String,
    pub(crate) fix: String,
}

impl JournalsProblem {
    /// The problem as one sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("journals: {}; {}", self.found, self.fix)
    }
}

/// The place of shared journals.
#[derive(Clone, Debug)]
enum SharedPlace {
    Directory {
        dir: PathBuf,
        file_system: Option<String>,
        /// True if masters run as other users than the agent.
        has_users: bool,
    },
    Objects {
        url: ObjectUrl,
        /// The file with address and credentials. `None` for the role of this host.
        variables: Option<PathBuf>,
    },
}

/// The place and its last check.
#[derive(Debug)]
pub(crate) struct SharedJournals {
    place: SharedPlace,
    /// Part of the names of the files that the check writes.
    node: String,
    /// True while a check runs.
    checking: Arc<AtomicBool>,
    /// True while a directory is removed.
    removing: Arc<AtomicBool>,
    last: Mutex<Option<JournalsProblem>>,
}

impl SharedJournals {
    /// The place of this configuration; `None` if masters use a directory of the node, or the state
    /// of the resource manager.
    pub(crate) fn of(config: &NodeAgentConfig, node: &str) -> Option<SharedJournals> {
        let MasterJournals {
            journals,
            file_system,
            object_store,
        } = config.masters.clone();
        let place = match journals? {
            JournalPlace::ResourceManager => return None,
            JournalPlace::Directory(dir) => SharedPlace::Directory {
                dir,
                file_system,
                has_users: rustix::process::geteuid().is_root()
                    && config.isolation.run_as != RunAsUser::Agent,
            },
            JournalPlace::Objects(url) => SharedPlace::Objects {
                url,
                variables: object_store,
            },
        };
        Some(SharedJournals {
            place,
            node: node.to_owned(),
            checking: Arc::default(),
            removing: Arc::default(),
            last: Mutex::default(),
        })
    }

    /// Its path or URL.
    pub(crate) fn name(&self) -> String {
        match &self.place {
            SharedPlace::Directory { dir, .. } => dir.display().to_string(),
            SharedPlace::Objects { url, .. } => url.to_string(),
        }
    }

    /// The variables with which a master finds its object store. Empty for a directory, for the role of
    /// this host, and while the file cannot be read.
    pub(crate) fn variables(&self) -> StoreVariables {
        let SharedPlace::Objects {
            variables: Some(path),
            ..
        } = &self.place
        else {
            return StoreVariables::default();
        };
        StoreVariables::read(path).unwrap_or_else(|error| {
            tracing::warn!(%error, "masters start without access to their journals");
            StoreVariables::default()
        })
    }

    /// Removes the journal of an ended application, unless its master did so.
    pub(crate) async fn remove(&self, app: &AppId, submitted: UnixMillis) {
        let name = app.journal_directory(submitted);
        let removed = match &self.place {
            SharedPlace::Directory { dir, .. } => self.remove_directory(dir.join(&name)).await,
            SharedPlace::Objects { url, variables } => {
                remove_objects(url, variables.as_deref(), &name).await
            }
        };
        if let Err(error) = removed {
            tracing::warn!(
                journal = format!("{}/{name}", self.name()),
                error,
                "the journal of an ended application cannot be removed; remove it"
            );
        }
    }

    async fn remove_directory(&self, path: PathBuf) -> Result<(), String> {
        let (done, result) = oneshot::channel();
        let job = move || fs::remove_dir_all(path);
        // The receiver is gone after the timeout.
        if !run_alone(&self.removing, job, move |removed| drop(done.send(removed))) {
            return Err("an earlier removal does not end".to_owned());
        }
        match tokio::time::timeout(REMOVAL, result).await {
            Ok(Ok(Err(error))) if error.kind() != ErrorKind::NotFound => Err(error.to_string()),
            Ok(Ok(_) | Err(_)) => Ok(()),
            Err(_) => Err("the file server does not answer".to_owned()),
        }
    }

    /// The problem that the last check found.
    pub(crate) fn problem(&self) -> Option<JournalsProblem> {
        // A poisoned lock is harmless: the value is written as a whole.
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// Checks the place. Blocking, at most for a timeout.
    pub(crate) fn check(&self) -> Option<JournalsProblem> {
        let found = self.check_in_time();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone_from(&found);
        found
    }

    fn check_in_time(&self) -> Option<JournalsProblem> {
        let silent = JournalsProblem {
            found: format!(
                "{} does not answer for {} s",
                self.name(),
                TIMEOUT.as_secs()
            ),
            fix: match &self.place {
                SharedPlace::Directory { .. } => CHECK_SERVER.into(),
                SharedPlace::Objects { .. } => {
                    "check the address of the object store in masters.object_store, and the network"
                        .into()
                }
            },
        };
        let (done, result) = mpsc::channel();
        let (place, node) = (self.place.clone(), self.node.clone());
        let job = move || place.check(&node).err();
        // The receiver is gone after the timeout.
        if !run_alone(&self.checking, job, move |found| drop(done.send(found))) {
            return Some(silent);
        }
        result.recv_timeout(TIMEOUT).unwrap_or(Some(silent))
    }
}

/// Runs `job` in a thread of its own, and passes the result to `report`. Returns false if the last job
/// of this kind still runs, or no thread can be started.
fn run_alone<T>(
    running: &Arc<AtomicBool>,
    job: impl FnOnce() -> T + Send + 'static,
    report: impl FnOnce(T) + Send + 'static,
) -> bool {
    if running.swap(true, Ordering::AcqRel) {
        return false;
    }
    let ended = Arc::clone(running);
    let started = thread::Builder::new()
        .name("journals".into())
        .spawn(move || {
            let result = job();
            ended.store(false, Ordering::Release);
            report(result);
        });
    if started.is_err() {
        running.store(false, Ordering::Release);
    }
    started.is_ok()
}

impl SharedPlace {
    fn check(&self, node: &str) -> Result<(), JournalsProblem> {
        match self {
            SharedPlace::Directory {
                dir,
                file_system,
                has_users,
            } => {
                examine(dir, file_system.as_deref(), *has_users)?;
                probe(dir, node)
            }
            SharedPlace::Objects { url, variables } => {
                let directory = open_objects(url, variables.as_deref())?;
                // This thread has no runtime.
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| JournalsProblem {
                        found: format!("{url} cannot be checked: {error}"),
                        fix: "raise the limits of this process".into(),
                    })?;
                Ok(runtime.block_on(directory.probe(node))?)
            }
        }
    }
}

impl From<VariablesError> for JournalsProblem {
    fn from(error: VariablesError) -> Self {
        JournalsProblem {
            found: error.found(),
            fix: error.fix().into(),
        }
    }
}

impl From<ProbeError> for JournalsProblem {
    fn from(error: ProbeError) -> Self {
        JournalsProblem {
            found: error.found(),
            fix: error.fix().into(),
        }
    }
}

fn open_objects(
    url: &ObjectUrl,
    variables: Option<&Path>,
) -> Result<ObjectDirectory, JournalsProblem> {
    let variables = variables.map(StoreVariables::read).transpose()?;
    Ok(ObjectDirectory::open(url, &variables.unwrap_or_default()).map_err(ProbeError::from)?)
}

async fn remove_objects(
    url: &ObjectUrl,
    variables: Option<&Path>,
    name: &str,
) -> Result<(), String> {
    let root = open_objects(url, variables).map_err(|problem| problem.sentence())?;
    let directory = root.directory(name);
    match tokio::time::timeout(REMOVAL, directory.remove_all()).await {
        Ok(removed) => removed.map_err(|error| error.to_string()),
        Err(_) => Err("the object store does not answer".to_owned()),
    }
}

/// Checks the directory, its file system and its permissions.
fn examine(dir: &Path, file_system: Option<&str>, has_users: bool) -> Result<(), JournalsProblem> {
    let at = dir.display();
    let facts = fs::metadata(dir).map_err(|error| failed("opened", dir, &error))?;
    if !facts.is_dir() {
        return Err(JournalsProblem {
            found: format!("{at} is no directory"),
            fix: "name a directory in masters.journals".into(),
        });
    }
    let real = dir
        .canonicalize()
        .map_err(|error| failed("opened", dir, &error))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_of(&mounts, &real);
    if let Some(wanted) = file_system {
        let (kind, point) = mount.unwrap_or(("unknown", "/"));
        if kind != wanted {
            return Err(JournalsProblem {
                found: format!(
                    "{at} is on {kind}, mounted at {point}, but masters.file_system = \"{wanted}\""
                ),
                fix: "mount the shared file system, or correct masters.file_system".into(),
            });
        }
    }
    let mode = facts.mode() & 0o7777;
    if has_users && mode & SHARED_BY_USERS != SHARED_BY_USERS {
        return Err(JournalsProblem {
            found: format!("{at} has mode {mode:o}, and masters run as the users of their jobs"),
            fix: format!("run chmod 1777 {at}"),
        });
    }
    Ok(())
}

/// Type and mount point of the file system with this path, from the text of `mountinfo`.
fn mount_of<'a>(mounts: &'a str, path: &Path) -> Option<(&'a str, &'a str)> {
    let mount = |line: &'a str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        Some((file_system.split(' ').next()?, point))
    };
    // Of two mounts at one point, the later one hides the earlier one.
    mounts
        .lines()
        .filter_map(mount)
        .filter(|(_, point)| path.starts_with(point.replace("\\040", " ")))
        .max_by_key(|(_, point)| point.len())
}

/// Does what a master does: exclusive creation, a durable write, a rename, and a read.
fn probe(dir: &Path, node: &str) -> Result<(), JournalsProblem> {
    let (new, old) = (
        dir.join(format!(".probe-{node}.new")),
        dir.join(format!(".probe-{node}")),
    );
    let create = || {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
    };
    match fs::remove_file(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed("removed", &new, &error)),
    }
    let mut file = create().map_err(|error| failed("created", &new, &error))?;
    if create().is_ok() {
        return Err(JournalsProblem {
            found: format!("{} was created exclusively twice", new.display()),
            fix: "use a file system with O_EXCL, such as NFS from version 3".into(),
        });
    }
    let data = [0x55; PROBE_SIZE];
    file.write_all(&data)
        .and_then(|()| file.sync_data())
        .map_err(|error| failed("written", &new, &error))?;
    fs::rename(&new, &old).map_err(|error| failed("renamed", &new, &error))?;
    let mut read = Vec::new();
    File::open(&old)
        .and_then(|mut file| file.read_to_end(&mut read))
        .map_err(|error| failed("read", &old, &error))?;
    if read != data {
        return Err(JournalsProblem {
            found: format!("{} contains other bytes than were written", old.display()),
            fix: CHECK_SERVER.into(),
        });
    }
    fs::remove_file(&old).map_err(|error| failed("removed", &old, &error))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> JournalsProblem {
    let fixes = [
        (
            ErrorKind::NotFound,
            "mount the shared file system, or create it: install -d -m 1777",
        ),
        (ErrorKind::ReadOnlyFilesystem, "mount it read-write"),
        (ErrorKind::StorageFull, "free space there"),
        (ErrorKind::QuotaExceeded, "free space there"),
        (
            ErrorKind::PermissionDenied,
            "run chmod 1777 on the directory",
        ),
        (ErrorKind::StaleNetworkFileHandle, "mount it again"),
    ];
    let fix = fixes.into_iter().find(|(kind, _)| *kind == error.kind());
    let fix = fix.map_or(CHECK_SERVER, |(_, fix)| fix);
    JournalsProblem {
        found: format!("{} cannot be {doing}: {error}", path.display()),
        fix: fix.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn directory(dir: &Path, file_system: Option<&str>) -> SharedJournals {
        let masters = MasterJournals {
            journals: Some(JournalPlace::Directory(dir.to_owned())),
            file_system: file_system.map(str::to_owned),
            object_store: None,
        };
        let mut config = NodeAgentConfig {
            masters,
            ..NodeAgentConfig::default()
        };
        config.isolation.run_as = RunAsUser::Agent;
        SharedJournals::of(&config, "n1").expect("configured")
    }

    #[test]
    fn a_usable_directory_has_no_problem_and_no_files_after_the_check() {
        let dir = tempfile::tempdir().expect("a directory");
        let journals = directory(dir.path(), None);
        // Left by an agent that was killed during a check.
        fs::write(dir.path().join(".probe-n1.new"), "").expect("writes");
        assert_eq!((journals.check(), journals.problem()), (None, None));
        assert_eq!(fs::read_dir(dir.path()).expect("reads").count(), 0);
        assert!(SharedJournals::of(&NodeAgentConfig::default(), "n1").is_none());
    }

    #[test]
    fn each_problem_says_what_is_wrong_where_and_the_fix() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = directory(&dir.path().join("journals"), None);
        let problem = missing.check().expect("missing").sentence();
        assert!(
            problem.contains("journals cannot be opened") && problem.contains("mount the shared"),
            "{problem}"
        );
        assert_eq!(missing.problem().map(|p| p.sentence()), Some(problem));
        let other = directory(dir.path(), Some("lustre"))
            .check()
            .expect("other");
        assert!(
            other.found.contains("masters.file_system = \"lustre\""),
            "{other:?}"
        );
        let file = dir.path().join("file");
        fs::write(&file, "").expect("writes");
        let file = directory(&file, None).check().expect("a file");
        assert!(file.found.contains("no directory"), "{file:?}");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("sets");
        let closed = examine(dir.path(), None, true).expect_err("users cannot write");
        assert!(closed.fix.contains("chmod 1777"), "{closed:?}");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).expect("sets");
        assert_eq!(examine(dir.path(), None, true), Ok(()));
        let link = dir.path().join("link");
        symlink(dir.path(), &link).expect("links");
        assert_eq!(directory(&link, None).check(), None);
        for (kind, word) in [
            (ErrorKind::ReadOnlyFilesystem, "read-write"),
            (ErrorKind::StorageFull, "free space"),
            (ErrorKind::StaleNetworkFileHandle, "mount it again"),
        ] {
            let problem = failed("written", dir.path(), &kind.into());
            assert!(problem.fix.contains(word), "{problem:?}");
        }
    }

    #[test]
    fn an_object_store_that_cannot_be_used_is_a_problem_with_its_fix() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("object-store.env");
        let url = "s3://journals/prod".parse().expect("a URL");
        let place = SharedPlace::Objects {
            url,
            variables: Some(file.clone()),
        };
        let missing = place.check("n1").expect_err("no such file");
        assert!(
            missing.sentence().contains("object-store.env"),
            "{missing:?}"
        );
        fs::write(&file, "PATH=/x\n").expect("writes");
        let wrong = place.check("n1").expect_err("no variable of a store");
        assert!(wrong.found.contains("line 1"), "{wrong:?}");
        // Nothing listens at this port.
        let closed = "AWS_ENDPOINT_URL=http://127.0.0.1:1\nAWS_ALLOW_HTTP=true\n\
                      AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n";
        fs::write(&file, closed).expect("writes");
        let silent = place.check("n1").expect_err("no store");
        assert!(
            silent.found.starts_with("s3://journals/prod/.probe-n1")
                && silent.fix.contains("address"),
            "{silent:?}"
        );
    }

    #[test]
    fn a_check_that_does_not_return_is_a_problem_and_no_second_one_starts() {
        let dir = tempfile::tempdir().expect("a directory");
        let journals = directory(dir.path(), None);
        journals.checking.store(true, Ordering::Release);
        let problem = journals.check().expect("the first check still runs");
        assert!(problem.found.contains("does not answer"), "{problem:?}");
        journals.checking.store(false, Ordering::Release);
        assert_eq!(journals.check(), None);
    }

    /// The threads of the agent are occupied here, as by calls that a file server does not answer.
    #[test]
    fn a_removal_has_its_own_thread_and_no_second_one_starts() {
        let dir = tempfile::tempdir().expect("a directory");
        let journals = directory(dir.path(), None);
        let (app, submitted): (AppId, _) = ("job.1".parse().expect("id"), UnixMillis(7));
        let journal = dir.path().join(app.journal_directory(submitted));
        fs::create_dir(&journal).expect("makes");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        let (release, occupied) = mpsc::channel::<()>();
        let occupant = runtime.spawn_blocking(move || occupied.recv());
        let remove = || {
            let removal = journals.remove(&app, submitted);
            runtime.block_on(async { tokio::time::timeout(REMOVAL, removal).await })
        };
        journals.removing.store(true, Ordering::Release);
        remove().expect("does not wait for the earlier removal");
        assert!(journal.exists(), "the first removal still runs");
        journals.removing.store(false, Ordering::Release);
        remove().expect("does not wait for a thread of the agent");
        assert!(!journal.exists());
        remove().expect("nothing is left to remove");
        drop(release);
        runtime.block_on(occupant).expect("ends").ok();
    }

    #[test]
    fn the_file_system_of_a_path_is_that_of_the_longest_mount_point() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      30 22 0:40 / /shared rw,relatime shared:9 - nfs4 server:/x rw\n\
                      31 22 0:41 / /shared\\040two rw - cifs //server/y rw\n";
        let of = |path: &str| mount_of(mounts, Path::new(path)).map(|(kind, _)| kind);
        assert_eq!(of("/shared/journals"), Some("nfs4"));
        assert_eq!(of("/shared two/journals"), Some("cifs"));
        assert_eq!(of("/sharedx"), Some("ext4"));
        assert_eq!(mount_of("", Path::new("/x")), None);
    }
}
