//! The records a container's shim and the node agent exchange by files.
//!
//! *Architecture Invariant*: no dependencies, no runtime, no unsafe code in the library half. The program half is `main.rs`.

#![forbid(unsafe_code)]

pub mod birth;
pub mod record;

pub use record::{Answer, BadRecord, ExitRecord, How, Identity, Privileges, Rlimit, Spec, User, UserNamespace};
