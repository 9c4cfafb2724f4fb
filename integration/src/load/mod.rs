//! A crowd of fake agents and masters in one process, over real sockets, and the books they keep.
//!
//! Owned by `measure` and by `tests/load_small.rs`. They speak the protocol as the real ones do and start no process; what they
//! saw is compared when all is over. Never told anything but through the wire.

pub mod agents;
pub mod book;
pub mod daemon;
pub mod http;
pub mod limits;
pub mod master;
pub mod restart;
