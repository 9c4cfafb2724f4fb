//! Kernel enforcement of container limits: cgroup v2, cgroup v1 and an unprivileged fallback,
//! behind one enum.
//!
//! *Architecture Invariant*: this is the only crate that knows names of cgroup files. It starts no
//! processes and never writes above its own root (with one exception, in `detect`).
//!
//! The crate `cgroups-rs` only detects the hierarchy of the host. Its builder drops write errors,
//! so a container would start without its limit. It also enables controllers from the real root
//! downwards, and cannot read out-of-memory counters on v2. Therefore `tree` implements
//! directories, limits with read-back, counters, kill and removal.

#![forbid(unsafe_code)]

#[macro_use]
mod by_kind;
pub mod detect;
pub mod enforcer;
pub mod error;
pub mod features;
pub mod group;
mod hierarchies;
mod host;
pub mod hsperf;
pub mod inspect;
pub mod layout;
mod open_counters;
pub mod parse;
pub mod plan;
pub mod poll;
pub mod probe;
mod procs;
pub mod reads;
pub mod shares;
pub mod throttle;
pub mod tree;
pub mod unattributed;
pub mod v1;
pub mod v2;
pub mod watch;

pub use detect::{DetectedEnforcer, EnforcerRequest, detect};
pub use enforcer::Enforcer;
pub use error::CgroupError;
pub use features::{CgroupFeatures, HierarchyMode, detect_features};
pub use group::EnforcedGroup;
pub use plan::{GroupLimits, OomGroup};
pub use probe::{ReadBuffer, UsageProbe, UsageSample};
pub use watch::MemoryEventWatch;
