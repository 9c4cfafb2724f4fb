//! Safe wrappers of the system calls of this program.
//!
//! The module holds no state. A function returns nothing if no caller can react to its failure.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use headroom_node_process::clone_into_cgroup::CloneTarget;
use headroom_node_process::memory_sharing_child::clone_child;

/// Writes a text to a descriptor. Write errors, such as a closed pipe, are ignored.
pub(crate) fn write_text(fd: libc::c_int, text: &str) {
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
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// The errno of an error of the standard library.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}

/// Writes a file without O_CREAT: a missing kernel file must be an error.
pub(crate) fn write_existing(path: &Path, value: &str) -> Result<(), i32> {
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut f| f.write_all(value.as_bytes()));
    written.map_err(|e| errno_of(&e))
}

fn check(answer: libc::c_int) -> Result<(), i32> {
    if answer == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Makes this process the subreaper: orphaned descendants become its children instead of those of
/// process 1.
pub(crate) fn become_subreaper() {
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
}

/// Ignores the signals of a broken pipe to an agent that is gone, of a stop of the systemd unit of this
/// process, and of the end of the agent's session: none of them may prevent an exit record.
pub(crate) fn ignore_termination() {
    for signal in [libc::SIGPIPE, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: SIG_IGN installs no handler function.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Blocks SIGTERM and SIGINT permanently. The returned function waits for one of them.
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
        // SAFETY: the set is valid; no details of the signal are requested.
        let signal = unsafe { libc::sigwaitinfo(&set, std::ptr::null_mut()) };
        if signal > 0 || last_errno() != libc::EINTR {
            return;
        }
    }
}

/// Forks this process. Returns `None` in the child.
pub(crate) fn fork() -> Result<Option<libc::pid_t>, i32> {
    // SAFETY: this program has one thread, so the child can continue safely.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(pid)),
        _ => Err(last_errno()),
    }
}

/// Runs `steps` in a child that shares this process's memory until it executes a program. Returns
/// its pid after that, or the failure of `steps`; or the errno of the clone.
///
/// A child that is killed before it executes the program has reported no failure: its end is that of
/// the program.
pub(crate) fn run_child<F>(
    target: Option<&CloneTarget>,
    steps: &mut dyn FnMut() -> F,
) -> Result<Result<libc::pid_t, F>, i32> {
    /// Debug builds need the most. Memory that was never used costs nothing.
    const STACK_BYTES: usize = 512 * 1024;
    const WORDS: usize = STACK_BYTES / size_of::<u128>();
    /// Aligned to a page, so that its pages can be given back.
    #[repr(align(4096))]
    struct ChildStack([MaybeUninit<u128>; WORDS]);
    static STACK: Mutex<ChildStack> = Mutex::new(ChildStack([MaybeUninit::uninit(); WORDS]));
    struct ChildSteps<'a, F> {
        steps: &'a mut dyn FnMut() -> F,
        failure: Option<F>,
    }
    extern "C" fn child<F>(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer is that of `context` below, which no other code uses meanwhile.
        let context: &mut ChildSteps<'_, F> = unsafe { &mut *argument.cast() };
        context.failure = Some((context.steps)());
        exit_now(127)
    }
    let mut context = ChildSteps {
        steps,
        failure: None,
    };
    let mut stack = STACK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this program has one thread, and that is stopped: the child runs like a function that
    // it calls, also in the allocator. `child` never returns. A panic aborts.
    let made = unsafe {
        let argument = (&raw mut context).cast();
        clone_child(target, &mut stack.0, child::<F>, argument)
    };
    // This process stays as long as the container. A refusal only costs memory.
    // SAFETY: no process uses the stack any more, and its content has no meaning.
    unsafe {
        libc::madvise(
            stack.0.as_mut_ptr().cast(),
            STACK_BYTES,
            libc::MADV_DONTNEED,
        );
    }
    let (pid, _) = made?;
    Ok(match context.failure {
        None => Ok(pid),
        Some(failure) => {
            while wait().is_some_and(|end| end.pid != pid) {}
            Err(failure)
        }
    })
}

/// Creates a descriptor that is readable after a child has ended.
pub(crate) fn ended_children() -> Result<OwnedFd, i32> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is filled by sigemptyset before it is used; -1 requests a new descriptor, which
    // no other value owns.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor is new, see above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An event that a launcher waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LauncherEvent {
    /// A packet on descriptor 0, or its end of file.
    Packet,
    /// A child has ended.
    Ended,
}

/// Waits for an event. Packets take precedence, so that an ended child never delays a start.
pub(crate) fn await_packet(ended: &OwnedFd) -> LauncherEvent {
    let of = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [of(0), of(ended.as_raw_fd())];
    loop {
        // SAFETY: two valid entries that outlive the call; -1 means no timeout.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        let [packet, child] = &fds;
        match (
            ready > 0 && packet.revents != 0,
            ready > 0 && child.revents != 0,
        ) {
            (true, _) => return LauncherEvent::Packet,
            (false, true) => return LauncherEvent::Ended,
            (false, false) => {}
        }
    }
}

/// Reaps all children that have ended.
pub(crate) fn reap_all(ended: &OwnedFd) {
    let mut room = [0u8; 512];
    // SAFETY: the buffer has the length that is passed. Its content is not used.
    unsafe { libc::read(ended.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
    has_children();
}

/// Reaps the children that have ended. Returns whether others remain.
pub(crate) fn has_children() -> bool {
    loop {
        // SAFETY: takes no memory; WNOHANG returns at once.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } {
            0 => return true,
            pid if pid > 0 => {}
            _ => return last_errno() != libc::ECHILD,
        }
    }
}

/// Waits until a packet or the end of file can be read from `socket`, up to a time or a signal.
pub(crate) fn await_input(socket: &OwnedFd, most: Duration) {
    let mut asked = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the one entry is valid through the call.
    unsafe {
        libc::poll(&raw mut asked, 1, milliseconds(most));
    }
}

/// Makes the sends of the other end fail. Packets that were sent before can still be received.
pub(crate) fn refuse_input(socket: &OwnedFd) {
    // SAFETY: takes numbers only; it cannot fail for an open socket.
    unsafe {
        libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD);
    }
}

/// The pid of this process.
pub(crate) fn own_pid() -> libc::pid_t {
    // SAFETY: no arguments; it cannot fail.
    unsafe { libc::getpid() }
}

/// Opens a pidfd of this process or of a child.
pub(crate) fn pidfd(pid: libc::pid_t) -> Result<OwnedFd, i32> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match libc::c_int::try_from(fd) {
        // SAFETY: the descriptor is new, and no other value owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Ok(_) | Err(_) => Err(last_errno()),
    }
}

/// The memory that the kernel shows as the arguments of this process. Its children inherit it.
#[derive(Clone, Copy)]
pub(crate) struct ArgumentMemory {
    start: usize,
    bytes: usize,
}

impl ArgumentMemory {
    /// That of this process. `None` if it is unknown.
    pub(crate) fn own() -> Option<ArgumentMemory> {
        let stat = std::fs::read("/proc/self/stat").ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // Fields 48 and 49 are the start and end address of the arguments.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(45);
        let mut address = || fields.next()?.trim().parse::<usize>().ok();
        let (start, end) = (address().filter(|start| *start > 0)?, address()?);
        let bytes = end.saturating_sub(start);
        Some(ArgumentMemory { start, bytes })
    }

    /// Makes process lists show this process as `container-shim DIR`, if that fits.
    pub(crate) fn show(self, dir: &Path) {
        let text = [b"container-shim\0", dir.as_os_str().as_bytes()].concat();
        // The last byte stays zero.
        if text.len() >= self.bytes {
            return;
        }
        // SAFETY: per the kernel, the argument texts are at this address, `bytes` bytes of this
        // process's stack. They are writable and no longer read: `main` copied the arguments at the
        // start. `text` is shorter.
        unsafe {
            let place = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
            place.write_bytes(0, self.bytes);
            place.copy_from_nonoverlapping(text.as_ptr(), text.len());
        }
    }
}

/// Starts a new session.
pub(crate) fn new_session() -> Result<(), i32> {
    // SAFETY: no arguments.
    if unsafe { libc::setsid() } < 0 {
        Err(last_errno())
    } else {
        Ok(())
    }
}

/// Makes descriptor `place` a copy of `file`.
pub(crate) fn place(file: &File, place: libc::c_int) -> Result<(), i32> {
    // SAFETY: `file` is open. The file at `place` is replaced on purpose.
    if unsafe { libc::dup2(file.as_raw_fd(), place) } < 0 {
        Err(last_errno())
    } else {
        Ok(())
    }
}

/// Marks all descriptors above 2 to close at exec. A kernel without the call (before 5.11) is no
/// problem: the files of this program are marked anyway.
pub(crate) fn close_rest_at_exec() {
    // SAFETY: takes numbers only, and only sets flags.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

/// Sets a resource limit, by the kernel's number.
pub(crate) fn set_limit(resource: u32, soft: u64, hard: u64) -> Result<(), i32> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: the limit is valid through the call.
    check(unsafe { libc::setrlimit(resource, &limit) })
}

/// Changes user and groups. The groups come first: setting them needs root's privileges.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<(), i32> {
    // SAFETY: pointer and length are those of a live slice.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::setresuid(uid, uid, uid) })
}

/// Opens a directory for [`open_in`].
pub(crate) fn open_dir(dir: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(flags).open(dir)
}

/// Opens a file of a directory for reading. The kernel does not search the path of the directory
/// again.
pub(crate) fn open_in(dir: &File, name: &CStr) -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: `dir` is open, and `name` is valid through the call.
    let opened = unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this descriptor is open and has no other owner.
    Ok(unsafe { File::from_raw_fd(opened) })
}

/// Lets all other processes run before this one. A refusal only costs them time.
///
/// A process that wakes up preempts one of this policy at once. With the lowest nice value of the usual
/// policy, this process would keep the processor to the end of its time slice.
pub(crate) fn yield_to_others() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are valid through the call; 0 is this process.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters);
    }
}

/// Whether the other end of a socket is closed.
pub(crate) fn has_lost_peer(socket: i32) -> bool {
    let mut asked = libc::pollfd {
        fd: socket,
        events: 0,
        revents: 0,
    };
    // SAFETY: the one entry is valid through the call, which does not wait.
    let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
    found > 0 && asked.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// Does nothing for a time, or until a signal.
pub(crate) fn sleep(time: Duration) {
    // SAFETY: no descriptors are given.
    unsafe {
        libc::poll(std::ptr::null_mut(), 0, milliseconds(time));
    }
}

fn milliseconds(time: Duration) -> libc::c_int {
    libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX)
}

/// Sets the mode bits that new files do not get.
pub(crate) fn set_umask(mask: u32) {
    // SAFETY: takes a number only, and never fails.
    unsafe {
        libc::umask(mask & 0o777);
    }
}

/// Empties the capability bounding set except `kept`, so that no executed program gains another
/// capability. Without CAP_SETPCAP the set stays unchanged; `no_new_privs` then keeps its
/// capabilities out of reach.
pub(crate) fn empty_bounding_set(kept: &[u32]) {
    for capability in (0..=63).filter(|capability| !kept.contains(capability)) {
        // SAFETY: takes numbers only; the kernel refuses an unknown capability.
        let of_set = |call| unsafe { libc::prctl(call, capability, 0, 0, 0) };
        // The read costs a fraction of a drop, and a shim of the launcher has nothing left to drop.
        let is_held = of_set(libc::PR_CAPBSET_READ);
        if is_held < 0 || is_held > 0 && of_set(libc::PR_CAPBSET_DROP) != 0 {
            return;
        }
    }
}

/// The capability to mount and to create namespaces.
pub(crate) const CAP_SYS_ADMIN: u32 = 21;

/// Drops all capabilities except `kept`, including inheritable and ambient ones.
pub(crate) fn drop_capabilities(kept: &[u32]) -> Result<(), i32> {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words per set.
    const VERSION: u32 = 0x2008_0522;
    let low = kept
        .iter()
        .filter(|capability| **capability < 32)
        .fold(0, |set, capability| set | 1u32 << capability);
    // Effective, permitted, inheritable; then the upper words of the three.
    let (header, sets) = ([VERSION, 0], [low, low, 0, 0, 0, 0]);
    // SAFETY: takes numbers only. A kernel without ambient capabilities (before 4.3) has none to
    // clear.
    unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        );
    }
    // SAFETY: header (version, own process) and three sets of two words, the layout of version 3;
    // both outlive the call.
    let answer = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    if answer == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Sets `no_new_privs`: executed programs gain no privileges from their files.
pub(crate) fn no_new_privileges() -> Result<(), i32> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

/// Creates new namespaces, by `CLONE_*` flags.
pub(crate) fn unshare(flags: libc::c_int) -> Result<(), i32> {
    // SAFETY: takes a number only.
    check(unsafe { libc::unshare(flags) })
}

/// Returns the effective user and group.
pub(crate) fn own_ids() -> (u32, u32) {
    // SAFETY: no arguments; neither can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Makes mount propagation one-way: mounts in this namespace do not reach the host, later mounts of
/// the host appear here.
pub(crate) fn receive_mounts_only() -> Result<(), i32> {
    let flags = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the texts end in NUL and outlive the call; the other pointers may be null for this
    // change.
    check(unsafe {
        libc::mount(
            c"none".as_ptr(),
            c"/".as_ptr(),
            std::ptr::null(),
            flags,
            std::ptr::null(),
        )
    })
}

/// Bind-mounts the directory `from` at `at`.
pub(crate) fn bind(from: &CStr, at: &CStr) -> Result<(), i32> {
    // SAFETY: the texts end in NUL and outlive the call; a bind mount has neither type nor data.
    check(unsafe {
        libc::mount(
            from.as_ptr(),
            at.as_ptr(),
            std::ptr::null(),
            libc::MS_BIND,
            std::ptr::null(),
        )
    })
}

/// Mounts a file system without a device at `at`.
pub(crate) fn mount(
    kind: &CStr,
    at: &CStr,
    flags: libc::c_ulong,
    options: &CStr,
) -> Result<(), i32> {
    // SAFETY: the texts end in NUL and outlive the call; the kernel only reads them.
    check(unsafe {
        libc::mount(
            kind.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    })
}

/// Exits without running exit handlers.
pub(crate) fn exit_now(code: libc::c_int) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}

/// The end of one child.
pub(crate) struct ReapedChild {
    pub(crate) pid: libc::pid_t,
    pub(crate) status: libc::c_int,
    pub(crate) usage: libc::rusage,
}

/// Waits for any child. Returns `None` if there is none.
pub(crate) fn wait() -> Option<ReapedChild> {
    loop {
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both are valid for writing through the call.
        let pid = unsafe { libc::wait4(-1, &mut status, libc::__WALL, usage.as_mut_ptr()) };
        if pid > 0 {
            // SAFETY: zeroed, which is a valid rusage, and then filled by the kernel.
            let usage = unsafe { usage.assume_init() };
            return Some(ReapedChild { pid, status, usage });
        }
        if last_errno() != libc::EINTR {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_closed_peer_is_noticed() {
        let (own, peer) = UnixStream::pair().expect("two sockets");
        assert!(!has_lost_peer(own.as_raw_fd()));
        drop(peer);
        assert!(has_lost_peer(own.as_raw_fd()));
    }
}
