//! Encrypted connections, and the pipes between a daemon and the program that started it.
//!
//! Daemons authenticate each other by certificates in files that may change at run time. A master
//! is authenticated by the hash of a certificate that it created itself.
//!
//! *Architecture Invariant*: this crate only authenticates the peer. It decides no permissions.

#![forbid(unsafe_code)]

pub mod attached;
pub mod channel;
pub mod door;
pub mod keys;
pub mod own;
pub mod peers;
pub mod watched;

pub use channel::{MasterAddress, MasterConnection, ListenerIdentity, CertificatePin, Reading, Writing, connect, halves};
pub use door::{PeerIdentity, AcceptedStream, greet};
pub use keys::{KeyFiles, ReloadingKeys, KeysError, trusting_nobody};
pub use peers::{LoopbackPolicy, ConnectionLimiter, ConnectionPermit};
