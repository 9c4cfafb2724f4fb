//! Starting programs and watching processes: the system calls of the node agent and the executor.
//!
//! *Architecture Invariant*: unsafe code lives here (and in `container-shim`) only. This crate knows nothing of cgroups but
//! that a child is born in one of them, or writes `0` into some files before it becomes another program.

// Unsafe code is this crate's reason to be; each block says why it holds.
#![allow(unsafe_code)]

mod child;
pub mod error;
mod into;
pub mod ipc;
pub mod limits;
pub mod namespaces;
pub mod offers;
pub mod passing;
pub mod pidfd;
mod prepare;
pub mod procstat;
pub mod spawn;
pub mod user;

pub use error::{SpawnError, Step};
pub use limits::{Limit, Rlimit};
pub use namespaces::{Namespaces, Privilege};
pub use pidfd::{Child, Ended, Watched, starttime_of};
pub use spawn::{Command, spawn};
pub use user::User;
