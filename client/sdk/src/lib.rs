//! Typed client of the `/v1` interface: calls, retries, and streams that resume at a cursor.

#![forbid(unsafe_code)]

mod acl;
pub mod addresses;
pub mod client;
pub mod credentials;
mod daemon;
pub mod error;
pub mod filter;
pub mod follow;
pub mod live_containers;
pub mod log;
pub mod node_stream;
mod operator;
mod profile;
mod queue;
pub mod request_hook;
pub mod retry;
pub mod stream;
pub mod submission_channel;
pub mod submission_session;
mod task;
mod upload_source;

pub use addresses::{AddressError, ManagerAddress, ManagerAddresses};
pub use client::{Client, DryRunMode, FollowMode};
pub use credentials::{ClientCredentials, ExpectedPeer, TokenSource};
pub use error::{AnswerDefect, CallFailureKind, ClientError, ClientResult, FailedAttempt};
pub use filter::{AuditQuery, EventQuery, TaskRowScope};
pub use follow::EventFollower;
pub use live_containers::LiveContainers;
pub use log::LogStream;
pub use node_stream::{NodeReportSender, NodeStream};
pub use request_hook::{PreparedRequest, SendDecision};
pub use reqwest::StatusCode;
pub use stream::JsonLineStream;
pub use submission_channel::{SubmissionChannel, SubmissionOptions};
pub use submission_session::{SubmissionEvent, SubmissionInputError, SubmissionSession};
pub use upload_source::{FileUploadError, UploadSource};
