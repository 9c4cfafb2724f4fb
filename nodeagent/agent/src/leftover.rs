//! Finds and removes objects that a container left in the host's IPC, for containers without their
//! own IPC namespace. Blocking; called after the container's processes have ended.
//!
//! Reads `/dev/shm`, `/dev/mqueue` and `/proc/sysvipc`, and processes only if an object was found.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use headroom_container_shim::record;
use headroom_node_core::leftover::{
    ContainerLifetime, FoundIpcObject, IpcObject, LeftoverDecision, OutsideProcesses, decide,
};
use headroom_node_exec::ipc::{self, SysVIpcKind};
use headroom_types::{Bytes, ContainerId, UnixMillis};

use crate::clock;
use crate::node_context::NodeContext;

/// Directories of shared memory and queues of all users.
const SHARED: [&str; 2] = ["/dev/shm", "/dev/mqueue"];
/// Maximum number of entries of a table or directory, and of processes, that are read.
const MAX_ENTRIES: usize = 8192;

/// Removes objects that certainly belong to the container, and logs those that may.
pub(crate) fn sweep(site: &NodeContext, id: &ContainerId, started: Option<UnixMillis>) {
    let Some(container) = lifetime(site, id, started) else {
        return;
    };
    let ours: Vec<FoundIpcObject> = found(container.uid)
        .into_iter()
        .filter(|found| {
            decide(found, &container, &[], OutsideProcesses::None) != LeftoverDecision::Ignore
        })
        .collect();
    if ours.is_empty() {
        return;
    }
    let living = living(site, id);
    let others: Vec<ContainerLifetime> = living
        .iter()
        .filter_map(|other| lifetime(site, other, None))
        .collect();
    let others: Vec<ContainerLifetime> = others
        .into_iter()
        .map(|other| ContainerLifetime { to: None, ..other })
        .collect();
    let processes = Processes::of(container.uid, site.layout.state());
    for one in ours {
        let one = FoundIpcObject {
            in_use: one.in_use || processes.uses(&one.object),
            ..one
        };
        match decide(&one, &container, &others, processes.outsiders) {
            LeftoverDecision::Ignore => {}
            LeftoverDecision::Keep(why) => {
                tracing::warn!(container_id = %id, object = ?one.object, bytes = one.bytes.get(), why, "a leftover object is kept");
            }
            LeftoverDecision::Remove => match remove(&one.object) {
                Ok(()) => {
                    tracing::info!(container_id = %id, object = ?one.object, bytes = one.bytes.get(), "a leftover object is removed");
                }
                Err(error) => {
                    tracing::warn!(container_id = %id, object = ?one.object, %error, "a leftover object cannot be removed");
                }
            },
        }
    }
}

fn remove(object: &IpcObject) -> std::io::Result<()> {
    match object {
        IpcObject::Segment(id) => ipc::remove(SysVIpcKind::Segment, *id),
        IpcObject::Semaphores(id) => ipc::remove(SysVIpcKind::Semaphores, *id),
        IpcObject::Queue(id) => ipc::remove(SysVIpcKind::Queue, *id),
        IpcObject::File(path) => fs::remove_file(path),
    }
}

fn lifetime(
    site: &NodeContext,
    id: &ContainerId,
    started: Option<UnixMillis>,
) -> Option<ContainerLifetime> {
    let order = site.layout.order(id)?.order;
    let user = site.container_user(order.user.as_deref()).ok()?.user;
    let uid = user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
    Some(ContainerLifetime {
        uid,
        from: started.unwrap_or(order.granted),
        to: Some(clock::unix_now()),
    })
}

/// Containers whose program has not ended: their shim has written no exit record.
fn living(site: &NodeContext, ended: &ContainerId) -> Vec<ContainerId> {
    let all = site.layout.list().unwrap_or_default();
    let has_ended = |id: &ContainerId| {
        site.layout.container(id).join(record::file::EXIT).exists()
            || site.layout.report(id).is_some()
    };
    let lives = |id: &ContainerId| id != ended && !site.layout.is_forgotten(id) && !has_ended(id);
    all.into_iter().filter(lives).collect()
}

/// All objects of a user.
fn found(uid: u32) -> Vec<FoundIpcObject> {
    let table =
        |name: &str| fs::read_to_string(Path::new("/proc/sysvipc").join(name)).unwrap_or_default();
    let mut all = sysv(&table("shm"), IpcObject::Segment);
    all.extend(sysv(&table("sem"), IpcObject::Semaphores));
    all.extend(sysv(&table("msg"), IpcObject::Queue));
    all.extend(SHARED.iter().flat_map(|dir| files(Path::new(dir))));
    all.retain(|found| found.uid == uid);
    all
}

/// The objects of a table of `/proc/sysvipc`, by the column names in its first line. An object is
/// in use while it is attached or its creator lives.
fn sysv(text: &str, object: fn(i32) -> IpcObject) -> Vec<FoundIpcObject> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let get = |name: &str| {
            words
                .get(names.iter().position(|n| *n == name)?)?
                .parse::<i64>()
                .ok()
        };
        let id = ["shmid", "semid", "msqid"]
            .iter()
            .find_map(|name| get(name))?;
        let attached = get("nattch").is_some_and(|n| n > 0);
        let creator = get("cpid").is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
        let bytes = get("rss")
            .or_else(|| get("cbytes"))
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(0);
        Some(FoundIpcObject {
            object: object(i32::try_from(id).ok()?),
            uid: u32::try_from(get("uid")?).ok()?,
            made: UnixMillis(u64::try_from(get("ctime")?).ok()?.saturating_mul(1000)),
            bytes: Bytes::new(bytes),
            in_use: attached || creator,
        })
    };
    lines.take(MAX_ENTRIES).filter_map(row).collect()
}

fn files(dir: &Path) -> Vec<FoundIpcObject> {
    let entries = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_ENTRIES);
    let one = |entry: fs::DirEntry| {
        let facts = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let made = facts.created().or_else(|_| facts.modified()).ok()?;
        Some(FoundIpcObject {
            object: IpcObject::File(entry.path().to_str()?.to_owned()),
            uid: facts.uid(),
            made: made.into(),
            bytes: Bytes::new(facts.blocks().saturating_mul(512)),
            in_use: false,
        })
    };
    entries.filter_map(one).collect()
}

/// Shared files that processes have open, and whether the user has processes outside of containers.
struct Processes {
    open: BTreeSet<PathBuf>,
    outsiders: OutsideProcesses,
}

impl Processes {
    fn of(uid: u32, state: &Path) -> Processes {
        let mut all = Processes {
            open: BTreeSet::new(),
            outsiders: OutsideProcesses::None,
        };
        let own = std::process::id();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.take(MAX_ENTRIES) {
            let dir = PathBuf::from(format!("/proc/{pid}"));
            all.look(&dir);
            let runs = fs::metadata(&dir).is_ok_and(|facts| facts.uid() == uid);
            if runs && pid != own && !is_of_agent(&dir, state) {
                all.outsiders = OutsideProcesses::Some;
            }
        }
        all
    }

    fn look(&mut self, dir: &Path) {
        let shared = |path: &Path| SHARED.iter().any(|shared| path.starts_with(shared));
        let links = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
        self.open.extend(
            links
                .filter_map(|entry| fs::read_link(entry.path()).ok())
                .filter(|path| shared(path)),
        );
        let maps = fs::read_to_string(dir.join("maps")).unwrap_or_default();
        let mapped = maps
            .lines()
            .filter_map(|line| Some(PathBuf::from(line.get(line.find('/')?..)?)));
        self.open.extend(mapped.filter(|path| shared(path)));
    }

    fn uses(&self, object: &IpcObject) -> bool {
        match object {
            IpcObject::File(path) => self.open.contains(Path::new(path)),
            IpcObject::Segment(_) | IpcObject::Semaphores(_) | IpcObject::Queue(_) => false,
        }
    }
}

/// Whether a process belongs to this agent. Programs of containers have their directory, below this
/// agent's state directory, in their environment. Shims and agents are recognised by name. A shim
/// of another agent counts too, which is harmless: its program is found as an outsider.
fn is_of_agent(dir: &Path, state: &Path) -> bool {
    let environment = fs::read(dir.join("environ")).unwrap_or_default();
    let value = |entry: &[u8]| {
        entry
            .strip_prefix(b"HEADROOM_CONTAINER_DIR=")
            .map(|path| Path::new(OsStr::from_bytes(path)).starts_with(state))
    };
    let in_container = environment
        .split(|byte| *byte == 0)
        .any(|entry| value(entry) == Some(true));
    let name = fs::read_to_string(dir.join("comm")).unwrap_or_default();
    in_container || matches!(name.trim(), "container-shim" | "nodeagent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_table_is_parsed_by_column_names() {
        let text = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
                    \x20  5678         42   600               1048576 4194304     0      0    65534 65534 65534 65534          0          0 1700000000               1048576                     0\n";
        let all = sysv(text, IpcObject::Segment);
        let wanted = FoundIpcObject {
            object: IpcObject::Segment(42),
            uid: 65534,
            made: UnixMillis(1_700_000_000_000),
            bytes: Bytes::from_mib(1),
            in_use: false,
        };
        assert_eq!(all, [wanted]);
        let attached = sysv(
            &text.replace("     0      0    65534", "     0      2    65534"),
            IpcObject::Segment,
        );
        assert!(attached[0].in_use);
    }

    #[test]
    fn semaphores_and_queues_have_no_creator() {
        let sem = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n 1 3 600 100 9 9 9 9 0 17\n";
        assert_eq!(sysv(sem, IpcObject::Semaphores)[0].made, UnixMillis(17_000));
        let msg = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n\
                   2 5 600 4096 1 0 0 9 9 9 9 0 0 18\n";
        assert_eq!(sysv(msg, IpcObject::Queue)[0].bytes, Bytes::new(4096));
    }
}
