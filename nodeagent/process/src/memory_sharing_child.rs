//! Children that share the memory of this process until they execute a program (`CLONE_VM` and
//! `CLONE_VFORK`). No page table is copied, and no page afterwards.
//!
//! One call owns a child. The kernel stops the calling thread until the child has executed another
//! program or ended. The data that the child reads therefore stays valid, and the parent sees its
//! writes afterwards.
//!
//! Shared memory has three consequences that the kernel handles:
//!
//! - The out-of-memory killer skips the child (`in_vfork`) while it is in the group and not yet the
//!   program. The parent is therefore never killed for sharing the victim's memory.
//! - `oom_score_adj` changes for the child only.
//! - Page faults count for the parent.
//!
//! This module handles one more: a change of user makes the *shared* memory undumpable, and
//! [`clone_child`] reverts that.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};

use crate::clone_into_cgroup::{ChildMain, CloneTarget, clone_into};

/// Bytes in the kernel's signal mask.
const MASK_SIZE: usize = 8;
/// The largest signal number; the smallest is 1.
const LAST_SIGNAL: libc::c_int = 64;
/// All signals, as the kernel's mask (libc's functions exclude the signals that it uses itself).
const ALL_SIGNALS: u64 = u64::MAX;

/// Clones a child that runs `main(argument)` on `stack`, with all signals blocked.
/// Returns its pid and pidfd after it has executed a program or ended; or the errno of the clone.
/// The child starts in the group of `target`, or in that of this process.
///
/// # Safety
///
/// `main` never returns, and needs no more than the stack. It shares all memory with this process:
/// it leaves data that other threads of this process use alone, such as the allocator's if there are
/// any, and keeps data valid that the caller uses later. `argument` is valid for `main`.
pub unsafe fn clone_child(
    target: Option<&CloneTarget>,
    stack: &mut [MaybeUninit<u128>],
    main: ChildMain,
    argument: *mut libc::c_void,
) -> Result<(libc::pid_t, OwnedFd), i32> {
    let mut pidfd: libc::c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    let dumpable = dumpable();
    let saved = set_mask(ALL_SIGNALS);
    // SAFETY: u128 has the alignment that the ABI requires for a stack, whose end is one past its last
    // byte. It outlives the child's
    // use of it, because CLONE_VFORK stops this thread until the child has left our memory. The
    // caller guarantees the rest. All signals are blocked, so no handler of the parent runs in the
    // child. CLONE_PIDFD writes to `pidfd`.
    let made = unsafe {
        match target {
            Some(target) => clone_into(target, flags, stack, main, argument, &mut pidfd),
            None => {
                let top = stack.as_mut_ptr().add(stack.len());
                match libc::clone(
                    main,
                    top.cast(),
                    flags | libc::SIGCHLD,
                    argument,
                    &mut pidfd,
                ) {
                    pid if pid > 0 => Ok(pid),
                    _ => Err(std::io::Error::last_os_error()
                        .raw_os_error()
                        .unwrap_or(libc::EAGAIN)),
                }
            }
        }
    };
    set_mask(saved);
    set_dumpable(dumpable);
    let pid = made?;
    // SAFETY: the clone succeeded, so the kernel has stored a new descriptor without another owner.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Sets this thread's signal mask and returns the previous one.
pub fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both masks have the given size and live through the call. The mask belongs to the
    // calling thread only.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            MASK_SIZE,
        );
    }
    before
}

/// Resets all signals to their default actions, for the program that is executed next. `execve` resets
/// handlers, but keeps ignored signals ignored. Only makes system calls.
///
/// libc's `signal` is not usable: it refuses the two signals that libc itself uses, and `posix_spawn`
/// leaves those two ignored in each program that it starts.
pub fn reset_signals() {
    // The kernel's sigaction: handler, flags, restorer, mask. All zero is the default action.
    let default = [0u64; 4];
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: `default` is as long as the kernel reads, and the old action is not requested.
        // SIGKILL and SIGSTOP return EINVAL, which is ignored.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                MASK_SIZE,
            );
        }
    }
}

/// 1 for a process that may dump core and whose `/proc` files belong to its user.
fn dumpable() -> libc::c_int {
    // SAFETY: takes and returns numbers only.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }
}

fn set_dumpable(value: libc::c_int) {
    // SAFETY: takes a number only; prctl rejects an invalid value without effect.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, value);
    }
}
