//! Resource limits of a child (`setrlimit`).

/// The quantity of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open files. A count.
    OpenFiles,
    /// Size of a core dump. In bytes.
    Core,
    /// Stack of the main thread. In bytes.
    Stack,
    /// Processes of the user. A count.
    Processes,
    /// Locked memory. In bytes.
    LockedMemory,
    /// Largest file that it can write. In bytes.
    FileSize,
}

/// One limit: the value in force (`soft`) and the maximum to which the program can raise it
/// (`hard`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// The quantity.
    pub limit: Limit,
    /// The value in force.
    pub soft: u64,
    /// The maximum.
    pub hard: u64,
}

impl Limit {
    /// The kernel's number (`RLIMIT_*`).
    pub fn kernel_number(self) -> u32 {
        match self {
            Limit::OpenFiles => libc::RLIMIT_NOFILE,
            Limit::Core => libc::RLIMIT_CORE,
            Limit::Stack => libc::RLIMIT_STACK,
            Limit::Processes => libc::RLIMIT_NPROC,
            Limit::LockedMemory => libc::RLIMIT_MEMLOCK,
            Limit::FileSize => libc::RLIMIT_FSIZE,
        }
    }
}
