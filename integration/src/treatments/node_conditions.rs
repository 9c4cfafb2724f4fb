//! The condition of a case's node, applied while its job runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::NodeCondition;
use crate::cluster::{Cluster, SOON, until};
use crate::host_tmpfs::HostTmpfs;
use crate::jobs::JobFile;
use crate::provoke::Programs;

/// Limit of all containers together. It is below the sum of a master, an executor and the task of a
/// case.
const FENCE: Bytes = Bytes::from_mib(280);
/// Size of the leftover file: more than a quarter of the fence, but the master and the executor fit
/// beside it.
const LEFT: Bytes = Bytes::from_mib(120);
/// Free memory of a starved host: enough for a master, an executor and a part of a task.
const SPARE: Bytes = Bytes::from_mib(200);

/// Run time after which the process that holds memory exits by itself. Seconds.
const FOR: &str = "600";
/// Timeout for filling 1 GiB page by page on the slow processor of a guest.
const FILLED: Duration = Duration::from_secs(180);

/// A condition of a node; dropping it restores the node.
#[derive(Debug)]
pub(super) enum AppliedCondition {
    Nothing,
    Fence {
        _limit: Limit,
        _left: Option<HostTmpfs>,
    },
    Hog {
        _process: Hog,
    },
}

pub(super) fn make(
    place: NodeCondition,
    cluster: &Cluster,
    programs: &Programs,
) -> Result<AppliedCondition> {
    match place {
        NodeCondition::Quiet => Ok(AppliedCondition::Nothing),
        NodeCondition::Fenced => Ok(AppliedCondition::Fence {
            _limit: Limit::lower(cluster)?,
            _left: None,
        }),
        NodeCondition::Littered => {
            let left = leave(cluster)?;
            Ok(AppliedCondition::Fence {
                _limit: Limit::lower(cluster)?,
                _left: Some(left),
            })
        }
        NodeCondition::Starved => Ok(AppliedCondition::Hog {
            _process: Hog::fed(&programs.native)?,
        }),
    }
}

/// A temporarily lower limit.
#[derive(Debug)]
pub(super) struct Limit {
    file: PathBuf,
    before: String,
}

impl Limit {
    fn lower(cluster: &Cluster) -> Result<Limit> {
        let fence = cluster
            .cgroup("node-1")
            .context("no permission to create cgroups")?
            .join("containers");
        let names = ["memory.max", "memory.limit_in_bytes"];
        let file = names
            .iter()
            .map(|name| fence.join(name))
            .find(|file| file.exists());
        let file = file.with_context(|| format!("no limit in {}", fence.display()))?;
        let before = fs::read_to_string(&file)?;
        let limit = Limit { file, before };
        // The kernel refuses a limit below the usage, until the containers of the previous job are
        // gone.
        until("the fence to be lower", SOON, || {
            Ok(fs::write(&limit.file, FENCE.get().to_string()).ok())
        })?;
        Ok(limit)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // The cluster may be gone already; its owner removes the rest.
        let _ = fs::write(&self.file, self.before.trim());
    }
}

/// Runs a job that leaves a file on a tmpfs of the host, and waits until the node counts the file.
fn leave(cluster: &Cluster) -> Result<HostTmpfs> {
    let tmpfs = HostTmpfs::mount(cluster.dir().join("host-tmpfs"), None)?;
    let of = format!("of={}", tmpfs.path().join("left").display());
    let count = format!("count={}", LEFT.whole_mib());
    let job = JobFile::new("leave", 1, 1, LEFT.mul_ratio(5, 4));
    let job = job.stage(
        "leave",
        1,
        &["/bin/dd", "if=/dev/zero", &of, "bs=1M", &count],
        "grow = false",
    );
    cluster.until_ended(&cluster.submit(job.text())?)?;
    until("the file to be counted", SOON, || {
        let node = cluster
            .call(cluster.client().nodes())?
            .into_iter()
            .next()
            .context("no node")?;
        Ok((node.unattributed >= LEFT.mul_ratio(9, 10)).then_some(()))
    })?;
    Ok(tmpfs)
}

/// A process that uses nearly all memory of this host, protected from the OOM killer.
#[derive(Debug)]
pub(super) struct Hog(Child);

impl Hog {
    fn fed(native: &Path) -> Result<Hog> {
        let free = available()?;
        let share = free
            .checked_sub(SPARE)
            .with_context(|| format!("only {free} are free on this host"))?;
        let mib = share.whole_mib().to_string();
        let child = Command::new(native)
            .args(["hold", &mib, FOR])
            .stdin(Stdio::null())
            .spawn()
            .context("starting a process that holds memory")?;
        let hog = Hog(child);
        fs::write(format!("/proc/{}/oom_score_adj", hog.0.id()), "-1000")
            .context("protecting it")?;
        until("the host to be full", FILLED, || {
            Ok((available()? <= SPARE.mul_ratio(5, 4)).then_some(()))
        })?;
        Ok(hog)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// `MemAvailable`.
fn available() -> Result<Bytes> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .context("no MemAvailable")?;
    let kib = line.trim().trim_end_matches("kB").trim().parse()?;
    ensure!(kib > 0, "no memory at all");
    Ok(Bytes::from_kib(kib))
}
