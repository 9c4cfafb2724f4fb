//! Clone into cgroup: `clone3` with `CLONE_INTO_CGROUP` (Linux 5.7).
//!
//! A move of a process between groups of cgroup v2 waits for an RCU grace period: ten milliseconds
//! on machines with more than one processor. A process that is cloned into its group needs no move.
//! One start of a program owns this; it keeps no state.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file of a group that moves a whole process.
const PROCS: &str = "cgroup.procs";
/// `CLONE_INTO_CGROUP` of the kernel's header, which libc defines for some targets only.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The target group of a clone.
#[derive(Debug)]
pub struct CloneTarget {
    /// Its index in the command's `procs_files`.
    pub index: usize,
    /// Its directory.
    dir: File,
}

/// The first cgroup v2 group in `procs_files`. `None` also when it cannot be opened; the later
/// write reports the reason.
pub fn find_clone_target(procs_files: &[PathBuf]) -> Option<CloneTarget> {
    procs_files.iter().enumerate().find_map(|(index, path)| {
        let is_procs = path.file_name().is_some_and(|name| name == PROCS);
        let dir = is_procs.then(|| path.parent().and_then(of_cgroup2))??;
        Some(CloneTarget { index, dir })
    })
}

fn of_cgroup2(dir: &Path) -> Option<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let dir = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(dir)
        .ok()?;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `dir` is open, and `found` has the size of the result.
    let failed = unsafe { libc::fstatfs(dir.as_raw_fd(), found.as_mut_ptr()) } != 0;
    // SAFETY: it was zeroed, which is a valid statfs, and then filled by the kernel.
    let kind = unsafe { found.assume_init() }.f_type;
    (!failed && kind == libc::CGROUP2_SUPER_MAGIC).then_some(dir)
}

/// The meaning of an error of `clone3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneRefusal {
    /// Starting outside and moving may succeed, or gives a better error.
    Here,
    /// The group accepts no process at all.
    Group,
}

impl CloneRefusal {
    /// The meaning of an errno.
    pub fn of(errno: i32) -> CloneRefusal {
        match errno {
            // The group has child groups with processes, is threaded, or is gone.
            libc::EBUSY | libc::EOPNOTSUPP | libc::ENODEV | libc::ENOENT => CloneRefusal::Group,
            // ENOSYS, EINVAL, E2BIG: the kernel lacks the call, the flag or this size of the
            // arguments. EPERM, EACCES: a filter forbids it. EAGAIN: the group is full, but accepts
            // moved processes. For any other error a plain clone gives the same one.
            _ => CloneRefusal::Here,
        }
    }
}

/// `clone_args` of the first kernel that knows `cgroup`.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The main function of the child; it never returns.
pub type ChildMain = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// Like `libc::clone` with `flags` (without the signal), but the child starts in the group. Returns
/// its pid or an errno.
///
/// # Safety As for `libc::clone`. With `CLONE_VM` the stack and `argument` must outlive the child's
/// use of them. `life` must not return, and it must not damage the shared state of the calling
/// thread.
pub(crate) unsafe fn clone_into(
    clone_target: &CloneTarget,
    flags: libc::c_int,
    stack: &mut [MaybeUninit<u128>],
    life: ChildMain,
    argument: *mut libc::c_void,
    pidfd: &mut libc::c_int,
) -> Result<libc::pid_t, i32> {
    let number = |n: libc::c_int| u64::try_from(n).map_err(|_| libc::EINVAL);
    let address = |a: usize| u64::try_from(a).map_err(|_| libc::EINVAL);
    let args = CloneArgs {
        flags: number(flags)? | CLONE_INTO_CGROUP,
        pidfd: address(std::ptr::from_mut(pidfd).expose_provenance())?,
        exit_signal: number(libc::SIGCHLD)?,
        stack: address(stack.as_mut_ptr().expose_provenance())?,
        stack_size: address(size_of_val(stack))?,
        cgroup: number(clone_target.dir.as_raw_fd())?,
        ..CloneArgs::default()
    };
    // SAFETY: the arguments live through the call; the caller guarantees the memory behind them.
    let answer = unsafe { clone3(&args, life, argument) };
    match libc::pid_t::try_from(answer) {
        Ok(pid) if pid > 0 => Ok(pid),
        Ok(errno) => Err(errno.saturating_neg()),
        Err(_) => Err(libc::EINVAL),
    }
}

/// The system call; in the child it calls `life(argument)` on the stack of `args`. Returns in the
/// parent only: the pid of the child, or a negative errno.
///
/// It is assembly because the child returns from the kernel on an empty stack, so it cannot return
/// into a function of libc.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: &CloneArgs, life: ChildMain, argument: *mut libc::c_void) -> libc::c_long {
    let answer;
    // SAFETY: the kernel changes rax, rcx and r11 and keeps all other registers, also in the child.
    // The end of the stack is aligned to 16, as a call requires. The parent's stack is not touched.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r9",
            "call r8",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") std::ptr::from_ref(args),
            in("rsi") size_of::<CloneArgs>(),
            in("r8") life,
            in("r9") argument,
            out("rcx") _,
            out("r11") _,
        );
    }
    answer
}

/// The same for aarch64.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(args: &CloneArgs, life: ChildMain, argument: *mut libc::c_void) -> libc::c_long {
    let answer;
    // SAFETY: the kernel changes x0 and keeps all other registers, also in the child. The end of
    // the stack is aligned to 16. The parent's stack is not touched.
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x3",
            "blr x2",
            "brk #1",
            "2:",
            inlateout("x0") std::ptr::from_ref(args) => answer,
            in("x1") size_of::<CloneArgs>(),
            in("x2") life,
            in("x3") argument,
            in("x8") libc::SYS_clone3,
        );
    }
    answer
}

/// On other processors the child starts outside and moves.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: &CloneArgs, _: ChildMain, _: *mut libc::c_void) -> libc::c_long {
    -libc::c_long::from(libc::ENOSYS)
}
