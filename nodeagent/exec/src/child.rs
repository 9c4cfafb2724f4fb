//! The code of the child between `clone` and `execve`. The child shares the parent's memory, so it
//! only makes system calls.
//!
//! One call of `spawn` owns it; see [`headroom_node_process::memory_sharing_child`] for the memory.
//!
//! Rules for all code below [`run`]: raw system calls only (libc's own `setuid` and similar
//! functions would signal all threads of the parent), no allocation, no lock, no panic, no
//! indexing.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use headroom_node_process::clone_into_cgroup::{CloneRefusal, CloneTarget};
use headroom_node_process::memory_sharing_child::{clone_child, reset_signals, set_mask};

use crate::error::SpawnStep;
use crate::prepare::{PrepareFailure, PreparedCommand};

/// Size of the child's stack, in bytes. Its call depth is small; debug builds need the most.
const STACK: usize = 64 * 1024;

/// Data shared by parent and child until the child executes the program.
struct ChildStatus {
    /// Index in `procs_files` of the group into which the child was cloned.
    cloned_into: Option<usize>,
    /// Index of the present step in [`STEPS`].
    step: AtomicUsize,
    /// Index in the list that the step processes.
    index: AtomicUsize,
    /// The errno of a failed step.
    errno: AtomicI32,
}

const STEPS: [SpawnStep; 11] = [
    SpawnStep::Session,
    SpawnStep::Cgroup,
    SpawnStep::OomScore,
    SpawnStep::Namespaces,
    SpawnStep::Stdio,
    SpawnStep::Limit,
    SpawnStep::User,
    SpawnStep::Privileges,
    SpawnStep::ParentDeath,
    SpawnStep::Chdir,
    SpawnStep::Exec,
];

/// The code of one step; the error is an errno.
type ChildStep = fn(&PreparedCommand<'_>, &ChildStatus) -> Result<(), i32>;

struct ChildContext<'a> {
    prepared: &'a PreparedCommand<'a>,
    board: &'a ChildStatus,
}

/// Starts the child and waits until it has executed the program. Returns its pid and pidfd, or the
/// failed step. A failed child is reaped.
///
/// The child is cloned into its cgroup where the kernel allows that; otherwise it moves there.
pub(crate) fn launch(prepared: &PreparedCommand<'_>) -> Result<(i32, OwnedFd), PrepareFailure> {
    let Some(clone_target) = &prepared.clone_target else {
        return start(prepared, None);
    };
    match start(prepared, Some(clone_target)) {
        Err(PrepareFailure {
            step: SpawnStep::Clone,
            errno,
            ..
        }) => match CloneRefusal::of(errno) {
            CloneRefusal::Here => start(prepared, None),
            CloneRefusal::Group => Err(PrepareFailure {
                step: SpawnStep::Cgroup,
                index: clone_target.index,
                errno,
            }),
        },
        started => started,
    }
}

fn start(
    prepared: &PreparedCommand<'_>,
    clone_target: Option<&CloneTarget>,
) -> Result<(i32, OwnedFd), PrepareFailure> {
    let board = ChildStatus {
        cloned_into: clone_target.map(|c| c.index),
        step: AtomicUsize::new(0),
        index: AtomicUsize::new(0),
        errno: AtomicI32::new(0),
    };
    let context = ChildContext {
        prepared,
        board: &board,
    };
    let (pid, pidfd) = clone(&context, clone_target)?;
    let step = STEPS
        .get(board.step.load(Ordering::Acquire))
        .copied()
        .unwrap_or(SpawnStep::Exec);
    let errno = board.errno.load(Ordering::Acquire);
    if errno == 0 && step == SpawnStep::Exec {
        return Ok((pid, pidfd));
    }
    reap(&pidfd);
    Err(PrepareFailure {
        step,
        index: board.index.load(Ordering::Acquire),
        errno,
    })
}

fn clone(
    context: &ChildContext<'_>,
    clone_target: Option<&CloneTarget>,
) -> Result<(i32, OwnedFd), PrepareFailure> {
    let context = std::ptr::from_ref(context).cast_mut().cast();
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
    // SAFETY: `run` never returns to our code and follows the rules above. `context` lives through
    // the call.
    unsafe { clone_child(clone_target, stack.spare_capacity_mut(), run, context) }.map_err(
        |errno| PrepareFailure {
            step: SpawnStep::Clone,
            index: 0,
            errno,
        },
    )
}

fn reap(pidfd: &OwnedFd) {
    let Ok(id) = libc::id_t::try_from(pidfd.as_raw_fd()) else {
        return;
    };
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: `info` has the size of one siginfo_t. The child has ended or is about to, so the wait
    // is short.
    while unsafe { libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), libc::WEXITED) } != 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// The main function of the child before `execve`.
extern "C" fn run(context: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the pointer is that of the `ChildContext` in `clone`, which lives until the child is
    // gone; it is only read.
    let context: &ChildContext<'_> = unsafe { &*context.cast_const().cast() };
    let errno = attempt(context.prepared, context.board);
    context.board.errno.store(errno, Ordering::Release);
    // SAFETY: ends only this process, without running the parent's exit handlers.
    unsafe { libc::syscall(libc::SYS_exit_group, 127) };
    127
}

/// Runs all steps. Returns only on failure, with the errno of the step on the board.
fn attempt(prepared: &PreparedCommand<'_>, board: &ChildStatus) -> i32 {
    reset_signals();
    let steps: [ChildStep; 11] = [
        session,
        cgroups,
        oom_score,
        namespaces,
        stdio,
        limits,
        user,
        privileges,
        parent_death,
        chdir,
        exec,
    ];
    for (place, step) in steps.into_iter().enumerate() {
        board.step.store(place, Ordering::Release);
        board.index.store(0, Ordering::Release);
        if let Err(errno) = step(prepared, board) {
            return errno;
        }
    }
    0
}

/// A raw system call with up to four arguments. The fifth is zero: `prctl` refuses anything else.
fn call(number: libc::c_long, a: usize, b: usize, c: usize, d: usize) -> Result<libc::c_long, i32> {
    // SAFETY: every caller passes numbers, or addresses of memory that is valid for that call as
    // the comment there says.
    let answer = unsafe { libc::syscall(number, a, b, c, d, 0usize) };
    if answer >= 0 {
        return Ok(answer);
    }
    // SAFETY: errno belongs to this thread; the child shares it with the parent's thread, which is
    // stopped.
    Err(unsafe { *libc::__errno_location() })
}

fn session(prepared: &PreparedCommand<'_>, _: &ChildStatus) -> Result<(), i32> {
    if prepared.new_session {
        call(libc::SYS_setsid, 0, 0, 0, 0).map(drop)
    } else {
        Ok(())
    }
}

/// `0` means the writing process. The group of the clone needs no move.
fn cgroups(prepared: &PreparedCommand<'_>, board: &ChildStatus) -> Result<(), i32> {
    for (index, path) in prepared.procs_files.iter().enumerate() {
        if board.cloned_into != Some(index) {
            board.index.store(index, Ordering::Release);
            write_file(path, c"0")?;
        }
    }
    Ok(())
}

fn oom_score(prepared: &PreparedCommand<'_>, _: &ChildStatus) -> Result<(), i32> {
    prepared.oom_score_adj.as_ref().map_or(Ok(()), |value| {
        write_file(c"/proc/self/oom_score_adj", value)
    })
}

/// Both texts end in NUL and outlive the call.
fn write_file(path: &std::ffi::CStr, value: &std::ffi::CStr) -> Result<(), i32> {
    let flags = usize::try_from(libc::O_WRONLY | libc::O_CLOEXEC).unwrap_or(0);
    let at = usize::MAX - 99; // AT_FDCWD (-100); the path is absolute
    let fd = call(libc::SYS_openat, at, path.as_ptr().addr(), flags, 0)?;
    let fd = usize::try_from(fd).unwrap_or(0);
    let written = call(
        libc::SYS_write,
        fd,
        value.as_ptr().addr(),
        value.count_bytes(),
        0,
    );
    // Closing cannot undo the write.
    let _ = call(libc::SYS_close, fd, 0, 0, 0);
    written.map(drop)
}

/// Runs after the cgroups, so that memory in the program's tmpfs is charged to its own group. The
/// indexes match `namespaces::part`.
fn namespaces(prepared: &PreparedCommand<'_>, board: &ChildStatus) -> Result<(), i32> {
    let Some(own) = &prepared.namespaces else {
        return Ok(());
    };
    let at = |index: usize| board.index.store(index, Ordering::Release);
    call(
        libc::SYS_unshare,
        usize::try_from(own.flags).unwrap_or(0),
        0,
        0,
        0,
    )?;
    if let Some([uid, gid]) = &own.maps {
        for (index, path, text) in [
            (1, c"/proc/self/setgroups", c"deny"),
            (2, c"/proc/self/uid_map", uid.as_c_str()),
            (3, c"/proc/self/gid_map", gid.as_c_str()),
        ] {
            at(index);
            write_file(path, text)?;
        }
    }
    at(4);
    mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_SLAVE, c"")?;
    at(5);
    match mount(
        c"shm",
        c"/dev/shm",
        c"tmpfs",
        libc::MS_NOSUID | libc::MS_NODEV,
        &own.options,
    ) {
        // A host without the mount point has no POSIX shared memory.
        Ok(()) | Err(libc::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    // Ignored: without this file system there are no message queues. Those of the host are in
    // another namespace.
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let _ = mount(c"mqueue", c"/dev/mqueue", c"mqueue", flags, c"");
    Ok(())
}

/// All texts outlive the call.
fn mount(
    from: &std::ffi::CStr,
    at: &std::ffi::CStr,
    kind: &std::ffi::CStr,
    flags: libc::c_ulong,
    options: &std::ffi::CStr,
) -> Result<(), i32> {
    // SAFETY: the texts end in NUL and live through the call; the kernel only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount,
            from.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr(),
        )
    };
    if answer == 0 {
        return Ok(());
    }
    // SAFETY: errno belongs to this thread; the child shares it with the parent's thread, which is
    // stopped.
    Err(unsafe { *libc::__errno_location() })
}

/// Drops the capability that created the namespaces.
fn privileges(prepared: &PreparedCommand<'_>, board: &ChildStatus) -> Result<(), i32> {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words for each set.
    const VERSION: u32 = 0x2008_0522;
    if prepared.namespaces.is_none() {
        return Ok(());
    }
    board.index.store(6, Ordering::Release);
    let (header, none) = ([VERSION, 0], [0u32; 6]);
    // Header (version, own process) and three empty sets, valid through the call.
    call(
        libc::SYS_capset,
        header.as_ptr().addr(),
        none.as_ptr().addr(),
        0,
        0,
    )?;
    // Without this, user 0 would regain them by the exec.
    call(
        libc::SYS_prctl,
        usize::try_from(libc::PR_SET_NO_NEW_PRIVS).unwrap_or(0),
        1,
        0,
        0,
    )
    .map(drop)
}

/// Moves the three descriptors into place, and marks all others as close-on-exec except the inherited
/// ones. Before Linux 5.11 that call does not exist; the descriptors of the parent are close-on-exec
/// anyway.
fn stdio(prepared: &PreparedCommand<'_>, board: &ChildStatus) -> Result<(), i32> {
    for (place, file) in prepared.stdio.iter().enumerate() {
        board.index.store(place, Ordering::Release);
        call(
            libc::SYS_dup3,
            usize::try_from(file.as_raw_fd()).unwrap_or(0),
            place,
            0,
            0,
        )?;
    }
    let cloexec = usize::try_from(libc::CLOSE_RANGE_CLOEXEC).unwrap_or(0);
    let _ = call(
        libc::SYS_close_range,
        3,
        usize::try_from(u32::MAX).unwrap_or(usize::MAX),
        cloexec,
        0,
    );
    for (place, number) in prepared.inherited.iter().enumerate() {
        board.index.store(place + 3, Ordering::Release);
        // F_SETFD with 0 clears close-on-exec.
        call(
            libc::SYS_fcntl,
            usize::try_from(*number).unwrap_or(0),
            usize::try_from(libc::F_SETFD).unwrap_or(0),
            0,
            0,
        )?;
    }
    Ok(())
}

/// The value outlives the call; 0 is the caller itself.
fn limits(prepared: &PreparedCommand<'_>, board: &ChildStatus) -> Result<(), i32> {
    for (index, (number, value)) in prepared.limits.iter().enumerate() {
        board.index.store(index, Ordering::Release);
        call(
            libc::SYS_prlimit64,
            0,
            usize::try_from(*number).unwrap_or(0),
            std::ptr::from_ref(value).addr(),
            0,
        )?;
    }
    Ok(())
}

/// Runs after the user, because a change of user clears this setting.
fn parent_death(prepared: &PreparedCommand<'_>, _: &ChildStatus) -> Result<(), i32> {
    let Some(signal) = prepared.parent_death else {
        return Ok(());
    };
    let option = usize::try_from(libc::PR_SET_PDEATHSIG).unwrap_or(0);
    call(
        libc::SYS_prctl,
        option,
        usize::try_from(signal).unwrap_or(0),
        0,
        0,
    )
    .map(drop)
}

/// Sets the groups first, because that needs the privileges of root. The list outlives the call.
fn user(prepared: &PreparedCommand<'_>, _: &ChildStatus) -> Result<(), i32> {
    let Some(user) = &prepared.user else {
        return Ok(());
    };
    let (uid, gid) = (
        usize::try_from(user.uid).unwrap_or(usize::MAX),
        usize::try_from(user.gid).unwrap_or(usize::MAX),
    );
    call(
        libc::SYS_setgroups,
        user.groups.len(),
        user.groups.as_ptr().addr(),
        0,
        0,
    )?;
    call(libc::SYS_setresgid, gid, gid, gid, 0)?;
    call(libc::SYS_setresuid, uid, uid, uid, 0).map(drop)
}

fn chdir(prepared: &PreparedCommand<'_>, _: &ChildStatus) -> Result<(), i32> {
    call(libc::SYS_chdir, prepared.cwd.as_ptr().addr(), 0, 0, 0).map(drop)
}

/// Returns only on failure, with the most informative errno of all tried paths.
fn exec(prepared: &PreparedCommand<'_>, _: &ChildStatus) -> Result<(), i32> {
    set_mask(0);
    Err(prepared.arguments.0.execute())
}
