//! Which system calls this kernel has. Asked in a way that does nothing.

use rustix::io::Errno;

/// A system call that is worth knowing about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Processes by descriptor (Linux 5.3).
    PidfdOpen,
    /// Opening below a directory and not beyond (Linux 5.6).
    Openat2,
    /// Starting a process with more said of it (Linux 5.3), such as the cgroup it is born in (5.7).
    Clone3,
}

/// Whether the kernel has it, and no filter of this process forbids it.
pub fn has(call: Call) -> bool {
    let number = match call {
        Call::PidfdOpen => libc::SYS_pidfd_open,
        Call::Openat2 => libc::SYS_openat2,
        Call::Clone3 => libc::SYS_clone3,
    };
    let answer = match call {
        // SAFETY: there is no process -1; the call refuses it and touches no memory.
        Call::PidfdOpen => unsafe { libc::syscall(number, -1, 0) },
        // SAFETY: a structure of size 0 is below the least size, so it is refused before the null pointer is followed.
        Call::Openat2 => unsafe { libc::syscall(number, -1, std::ptr::null::<u8>(), std::ptr::null::<u8>(), 0) },
        // SAFETY: a structure of size 0 is below the least size, so it is refused before the null pointer is followed.
        Call::Clone3 => unsafe { libc::syscall(number, std::ptr::null::<u8>(), 0) },
    };
    let refused = std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error);
    answer < 0 && refused != Some(Errno::NOSYS) && refused != Some(Errno::PERM)
}

/// Whether the kernel believes its clock to be set by a source of time. `None` when it may not be asked.
pub fn clock_is_set() -> Option<bool> {
    let mut state = std::mem::MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: `timex` is plain numbers, for which zeroes are valid; with `modes` 0 the call reads the clock's state and changes nothing.
    let answer = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    if answer < 0 {
        return None;
    }
    // SAFETY: it was zeroed, so it is initialised whatever the kernel wrote.
    let state = unsafe { state.assume_init() };
    Some(state.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_runs_this_has_pidfds() {
        assert!(has(Call::PidfdOpen), "this crate cannot watch a child without");
        // The answer is the kernel's; that it comes twice alike, and starts nothing, is ours.
        for call in [Call::Openat2, Call::Clone3] {
            assert_eq!(has(call), has(call));
        }
    }
}
