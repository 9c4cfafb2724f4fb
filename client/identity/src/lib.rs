//! Who somebody is and what they may: roles in certificates, tokens and their hashes, rights, and an authority for a cluster.
//!
//! *Architecture Invariant*: nothing here opens a socket or asks a clock; times are arguments. Keys and tokens are never written by
//! `Debug` or `Display`.

#![forbid(unsafe_code)]

pub mod authority;
pub mod certificate;
pub mod files;
pub mod need;
pub mod right;
pub mod role;
pub mod tls;
pub mod token;

pub use authority::{Authority, Issued};
pub use certificate::{Certificate, certificates};
pub use need::{Belongs, Need, Principal, Why};
pub use right::{Over, ParseRightError, Right, Rights};
pub use role::{ParseRoleError, Role};
pub use token::{Accessor, Hash, Kind, ParseTokenError, Token};
