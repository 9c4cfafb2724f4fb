//! The agent's files: where they are, and what must survive a kill of the agent.
//!
//! A record is written to a temporary file and renamed: a reader sees the old one, the new one or none, never half of one, and a
//! killed agent loses nothing. It is not synced: when the power goes every program is gone too, the shim's record of an end is synced by
//! the shim, and an order of an earlier boot is never launched. Records carry a version; fields are only ever added.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
use headroom_container_shim::record;
use headroom_types::exit::MemoryEvents;
use headroom_types::{AppId, ContainerId, ExitReport, Resource, StopCause, UnixMillis};
use headroom_wire::v1::nodes::RunOrder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the records below.
const VERSION: u32 = 1;
/// How many directories of ended containers are kept for their logs.
const KEPT: usize = 200;

/// Files in a container's directory, beside those of the shim.
pub(crate) mod file {
    /// What was ordered: [`super::OrderRecord`].
    pub(crate) const ORDER: &str = "order.json";
    /// Why it was ended: [`super::StopRecord`].
    pub(crate) const STOP: &str = "stop";
    /// The verdict.
    pub(crate) const REPORT: &str = "report.json";
    /// Present when nobody needs the report any more.
    pub(crate) const FORGOTTEN: &str = "forgotten";
    /// The program's working directory.
    pub(crate) const WORK: &str = "work";
    /// What it sees as `/tmp`.
    pub(crate) const TMP: &str = "tmp";
    /// Logs of its tasks.
    pub(crate) const TASKS: &str = "tasks";
    /// What its program proves with whose it is, in [`TASKS`]; it reads it once and removes it.
    pub(crate) const TOKEN: &str = ".token";
    /// Who vouches for the resource manager, in [`TASKS`].
    pub(crate) const CA: &str = ".ca.pem";
    /// Standard output.
    pub(crate) const STDOUT: &str = "stdout";
    /// Standard error.
    pub(crate) const STDERR: &str = "stderr";
    /// Written, in [`TASKS`], by a program that knows its heap to be full.
    pub(crate) const MARKER: &str = "oom-marker";
    /// Where its program may say how much it keeps as a cache, beside that.
    pub(crate) const CACHED: &str = "cached";
}

/// The state directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    state: PathBuf,
    /// Forgotten containers whose directories are kept, oldest first; filled when it is first needed.
    kept: Arc<Mutex<Option<VecDeque<ContainerId>>>>,
}

/// The counters of outer levels when a container was launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Baselines {
    /// Of the fence around all containers, its own level only.
    pub(crate) fence: Option<MemoryEvents>,
    /// Kills on the host.
    pub(crate) host_oom_kills: Option<u64>,
    /// Of the levels above the node's own cgroup; `None` where there are none, or nobody counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) above: Option<MemoryEvents>,
}

/// What a container was ordered as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderRecord {
    version: u32,
    /// Which container.
    pub(crate) container: ContainerId,
    /// The order as it came.
    pub(crate) order: RunOrder,
    /// What counters stood at.
    pub(crate) baselines: Baselines,
    /// A later size that is being given to it. The order still holds the one it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resizing: Option<Resizing>,
    /// The boot of the host it was ordered in; a record that does not name one is of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

/// A change of size that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resizing {
    /// The version of the new size.
    pub(crate) version: u32,
    /// The new size.
    pub(crate) resource: Resource,
}

impl OrderRecord {
    /// A record of today.
    pub(crate) fn new(container: ContainerId, order: RunOrder, baselines: Baselines) -> Self {
        OrderRecord { version: VERSION, container, order, baselines, resizing: None, boot: boot() }
    }

    /// Whether the host has not been started anew since.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot.is_some() && self.boot == boot()
    }
}

/// What the kernel calls this boot.
fn boot() -> Option<String> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    let read = || Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned());
    BOOT.get_or_init(read).clone()
}

/// Why a container was ended, written before the signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopRecord {
    version: u32,
    /// Who asked.
    pub(crate) cause: StopCause,
    /// When.
    pub(crate) at: UnixMillis,
    /// Whether the kernel had already killed in it: then the stop is not what ended it.
    pub(crate) too_late: bool,
}

impl StopRecord {
    /// A record of today.
    pub(crate) fn new(cause: StopCause, at: UnixMillis, too_late: bool) -> Self {
        StopRecord { version: VERSION, cause, at, too_late }
    }
}

#[derive(Serialize, Deserialize)]
struct ReportRecord {
    version: u32,
    report: ExitReport,
}

impl Layout {
    /// The files below `state`; makes the directories. An existing directory keeps its rights.
    pub(crate) fn open(state: &Path) -> anyhow::Result<Self> {
        for dir in [state.to_owned(), state.join("containers"), state.join("apps")] {
            fs::create_dir_all(&dir).with_context(|| format!("cannot make {}; choose another --state", dir.display()))?;
        }
        let state = state.canonicalize().with_context(|| format!("cannot resolve {}", state.display()))?;
        Ok(Layout { state, kept: Arc::default() })
    }

    /// Takes the lock of this directory; it is held for as long as the file is open.
    pub(crate) fn lock(&self) -> anyhow::Result<File> {
        let state = self.state.display();
        self.try_lock()?.with_context(|| format!("another node agent works in {state}; end it or choose another --state"))
    }

    /// Takes the lock, unless somebody has it.
    pub(crate) fn try_lock(&self) -> anyhow::Result<Option<File>> {
        let path = self.state.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot write in {}; choose another --state", self.state.display()))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot lock {}; choose another --state", path.display())),
        }
    }

    /// The file with the node's own facts.
    pub(crate) fn node(&self) -> PathBuf {
        self.state.join("node.json")
    }
    /// The directory of all containers.
    pub(crate) fn containers(&self) -> PathBuf {
        self.state.join("containers")
    }
    /// The directory of one container.
    pub(crate) fn container(&self, id: &ContainerId) -> PathBuf {
        self.containers().join(id.to_string())
    }
    /// The directories of all applications.
    pub(crate) fn apps(&self) -> PathBuf {
        self.state.join("apps")
    }
    /// The state directory itself.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }
    /// The directory that outlives an application's containers.
    pub(crate) fn app(&self, app: &AppId) -> PathBuf {
        self.apps().join(app.to_string())
    }

    /// The order of a container; `None` when there is none or it cannot be read.
    pub(crate) fn order(&self, id: &ContainerId) -> Option<OrderRecord> {
        read_json(&self.container(id).join(file::ORDER))
    }
    /// Writes the order of a container for the first time. Torn, it is no order, and there is nothing beside it yet.
    pub(crate) fn write_first_order(&self, record: &OrderRecord) -> io::Result<()> {
        private(&self.container(&record.container).join(file::ORDER))?.write_all(&serde_json::to_vec(record)?)
    }
    /// Writes the order of a container again.
    pub(crate) fn write_order(&self, record: &OrderRecord) -> io::Result<()> {
        write_json(&self.container(&record.container).join(file::ORDER), record)
    }
    /// The recorded stop of a container.
    pub(crate) fn stop(&self, id: &ContainerId) -> Option<StopRecord> {
        read_json(&self.container(id).join(file::STOP))
    }
    /// The report of a container.
    pub(crate) fn report(&self, id: &ContainerId) -> Option<ExitReport> {
        read_json::<ReportRecord>(&self.container(id).join(file::REPORT)).map(|r| r.report)
    }
    /// Writes the report of a container.
    pub(crate) fn write_report(&self, report: &ExitReport) -> io::Result<()> {
        let dir = self.container(&report.container);
        let record = ReportRecord { version: VERSION, report: report.clone() };
        match write_json(&dir.join(file::REPORT), &record) {
            // It was stopped before anything was made.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&dir)?;
                write_json(&dir.join(file::REPORT), &record)
            }
            done => done,
        }
    }

    /// All containers with a directory, forgotten ones too, in the order of their ids.
    pub(crate) fn list(&self) -> io::Result<Vec<ContainerId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.containers())? {
            if let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
                ids.push(id);
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Whether no shim has ever been in a container's directory: what is in it was made by an agent that came no further.
    pub(crate) fn was_never_started(&self, id: &ContainerId) -> bool {
        let dir = self.container(id);
        let traces = [record::file::SHIM_PID, record::file::PID, record::file::EXIT, file::STOP, file::REPORT, file::FORGOTTEN];
        traces.iter().all(|name| !dir.join(name).exists())
    }

    /// Removes what a killed agent was about to rename in a container's directory. The shim's own files are left to it.
    pub(crate) fn clear_temporary(&self, id: &ContainerId) {
        let dir = self.container(id);
        for name in [file::ORDER, file::STOP, file::REPORT] {
            match fs::remove_file(dir.join(name).with_extension("tmp")) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::debug!(container_id = %id, name, %error, "a temporary file stays behind, ignoring"),
            }
        }
    }

    /// Whether nobody needs a container's report any more.
    pub(crate) fn is_forgotten(&self, id: &ContainerId) -> bool {
        self.container(id).join(file::FORGOTTEN).exists()
    }

    /// Marks a container as no longer needed; removes the oldest such directories beyond those that are kept for their logs.
    pub(crate) fn forget(&self, id: &ContainerId) -> io::Result<()> {
        let dir = self.container(id);
        if !dir.exists() {
            return Ok(());
        }
        File::create(dir.join(file::FORGOTTEN))?;
        // Only what it said is kept.
        for done in [file::WORK, file::TMP] {
            match fs::remove_dir_all(dir.join(done)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match &mut *kept {
            Some(kept) => {
                if !kept.contains(id) {
                    kept.push_back(id.clone());
                }
                kept
            }
            unknown @ None => unknown.insert(self.forgotten()?),
        };
        while kept.len() > KEPT {
            let Some(oldest) = kept.pop_front() else { break };
            match fs::remove_dir_all(self.container(&oldest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// All forgotten containers with a directory, the one that was forgotten first first.
    fn forgotten(&self) -> io::Result<VecDeque<ContainerId>> {
        let mut forgotten = Vec::new();
        for id in self.list()? {
            let marker = self.container(&id).join(file::FORGOTTEN);
            if let Ok(since) = fs::metadata(&marker).and_then(|m| m.modified()) {
                forgotten.push((since, id));
            }
        }
        forgotten.sort();
        Ok(forgotten.into_iter().map(|(_, id)| id).collect())
    }
}

/// Writes `value` so that a kill at any moment leaves the old file, the new one or none.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    private(&temporary)?.write_all(&serde_json::to_vec(value)?)?;
    fs::rename(&temporary, path)
}

/// A new file that only this user can read: orders hold the secrets of applications.
pub(crate) fn private(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(true).write(true).mode(0o600).open(path)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = fs::read(path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a record cannot be read, ignoring it");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> ContainerId {
        format!("job.1.e1.c{n}").parse().expect("id")
    }

    #[test]
    fn two_agents_cannot_share_a_directory() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = Layout::open(dir.path()).expect("opens");
        let held = layout.lock().expect("first");
        let second = format!("{:#}", layout.lock().expect_err("second"));
        assert!(second.contains("another node agent works in"), "{second}");
        drop(held);
        layout.lock().expect("free again");
    }

    #[test]
    fn a_torn_or_strange_record_is_no_record() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = Layout::open(dir.path()).expect("opens");
        fs::create_dir_all(layout.container(&id(1))).expect("dir");
        let path = layout.container(&id(1)).join(file::STOP);
        let record = StopRecord::new(StopCause::Asked, UnixMillis(7), false);
        write_json(&path, &record).expect("writes");
        assert_eq!(layout.stop(&id(1)), Some(record));
        fs::write(&path, b"{\"version\":1,\"cau").expect("tears");
        assert_eq!(layout.stop(&id(1)), None);
        assert_eq!(layout.order(&id(1)), None);
    }

    #[test]
    fn ended_containers_are_kept_for_their_logs_up_to_a_number() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = Layout::open(dir.path()).expect("opens");
        for n in 0..KEPT + 5 {
            fs::create_dir_all(layout.container(&id(n))).expect("dir");
            layout.forget(&id(n)).expect("forgets");
        }
        fs::create_dir_all(layout.container(&id(9999))).expect("dir");
        let left = layout.list().expect("lists");
        assert_eq!(left.len(), KEPT + 1);
        assert!(!layout.is_forgotten(&id(9999)) && left.contains(&id(KEPT + 4)) && left.contains(&id(9999)));
    }
}
