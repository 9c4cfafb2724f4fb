//! Detection of the best usable enforcer of this host, with the reasons against better ones.
//!
//! The node agent calls it at its start. This is the only module that may write above our own root.
//! A process in the real root cgroup enables memory, pids and cpu there, because no other program
//! does. The module also moves its own process out of an inner node.

use std::path::{Path, PathBuf};

use headroom_types::EnforcerKind;

use crate::enforcer::Enforcer;
use crate::error::{CgroupError, Result};
use crate::hierarchies::{Hierarchies, mirror};
use crate::layout::{AGENT, PROCS, checked, dir_in, v1_mount, v2_membership, v2_mount};
use crate::parse::{self, MountedHierarchy};
use crate::plan::Controllers;
use crate::tree::CgroupDir;
use crate::{poll, procs, v1, v2};

/// The request of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnforcerRequest {
    /// The required kind; `None` selects the best usable one.
    pub kind: Option<EnforcerKind>,
    /// The root directory, such as the delegated cgroup of the cgroup holder's unit (v1: in the
    /// memory hierarchy).
    pub root: Option<PathBuf>,
    /// The name of the directory that is created when `root` is `None`, such as `headroom`.
    pub name: String,
    /// Whether the parent process and its other children may be in our cgroup. They then move
    /// together with this process.
    pub attached: bool,
}

/// The result of the detection.
#[derive(Debug)]
pub struct DetectedEnforcer {
    /// The enforcer, ready for use.
    pub enforcer: Enforcer,
    /// The reasons for this enforcer, and against better ones.
    pub notes: Vec<String>,
}

/// Chooses an enforcer and prepares its directories.
pub fn detect(wanted: &EnforcerRequest) -> Result<DetectedEnforcer> {
    checked(&wanted.name)?;
    let host = Hierarchies::read();
    let mut notes = vec![host.mode()];
    let kinds = match wanted.kind {
        Some(kind) => vec![kind],
        None => EnforcerKind::ALL.to_vec(),
    };
    for kind in kinds {
        let attempt = match kind {
            EnforcerKind::Cgroup2 => cgroup2(&host, wanted, &mut notes).map(Enforcer::Cgroup2),
            EnforcerKind::Cgroup1 => {
                cgroup1(&host, wanted, &mut notes).map(|e| Enforcer::Cgroup1(Box::new(e)))
            }
            EnforcerKind::Poll => {
                notes.push(
                    "poll: limits are measured by the agent and not enforced by the kernel".into(),
                );
                Ok(Enforcer::Poll(poll::PollEnforcer::default()))
            }
        };
        match attempt {
            Ok(enforcer) => return Ok(DetectedEnforcer { enforcer, notes }),
            // The unit starts soon. An agent with another enforcer would lose its containers.
            Err(error @ CgroupError::UnitNotRunning { .. }) => return Err(error),
            Err(error) => notes.push(format!("{kind} is not available: {}", chain(&error))),
        }
    }
    Err(CgroupError::Unavailable {
        kind: wanted.kind.unwrap_or(EnforcerKind::Poll),
        why: notes,
    })
}

/// An error with its sources, as the text of a note.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(": ");
        text.push_str(&next.to_string());
        source = next.source();
    }
    text
}

fn unavailable(kind: EnforcerKind, why: String) -> CgroupError {
    CgroupError::Unavailable {
        kind,
        why: vec![why],
    }
}

fn cgroup2(
    host: &Hierarchies,
    wanted: &EnforcerRequest,
    notes: &mut Vec<String>,
) -> Result<v2::CgroupV2Enforcer> {
    let no = |why: String| unavailable(EnforcerKind::Cgroup2, why);
    let mount =
        v2_mount(&host.mounts).ok_or_else(|| no("no cgroup2 file system is mounted".into()))?;
    let own = v2_membership(&host.own).and_then(|path| dir_in(mount, path));
    let root = match &wanted.root {
        Some(given) => given_root(given, own.as_deref(), notes)?,
        None => found_root(mount, own.as_deref(), wanted, notes)?,
    };
    must_offer_memory(&root)?;
    let prepared = v2::CgroupV2Enforcer::prepare(root)?;
    let has = prepared.controllers();
    notes.extend(
        (!has.pids)
            .then(|| "cgroup2: no pids controller; the number of processes is not limited".into()),
    );
    notes.extend(
        (!has.cpu).then(|| "cgroup2: no cpu controller; processor shares are not weighted".into()),
    );
    notes.push(format!(
        "cgroup2: the groups of containers are below {}",
        prepared.root().display()
    ));
    Ok(prepared)
}

/// Checked before any directory is created, so that an unusable hierarchy stays unchanged.
fn must_offer_memory(dir: &CgroupDir) -> Result<()> {
    if offered(dir)?.memory {
        return Ok(());
    }
    let why = "it has no memory controller; cgroup v1 uses the controller, it is disabled at boot, or it is not delegated";
    Err(unavailable(
        EnforcerKind::Cgroup2,
        format!("{}: {why}", dir.path().display()),
    ))
}

/// The controllers that a directory can pass to its children.
fn offered(dir: &CgroupDir) -> Result<Controllers> {
    Ok(Controllers::from_words(&parse::words(
        &dir.read("cgroup.controllers")?,
    )))
}

/// The root that the caller chose. It is created if only its last component is missing, unless that
/// is a systemd unit.
fn given_root(given: &Path, own: Option<&Path>, notes: &mut Vec<String>) -> Result<CgroupDir> {
    let dir = match (
        CgroupDir::open_if_there(given)?,
        given.parent(),
        given.file_name().and_then(|n| n.to_str()),
    ) {
        (Some(dir), _, _) => dir,
        (None, Some(parent), Some(name)) => {
            let parent = CgroupDir::open(parent)?;
            must_offer_memory(&parent)?;
            if name.ends_with(".service") {
                return Err(CgroupError::UnitNotRunning {
                    path: given.to_owned(),
                    unit: name.to_owned(),
                });
            }
            offer_from_real_root(&parent, notes)?;
            parent.make(name)?
        }
        (None, _, _) => CgroupDir::open(given)?,
    };
    if own == Some(given) {
        move_self_into(&dir, notes)?;
    }
    Ok(dir)
}

/// A root that this module chooses. A process in the real root gets a directory below it. Otherwise
/// our own cgroup is used if no other process is in it. Otherwise the top is used if it already
/// passes on the memory controller.
fn found_root(
    mount: &MountedHierarchy,
    own: Option<&Path>,
    wanted: &EnforcerRequest,
    notes: &mut Vec<String>,
) -> Result<CgroupDir> {
    let (top, name) = (CgroupDir::open(&mount.point)?, &wanted.name);
    must_offer_memory(&top)?;
    let own = own.unwrap_or(&mount.point);
    if own == mount.point {
        if !is_real_root(&top)? {
            move_self_into(&top, notes)?;
            v2::enable(&top)?;
        }
        offer_from_real_root(&top, notes)?;
        return top.ensure(name);
    }
    let mine = CgroupDir::open(own)?;
    let pids = parse::pids(&mine.read(PROCS)?);
    let alone = pids
        .iter()
        .all(|pid| is_own(*pid) || wanted.attached && is_attached(*pid));
    if alone && offered(&mine)?.memory {
        move_self_into(&mine, notes)?;
        let others = pids.iter().filter(|pid| !is_own(**pid));
        others.for_each(|pid| move_other_into(&mine, *pid, notes));
        v2::enable(&mine)?;
        return mine.ensure(name);
    }
    notes.push(format!(
        "cgroup2: {} contains other processes; trying {}",
        own.display(),
        mount.point.display()
    ));
    if !Controllers::from_words(&parse::words(&top.read("cgroup.subtree_control")?)).memory {
        return Err(unavailable(
            EnforcerKind::Cgroup2,
            "give a delegated cgroup (--cgroup-root)".into(),
        ));
    }
    top.ensure(name)
}

fn is_own(pid: i32) -> bool {
    u32::try_from(pid) == Ok(std::process::id())
}

/// True for the parent of this process and for its other children.
fn is_attached(pid: i32) -> bool {
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    parent == Some(pid) || parent.is_some() && parent == procs::stat(pid).map(|stat| stat.ppid)
}

/// The real root has no `cgroup.type`; the root of a cgroup namespace has one.
fn is_real_root(dir: &CgroupDir) -> Result<bool> {
    Ok(dir.read_if_there("cgroup.type")?.is_none())
}

/// Enables our controllers at the real root; any other directory stays unchanged.
fn offer_from_real_root(dir: &CgroupDir, notes: &mut Vec<String>) -> Result<()> {
    if !is_real_root(dir)? {
        return Ok(());
    }
    let has = v2::enable(dir)?;
    if has.memory {
        notes.push(format!(
            "cgroup2: controllers are enabled at {}",
            dir.path().display()
        ));
    }
    Ok(())
}

/// Moves this process one level down, because a directory with processes cannot have controlled
/// children.
fn move_self_into(dir: &CgroupDir, notes: &mut Vec<String>) -> Result<()> {
    dir.ensure(AGENT)?.write(PROCS, "0")?;
    notes.push(format!(
        "cgroup2: this process moved to {}",
        dir.path().join(AGENT).display()
    ));
    Ok(())
}

/// Moves another process. An ended process needs no move. A process that stays prevents the
/// controllers from being enabled, and that error is reported there.
fn move_other_into(dir: &CgroupDir, pid: i32, notes: &mut Vec<String>) {
    let moved = dir
        .ensure(AGENT)
        .and_then(|agent| agent.write(PROCS, &pid.to_string()));
    notes.extend(
        moved
            .err()
            .map(|error| format!("cgroup2: process {pid} was not moved: {}", chain(&error))),
    );
}

fn cgroup1(
    host: &Hierarchies,
    wanted: &EnforcerRequest,
    notes: &mut Vec<String>,
) -> Result<v1::CgroupV1Enforcer> {
    let no = |why: &str| unavailable(EnforcerKind::Cgroup1, why.into());
    let mount =
        v1_mount(&host.mounts, "memory").ok_or_else(|| no("no v1 memory hierarchy is mounted"))?;
    let memory = wanted
        .root
        .clone()
        .unwrap_or_else(|| mount.point.join(&wanted.name));
    if memory.strip_prefix(&mount.point).is_err() {
        return Err(no(&format!(
            "{} is not below the v1 memory hierarchy {}",
            memory.display(),
            mount.point.display()
        )));
    }
    // Only memory is required: a missing permission in another hierarchy is noted and ignored.
    let pids = mirrored(
        host,
        "pids",
        &memory,
        "the number of processes is not limited",
        notes,
    );
    let cpu = mirrored(
        host,
        "cpu",
        &memory,
        "processor shares are not weighted",
        notes,
    )
    .filter(|tree| {
        let cores = std::thread::available_parallelism()
            .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        let weighed = tree.set_weight(cores.saturating_mul(100));
        notes.extend(weighed.as_ref().err().map(|error| {
            format!(
                "cgroup1: processor shares are not weighted: {}",
                chain(error)
            )
        }));
        weighed.is_ok()
    });
    let prepared = v1::CgroupV1Enforcer::prepare(&memory, pids, cpu)?;
    notes.push(format!(
        "cgroup1: the groups of containers are below {}",
        prepared.root().display()
    ));
    Ok(prepared)
}

/// The mirror of `memory` in the hierarchy of `controller`, created if necessary. If that fails, a
/// note names the feature that is missing.
fn mirrored(
    host: &Hierarchies,
    controller: &str,
    memory: &Path,
    without: &str,
    notes: &mut Vec<String>,
) -> Option<v1::MirroredHierarchy> {
    let Some(path) = mirror(&host.mounts, controller, memory) else {
        notes.push(format!("cgroup1: no {controller} hierarchy; {without}"));
        return None;
    };
    v1::MirroredHierarchy::prepare(&path)
        .inspect_err(|error| notes.push(format!("cgroup1: {without}: {}", chain(error))))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leaves_its_directory_is_refused_before_any_change() {
        let wanted = EnforcerRequest {
            kind: None,
            root: None,
            name: "../x".into(),
            attached: false,
        };
        assert!(matches!(detect(&wanted), Err(CgroupError::Name(_))));
    }
}
