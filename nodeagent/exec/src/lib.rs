//! Starting programs and watching processes: the system calls of the node agent and the executor.
//!
//! *Architecture Invariant*: unsafe code lives here (and in `container-shim`) only. This crate knows nothing of cgroups but
//! that a child writes `0` into some files before it becomes another program.

pub mod error;
pub mod limits;
pub mod pidfd;
mod procstat;
pub mod spawn;
pub mod user;

pub use error::{SpawnError, Step};
pub use limits::{Limit, Rlimit};
pub use pidfd::{Child, Ended, Watched};
pub use spawn::{Command, spawn};
pub use user::User;
