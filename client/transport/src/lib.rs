//! Connections that are encrypted: daemons know each other by certificates in files that may change while they run, a master is known
//! by the hash of a certificate that it made for itself. And the pipes between a daemon and the program that started it.
//!
//! *Architecture Invariant*: nothing here decides what somebody may do. It says who is at the other end.

#![forbid(unsafe_code)]

pub mod attached;
pub mod channel;
pub mod door;
pub mod keys;
pub mod own;
pub mod peers;
pub mod watched;

pub use channel::{Address, Line, Lock, Pin, Reading, Writing, connect, halves};
pub use door::{Caller, Stream, greet};
pub use keys::{KeyFiles, Keys, KeysError, trusting_nobody};
pub use peers::{Local, Peers, Present};
