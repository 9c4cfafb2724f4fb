//! The records that a container's shim and the node agent exchange by files.
//!
//! *Architecture Invariant*: the library has no dependencies, no runtime and no unsafe code. The
//! program is `main.rs`.

#![forbid(unsafe_code)]

pub mod launch_step;
pub mod launcher_protocol;
pub mod record;

pub use launch_step::LaunchStep;
pub use record::{
    ExitRecord, Privileges, ProcessIdentity, ProgramEnd, ProgramSpec, ProgramUser, RecordError,
    RlimitRecord, StartResult, UserNamespace,
};

/// The group of the cgroup holder (`container-shim --keeper`), below that of all containers.
pub const KEEPER_GROUP: &str = "keeper";
