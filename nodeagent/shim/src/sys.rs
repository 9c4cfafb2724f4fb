//! Thin, safe names for the system calls of this program.
//!
//! Owned by no module; holds no state. A call that cannot fail in a way anybody could act upon returns nothing.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Writes a text to a descriptor; a reader that is gone does not matter.
pub(crate) fn say(fd: libc::c_int, text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the pointer and length are those of a live slice.
        let n = unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => rest = rest.get(n..).unwrap_or_default(),
            Ok(_) => return,
            Err(_) if last_errno() == libc::EINTR => {}
            Err(_) => return,
        }
    }
}

/// The errno of the last failed call.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The errno of an error of the standard library.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}

fn check(answer: libc::c_int) -> Result<(), i32> {
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Orphaned descendants become children of this process, not of pid 1.
pub(crate) fn become_subreaper() {
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
}

/// Ignores a signal.
pub(crate) fn ignore(signal: libc::c_int) {
    // SAFETY: SIG_IGN is no function of ours that could run.
    unsafe {
        libc::signal(signal, libc::SIG_IGN);
    }
}

/// All signals at their default and none blocked, for the program to come. SIGKILL and SIGSTOP cannot be changed and stay.
pub(crate) fn reset_signals() {
    // The kernel's sigaction: handler, flags, restorer, mask. All zero is the default action. Not by libc's `signal`: it refuses the two
    // it uses itself, which `posix_spawn` leaves ignored in whatever it starts, us included.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // SAFETY: `default` is as long as the kernel reads; the old action is not asked for; 8 is the size of the kernel's mask.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), 8);
        }
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `none` is filled by sigemptyset before it is read; the old mask is not asked for.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Blocks SIGTERM and SIGINT for good; the answer waits for one of them.
pub(crate) fn block_termination() -> impl FnOnce() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is filled by sigemptyset before it is used.
    let set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        set.assume_init()
    };
    move || loop {
        // SAFETY: the set is valid; no details of the signal are asked for.
        let signal = unsafe { libc::sigwaitinfo(&set, std::ptr::null_mut()) };
        if signal > 0 || last_errno() != libc::EINTR {
            return;
        }
    }
}

/// A pipe whose ends are closed at an exec: reading end, writing end.
pub(crate) fn pipe() -> Result<(File, File), i32> {
    let mut ends: [libc::c_int; 2] = [-1; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both are fresh and owned by nobody else.
    let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((read.into(), write.into()))
}

/// Two of us: `None` in the child.
pub(crate) fn fork() -> Result<Option<libc::pid_t>, i32> {
    // SAFETY: this program has one thread, so the child may go on as if nothing had happened.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(pid)),
        _ => Err(last_errno()),
    }
}

/// A session of its own.
pub(crate) fn new_session() -> Result<(), i32> {
    // SAFETY: no arguments.
    if unsafe { libc::setsid() } < 0 { Err(last_errno()) } else { Ok(()) }
}

/// `file` becomes descriptor `place`.
pub(crate) fn place(file: &File, place: libc::c_int) -> Result<(), i32> {
    // SAFETY: `file` is open. What was at `place` is replaced on purpose.
    if unsafe { libc::dup2(file.as_raw_fd(), place) } < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Everything above 2 is closed at the exec. A kernel without the call (before 5.11) loses nothing: our own files are marked anyway.
pub(crate) fn close_rest_at_exec() {
    // SAFETY: takes numbers only, and only marks.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// A resource limit, by the kernel's number.
pub(crate) fn set_limit(resource: u32, soft: u64, hard: u64) -> Result<(), i32> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the limit is valid through the call.
    check(unsafe { libc::setrlimit(resource, &limit) })
}

/// Groups first: without root's rights they could no longer be set.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<(), i32> {
    // SAFETY: pointer and length are those of a live slice; the others take numbers.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::setresuid(uid, uid, uid) })
}

/// Becomes the program; returns only with an errno. Both lists end in null.
pub(crate) fn exec(program: &CStr, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> i32 {
    debug_assert!(argv.last().is_some_and(|p| p.is_null()) && env.last().is_some_and(|p| p.is_null()));
    // SAFETY: the lists end in null and their texts, held by the caller, in NUL.
    unsafe {
        libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr());
    }
    last_errno()
}

/// Leaves without running anything of the parent's.
pub(crate) fn leave(code: libc::c_int) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}

/// The end of one child.
pub(crate) struct End {
    pub(crate) pid: libc::pid_t,
    pub(crate) status: libc::c_int,
    pub(crate) usage: libc::rusage,
}

/// Waits for any child; `None` when there is none.
pub(crate) fn wait() -> Option<End> {
    loop {
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both are valid for writing through the call.
        let pid = unsafe { libc::wait4(-1, &mut status, libc::__WALL, usage.as_mut_ptr()) };
        if pid > 0 {
            // SAFETY: zeroed, which is a valid rusage, and filled by the kernel since.
            return Some(End { pid, status, usage: unsafe { usage.assume_init() } });
        }
        if last_errno() != libc::EINTR {
            return None;
        }
    }
}
