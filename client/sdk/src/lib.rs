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
pub mod tap;
pub mod trust;
pub mod wanted;

pub use client::{Client, Follow, How, UNIX};
pub use error::{ClientError, Standing};
pub use follow::EventFollower;
pub use log::LogStream;
pub use stream::Lines;
pub use tap::{Request, Sending};
pub use trust::{Other, TokenFrom, Trust};
pub use wanted::{AuditWanted, EventsWanted, TaskRows};
