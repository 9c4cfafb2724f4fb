//! Typed client of the `/v1` interface: calls, retries, and streams that resume at a cursor.

#![forbid(unsafe_code)]

mod acl;
pub mod client;
pub mod error;
pub mod follow;
pub mod log;
mod operator;
pub mod retry;
pub mod stream;
pub mod request_hook;
pub mod credentials;
pub mod filter;

pub use client::{Client, DryRunMode, Follow, UNIX};
pub use error::{CallFailureKind, ClientError};
pub use follow::EventFollower;
pub use log::LogStream;
pub use stream::JsonLineStream;
pub use request_hook::{PreparedRequest, Sending};
pub use credentials::{ClientCredentials, ExpectedPeer, TokenSource};
pub use filter::{AuditQuery, EventQuery, TaskRows};
