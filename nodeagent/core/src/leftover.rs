//! What to do with shared memory, semaphores and queues that outlived a container which shared the host's IPC: pure.
//!
//! Removed is only what belongs to the container's user, was made while the container lived, has no user any more, and cannot belong to
//! anything but the container: no other container of that user lived then and lives still, and the user runs nothing else on the host.

use headroom_types::{Bytes, UnixMillis};

/// What can outlive its processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A SysV segment.
    Segment(i32),
    /// A SysV set of semaphores.
    Semaphores(i32),
    /// A SysV message queue.
    Queue(i32),
    /// A file on a tmpfs that all users share, or a POSIX message queue. Its path.
    File(String),
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub object: Object,
    /// The user that owns it.
    pub uid: u32,
    /// When it was made; whole seconds for SysV.
    pub made: UnixMillis,
    /// Memory it holds; zero where the kernel does not tell. Bytes.
    pub bytes: Bytes,
    /// Whether a living process has made, attached, opened or mapped it.
    pub in_use: bool,
}

/// When a container lived, and whose it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Its user.
    pub uid: u32,
    /// From then on.
    pub from: UnixMillis,
    /// Its end; `None` while it lives.
    pub to: Option<UnixMillis>,
}

impl Lifetime {
    /// A SysV object of the same second counts as made in it; a file has its millisecond.
    fn has(&self, found: &Found) -> bool {
        let from = match found.object {
            Object::Segment(_) | Object::Semaphores(_) | Object::Queue(_) => self.from.0 / 1000 * 1000,
            Object::File(_) => self.from.0,
        };
        found.made.0 >= from && self.to.is_none_or(|to| found.made <= to)
    }
}

/// Whether processes of the user live outside of all containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outsiders {
    /// There are some.
    Some,
    /// There are none.
    None,
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is removed.
    Remove,
    /// Not the container's: it stays, and is not reported.
    Ignore,
    /// It may be the container's: it stays, and is reported with the reason.
    Keep(&'static str),
}

/// Decides about one object after the end of `container`. `others` are the containers that live.
pub fn decide(found: &Found, container: &Lifetime, others: &[Lifetime], outsiders: Outsiders) -> Decision {
    if found.uid != container.uid || !container.has(found) {
        return Decision::Ignore;
    }
    if found.in_use {
        return Decision::Keep("a process uses it");
    }
    if others.iter().any(|other| other.uid == found.uid && other.has(found)) {
        return Decision::Keep("another container of the same user may have made it");
    }
    match outsiders {
        Outsiders::Some => Decision::Keep("its user runs programs outside of containers, which may have made it"),
        Outsiders::None => Decision::Remove,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORN: u64 = 100_500;
    const DIED: u64 = 200_000;

    fn container(uid: u32) -> Lifetime {
        Lifetime { uid, from: UnixMillis(BORN), to: Some(UnixMillis(DIED)) }
    }
    fn found(uid: u32, made: u64) -> Found {
        let object = Object::Segment(7);
        Found { object, uid, made: UnixMillis(made), bytes: Bytes::from_mib(1), in_use: false }
    }

    #[test]
    fn only_what_is_certainly_the_containers_is_removed() {
        let alive = |uid, from| Lifetime { uid, from: UnixMillis(from), to: None };
        let used = Found { in_use: true, ..found(9, 150_000) };
        let file = |made| Found { object: Object::File("/dev/shm/file".to_owned()), ..found(9, made) };
        let none: &[Lifetime] = &[];
        let (same, stranger, later) = (&[alive(9, 120_000)][..], &[alive(8, 120_000)][..], &[alive(9, 190_000)][..]);
        let table = [
            ("made while it lived", found(9, 150_000), none, Outsiders::None, Decision::Remove),
            ("made in the second of its start", found(9, 100_000), none, Outsiders::None, Decision::Remove),
            ("a file made in that second, before its start", file(BORN - 1), none, Outsiders::None, Decision::Ignore),
            ("a file made at its start", file(BORN), none, Outsiders::None, Decision::Remove),
            ("was there before", found(9, 99_999), none, Outsiders::None, Decision::Ignore),
            ("made after its end", found(9, 200_001), none, Outsiders::None, Decision::Ignore),
            ("of another user", found(8, 150_000), none, Outsiders::None, Decision::Ignore),
            ("of root", found(0, 150_000), none, Outsiders::None, Decision::Ignore),
            ("in use", used, none, Outsiders::None, Decision::Keep("a process uses it")),
            ("beside a container of another user", found(9, 150_000), stranger, Outsiders::None, Decision::Remove),
            ("beside a later container", found(9, 150_000), later, Outsiders::None, Decision::Remove),
        ];
        for (name, found, others, outsiders, wanted) in table {
            assert_eq!(decide(&found, &container(9), others, outsiders), wanted, "{name}");
        }
        let kept = |others, outsiders| matches!(decide(&found(9, 150_000), &container(9), others, outsiders), Decision::Keep(_));
        assert!(kept(same, Outsiders::None), "another container of the user lived then");
        assert!(kept(none, Outsiders::Some), "the user runs other programs");
    }
}
