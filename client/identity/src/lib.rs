//! Identities and permissions: roles in certificates, tokens and their hashes, rights, and the
//! certificate authority of a cluster.
//!
//! *Architecture Invariant*: no sockets and no clock; times are parameters. `Debug` and `Display`
//! never print keys and tokens.

#![forbid(unsafe_code)]

pub mod authority;
pub mod authorization;
pub mod certificate;
pub mod files;
pub mod right;
pub mod role;
pub mod tls;
pub mod token;

pub use authority::{Authority, IssuedCertificate};
pub use authorization::{AccessDenied, AppOwnership, CallRequirement, Principal};
pub use certificate::{Certificate, certificates};
pub use right::{AccessRight, AccessRights, ParseRightError, QueuePermission};
pub use role::{CertificateRole, ParseRoleError};
pub use token::{ParseTokenError, SecretToken, SecretTokenKind, Sha256Digest, TokenAccessor};
