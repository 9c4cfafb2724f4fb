//! Exit codes for programs that cannot be executed: pure.

use headroom_node_exec::{SpawnError, SpawnStep};

/// The exit code of a shell for the same error: 127 for a missing program, 126 for a program that
/// cannot be executed. `None` for other errors.
pub(crate) fn exec_failure_code(error: &SpawnError) -> Option<i32> {
    const ENOENT: i32 = 2;
    const ENOEXEC: i32 = 8;
    const EACCES: i32 = 13;
    const ENOTDIR: i32 = 20;
    if error.step != SpawnStep::Exec {
        return None;
    }
    match error.source.raw_os_error()? {
        ENOENT | ENOTDIR => Some(127),
        EACCES | ENOEXEC => Some(126),
        _ => None,
    }
}
