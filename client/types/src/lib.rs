//! Shared vocabulary of all parts of Headroom: ids, quantities, profiles, exit reports.
//!
//! *Architecture Invariant*: this crate is a leaf. It uses no clock, file or socket, and depends on
//! no other crate of this workspace.

#![forbid(unsafe_code)]

#[macro_use]
pub mod debug_fields;
#[macro_use]
pub mod word_enum;

pub mod address_list;
pub mod bytes;
pub mod cpu;
pub mod diagnosis;
pub mod exit;
pub mod fetch;
pub mod heap;
pub mod ids;
pub mod launch;
pub mod log;
pub mod master_growth;
pub mod memory_parts;
pub mod order;
pub mod own_limit;
pub mod placement;
pub mod process;
pub mod profile;
pub mod reason;
pub mod resource;
mod schema;
pub mod signal;
pub mod spelling;
pub mod store;
pub mod time;
pub mod timeline;
pub mod treatment;
pub mod unattributed;

pub use address_list::{AddressListError, UNIX_SOCKET_PREFIX, split_address_list};
pub use bytes::Bytes;
pub use cpu::Cpus;
pub use diagnosis::{Certainty, Diagnosis, SubCause};
pub use exit::{
    Dimension, EnforcerKind, Evidence, ExitCharge, ExitReason, ExitReport, StopCause, TaskReport,
};
pub use fetch::{FetchedFile, FetchedFileKind, Sha256, UPLOAD_SCHEME};
pub use ids::{
    AppId, AttemptId, ContainerId, Epoch, Name, NodeId, QueuePath, RequestId, TaskAttemptId, TaskId,
};
pub use launch::LaunchSpec;
pub use log::LogLevel;
pub use master_growth::MasterGrowth;
pub use order::{JobOrder, ScaleOrder, TaskOrder, TaskOrderAction};
pub use own_limit::{OwnLimit, OwnLimitKind};
pub use profile::Profile;
pub use reason::{EventTopic, Reason};
pub use resource::{ExtraResources, Resource};
pub use signal::Signal;
pub use store::StoreBackend;
pub use time::{Tick, UnixMillis, millis};
pub use treatment::{AppliedTreatment, Remedy, Treatment};
