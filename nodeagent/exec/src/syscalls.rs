//! Detection of system calls, with calls that have no effect.

use rustix::io::Errno;

/// A system call whose availability matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCall {
    /// Opens a process by descriptor (Linux 5.3).
    PidfdOpen,
    /// Opens a path below a directory only (Linux 5.6).
    Openat2,
    /// Starts a process with extended arguments (Linux 5.3), such as its cgroup (5.7).
    Clone3,
}

/// Whether the kernel has the call and no filter of this process forbids it.
pub fn has(call: KernelCall) -> bool {
    let number = match call {
        KernelCall::PidfdOpen => libc::SYS_pidfd_open,
        KernelCall::Openat2 => libc::SYS_openat2,
        KernelCall::Clone3 => libc::SYS_clone3,
    };
    let answer = match call {
        // SAFETY: there is no process -1; the call rejects it and touches no memory.
        KernelCall::PidfdOpen => unsafe { libc::syscall(number, -1, 0) },
        // SAFETY: size 0 is below the minimum, so the call fails before it reads the null pointer.
        KernelCall::Openat2 => unsafe {
            libc::syscall(
                number,
                -1,
                std::ptr::null::<u8>(),
                std::ptr::null::<u8>(),
                0,
            )
        },
        // SAFETY: size 0 is below the minimum, so the call fails before it reads the null pointer.
        KernelCall::Clone3 => unsafe { libc::syscall(number, std::ptr::null::<u8>(), 0) },
    };
    let refused = std::io::Error::last_os_error()
        .raw_os_error()
        .map(Errno::from_raw_os_error);
    answer < 0 && refused != Some(Errno::NOSYS) && refused != Some(Errno::PERM)
}

/// Whether the kernel considers its clock synchronized. `None` when the query is not permitted.
pub fn clock_is_set() -> Option<bool> {
    let mut state = std::mem::MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: `timex` contains only numbers, for which zeroes are valid. With `modes` 0 the call
    // only reads the clock's state.
    let answer = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    if answer < 0 {
        return None;
    }
    // SAFETY: it was zeroed, so it is initialised with or without a write of the kernel.
    let state = unsafe { state.assume_init() };
    Some(state.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_offers_pidfd_open() {
        assert!(
            has(KernelCall::PidfdOpen),
            "this crate needs pidfd_open to watch a child"
        );
        // The result depends on the kernel; the test checks that it is stable.
        for call in [KernelCall::Openat2, KernelCall::Clone3] {
            assert_eq!(has(call), has(call));
        }
    }
}
