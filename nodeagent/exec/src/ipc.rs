//! Removal of SysV objects by their ids.

use std::io;

/// The kind of a SysV object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysVIpcKind {
    /// Shared memory.
    Segment,
    /// Semaphores.
    Semaphores,
    /// Messages.
    Queue,
}

/// Removes the object. An attached segment remains until it is detached.
pub fn remove(kind: SysVIpcKind, id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID ignores the buffer, and semctl takes no fourth argument for it.
    let done = unsafe {
        match kind {
            SysVIpcKind::Segment => libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()),
            SysVIpcKind::Semaphores => libc::semctl(id, 0, libc::IPC_RMID),
            SysVIpcKind::Queue => libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()),
        }
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
