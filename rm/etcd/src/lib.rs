//! etcd as the resource manager uses it: guarded transactions, leases, the election of the leader.
//!
//! Calls go through etcd's gRPC gateway as JSON. All of them run on a thread of their own
//! ([`EtcdThread`]), so that a busy server delays neither a lease nor a transaction.
//!
//! *Architecture Invariant*: every write of state names the creation revision of the leader's key.
//! A manager whose key is gone cannot write, however late its request arrives.

#![forbid(unsafe_code)]

pub mod checks;
mod client;
mod election;
mod error;
mod follow;
mod keys;
mod lease_clock;
mod lease_file;
mod message;
mod silence;
mod thread;
mod transaction;

pub use client::{EtcdClient, KeyPage, KeyPages};
pub use election::{Candidate, ElectionView, Leadership, ManagerRecord};
pub use error::EtcdError;
pub use follow::{StateFollower, StateImage};
pub use keys::EtcdKeys;
pub use lease_clock::{LeaseClock, certain_until, grace_period};
pub use lease_file::LeaseFile;
pub use silence::{LeaderSilence, Renewal};
pub use thread::EtcdThread;
pub use transaction::{LeaderFence, StateWriter};
