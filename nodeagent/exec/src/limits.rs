//! Resource limits of a child (`setrlimit`).

/// The quantity of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RlimitKind {
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
pub struct RlimitSetting {
    /// The quantity.
    pub limit: RlimitKind,
    /// The value in force.
    pub soft: u64,
    /// The maximum.
    pub hard: u64,
}

impl RlimitKind {
    /// The kernel's number (`RLIMIT_*`).
    pub fn kernel_number(self) -> u32 {
        match self {
            RlimitKind::OpenFiles => libc::RLIMIT_NOFILE,
            RlimitKind::Core => libc::RLIMIT_CORE,
            RlimitKind::Stack => libc::RLIMIT_STACK,
            RlimitKind::Processes => libc::RLIMIT_NPROC,
            RlimitKind::LockedMemory => libc::RLIMIT_MEMLOCK,
            RlimitKind::FileSize => libc::RLIMIT_FSIZE,
        }
    }
}
