//! The moments between `clone` and `execve`: the child borrows the parent's memory, so it may do system calls and nothing else.
//!
//! Owned by one call of `spawn`. The kernel stops the calling thread (`CLONE_VFORK`) until the child has become another program or
//! ended, so what the child reads stays where it is, and what it writes into its [`Board`] is seen afterwards.
//!
//! Sharing memory has three consequences the kernel takes care of, and one that is ours: while the child is in the group and not yet the
//! program, the out-of-memory killer passes it over (`in_vfork`), so the parent is never killed as "sharing the victim's memory";
//! `oom_score_adj` changes for the child alone; page faults go on the parent's account. But a change of user makes the *shared* memory
//! undumpable, which [`launch`] takes back.
//!
//! Rules for everything below [`run`]: raw system calls only (libc's own `setuid` and friends would talk to all threads of the parent),
//! no allocation, no lock, no panic, no indexing.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::error::Step;
use crate::into::{Cradle, Refusal, clone_into};
use crate::prepare::{Failure, Prepared};

/// Room for the child's stack. Bytes. What it calls is shallow; debug builds are the hungry ones.
const STACK: usize = 64 * 1024;

/// All signals, as the kernel's own mask (libc's functions leave out those it uses itself).
const ALL_SIGNALS: u64 = u64::MAX;
/// Bytes in the kernel's signal mask.
const MASK_SIZE: usize = 8;
/// Signals are numbered 1 to this.
const LAST_SIGNAL: libc::c_int = 64;

/// What the child is told, and what it says while it is not yet another program.
struct Board {
    /// The group it was born in, as a place in the list of those to be joined.
    born_in: Option<usize>,
    /// The step it is at, as a place in [`STEPS`].
    step: AtomicUsize,
    /// Position in the list the step goes through.
    index: AtomicUsize,
    /// Set when the step failed.
    errno: AtomicI32,
}

const STEPS: [Step; 11] = [
    Step::Session,
    Step::Cgroup,
    Step::OomScore,
    Step::Namespaces,
    Step::Stdio,
    Step::Limit,
    Step::User,
    Step::Privileges,
    Step::ParentDeath,
    Step::Chdir,
    Step::Exec,
];

/// What one step does; the error is an errno.
type Stage = fn(&Prepared, &Board) -> Result<(), i32>;

struct Errand<'a> {
    prepared: &'a Prepared,
    board: &'a Board,
}

/// Makes the child and waits until it is the program: its number and descriptor, or which step failed. A failed child is reaped.
///
/// It is born in its group where the kernel allows that, else it moves there.
pub(crate) fn launch(prepared: &Prepared) -> Result<(i32, OwnedFd), Failure> {
    let Some(cradle) = &prepared.cradle else { return start(prepared, None) };
    match start(prepared, Some(cradle)) {
        Err(Failure { step: Step::Clone, errno, .. }) => match Refusal::of(errno) {
            Refusal::Here => start(prepared, None),
            Refusal::Group => Err(Failure { step: Step::Cgroup, index: cradle.index, errno }),
        },
        started => started,
    }
}

fn start(prepared: &Prepared, cradle: Option<&Cradle>) -> Result<(i32, OwnedFd), Failure> {
    let board = Board {
        born_in: cradle.map(|c| c.index),
        step: AtomicUsize::new(0),
        index: AtomicUsize::new(0),
        errno: AtomicI32::new(0),
    };
    let errand = Errand { prepared, board: &board };
    let dumpable = dumpable();
    let made = clone(&errand, cradle);
    if prepared.user.is_some() {
        set_dumpable(dumpable);
    }
    let (pid, pidfd) = made?;
    let step = STEPS.get(board.step.load(Ordering::Acquire)).copied().unwrap_or(Step::Exec);
    let errno = board.errno.load(Ordering::Acquire);
    if errno == 0 && step == Step::Exec {
        return Ok((pid, pidfd));
    }
    reap(&pidfd);
    Err(Failure { step, index: board.index.load(Ordering::Acquire), errno })
}

fn clone(errand: &Errand<'_>, cradle: Option<&Cradle>) -> Result<(i32, OwnedFd), Failure> {
    // u128 for the alignment the ABI asks of a stack.
    let mut stack: Vec<u128> = vec![0; STACK / size_of::<u128>()];
    let mut pidfd: libc::c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    let errand = std::ptr::from_ref(errand).cast_mut().cast();
    let saved = set_mask(ALL_SIGNALS);
    // SAFETY: the stack is aligned, its end is one past its last byte, and it outlives the child's use of it, because CLONE_VFORK
    // holds this thread until the child has left our memory. `errand` likewise. `run` never returns to code of ours and
    // keeps to the rules above. All signals are blocked, so no handler of the parent runs in the child. `pidfd` is where CLONE_PIDFD writes.
    let made = unsafe {
        match cradle {
            Some(cradle) => clone_into(cradle, flags, &mut stack, run, errand, &mut pidfd),
            None => {
                let top = stack.as_mut_ptr().add(stack.len());
                match libc::clone(run, top.cast(), flags | libc::SIGCHLD, errand, &mut pidfd) {
                    pid if pid > 0 => Ok(pid),
                    _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN)),
                }
            }
        }
    };
    set_mask(saved);
    let pid = made.map_err(|errno| Failure { step: Step::Clone, index: 0, errno })?;
    // SAFETY: the clone succeeded, so the kernel has stored a fresh descriptor that nobody else owns.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Sets this thread's signal mask and returns the one before.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both masks are of the size given and live through the call. A mask of the caller's thread is no memory of anybody.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, MASK_SIZE);
    }
    before
}

/// 1 for a process that may dump core and whose `/proc` files are its user's.
fn dumpable() -> libc::c_int {
    // SAFETY: takes and returns numbers only.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }
}

fn set_dumpable(value: libc::c_int) {
    // SAFETY: takes a number only; a value that prctl does not take is refused without effect.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, value);
    }
}

fn reap(pidfd: &OwnedFd) {
    let Ok(id) = libc::id_t::try_from(pidfd.as_raw_fd()) else { return };
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: `info` is room for one siginfo_t; the child has ended or is about to, so this does not block for long.
    while unsafe { libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), libc::WEXITED) } != 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// The child's whole life before it is another program.
extern "C" fn run(errand: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the pointer is that of the `Errand` in `clone`, which is held there until we are gone; it is only read.
    let errand: &Errand<'_> = unsafe { &*errand.cast_const().cast() };
    let errno = attempt(errand.prepared, errand.board);
    errand.board.errno.store(errno, Ordering::Release);
    // SAFETY: ends this process alone, without running anything of the parent's at-exit code.
    unsafe { libc::syscall(libc::SYS_exit_group, 127) };
    127
}

/// Returns only with the errno of the step on the board.
fn attempt(wish: &Prepared, board: &Board) -> i32 {
    reset_signals();
    let steps: [Stage; 11] =
        [session, cgroups, oom_score, namespaces, stdio, limits, user, privileges, parent_death, chdir, exec];
    for (place, step) in steps.into_iter().enumerate() {
        board.step.store(place, Ordering::Release);
        board.index.store(0, Ordering::Release);
        if let Err(errno) = step(wish, board) {
            return errno;
        }
    }
    0
}

/// A raw system call with up to four arguments.
fn call(number: libc::c_long, a: usize, b: usize, c: usize, d: usize) -> Result<libc::c_long, i32> {
    // SAFETY: every caller below hands over numbers, and addresses of memory that is valid for that call as the comment there says.
    let answer = unsafe { libc::syscall(number, a, b, c, d) };
    if answer >= 0 {
        return Ok(answer);
    }
    // SAFETY: errno is this thread's own; the child shares it with the parent's thread, which is stopped.
    Err(unsafe { *libc::__errno_location() })
}

/// What the parent ignores or handles, the program finds at its default. Handlers could not survive the exec, "ignored" would.
fn reset_signals() {
    // The kernel's sigaction: handler, flags, restorer, mask. All zero is the default action.
    let default = [0u64; 4];
    for signal in 1..=LAST_SIGNAL {
        // The address is that of `default`. SIGKILL and SIGSTOP answer EINVAL; nothing to do about it.
        let _ = call(libc::SYS_rt_sigaction, usize::try_from(signal).unwrap_or(0), default.as_ptr().addr(), 0, MASK_SIZE);
    }
}

fn session(wish: &Prepared, _: &Board) -> Result<(), i32> {
    if wish.new_session { call(libc::SYS_setsid, 0, 0, 0, 0).map(drop) } else { Ok(()) }
}

/// `0` means the process that writes. Where it was born it need not go.
fn cgroups(wish: &Prepared, board: &Board) -> Result<(), i32> {
    for (index, path) in wish.procs_files.iter().enumerate() {
        if board.born_in != Some(index) {
            board.index.store(index, Ordering::Release);
            write_file(path, c"0")?;
        }
    }
    Ok(())
}

fn oom_score(wish: &Prepared, _: &Board) -> Result<(), i32> {
    wish.oom_score_adj.as_ref().map_or(Ok(()), |value| write_file(c"/proc/self/oom_score_adj", value))
}

/// Both texts end in NUL and outlive the call.
fn write_file(path: &std::ffi::CStr, value: &std::ffi::CStr) -> Result<(), i32> {
    let flags = usize::try_from(libc::O_WRONLY | libc::O_CLOEXEC).unwrap_or(0);
    let at = usize::MAX - 99; // AT_FDCWD (-100); the path is absolute
    let fd = call(libc::SYS_openat, at, path.as_ptr().addr(), flags, 0)?;
    let fd = usize::try_from(fd).unwrap_or(0);
    let written = call(libc::SYS_write, fd, value.as_ptr().addr(), value.count_bytes(), 0);
    // Closing cannot undo the write.
    let _ = call(libc::SYS_close, fd, 0, 0, 0);
    written.map(drop)
}

/// After the cgroups, so that what the program keeps in its tmpfs is charged to its own. The positions are those of `namespaces::part`.
fn namespaces(wish: &Prepared, board: &Board) -> Result<(), i32> {
    let Some(own) = &wish.namespaces else { return Ok(()) };
    let at = |index: usize| board.index.store(index, Ordering::Release);
    call(libc::SYS_unshare, usize::try_from(own.flags).unwrap_or(0), 0, 0, 0)?;
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
    match mount(c"shm", c"/dev/shm", c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &own.options) {
        // A host without it has no POSIX shared memory.
        Ok(()) | Err(libc::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    // The host's queues are in another namespace. Where the kernel has no such file system, programs do without.
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
    let answer = unsafe { libc::syscall(libc::SYS_mount, from.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr()) };
    if answer == 0 {
        return Ok(());
    }
    // SAFETY: errno is this thread's own; the child shares it with the parent's thread, which is stopped.
    Err(unsafe { *libc::__errno_location() })
}

/// The capability that made the namespaces is not the program's.
fn privileges(wish: &Prepared, board: &Board) -> Result<(), i32> {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words for each set.
    const VERSION: u32 = 0x2008_0522;
    if wish.namespaces.is_none() {
        return Ok(());
    }
    board.index.store(6, Ordering::Release);
    let (header, none) = ([VERSION, 0], [0u32; 6]);
    // Header (version, own process) and three empty sets, valid through the call.
    call(libc::SYS_capset, header.as_ptr().addr(), none.as_ptr().addr(), 0, 0)?;
    // Otherwise user 0 would get them back by the exec.
    call(libc::SYS_prctl, usize::try_from(libc::PR_SET_NO_NEW_PRIVS).unwrap_or(0), 1, 0, 0).map(drop)
}

/// The three into place, then everything above 2 is closed at the exec. Before Linux 5.11 there is no such call; what the parent
/// opened is close-on-exec anyway.
fn stdio(wish: &Prepared, board: &Board) -> Result<(), i32> {
    for (place, file) in wish.stdio.iter().enumerate() {
        board.index.store(place, Ordering::Release);
        call(libc::SYS_dup3, usize::try_from(file.as_raw_fd()).unwrap_or(0), place, 0, 0)?;
    }
    let cloexec = usize::try_from(libc::CLOSE_RANGE_CLOEXEC).unwrap_or(0);
    let _ = call(libc::SYS_close_range, 3, usize::try_from(u32::MAX).unwrap_or(usize::MAX), cloexec, 0);
    Ok(())
}

/// The value outlives the call; 0 is the caller itself.
fn limits(wish: &Prepared, board: &Board) -> Result<(), i32> {
    for (index, (number, value)) in wish.limits.iter().enumerate() {
        board.index.store(index, Ordering::Release);
        call(libc::SYS_prlimit64, 0, usize::try_from(*number).unwrap_or(0), std::ptr::from_ref(value).addr(), 0)?;
    }
    Ok(())
}

/// After the user: a change of user takes the wish back.
fn parent_death(wish: &Prepared, _: &Board) -> Result<(), i32> {
    let Some(signal) = wish.parent_death else { return Ok(()) };
    let option = usize::try_from(libc::PR_SET_PDEATHSIG).unwrap_or(0);
    call(libc::SYS_prctl, option, usize::try_from(signal).unwrap_or(0), 0, 0).map(drop)
}

/// Groups first: without root's rights they could no longer be set. The list outlives the call.
fn user(wish: &Prepared, _: &Board) -> Result<(), i32> {
    let Some(user) = &wish.user else { return Ok(()) };
    let (uid, gid) = (usize::try_from(user.uid).unwrap_or(usize::MAX), usize::try_from(user.gid).unwrap_or(usize::MAX));
    call(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr().addr(), 0, 0)?;
    call(libc::SYS_setresgid, gid, gid, gid, 0)?;
    call(libc::SYS_setresuid, uid, uid, uid, 0).map(drop)
}

fn chdir(wish: &Prepared, _: &Board) -> Result<(), i32> {
    call(libc::SYS_chdir, wish.cwd.as_ptr().addr(), 0, 0, 0).map(drop)
}

/// Texts and lists end in NUL and null, and outlive the call. Returns only on failure: with the most telling answer of all places tried.
fn exec(wish: &Prepared, _: &Board) -> Result<(), i32> {
    set_mask(0);
    let mut answer = libc::ENOENT;
    for program in &wish.programs {
        match call(libc::SYS_execve, program.as_ptr().addr(), wish.argv.as_ptr().addr(), wish.env.as_ptr().addr(), 0) {
            Ok(_) => return Ok(()),
            Err(libc::ENOENT | libc::ENOTDIR) => {}
            // Go on as the shell does, but remember that there was something.
            Err(libc::EACCES) => answer = libc::EACCES,
            Err(errno) => return Err(errno),
        }
    }
    Err(answer)
}
