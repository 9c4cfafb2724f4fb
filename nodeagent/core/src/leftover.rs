//! Decides about IPC objects that outlived a container which shared the host's IPC. Pure.
//!
//! The objects are shared memory, semaphores and message queues. An object is removed only if all
//! these conditions hold:
//!
//! - the container's user owns it;
//! - it was created while the container ran;
//! - no process uses it;
//! - no other container of that user ran then and still runs;
//! - the user runs no processes outside of containers.

use headroom_types::{Bytes, UnixMillis};

/// An object that can outlive its processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpcObject {
    /// A SysV segment.
    Segment(i32),
    /// A SysV set of semaphores.
    Semaphores(i32),
    /// A SysV message queue.
    Queue(i32),
    /// A file on a tmpfs that all users share, or a POSIX message queue. Its path.
    File(String),
}

/// An object that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundIpcObject {
    /// The object.
    pub object: IpcObject,
    /// The user that owns it.
    pub uid: u32,
    /// The creation time; whole seconds for SysV.
    pub made: UnixMillis,
    /// The memory that it holds; zero where the kernel does not report it. In bytes.
    pub bytes: Bytes,
    /// Whether a running process created, attached, opened or mapped it.
    pub in_use: bool,
}

/// The time in which a container ran, and its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerLifetime {
    /// Its user.
    pub uid: u32,
    /// The start.
    pub from: UnixMillis,
    /// The end; `None` while it runs.
    pub to: Option<UnixMillis>,
}

impl ContainerLifetime {
    /// A SysV object of the same second counts as created in the lifetime. The time of a file is
    /// exact to the millisecond.
    fn has(&self, found: &FoundIpcObject) -> bool {
        let from = match found.object {
            IpcObject::Segment(_) | IpcObject::Semaphores(_) | IpcObject::Queue(_) => {
                self.from.0 / 1000 * 1000
            }
            IpcObject::File(_) => self.from.0,
        };
        found.made.0 >= from && self.to.is_none_or(|to| found.made <= to)
    }
}

/// Whether the user has processes outside of all containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideProcesses {
    /// There are some.
    Some,
    /// There are none.
    None,
}

/// The decision about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftoverDecision {
    /// It is removed.
    Remove,
    /// It does not belong to the container: it stays and is not reported.
    Ignore,
    /// It may belong to the container: it stays and is reported with the reason.
    Keep(&'static str),
}

/// Decides about one object after the end of `container`. `others` are the running containers.
pub fn decide(
    found: &FoundIpcObject,
    container: &ContainerLifetime,
    others: &[ContainerLifetime],
    outsiders: OutsideProcesses,
) -> LeftoverDecision {
    if found.uid != container.uid || !container.has(found) {
        return LeftoverDecision::Ignore;
    }
    if found.in_use {
        return LeftoverDecision::Keep("a process uses it");
    }
    if others
        .iter()
        .any(|other| other.uid == found.uid && other.has(found))
    {
        return LeftoverDecision::Keep("another container of the same user may have created it");
    }
    match outsiders {
        OutsideProcesses::Some => LeftoverDecision::Keep(
            "its user runs programs outside of containers that may have created it",
        ),
        OutsideProcesses::None => LeftoverDecision::Remove,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: u64 = 100_500;
    const DIED: u64 = 200_000;

    fn container(uid: u32) -> ContainerLifetime {
        ContainerLifetime {
            uid,
            from: UnixMillis(STARTED),
            to: Some(UnixMillis(DIED)),
        }
    }
    fn found(uid: u32, made: u64) -> FoundIpcObject {
        let object = IpcObject::Segment(7);
        FoundIpcObject {
            object,
            uid,
            made: UnixMillis(made),
            bytes: Bytes::from_mib(1),
            in_use: false,
        }
    }

    fn file(made: u64) -> FoundIpcObject {
        FoundIpcObject {
            object: IpcObject::File("/dev/shm/file".to_owned()),
            ..found(9, made)
        }
    }

    /// Objects of the container's user, created around its start and its end.
    fn decisions_by_time() -> [(&'static str, FoundIpcObject, LeftoverDecision); 6] {
        [
            (
                "created while the container ran",
                found(9, 150_000),
                LeftoverDecision::Remove,
            ),
            (
                "created in the second of its start",
                found(9, 100_000),
                LeftoverDecision::Remove,
            ),
            (
                "a file created in that second, before its start",
                file(STARTED - 1),
                LeftoverDecision::Ignore,
            ),
            (
                "a file created at its start",
                file(STARTED),
                LeftoverDecision::Remove,
            ),
            (
                "created before its start",
                found(9, 99_999),
                LeftoverDecision::Ignore,
            ),
            (
                "created after its end",
                found(9, 200_001),
                LeftoverDecision::Ignore,
            ),
        ]
    }

    #[test]
    fn only_objects_certainly_of_the_container_are_removed() {
        let alive = |uid, from| ContainerLifetime {
            uid,
            from: UnixMillis(from),
            to: None,
        };
        let used = FoundIpcObject {
            in_use: true,
            ..found(9, 150_000)
        };
        let none: &[ContainerLifetime] = &[];
        let (same, stranger, later) = (
            &[alive(9, 120_000)][..],
            &[alive(8, 120_000)][..],
            &[alive(9, 190_000)][..],
        );
        let by_time = decisions_by_time()
            .into_iter()
            .map(|(name, found, wanted)| (name, found, none, wanted));
        let by_owner = [
            (
                "of another user",
                found(8, 150_000),
                none,
                LeftoverDecision::Ignore,
            ),
            ("of root", found(0, 150_000), none, LeftoverDecision::Ignore),
            (
                "in use",
                used,
                none,
                LeftoverDecision::Keep("a process uses it"),
            ),
            (
                "with a container of another user",
                found(9, 150_000),
                stranger,
                LeftoverDecision::Remove,
            ),
            (
                "with a later container",
                found(9, 150_000),
                later,
                LeftoverDecision::Remove,
            ),
        ];
        for (name, found, others, wanted) in by_time.chain(by_owner) {
            assert_eq!(
                decide(&found, &container(9), others, OutsideProcesses::None),
                wanted,
                "{name}"
            );
        }
        let kept = |others, outsiders| {
            matches!(
                decide(&found(9, 150_000), &container(9), others, outsiders),
                LeftoverDecision::Keep(_)
            )
        };
        assert!(
            kept(same, OutsideProcesses::None),
            "another container of the user ran at that time"
        );
        assert!(
            kept(none, OutsideProcesses::Some),
            "the user runs other programs"
        );
    }
}
