//! Memory that belongs to no process, on the real kernel: files on a tmpfs outlive the group that
//! is charged for them, and page cache is reclaimed from unprotected groups first.

mod support;

use headroom_node_cgroup::{EnforcedGroup, GroupLimits};
use headroom_types::Bytes;
use support::{Host, TIMEOUT, holder, memory, run_in, until};

/// A tmpfs of the host, which outlives the containers that write to it. It is unmounted at the end,
/// also after a failure.
struct HostTmpfs(std::path::PathBuf);

impl HostTmpfs {
    fn new() -> Self {
        let dir =
            std::env::temp_dir().join(format!("headroom-cgroup-tmpfs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let none = None::<&str>;
        nix::mount::mount(
            Some("tmpfs"),
            &dir,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            none,
        )
        .expect("a tmpfs");
        HostTmpfs(dir)
    }
}

impl Drop for HostTmpfs {
    fn drop(&mut self) {
        let gone = nix::mount::umount(&self.0)
            .map_err(std::io::Error::from)
            .and_then(|()| std::fs::remove_dir(&self.0));
        assert!(
            gone.is_ok() || std::thread::panicking(),
            "{}: {gone:?}",
            self.0.display()
        );
    }
}

/// A path for a file whose pages are page cache; `None` in a guest, where every writable directory
/// is a tmpfs.
fn page_cache() -> Option<std::path::PathBuf> {
    let on_disk = |dir: &std::path::PathBuf| {
        nix::sys::statfs::statfs(dir)
            .is_ok_and(|fs| fs.filesystem_type() != nix::sys::statfs::TMPFS_MAGIC)
    };
    let dir = [std::env::temp_dir(), "/var/tmp".into()]
        .into_iter()
        .find(on_disk)?;
    Some(dir.join(format!("headroom-cgroup-cached-{}", std::process::id())))
}

/// Memory that a container writes to a tmpfs of the host is charged to it while its group exists,
/// and to no container afterwards. Page cache of a disk and memory of running containers do not
/// count. An ended task leaves the memory to its container.
#[test]
fn memory_that_ended_programs_leave_is_unattributed_until_removed() {
    let (host, tmpfs) = (Host::new("left"), HostTmpfs::new());
    let floor = Bytes::from_mib(4);
    let left = || {
        host.enforcer
            .unattributed(floor)
            .expect("reads")
            .expect("a kernel counts")
    };
    let (container, other) = (
        host.container("job.1.e1.c1", 256),
        host.container("job.1.e1.c2", 256),
    );
    let mut holder = run_in(&other, &holder(20));
    until("the other container holds its memory", || {
        other.sample().expect("samples").0 >= Bytes::from_mib(20)
    });
    let task = container
        .create_task("map-7-1", &memory(128))
        .expect("a task group");
    let cached = page_cache();
    let write = |to: &std::path::Path, mib: u64| {
        format!("exec dd if=/dev/zero of={} bs=1M count={mib}", to.display())
    };
    assert!(
        run_in(&task, &write(&tmpfs.0.join("file"), 40))
            .wait()
            .expect("ends")
            .success()
    );
    // Without a disk, there is no page cache that the kernel charges to a group.
    let in_cache = cached.as_deref().map_or(Bytes::ZERO, |file| {
        assert!(
            run_in(&task, &write(file, 30))
                .wait()
                .expect("ends")
                .success()
        );
        Bytes::from_mib(20)
    });
    let charged = task.charged().expect("reads").expect("a kernel counts");
    let around_40 = |bytes: Bytes| bytes >= Bytes::from_mib(38) && bytes < Bytes::from_mib(50);
    let least = Bytes::from_mib(40).saturating_add(in_cache);
    assert!(
        charged.usage >= least && around_40(charged.unreclaimable),
        "{charged:?}"
    );
    assert_eq!(
        container.unattributed(floor).expect("reads"),
        Some(Bytes::ZERO),
        "the task's group is still there"
    );
    task.remove(TIMEOUT).expect("goes");
    until("the container is charged", || {
        around_40(
            container
                .unattributed(floor)
                .expect("reads")
                .expect("counts"),
        )
    });
    assert_eq!(left(), Bytes::ZERO, "the container's group is still there");
    container.remove(TIMEOUT).expect("goes");
    until("the node is charged", || around_40(left()));
    std::fs::remove_file(tmpfs.0.join("file")).expect("removes");
    until("the memory of the node is free again", || left().is_zero());
    cached
        .map(std::fs::remove_file)
        .transpose()
        .expect("removes");
    other.kill().expect("kills");
    holder.wait().expect("reaps");
}

/// The kernel reclaims page cache of other containers before that of a container with `low`. cgroup
/// v1 has no such protection.
#[test]
fn memory_that_is_protected_is_reclaimed_last() {
    let host = Host::new("low");
    if host.is_v1() {
        let limits = GroupLimits {
            low: Some(Bytes::from_mib(64)),
            ..memory(64)
        };
        host.enforcer
            .create("job.1.e1.c0", &limits)
            .expect("v1 ignores the protection");
        return;
    }
    let protected = GroupLimits {
        low: Some(Bytes::from_mib(64)),
        ..memory(64)
    };
    let master = host
        .enforcer
        .create("job.1.e1.c0", &protected)
        .expect("a container group");
    let (other, hungry) = (
        host.container("job.1.e1.c1", 64),
        host.container("job.1.e1.c2", 64),
    );
    let file = page_cache();
    // The file system of a guest keeps the pages of a file only while a process has it open.
    let program = file
        .is_none()
        .then(|| std::fs::File::open(unread()).expect("opens"));
    let cache = |skip: u64| match &file {
        Some(file) => format!(
            "exec dd if=/dev/zero of={} bs=1M seek={skip} count=24 conv=fsync,notrunc",
            file.display()
        ),
        None => format!(
            "exec dd if={} of=/dev/null bs=1M skip={skip} count=24",
            unread().display()
        ),
    };
    for (group, skip) in [(&master, 16), (&other, 40)] {
        assert!(run_in(group, &cache(skip)).wait().expect("ends").success());
        assert!(
            used(group) >= Bytes::from_mib(23),
            "the file is in the page cache: {}",
            used(group)
        );
    }
    host.enforcer
        .set_fence(Bytes::from_mib(72))
        .expect("a fence");
    let mut holder = run_in(&hungry, &holder(36));
    until("the third container has its memory", || {
        used(&hungry) >= Bytes::from_mib(36)
    });
    assert!(
        used(&master) >= Bytes::from_mib(23) && used(&other) < Bytes::from_mib(14),
        "{} {}",
        used(&master),
        used(&other)
    );
    assert_eq!(
        host.enforcer.fence_facts().expect("facts").local.oom_kill,
        0
    );
    hungry.kill().expect("kills");
    holder.wait().expect("reaps");
    drop(program);
    file.map(std::fs::remove_file).transpose().expect("removes");
}

fn used(group: &EnforcedGroup) -> Bytes {
    group
        .charged()
        .expect("reads")
        .expect("a kernel counts")
        .usage
}

/// A file of 64 MiB and more that no process of a guest has read as far.
fn unread() -> std::path::PathBuf {
    let programs =
        std::env::var_os("HEADROOM_BIN_DIR").expect("guests know where the programs are");
    std::path::Path::new(&programs).join("resourcemanager")
}
