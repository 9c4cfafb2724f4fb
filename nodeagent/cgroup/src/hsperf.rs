//! Finds and reads the counters of a JVM: `/tmp/hsperfdata_USER/PID`, with the `/tmp` and pid of
//! the JVM's namespaces.
//!
//! The file is found once and kept open. It stays readable after the JVM was killed, and then
//! contains its last values, which the verdict needs. `headroom-node-core::hsperf` parses the
//! bytes.
//!
//! The watched program can write the directory, so the content is treated as hostile. Symbolic
//! links are not followed. A file must be regular, belong to the user of the process and be of
//! limited size. The number of directories is limited. A file of an earlier process with the same
//! pid is refused.
//!
//! The counters are absent with `-XX:-UsePerfData`, with `-XX:+PerfDisableSharedMem`, and where
//! `/proc/PID/root` is not accessible.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc::{O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK};

use crate::parse;

/// Maximum file size; HotSpot's default is 32 KiB. In bytes.
const MAX_SIZE: u64 = 256 << 10;
/// Maximum number of directories that are searched.
const MAX_DIRS: usize = 64;
/// Tolerance for the age of a file, because the start time of a process is rounded to 10 ms. In
/// milliseconds.
const CLOCK_SLACK_MS: u64 = 1000;

/// The open counters of one JVM.
#[derive(Debug)]
pub struct HsperfFile {
    file: File,
    pid: i32,
}

/// The reason why there are no counters.
#[derive(Debug, thiserror::Error)]
pub enum HeapFileError {
    /// The process does not exist, or it must not be inspected.
    #[error("process {pid} cannot be inspected")]
    Process {
        /// The pid.
        pid: i32,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The process has no counters: no JVM, too early, or disabled by a flag.
    #[error(
        "process {pid} shares no JVM counters (not a JVM, or -XX:-UsePerfData, or -XX:+PerfDisableSharedMem)"
    )]
    Absent {
        /// The pid.
        pid: i32,
    },
    /// A file exists and is not trusted.
    #[error("{path} is not trusted: {why}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The open file could not be read.
    #[error("the JVM counters of process {pid} cannot be read")]
    Read {
        /// The pid.
        pid: i32,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl HsperfFile {
    /// Finds and opens the counters of process `pid`.
    pub fn locate(pid: i32) -> Result<HsperfFile, HeapFileError> {
        let process = JvmProcess::look(pid)?;
        let tmp = PathBuf::from(format!("/proc/{pid}/root/tmp"));
        let file = find(&tmp, &process)?;
        // If the start time changed, the directory belonged to another process.
        match starttime(pid) {
            Ok(now) if now == process.starttime => Ok(HsperfFile { file, pid }),
            Ok(_) | Err(_) => Err(HeapFileError::Absent { pid }),
        }
    }

    /// Process id of the JVM on this node.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The present bytes, at most 256 KiB.
    pub fn read(&self) -> Result<Vec<u8>, HeapFileError> {
        let failed = |source| HeapFileError::Read {
            pid: self.pid,
            source,
        };
        let size = self.file.metadata().map_err(failed)?.size().min(MAX_SIZE);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// The properties of a process that its file must match. Its pid in its innermost namespace, which
/// is the name of the file.
struct JvmProcess {
    pid: i32,
    /// Its pid in its own innermost namespace: the name of the file.
    inner_pid: i32,
    uid: u32,
    /// Clock ticks after boot.
    starttime: u64,
    /// Milliseconds since 1970.
    started_ms: u64,
}

impl JvmProcess {
    fn look(pid: i32) -> Result<JvmProcess, HeapFileError> {
        let denied = |source| HeapFileError::Process { pid, source };
        let starttime = starttime(pid).map_err(denied)?;
        let status = small_text(Path::new(&format!("/proc/{pid}/status"))).map_err(denied)?;
        let odd = || denied(io::Error::other("its status file has no Uid line"));
        let uid = parse::status(&status, "Uid:")
            .and_then(|mut f| f.nth(1).and_then(|n| n.parse().ok()))
            .ok_or_else(odd)?;
        let inner_pid = parse::status(&status, "NSpid:")
            .and_then(|f| f.last().and_then(|n| n.parse().ok()))
            .unwrap_or(pid);
        let started_ms = started_ms(starttime).map_err(denied)?;
        Ok(JvmProcess {
            pid,
            inner_pid,
            uid,
            starttime,
            started_ms,
        })
    }
}

/// The start time of a process, in clock ticks after boot: field 22 of its stat file.
fn starttime(pid: i32) -> io::Result<u64> {
    let stat = small_text(Path::new(&format!("/proc/{pid}/stat")))?;
    parse::starttime(&stat).ok_or_else(|| io::Error::other("its stat file has no start time"))
}

/// The same time in milliseconds since 1970.
fn started_ms(starttime: u64) -> io::Result<u64> {
    let uptime = small_text(Path::new("/proc/uptime"))?;
    let seconds = uptime
        .split_whitespace()
        .next()
        .and_then(|s| s.parse::<f64>().ok())
        .filter(|s| (0.0..1e12).contains(s));
    let uptime = Duration::from_secs_f64(
        seconds.ok_or_else(|| io::Error::other("/proc/uptime holds no number"))?,
    );
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let boot = u64::try_from(now.saturating_sub(uptime).as_millis()).unwrap_or(0);
    Ok(boot.saturating_add(starttime.saturating_mul(1000) / procfs::ticks_per_second().max(1)))
}

fn find(tmp: &Path, process: &JvmProcess) -> Result<File, HeapFileError> {
    let absent = HeapFileError::Absent { pid: process.pid };
    let Ok(entries) = tmp.read_dir() else {
        return Err(absent);
    };
    let ours = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| n.starts_with("hsperfdata_"));
    let mut worst = absent;
    for dir in entries
        .flatten()
        .filter(|e| ours(&e.file_name()))
        .take(MAX_DIRS)
    {
        // Another user of the same /tmp may have placed a link here.
        if !dir.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        match open(&dir.path().join(process.inner_pid.to_string()), process) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => {}
            Err(refused) => worst = refused,
        }
    }
    Err(worst)
}

/// Opens the file; `None` when it does not exist, an error when it cannot belong to this process.
fn open(path: &Path, process: &JvmProcess) -> Result<Option<File>, HeapFileError> {
    let refused = |why| HeapFileError::Refused {
        path: path.to_owned(),
        why,
    };
    let flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(refused("it cannot be opened")),
    };
    let meta = file.metadata().map_err(|_| refused("it has no metadata"))?;
    // The program can set any modification time, also the largest possible one.
    let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
    let changed_ms = seconds
        .saturating_mul(1000)
        .saturating_add(u64::try_from(meta.mtime_nsec()).unwrap_or(0) / 1_000_000);
    match () {
        () if !meta.is_file() => Err(refused("it is not a regular file")),
        () if meta.uid() != process.uid => Err(refused("its owner is not the user of the process")),
        () if meta.size() == 0 || meta.size() > MAX_SIZE => {
            Err(refused("its size is not that of JVM counters"))
        }
        () if changed_ms.saturating_add(CLOCK_SLACK_MS) < process.started_ms => {
            Err(refused("it is older than the process"))
        }
        () => Ok(Some(file)),
    }
}

/// A file of procfs, at most 16 KiB of it. Some contain a process name, which need not be UTF-8.
fn small_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(16 << 10).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).expect("pid")
    }

    fn process(inner_pid: i32) -> JvmProcess {
        let me = JvmProcess::look(own_pid()).expect("own process");
        JvmProcess { inner_pid, ..me }
    }

    /// A `/tmp` with one directory of counters.
    fn tmp() -> (tempfile::TempDir, PathBuf) {
        let tmp = tempfile::tempdir().expect("tempdir");
        let dir = tmp.path().join("hsperfdata_alice");
        std::fs::create_dir(&dir).expect("mkdir");
        (tmp, dir)
    }

    fn why(result: Result<File, HeapFileError>) -> &'static str {
        match result {
            Ok(_) => "opened",
            Err(HeapFileError::Absent { .. }) => "absent",
            Err(HeapFileError::Refused { why, .. }) => why,
            Err(HeapFileError::Process { .. } | HeapFileError::Read { .. }) => "other",
        }
    }

    #[test]
    fn the_age_of_this_process_is_known() {
        let me = JvmProcess::look(own_pid()).expect("looks");
        let now = std::time::UNIX_EPOCH.elapsed().expect("clock").as_millis();
        let age = now.saturating_sub(u128::from(me.started_ms));
        assert!(age < 60_000, "started {age} ms ago");
        assert!(
            matches!(
                HsperfFile::locate(own_pid()),
                Err(HeapFileError::Absent { .. })
            ),
            "this process is not a JVM"
        );
        assert!(matches!(
            HsperfFile::locate(i32::MAX),
            Err(HeapFileError::Process { .. })
        ));
    }

    #[test]
    fn a_fresh_file_of_the_same_user_is_readable_after_its_removal() {
        let (tmp, dir) = tmp();
        let path = dir.join("7");
        std::fs::write(&path, b"counters").expect("write");
        let file = find(tmp.path(), &process(7)).expect("found");
        let heap = HsperfFile {
            file,
            pid: own_pid(),
        };
        std::fs::remove_file(&path).expect("rm");
        assert_eq!(heap.read().expect("reads"), b"counters");
    }

    #[test]
    fn a_file_that_another_user_could_have_planted_is_refused() {
        let (tmp, dir) = tmp();
        assert_eq!(why(find(tmp.path(), &process(7))), "absent");
        let secret = tmp.path().join("secret");
        std::fs::write(&secret, b"x").expect("write");
        std::os::unix::fs::symlink(&secret, dir.join("7")).expect("link");
        assert_eq!(why(find(tmp.path(), &process(7))), "it cannot be opened");
        nix::unistd::mkfifo(&dir.join("8"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        assert_eq!(
            why(find(tmp.path(), &process(8))),
            "it is not a regular file"
        );
        std::fs::write(dir.join("9"), vec![0; 300 << 10]).expect("write");
        assert_eq!(
            why(find(tmp.path(), &process(9))),
            "its size is not that of JVM counters"
        );
        std::fs::write(dir.join("10"), b"x").expect("write");
        let other = JvmProcess {
            uid: 12345,
            ..process(10)
        };
        assert_eq!(
            why(find(tmp.path(), &other)),
            "its owner is not the user of the process"
        );
    }

    #[test]
    fn a_file_of_an_earlier_process_is_refused() {
        let (tmp, dir) = tmp();
        let path = dir.join("7");
        std::fs::write(&path, b"old").expect("write");
        let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        File::options()
            .write(true)
            .open(&path)
            .and_then(|f| f.set_modified(hour_ago))
            .expect("touch");
        assert_eq!(
            why(find(tmp.path(), &process(7))),
            "it is older than the process"
        );
    }

    #[test]
    fn a_directory_that_is_a_link_is_not_entered() {
        let (_tmp, dir) = tmp();
        std::fs::write(dir.join("7"), b"x").expect("write");
        let other = tempfile::tempdir().expect("tempdir");
        std::os::unix::fs::symlink(&dir, other.path().join("hsperfdata_x")).expect("link");
        assert_eq!(why(find(other.path(), &process(7))), "absent");
    }
}
