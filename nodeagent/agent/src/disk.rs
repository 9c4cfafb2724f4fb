//! The agent's files: their paths, and the records that must survive a kill of the agent.
//!
//! A record is written to a temporary file and renamed. A reader sees the old record, the new one
//! or none, never a part of one, and a killed agent loses nothing. Records are not synced: a power
//! loss ends every program too, the shim syncs its own exit record, and an order of an earlier boot
//! is never launched. Records carry a version; fields are only added.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use anyhow::Context as _;
use headroom_container_shim::record::{self, ExitRecord};
use headroom_types::exit::MemoryEvents;
use headroom_types::{AppId, ContainerId, ExitReport, Name, Resource, StopCause, UnixMillis};
use headroom_wire::v1::nodes::RunOrder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::crash;

/// Version of the records below.
const VERSION: u32 = 1;
/// Number of directories of ended containers that are kept for their logs.
const KEPT: usize = 200;

/// Files in a container's directory, in addition to those of the shim.
pub(crate) mod file {
    /// The order: [`super::OrderRecord`].
    pub(crate) const ORDER: &str = "order.json";
    /// The cause of a stop: [`super::StopRecord`].
    pub(crate) const STOP: &str = "stop";
    /// Error messages of the shim.
    pub(crate) const SHIM_ERRORS: &str = "shim.err";
    /// The exit report.
    pub(crate) const REPORT: &str = "report.json";
    /// Exists if the report is no longer needed.
    pub(crate) const FORGOTTEN: &str = "forgotten";
    /// The program's working directory.
    pub(crate) const WORK: &str = "work";
    /// The directory that the program sees as `/tmp`.
    pub(crate) const TMP: &str = "tmp";
    /// Logs of its tasks.
    pub(crate) const TASKS: &str = "tasks";
    /// Token with which the program authenticates, in [`TASKS`]. The program reads it once and
    /// removes it.
    pub(crate) const TOKEN: &str = ".token";
    /// Certificate of the authority that signed the resource manager's certificate, in [`TASKS`].
    pub(crate) const CA: &str = ".ca.pem";
    /// Standard output.
    pub(crate) const STDOUT: &str = "stdout";
    /// Standard error.
    pub(crate) const STDERR: &str = "stderr";
    /// Marker file in [`TASKS`], written by a program whose heap is full.
    pub(crate) const MARKER: &str = "oom-marker";
    /// Size of the program's cache, written by the program, in [`TASKS`].
    pub(crate) const CACHED: &str = "cached";
}

/// The state directory.
#[derive(Clone, Debug)]
pub(crate) struct StateLayout {
    state: PathBuf,
    /// Forgotten containers whose directories are kept, oldest first. Filled on first use.
    kept: Arc<Mutex<Option<VecDeque<ContainerId>>>>,
}

/// Counters of the outer levels at the launch of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Baselines {
    /// Of the fence around all containers, local events only.
    pub(crate) fence: Option<MemoryEvents>,
    /// Out-of-memory kills on the host.
    pub(crate) host_oom_kills: Option<u64>,
    /// Of the levels above the node's own cgroup. `None` if no level above counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) above: Option<MemoryEvents>,
}

/// The record of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderRecord {
    version: u32,
    /// The container id.
    pub(crate) container: ContainerId,
    /// The order as received.
    pub(crate) order: RunOrder,
    /// Counters at the launch.
    pub(crate) baselines: Baselines,
    /// A later size that is being applied. The order still holds the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resizing: Option<ResizeInProgress>,
    /// Boot id of the host at the time of the order. `None` in a record of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

/// A change of size in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResizeInProgress {
    /// The version of the new size.
    pub(crate) version: u32,
    /// The new size.
    pub(crate) resource: Resource,
}

impl OrderRecord {
    /// A new record with the current version and boot id.
    pub(crate) fn new(container: ContainerId, order: RunOrder, baselines: Baselines) -> Self {
        OrderRecord {
            version: VERSION,
            container,
            order,
            baselines,
            resizing: None,
            boot: boot(),
        }
    }

    /// Whether the host has not rebooted since the order.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot.is_some() && self.boot == boot()
    }
}

/// The boot id of the kernel.
fn boot() -> Option<String> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        Some(
            fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .ok()?
                .trim()
                .to_owned(),
        )
    };
    BOOT.get_or_init(read).clone()
}

/// The cause of a stop, written before the signal is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopRecord {
    version: u32,
    /// The cause.
    pub(crate) cause: StopCause,
    /// The time of the stop.
    pub(crate) at: UnixMillis,
    /// Whether the kernel had already killed a process in the container. Then the stop is not the
    /// cause of the end.
    pub(crate) too_late: bool,
}

impl StopRecord {
    /// A new record with the current version.
    pub(crate) fn new(cause: StopCause, at: UnixMillis, too_late: bool) -> Self {
        StopRecord {
            version: VERSION,
            cause,
            at,
            too_late,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ReportRecord {
    version: u32,
    report: ExitReport,
}

impl StateLayout {
    /// The files below `state`. Creates the directories; an existing directory keeps its mode.
    pub(crate) fn open(state: &Path) -> anyhow::Result<Self> {
        for dir in [
            state.to_owned(),
            state.join("containers"),
            state.join("apps"),
        ] {
            fs::create_dir_all(&dir).with_context(|| {
                format!("cannot make {}; choose another --state", dir.display())
            })?;
        }
        let state = state
            .canonicalize()
            .with_context(|| format!("cannot resolve {}", state.display()))?;
        Ok(StateLayout {
            state,
            kept: Arc::default(),
        })
    }

    /// Takes the lock of this directory. The lock is held as long as the file is open.
    pub(crate) fn lock(&self) -> anyhow::Result<File> {
        let state = self.state.display();
        self.try_lock()?.with_context(|| {
            format!("another node agent uses {state}; stop it or choose another --state")
        })
    }

    /// Takes the lock. Returns `None` if another process holds it.
    pub(crate) fn try_lock(&self) -> anyhow::Result<Option<File>> {
        let path = self.state.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| {
                format!(
                    "cannot write in {}; choose another --state",
                    self.state.display()
                )
            })?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error)
                .with_context(|| format!("cannot lock {}; choose another --state", path.display())),
        }
    }

    /// The file with the data of the node.
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
    /// The directories of all auxiliary services. It exists if one was started.
    pub(crate) fn aux_services(&self) -> PathBuf {
        self.state.join("aux")
    }
    /// The directory of an auxiliary service: its records and logs.
    pub(crate) fn aux_service(&self, service: &Name) -> PathBuf {
        self.aux_services().join(service.as_str())
    }
    /// The state directory itself.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }
    /// The directory of an application, which exists longer than its containers.
    pub(crate) fn app(&self, app: &AppId) -> PathBuf {
        self.apps().join(app.to_string())
    }

    /// The order of a container. `None` if there is none or it cannot be read.
    pub(crate) fn order(&self, id: &ContainerId) -> Option<OrderRecord> {
        read_json(&self.container(id).join(file::ORDER))
    }
    /// Writes the first order record of a container, without a temporary file. A torn record counts
    /// as none, and no other file exists yet.
    pub(crate) fn write_first_order(&self, record: &OrderRecord) -> io::Result<()> {
        private(&self.container(&record.container).join(file::ORDER))?
            .write_all(&serde_json::to_vec(record)?)
    }
    /// Replaces the order record of a container.
    pub(crate) fn write_order(&self, record: &OrderRecord) -> io::Result<()> {
        write_json(&self.container(&record.container).join(file::ORDER), record)
    }
    /// The recorded stop of a container.
    pub(crate) fn stop(&self, id: &ContainerId) -> Option<StopRecord> {
        read_json(&self.container(id).join(file::STOP))
    }
    /// Whether the shim of a container has written its exit record.
    pub(crate) fn has_exit_record(&self, id: &ContainerId) -> bool {
        let path = self.container(id).join(record::file::EXIT);
        fs::read(path).is_ok_and(|bytes| ExitRecord::decode(&bytes).is_ok())
    }
    /// The report of a container.
    pub(crate) fn report(&self, id: &ContainerId) -> Option<ExitReport> {
        read_json::<ReportRecord>(&self.container(id).join(file::REPORT)).map(|r| r.report)
    }
    /// Writes the report of a container.
    pub(crate) fn write_report(&self, report: &ExitReport) -> io::Result<()> {
        let dir = self.container(&report.container);
        let record = ReportRecord {
            version: VERSION,
            report: report.clone(),
        };
        if write_into_spare(&dir, &record)? {
            return Ok(());
        }
        match write_json(&dir.join(file::REPORT), &record) {
            // The container was stopped before its directory was created.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&dir)?;
                write_json(&dir.join(file::REPORT), &record)
            }
            done => done,
        }
    }

    /// All containers with a directory, including forgotten ones, sorted by id.
    pub(crate) fn list(&self) -> io::Result<Vec<ContainerId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.containers())? {
            if let Some(id) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            {
                ids.push(id);
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Whether a container's directory has no trace of a shim, a stop, a report or a forget. Then
    /// an agent created its files and ended before the start.
    pub(crate) fn was_never_started(&self, id: &ContainerId) -> bool {
        let dir = self.container(id);
        let traces = [
            record::file::SHIM_PID,
            record::file::PID,
            record::file::EXIT,
            file::STOP,
            file::REPORT,
            file::FORGOTTEN,
        ];
        traces.iter().all(|name| !dir.join(name).exists())
    }

    /// Removes temporary files of a killed agent in a container's directory. The shim's own files
    /// stay.
    pub(crate) fn clear_temporary(&self, id: &ContainerId) {
        let dir = self.container(id);
        for name in [file::ORDER, file::STOP, file::REPORT] {
            match fs::remove_file(dir.join(name).with_extension("tmp")) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::debug!(container_id = %id, name, %error, "a temporary file cannot be removed, ignoring")
                }
            }
        }
    }

    /// Whether a container's report is no longer needed.
    pub(crate) fn is_forgotten(&self, id: &ContainerId) -> bool {
        self.container(id).join(file::FORGOTTEN).exists()
    }

    /// Marks a container as no longer needed. Removes the oldest such directories beyond the number
    /// that is kept for logs.
    pub(crate) fn forget(&self, id: &ContainerId) -> io::Result<()> {
        let dir = self.container(id);
        if !dir.exists() {
            return Ok(());
        }
        mark_forgotten(&dir)?;
        // Only the logs are kept.
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
            let Some(oldest) = kept.pop_front() else {
                break;
            };
            match fs::remove_dir_all(self.container(&oldest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// All forgotten containers with a directory, in the order in which they were forgotten.
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

/// Writes a report into the empty file of the shim's error messages, and renames that. Returns false
/// if there is none: it has messages, or the program was never started. On some file systems, the
/// creation of a file costs more than everything else.
fn write_into_spare(dir: &Path, report: &ReportRecord) -> io::Result<bool> {
    let spare = dir.join(file::SHIM_ERRORS);
    let Ok(mut file) = File::options().write(true).open(&spare) else {
        return Ok(false);
    };
    let facts = file.metadata()?;
    if facts.len() > 0 || facts.permissions().mode() & 0o077 != 0 {
        return Ok(false);
    }
    file.write_all(&serde_json::to_vec(report)?)?;
    crash::at("report-unnamed");
    fs::rename(spare, dir.join(file::REPORT))?;
    Ok(true)
}

/// Marks the container of this directory as forgotten, now. Its exit record is not needed any more and
/// becomes the marker, so that no file is created. Without a record, the program never ran.
fn mark_forgotten(dir: &Path) -> io::Result<()> {
    let marker = dir.join(file::FORGOTTEN);
    let spare = dir.join(record::file::EXIT);
    let Ok(exit) = File::options().write(true).open(&spare) else {
        return File::create(marker).map(drop);
    };
    exit.set_modified(SystemTime::now())?;
    fs::rename(spare, marker)
}

/// Creates a file that only this user can read: orders contain secrets of applications.
pub(crate) fn private(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = fs::read(path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a record cannot be parsed and is ignored");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headroom_types::{EnforcerKind, Evidence, ExitReason};

    use super::*;

    fn id(n: usize) -> ContainerId {
        format!("job.1.e1.c{n}").parse().expect("id")
    }

    #[test]
    fn two_agents_cannot_use_the_same_state_directory() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = StateLayout::open(dir.path()).expect("opens");
        let held = layout.lock().expect("first");
        let second = format!("{:#}", layout.lock().expect_err("second"));
        assert!(second.contains("another node agent uses"), "{second}");
        drop(held);
        layout.lock().expect("free again");
    }

    #[test]
    fn a_truncated_or_missing_record_is_ignored() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = StateLayout::open(dir.path()).expect("opens");
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
    fn a_report_uses_the_empty_file_of_the_shims_errors() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = StateLayout::open(dir.path()).expect("opens");
        for (n, errors) in [Some(""), Some("container-shim: no\n"), None]
            .into_iter()
            .enumerate()
        {
            let path = layout.container(&id(n));
            fs::create_dir_all(&path).expect("dir");
            if let Some(text) = errors {
                let mut file = private(&path.join(file::SHIM_ERRORS)).expect("creates");
                file.write_all(text.as_bytes()).expect("writes");
            }
            let report = report(id(n));
            layout.write_report(&report).expect("writes");
            assert_eq!(layout.report(&id(n)), Some(report));
            let left = fs::read_to_string(path.join(file::SHIM_ERRORS)).ok();
            assert_eq!(left.as_deref(), errors.filter(|text| !text.is_empty()));
        }
    }

    fn report(container: ContainerId) -> ExitReport {
        ExitReport {
            container,
            node: "n1".parse().expect("id"),
            reason: ExitReason::Exit { code: 0 },
            diagnosis: Vec::new(),
            evidence: Evidence::empty(EnforcerKind::Cgroup2),
            started: None,
            ended: UnixMillis(7),
            timeline: Vec::new(),
            log_tail: String::new(),
            tasks: Vec::new(),
        }
    }

    #[test]
    fn the_exit_record_becomes_the_marker_of_a_forgotten_container() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = StateLayout::open(dir.path()).expect("opens");
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        for (n, has_record) in [true, false].into_iter().enumerate() {
            let path = layout.container(&id(n));
            fs::create_dir_all(&path).expect("dir");
            if has_record {
                let record = private(&path.join(record::file::EXIT)).expect("creates");
                record.set_modified(long_ago).expect("sets the time");
            }
            layout.forget(&id(n)).expect("forgets");
            layout.forget(&id(n)).expect("forgets again");
            assert!(layout.is_forgotten(&id(n)));
            assert!(!path.join(record::file::EXIT).exists());
        }
        let hour = Duration::from_secs(3600);
        layout
            .remove_older(hour, SystemTime::now())
            .expect("removes");
        assert_eq!(
            layout.list().expect("lists"),
            [id(0), id(1)],
            "the time of the marker is that of the call"
        );
    }

    #[test]
    fn a_bounded_number_of_ended_containers_is_kept() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = StateLayout::open(dir.path()).expect("opens");
        for n in 0..KEPT + 5 {
            fs::create_dir_all(layout.container(&id(n))).expect("dir");
            layout.forget(&id(n)).expect("forgets");
        }
        fs::create_dir_all(layout.container(&id(9999))).expect("dir");
        let left = layout.list().expect("lists");
        assert_eq!(left.len(), KEPT + 1);
        assert!(
            !layout.is_forgotten(&id(9999))
                && left.contains(&id(KEPT + 4))
                && left.contains(&id(9999))
        );
    }
}
