//! Fake counterparts of Headroom's programs, for tests and measurements of the real ones.
//!
//! [`FakeResourceManager`] serves the node interface of `/v1` on loopback to one real node agent.
//! It orders the containers of the test, records all messages of the node, and can refuse or ignore
//! them. The tests of the node agent, `integration/src/single_agent` and `integration/src/verdicts`
//! use it, each with a few methods of its own around it.
//!
//! *Architecture Invariant*: no shipped program depends on this crate, except in its tests.

#![forbid(unsafe_code)]

mod disk;
mod etcd;
mod received;
mod resource_manager;
mod server;
mod state;

pub use disk::SmallDisk;
pub use etcd::{EtcdCluster, EtcdHost};
pub use received::{ReceivedReports, ReportedEnd};
pub use resource_manager::{FakeResourceManager, run_order};
pub use state::{DesiredStateStream, EndHandling, FakeManagerSettings, Faults};
