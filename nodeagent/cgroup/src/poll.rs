//! The unprivileged fallback: process trees, measured by proportional set size, without enforcement
//! by the kernel.
//!
//! `Enforcer` and `PollGroup` use it. A group is the tree below one process: its descendants, all
//! processes of the session that it leads, and each process that was once seen in it and still runs
//! (a daemon that left the tree). It never limits anything; the agent compares and kills.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headroom_types::Bytes;
use headroom_types::exit::{CgroupStats, MemoryStat};
use procfs::FromRead as _;
use procfs::process::{SmapsRollup, Stat};

use crate::error::{CgroupError, Result};
use crate::host::HostKills;
use crate::layout::checked;
use crate::plan::GroupLimits;
use crate::procs;
use crate::tree::page_size;

/// Stored value without a limit.
const NONE: u64 = u64::MAX;

/// The enforcer of a host without usable cgroups.
#[derive(Debug, Default)]
pub struct PollEnforcer {
    host: Arc<HostKills>,
}

impl PollEnforcer {
    /// Creates a group without processes.
    pub fn create(&self, name: &str, limits: &GroupLimits) -> Result<PollGroup> {
        PollGroup::new(name, limits, &self.host)
    }

    /// Processes killed for lack of memory on the host, since this enforcer was created. Kills for
    /// the limits of cgroups are excluded as far as they can be distinguished.
    pub fn host_oom_kills(&self) -> Option<u64> {
        self.host.count()
    }
}

/// A process tree.
#[derive(Debug)]
pub struct PollGroup {
    name: String,
    limit: AtomicU64,
    peak: AtomicU64,
    tree: Mutex<ProcessTree>,
    host: Arc<HostKills>,
}

/// The members by pid and start time, so that a reused pid is not a member.
#[derive(Debug, Default)]
struct ProcessTree {
    root: Option<i32>,
    members: BTreeMap<i32, u64>,
}

impl PollGroup {
    fn new(name: &str, limits: &GroupLimits, host: &Arc<HostKills>) -> Result<PollGroup> {
        let group = PollGroup::unchecked(checked(name)?, Arc::clone(host));
        let limit = limits.memory.map_or(NONE, Bytes::get);
        group.limit.store(limit, Ordering::Relaxed);
        Ok(group)
    }

    fn unchecked(name: &str, host: Arc<HostKills>) -> PollGroup {
        PollGroup {
            name: name.to_owned(),
            limit: AtomicU64::new(NONE),
            peak: AtomicU64::new(0),
            tree: Mutex::default(),
            host,
        }
    }

    /// The process tree of the caller.
    pub fn own() -> PollGroup {
        let group = PollGroup::unchecked("own", Arc::default());
        group.set_root_pid(i32::try_from(std::process::id()).unwrap_or_default());
        group
    }

    /// Container id or task name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the root process of the tree.
    pub fn set_root_pid(&self, pid: i32) {
        let mut tree = self.lock();
        tree.root = Some(pid);
        tree.members = procs::stat(pid)
            .map(|s| (pid, s.starttime))
            .into_iter()
            .collect();
    }

    /// Adds another process with its tree.
    pub fn also(&self, pid: i32) {
        if let Some(stat) = procs::stat(pid) {
            self.lock().members.insert(pid, stat.starttime);
        }
    }

    /// All counters at one moment; the events stay 0, because no kernel counter exists.
    pub fn facts(&self) -> Result<CgroupStats> {
        let (current, stat) = self.sample()?;
        let limit = Some(self.limit.load(Ordering::Relaxed))
            .filter(|n| *n != NONE)
            .map(Bytes::new);
        let peak = Some(Bytes::new(self.peak.load(Ordering::Relaxed)));
        Ok(CgroupStats {
            limit,
            current,
            peak,
            stat,
            ..CgroupStats::default()
        })
    }

    /// The sum of the proportional set sizes of all members.
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        self.host.look();
        let sizes: Vec<ProportionalSizes> = self.members().into_iter().filter_map(sizes).collect();
        let sum = |part: fn(&ProportionalSizes) -> u64| {
            Bytes::new(sizes.iter().map(part).fold(0, u64::saturating_add))
        };
        let current = sum(|s| s.pss);
        self.peak.fetch_max(current.get(), Ordering::Relaxed);
        let (anon, file, shmem) = (sum(|s| s.anon), sum(|s| s.file), sum(|s| s.shmem));
        let file = Some(file.saturating_add(shmem));
        Ok((
            current,
            MemoryStat {
                anon: Some(anon),
                file,
                file_mapped: file,
                shmem: Some(shmem),
                ..MemoryStat::default()
            },
        ))
    }

    /// Stores the limit, which the agent enforces. A limit below the present use is refused.
    pub fn set_memory(&self, wanted: Bytes) -> Result<()> {
        let (demand, _) = self.sample()?;
        if demand > wanted {
            return Err(CgroupError::BelowDemand {
                group: self.name.clone(),
                wanted,
                demand,
            });
        }
        self.limit.store(wanted.get(), Ordering::Relaxed);
        Ok(())
    }

    /// Processes killed for lack of memory on the host, as [`PollEnforcer::host_oom_kills`] counts
    /// them. A tree and the task trees created from it share one counter.
    pub fn host_oom_kills(&self) -> Option<u64> {
        self.host.count()
    }

    /// The pids of its running members.
    pub fn members(&self) -> Vec<i32> {
        let mut tree = self.lock();
        let Some(root) = tree.root else {
            return Vec::new();
        };
        tree.members = members(root, &tree.members, &procs::all_processes());
        tree.members.keys().copied().collect()
    }

    /// Sends SIGKILL to all members until none is left. A group of the caller's own tree spares the
    /// caller.
    pub fn kill(&self) -> Result<()> {
        procs::kill_all(&self.name, procs::KILL_TIMEOUT, || Ok(self.others()))
    }

    /// Sends SIGKILL to all members except the caller, and waits for none.
    pub fn send_kill(&self) -> Result<()> {
        procs::signal_members(&self.others(), || Ok(self.others())).map(drop)
    }

    /// The running members except the caller.
    fn others(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let mut members = self.members();
        members.retain(|pid| *pid != own);
        members
    }

    /// Creates the tree of a task, without processes.
    pub fn create_task(&self, name: &str, limits: &GroupLimits) -> Result<PollGroup> {
        PollGroup::new(name, limits, &self.host)
    }

    /// Kills the remaining members; there is no directory to remove.
    pub fn remove(&self, _within: Duration) -> Result<()> {
        self.kill()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ProcessTree> {
        // A panic in a holder of the lock leaves a map of pids, which the next lookup rebuilds.
        self.tree
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The members: `known` with their descendants and the session of `root`. Ended members and reused
/// pids are dropped.
fn members(
    root: i32,
    known: &BTreeMap<i32, u64>,
    everybody: &BTreeMap<i32, Stat>,
) -> BTreeMap<i32, u64> {
    let alive = |stat: &&Stat| !procs::ended(stat);
    let started = known.get(&root).copied();
    let mut inside: BTreeMap<i32, u64> = known
        .iter()
        .filter_map(|(pid, birth)| {
            Some((*pid, everybody.get(pid).filter(alive)?.starttime)).filter(|(_, b)| b == birth)
        })
        .collect();
    let in_session = |s: &&Stat| s.session == root && started.is_some_and(|b| s.starttime >= b);
    inside.extend(
        everybody
            .values()
            .filter(alive)
            .filter(in_session)
            .map(|s| (s.pid, s.starttime)),
    );
    let mut parents: BTreeSet<i32> = inside.keys().copied().collect();
    loop {
        let fresh: Vec<&Stat> = everybody
            .values()
            .filter(alive)
            .filter(|s| parents.contains(&s.ppid) && !inside.contains_key(&s.pid))
            .collect();
        if fresh.is_empty() {
            return inside;
        }
        parents = fresh.iter().map(|s| s.pid).collect();
        inside.extend(fresh.iter().map(|s| (s.pid, s.starttime)));
    }
}

/// Proportional sizes of one process. In bytes.
struct ProportionalSizes {
    pss: u64,
    anon: u64,
    file: u64,
    shmem: u64,
}

/// Reads `smaps_rollup`; uses the resident size where that is not readable (a process of another
/// user).
fn sizes(pid: i32) -> Option<ProportionalSizes> {
    let Ok(rollup) = SmapsRollup::from_file(format!("/proc/{pid}/smaps_rollup")) else {
        let rss = procs::stat(pid)?.rss.saturating_mul(page_size());
        return Some(ProportionalSizes {
            pss: rss,
            anon: rss,
            file: 0,
            shmem: 0,
        });
    };
    let map = rollup.memory_map_rollup.0.into_iter().next()?.extension.map;
    let get = |key: &str| map.get(key).copied();
    let pss = get("Pss")?;
    // The split by kind exists since Linux 5.4; before, all memory counts as anonymous.
    Some(ProportionalSizes {
        pss,
        anon: get("Pss_Anon").unwrap_or(pss),
        file: get("Pss_File").unwrap_or(0),
        shmem: get("Pss_Shmem").unwrap_or(0),
    })
}
