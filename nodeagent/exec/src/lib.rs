//! System calls of the node agent and the executor: starting programs and watching processes.
//!
//! *Architecture Invariant*: only this crate, `headroom-node-process` and `container-shim` contain
//! unsafe code. It has no knowledge of cgroups, except that a child is cloned into one of them, or writes `0` into some
//! files before it executes the program.

// Unsafe code is the purpose of this crate; each block states why it is sound.
#![allow(unsafe_code)]

pub mod adoption;
mod child;
pub mod command;
pub mod error;
pub mod exec_arguments;
pub mod ipc;
pub mod limits;
mod namespace_probe;
pub mod namespaces;
pub mod pidfd;
mod prepare;
pub mod spawn;
pub mod syscalls;
pub mod user;

pub use command::SpawnCommand;
pub use error::{SpawnError, SpawnStep};
pub use exec_arguments::ExecArguments;
pub use limits::{RlimitKind, RlimitSetting};
pub use namespace_probe::probe_namespaces;
pub use namespaces::{Namespaces, Privilege, effective_capabilities};
pub use pidfd::{ChildProcess, ProcessEnd, WatchedProcess, starttime_of};
pub use spawn::spawn;
pub use user::ProcessUser;
