//! Simulated agents and masters in one process, over real sockets, and the records they keep.
//!
//! `measure` and `tests/load_small.rs` own them. They use the real protocol and start no process.
//! Their records are compared after the run. All their information comes through the protocol.

pub mod agents;
pub mod daemon;
pub mod failover;
pub mod grants;
pub mod http;
pub mod limits;
pub mod manager_address;
pub mod master;
pub mod records;
pub mod restart;
