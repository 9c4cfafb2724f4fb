//! A child that is born in its cgroup: `clone3` with `CLONE_INTO_CGROUP` (Linux 5.7).
//!
//! To move a process into a group of cgroup v2 the kernel first waits until no thread of the machine is between two groups, which takes
//! it the grace period of a read-copy-update: ten milliseconds where there is more than one processor. Who is born there is never moved. Owned by one call of
//! `spawn`; keeps no state.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file of a group that moves a whole process.
const PROCS: &str = "cgroup.procs";
/// `CLONE_INTO_CGROUP` of the kernel's header, where libc has it for some targets only.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A group to be born in.
#[derive(Debug)]
pub(crate) struct Cradle {
    /// Which of the wish's `procs_files` it stands for.
    pub(crate) index: usize,
    /// Its directory.
    dir: File,
}

/// The first group of cgroup v2 among those to be joined. `None` also when it cannot be looked at: to write into it then says why.
pub(crate) fn cradle(procs_files: &[PathBuf]) -> Option<Cradle> {
    procs_files.iter().enumerate().find_map(|(index, path)| {
        let is_procs = path.file_name().is_some_and(|name| name == PROCS);
        let dir = is_procs.then(|| path.parent().and_then(of_cgroup2))??;
        Some(Cradle { index, dir })
    })
}

fn of_cgroup2(dir: &Path) -> Option<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let dir = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(dir).ok()?;
    let kind = rustix::fs::fstatfs(&dir).ok()?.f_type;
    (kind == libc::CGROUP2_SUPER_MAGIC).then_some(dir)
}

/// What a refusal of `clone3` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// To start outside and to move is worth a try: it may be allowed, or says better why not.
    Here,
    /// The group takes nobody, however they come.
    Group,
}

impl Refusal {
    pub(crate) fn of(errno: i32) -> Refusal {
        match errno {
            // Its processes live below it, it is threaded, or it is gone.
            libc::EBUSY | libc::EOPNOTSUPP | libc::ENODEV | libc::ENOENT => Refusal::Group,
            // ENOSYS, EINVAL, E2BIG: older than the call, than its flag, than the size of its arguments. EPERM, EACCES: a filter forbids it.
            // EAGAIN: the group is full, but takes one that moves. Whatever else it is, a plain start says the same.
            _ => Refusal::Here,
        }
    }
}

/// `clone_args` of the kernel, as of the first release that knows `cgroup`.
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

/// What the child does; it never returns.
pub(crate) type Life = unsafe extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// As `libc::clone` with `flags` (without the signal), but the child begins its life in the group. Its number, or an errno.
///
/// # Safety
/// As of `libc::clone`: with `CLONE_VM` the stack and `errand` must outlive the child's use of them, `life` must not return, and it must do
/// nothing that the calling thread's borrowed state cannot bear.
pub(crate) unsafe fn clone_into(
    cradle: &Cradle,
    flags: libc::c_int,
    stack: &mut [u128],
    life: Life,
    errand: *mut libc::c_void,
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
        cgroup: number(cradle.dir.as_raw_fd())?,
        ..CloneArgs::default()
    };
    // SAFETY: the arguments live through the call; what they point to is the caller's promise.
    let answer = unsafe { clone3(&args, life, errand) };
    match libc::pid_t::try_from(answer) {
        Ok(pid) if pid > 0 => Ok(pid),
        Ok(errno) => Err(errno.saturating_neg()),
        Err(_) => Err(libc::EINVAL),
    }
}

/// The call, and in the child `life(errand)` on the stack of `args`. Returns in the parent only: the child's number, or a negative errno.
///
/// By hand, because the child comes back from the kernel on an empty stack: there is no way back into a function of libc.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: &CloneArgs, life: Life, errand: *mut libc::c_void) -> libc::c_long {
    let answer;
    // SAFETY: the kernel changes rax, rcx and r11 and keeps all other registers, in the child too. The end of the stack is aligned to
    // 16, as a call asks for. The parent's stack is not touched.
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
            in("r9") errand,
            out("rcx") _,
            out("r11") _,
        );
    }
    answer
}

/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(args: &CloneArgs, life: Life, errand: *mut libc::c_void) -> libc::c_long {
    let answer;
    // SAFETY: the kernel changes x0 and keeps all other registers, in the child too. The end of the stack is aligned to 16. The parent's
    // stack is not touched.
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
            in("x3") errand,
            in("x8") libc::SYS_clone3,
        );
    }
    answer
}

/// Other processors start outside and move.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: &CloneArgs, _: Life, _: *mut libc::c_void) -> libc::c_long {
    -libc::c_long::from(libc::ENOSYS)
}
