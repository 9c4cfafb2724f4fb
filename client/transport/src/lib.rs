//! Encrypted connections, and the pipes between a daemon and the program that started it.
//!
//! Daemons authenticate each other by certificates in files that may change at run time. A master
//! is authenticated by the hash of a certificate that it created itself.
//!
//! *Architecture Invariant*: this crate only authenticates the peer. It decides no permissions.

#![forbid(unsafe_code)]

pub mod attached;
pub mod channel;
pub mod connection_limit;
pub mod deadline;
pub mod file_watch;
pub mod handshake;
pub mod keys;
pub mod non_dumpable;

pub use channel::{
    CertificatePin, ConnectionReader, ConnectionWriter, ListenerIdentity, MasterAddress,
    MasterConnection, connect, halves,
};
pub use connection_limit::{ConnectionLimiter, ConnectionPermit, LoopbackPolicy};
pub use handshake::{AcceptedStream, PeerIdentity, accept_handshake};
pub use keys::{CertificateFiles, KeysError, ReloadingKeys, trust_none_config};
