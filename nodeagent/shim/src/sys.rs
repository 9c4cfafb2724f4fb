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
use std::time::Duration;

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

/// Ignores a signal.
pub(crate) fn ignore(signal: libc::c_int) {
    // SAFETY: SIG_IGN installs no handler function.
    unsafe {
        libc::signal(signal, libc::SIG_IGN);
    }
}

/// Resets all signals to their default action and unblocks them, for the program that is executed
/// next. SIGKILL and SIGSTOP cannot be changed.
pub(crate) fn reset_signals() {
    // The kernel's sigaction: handler, flags, restorer, mask. All zero is the default action.
    // libc's `signal` is not usable: it refuses the two signals that libc itself uses, and
    // `posix_spawn` leaves those two ignored in each program that it starts, including this one.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // SAFETY: `default` is as long as the kernel reads; the old action is not requested; 8 is
        // the size of the kernel's mask.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                8,
            );
        }
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `none` is filled by sigemptyset before it is read; the old mask is not requested.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
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

/// Creates a pipe whose ends close at exec. Returns the reading end and the writing end.
pub(crate) fn pipe() -> Result<(File, File), i32> {
    let mut ends: [libc::c_int; 2] = [-1; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both descriptors are new, and no other value owns them.
    let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((read.into(), write.into()))
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

/// Like [`fork`], but the child starts in a group of cgroup v2 (clone-into-cgroup, Linux 5.7).
/// Returns `None` if `dir` is not a directory of cgroup v2.
pub(crate) fn fork_into(dir: &Path) -> Option<Result<Option<libc::pid_t>, i32>> {
    /// `CLONE_INTO_CGROUP`. libc does not define it for every target.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let dir = open_dir(dir).ok()?;
    let mut kind = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `dir` is open, and `kind` has the size of the result.
    check(unsafe { libc::fstatfs(dir.as_raw_fd(), kind.as_mut_ptr()) }).ok()?;
    // SAFETY: the call succeeded, so it has filled `kind`.
    if unsafe { kind.assume_init() }.f_type != libc::CGROUP2_SUPER_MAGIC {
        return None;
    }
    // The kernel's `clone_args`: field 0 holds the flags, field 4 the exit signal, field 10 the
    // cgroup. No stack is set: the child uses a copy of this one.
    let mut args = [0u64; 11];
    args[0] = INTO_CGROUP;
    args[4] = u64::try_from(libc::SIGCHLD).unwrap_or_default();
    args[10] = u64::try_from(dir.as_raw_fd()).unwrap_or_default();
    // SAFETY: `args` has the length that is passed. Memory is copied, as by a fork. This program
    // has one thread and no fork handlers, so the child can continue safely. libc's cached thread
    // id is stale in the child and is not read before the exec.
    let answer = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) };
    Some(match libc::pid_t::try_from(answer) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Some(pid)),
        Ok(_) | Err(_) => Err(last_errno()),
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
    // SAFETY: the buffer has the length that is passed. Its content is not used: waitpid below
    // finds the children.
    unsafe { libc::read(ended.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
    // SAFETY: takes no memory; WNOHANG returns at once.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } > 0 {}
}

/// Opens a pidfd of a child.
pub(crate) fn pidfd(pid: libc::pid_t) -> Result<OwnedFd, i32> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match libc::c_int::try_from(fd) {
        // SAFETY: the descriptor is new, and no other value owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Ok(_) | Err(_) => Err(last_errno()),
    }
}

/// Maximum number of descriptors in one packet.
const PASSED: usize = 2;
/// Size of the control buffer that holds them in the kernel's layout. Bytes.
const CONTROL: usize = 64;

/// Control buffer with the alignment of a `cmsghdr`.
#[repr(C, align(8))]
struct AncillaryBuffer([u8; CONTROL]);

fn message(text: &mut libc::iovec, control: &mut AncillaryBuffer, used: usize) -> libc::msghdr {
    // SAFETY: a zeroed msghdr refers to no memory.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = text;
    message.msg_iovlen = 1;
    if used > 0 {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = used;
    }
    message
}

/// Sends a packet to `to`, with a descriptor if one is given.
pub(crate) fn send_to(to: &File, packet: &[u8], file: Option<&OwnedFd>) -> Result<(), i32> {
    send(to.as_raw_fd(), packet, file)
}

/// Like [`send_to`], with a raw descriptor.
pub(crate) fn send(to: libc::c_int, packet: &[u8], file: Option<&OwnedFd>) -> Result<(), i32> {
    let mut text = libc::iovec {
        iov_base: packet.as_ptr().cast_mut().cast(),
        iov_len: packet.len(),
    };
    let mut control = AncillaryBuffer([0; CONTROL]);
    // SAFETY: CMSG_SPACE computes a number only. One descriptor with its header fits into
    // `control`.
    let one = usize::try_from(unsafe { libc::CMSG_SPACE(4) }).unwrap_or(0);
    let message = message(
        &mut text,
        &mut control,
        if file.is_some() { one } else { 0 },
    );
    if let Some(file) = file {
        // SAFETY: `control` holds one header and one descriptor, is zeroed and aligned; CMSG_DATA
        // points into it.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(4).try_into().unwrap_or_default();
            libc::CMSG_DATA(head)
                .cast::<libc::c_int>()
                .write_unaligned(file.as_raw_fd());
        }
    }
    // SAFETY: the message refers to live memory only; the kernel reads it and writes nothing.
    let sent = unsafe { libc::sendmsg(to, &message, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Receives a packet with its descriptors. Length 0 means end of file.
pub(crate) fn receive(from: libc::c_int, room: &mut [u8]) -> Result<(usize, Vec<File>), i32> {
    let mut text = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    let mut control = AncillaryBuffer([0; CONTROL]);
    let mut message = message(&mut text, &mut control, CONTROL);
    let length = loop {
        // SAFETY: the message refers to live memory of the stated lengths.
        let length = unsafe { libc::recvmsg(from, &mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(length) {
            Ok(length) => break length,
            Err(_) if last_errno() == libc::EINTR => {}
            Err(_) => return Err(last_errno()),
        }
    };
    let mut files = Vec::with_capacity(PASSED);
    // SAFETY: the kernel has filled the control buffer and set its length; the macros stay within
    // it.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !head.is_null() {
        // SAFETY: `head` is a header within the control buffer. Its length gives the number of
        // descriptors that follow; they are new, and no other value owns them.
        unsafe {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let empty = usize::try_from(libc::CMSG_LEN(0)).unwrap_or(0);
                let length = (*head).cmsg_len as usize;
                let data = libc::CMSG_DATA(head).cast::<libc::c_int>();
                for n in 0..length.saturating_sub(empty) / size_of::<libc::c_int>() {
                    files.push(File::from(OwnedFd::from_raw_fd(
                        data.add(n).read_unaligned(),
                    )));
                }
            }
            head = libc::CMSG_NXTHDR(&message, head);
        }
    }
    Ok((length, files))
}

/// Makes process lists show this process as `container-shim DIR`, if that fits into the memory of
/// its original arguments.
pub(crate) fn rename_process(dir: &Path) {
    let Ok(stat) = std::fs::read("/proc/self/stat") else {
        return;
    };
    let stat = String::from_utf8_lossy(&stat);
    // Fields 48 and 49 are the start and end address of the arguments.
    let mut fields = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.split(' ').skip(45))
        .into_iter()
        .flatten();
    let mut address = || {
        fields
            .next()
            .and_then(|field| field.trim().parse::<usize>().ok())
    };
    let (Some(start), Some(end)) = (address(), address()) else {
        return;
    };
    let text = [b"container-shim\0", dir.as_os_str().as_bytes()].concat();
    let room = end.saturating_sub(start);
    // The last byte stays zero.
    if start == 0 || text.len() >= room {
        return;
    }
    // SAFETY: per the kernel, the argument texts are at this address, `room` bytes of this
    // process's stack. They are writable and no longer read: `main` copied the arguments at the
    // start. `text` is shorter.
    unsafe {
        let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
        place.write_bytes(0, room);
        place.copy_from_nonoverlapping(text.as_ptr(), text.len());
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
    let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: no descriptors are given.
    unsafe {
        libc::poll(std::ptr::null_mut(), 0, milliseconds);
    }
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
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
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

/// Executes the program. Returns only on failure, with an errno. Both lists end in null.
pub(crate) fn exec(
    program: &CStr,
    argv: &[*const libc::c_char],
    env: &[*const libc::c_char],
) -> i32 {
    debug_assert!(
        argv.last().is_some_and(|p| p.is_null()) && env.last().is_some_and(|p| p.is_null())
    );
    // SAFETY: the lists end in null and their texts, held by the caller, in NUL.
    unsafe {
        libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr());
    }
    last_errno()
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
