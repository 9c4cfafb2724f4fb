//! Resource limits of a child (`setrlimit`).

/// Which quantity a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open files; a count.
    OpenFiles,
    /// Size of a core dump. Bytes.
    Core,
    /// Stack of the main thread. Bytes.
    Stack,
    /// Processes of the user; a count.
    Processes,
    /// Locked memory. Bytes.
    LockedMemory,
    /// Largest file it may write. Bytes.
    FileSize,
}

/// One limit, for the program itself (`soft`) and for what it may raise it to (`hard`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// Of what.
    pub limit: Limit,
    /// In force.
    pub soft: u64,
    /// The ceiling.
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
