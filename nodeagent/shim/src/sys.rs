//! Thin, safe names for the system calls of this program.
//!
//! Owned by no module; holds no state. A call that cannot fail in a way anybody could act upon returns nothing.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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

/// As [`fork`], but the child begins its life in a group of cgroup v2 (Linux 5.7). `None` when `dir` is none.
pub(crate) fn fork_into(dir: &Path) -> Option<Result<Option<libc::pid_t>, i32>> {
    /// `CLONE_INTO_CGROUP`, which libc does not have for every target.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let dir = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(dir).ok()?;
    let mut kind = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `dir` is open and there is room for the answer.
    check(unsafe { libc::fstatfs(dir.as_raw_fd(), kind.as_mut_ptr()) }).ok()?;
    // SAFETY: the call succeeded, so it has filled it.
    if unsafe { kind.assume_init() }.f_type != libc::CGROUP2_SUPER_MAGIC {
        return None;
    }
    // The kernel's `clone_args`: flags first, the signal at the end fifth, the group last. No stack: the child has a copy of ours.
    let mut args = [0u64; 11];
    args[0] = INTO_CGROUP;
    args[4] = u64::try_from(libc::SIGCHLD).unwrap_or_default();
    args[10] = u64::try_from(dir.as_raw_fd()).unwrap_or_default();
    // SAFETY: the arguments are as long as said. Memory is copied, as by a fork; this program has one thread and no handlers for a fork,
    // so the child may go on as if nothing had happened. What libc remembers of the thread's number is not asked for before the exec.
    let answer = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) };
    Some(match libc::pid_t::try_from(answer) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Some(pid)),
        Ok(_) | Err(_) => Err(last_errno()),
    })
}

/// A descriptor that is readable when a child has ended.
pub(crate) fn ended_children() -> Result<OwnedFd, i32> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is filled by sigemptyset before it is used; -1 asks for a new descriptor, which nobody else owns.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: fresh, see above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a launcher waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// A packet on descriptor 0, or its end.
    Packet,
    /// A child has ended.
    Ended,
}

/// Waits for either; packets go first, so that an end never delays a start.
pub(crate) fn await_packet(ended: &OwnedFd) -> News {
    let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [of(0), of(ended.as_raw_fd())];
    loop {
        // SAFETY: two valid entries that live through the call; -1 waits for as long as it takes.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        let [packet, child] = &fds;
        match (ready > 0 && packet.revents != 0, ready > 0 && child.revents != 0) {
            (true, _) => return News::Packet,
            (false, true) => return News::Ended,
            (false, false) => {}
        }
    }
}

/// Reaps every child that has ended.
pub(crate) fn reap_all(ended: &OwnedFd) {
    let mut room = [0u8; 512];
    // SAFETY: the buffer is as long as said. What is in it does not matter: the children are asked for below.
    unsafe { libc::read(ended.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
    // SAFETY: takes no memory; WNOHANG returns at once.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } > 0 {}
}

/// The descriptor of a child.
pub(crate) fn pidfd(pid: libc::pid_t) -> Result<OwnedFd, i32> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match libc::c_int::try_from(fd) {
        // SAFETY: fresh, and owned by nobody else.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Ok(_) | Err(_) => Err(last_errno()),
    }
}

/// Most descriptors that come with one packet.
const PASSED: usize = 2;
/// Room for them, as the kernel lays them out.
const CONTROL: usize = 64;

/// Aligned as a `cmsghdr` must be.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

fn message(text: &mut libc::iovec, control: &mut Control, used: usize) -> libc::msghdr {
    // SAFETY: a msghdr of zeros names no memory at all.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = text;
    message.msg_iovlen = 1;
    if used > 0 {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = used;
    }
    message
}

/// Sends a packet to `to`, with a descriptor if there is one.
pub(crate) fn send_to(to: &File, packet: &[u8], file: Option<&OwnedFd>) -> Result<(), i32> {
    send(to.as_raw_fd(), packet, file)
}

/// As [`send_to`], by number.
pub(crate) fn send(to: libc::c_int, packet: &[u8], file: Option<&OwnedFd>) -> Result<(), i32> {
    let mut text = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    let mut control = Control([0; CONTROL]);
    // SAFETY: the size of one descriptor with its header, which fits into `control`.
    let one = usize::try_from(unsafe { libc::CMSG_SPACE(4) }).unwrap_or(0);
    let message = message(&mut text, &mut control, if file.is_some() { one } else { 0 });
    if let Some(file) = file {
        // SAFETY: there is room for one header and one descriptor, zeroed and aligned; CMSG_DATA points into it.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(4).try_into().unwrap_or_default();
            libc::CMSG_DATA(head).cast::<libc::c_int>().write_unaligned(file.as_raw_fd());
        }
    }
    // SAFETY: the message names live memory only; the kernel reads it and writes nothing.
    let sent = unsafe { libc::sendmsg(to, &message, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Takes a packet with its descriptors; a length of 0 is the end.
pub(crate) fn receive(from: libc::c_int, room: &mut [u8]) -> Result<(usize, Vec<File>), i32> {
    let mut text = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut control = Control([0; CONTROL]);
    let mut message = message(&mut text, &mut control, CONTROL);
    let length = loop {
        // SAFETY: the message names live memory of the lengths it says.
        let length = unsafe { libc::recvmsg(from, &mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(length) {
            Ok(length) => break length,
            Err(_) if last_errno() == libc::EINTR => {}
            Err(_) => return Err(last_errno()),
        }
    };
    let mut files = Vec::with_capacity(PASSED);
    // SAFETY: the kernel has filled the control memory and said how far; the macros stay within that.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !head.is_null() {
        // SAFETY: `head` is a header within the control memory; descriptors follow it, as many as its length says, fresh and owned by nobody.
        unsafe {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let empty = usize::try_from(libc::CMSG_LEN(0)).unwrap_or(0);
                let length = (*head).cmsg_len as usize;
                let data = libc::CMSG_DATA(head).cast::<libc::c_int>();
                for n in 0..length.saturating_sub(empty) / size_of::<libc::c_int>() {
                    files.push(File::from(OwnedFd::from_raw_fd(data.add(n).read_unaligned())));
                }
            }
            head = libc::CMSG_NXTHDR(&message, head);
        }
    }
    Ok((length, files))
}

/// Lists of processes show this one as `container-shim DIR` from now on, as far as there is room in what it was started with.
pub(crate) fn rename_process(dir: &Path) {
    let Ok(stat) = std::fs::read("/proc/self/stat") else { return };
    let stat = String::from_utf8_lossy(&stat);
    // Fields 48 and 49: where the arguments begin and end.
    let mut fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').skip(45)).into_iter().flatten();
    let mut address = || fields.next().and_then(|field| field.trim().parse::<usize>().ok());
    let (Some(start), Some(end)) = (address(), address()) else { return };
    let text = [b"container-shim\0", dir.as_os_str().as_bytes()].concat();
    let room = end.saturating_sub(start);
    // The last byte stays zero.
    if start == 0 || text.len() >= room {
        return;
    }
    // SAFETY: the kernel says that the texts of the arguments are there, `room` bytes of this process's stack; they are writable, and
    // nobody reads them any more: the arguments were taken at the start. `text` is shorter.
    unsafe {
        let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
        place.write_bytes(0, room);
        place.copy_from_nonoverlapping(text.as_ptr(), text.len());
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

/// Mode bits that new files do not get.
pub(crate) fn set_umask(mask: u32) {
    // SAFETY: takes a number only, and never fails.
    unsafe {
        libc::umask(mask & 0o777);
    }
}

/// No program that is executed from here on can have a capability that this process does not have. Without the right to do so
/// (CAP_SETPCAP) the set stays; `no_new_privs` keeps what is in it out of reach.
pub(crate) fn empty_bounding_set(kept: &[u32]) {
    for capability in (0..=63).filter(|capability| !kept.contains(capability)) {
        // SAFETY: takes numbers only; one that the kernel does not know is refused.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            return;
        }
    }
}

/// The capability to mount and to make namespaces.
pub(crate) const CAP_SYS_ADMIN: u32 = 21;

/// Gives up every capability but `kept`, those that would be handed to other programs too.
pub(crate) fn drop_capabilities(kept: &[u32]) -> Result<(), i32> {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words for each set.
    const VERSION: u32 = 0x2008_0522;
    let low = kept.iter().filter(|capability| **capability < 32).fold(0, |set, capability| set | 1u32 << capability);
    // Effective, permitted, inheritable; then the upper words of the three.
    let (header, sets) = ([VERSION, 0], [low, low, 0, 0, 0, 0]);
    // SAFETY: takes numbers only. A kernel without ambient capabilities (before 4.3) has none to clear.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    }
    // SAFETY: header (version, own process) and three sets of two words, as version 3 has them; both live through the call.
    let answer = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

/// No program it becomes gets rights from its file.
pub(crate) fn no_new_privileges() -> Result<(), i32> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

/// New namespaces, by `CLONE_*` flags.
pub(crate) fn unshare(flags: libc::c_int) -> Result<(), i32> {
    // SAFETY: takes a number only.
    check(unsafe { libc::unshare(flags) })
}

/// Effective user and group.
pub(crate) fn own_ids() -> (u32, u32) {
    // SAFETY: no arguments; neither can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Nothing that is mounted in this mount namespace reaches the host; the host's later mounts are seen.
pub(crate) fn receive_mounts_only() -> Result<(), i32> {
    let flags = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the texts end in NUL and live through the call; what is not said may be null for this change.
    check(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null()) })
}

/// The directory `from` is seen at `at` too.
pub(crate) fn bind(from: &CStr, at: &CStr) -> Result<(), i32> {
    // SAFETY: the texts end in NUL and live through the call; a bind has neither type nor data.
    check(unsafe { libc::mount(from.as_ptr(), at.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null()) })
}

/// Mounts a file system without a device at `at`.
pub(crate) fn mount(kind: &CStr, at: &CStr, flags: libc::c_ulong, options: &CStr) -> Result<(), i32> {
    // SAFETY: the texts end in NUL and live through the call; the kernel only reads them.
    check(unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) })
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
