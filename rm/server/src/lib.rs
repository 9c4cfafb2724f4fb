//! The resource manager: keeps the state of the cluster and places containers.
//!
//! One task, in `run`, owns all state: a cluster of `headroom-rm-core`, a journal of
//! `headroom-rm-store`, the mailboxes. All other parts convert messages to its inputs, and its
//! effects to messages. The process may be killed at any moment: the effects of every response are
//! on disk, and a call without a response may be sent again.
//!
//! *Architecture Invariant*: nothing leaves the process before its preconditions are durable, and
//! no handler touches the core.

#![forbid(unsafe_code)]

mod access;
mod activation;
mod attempt_metrics;
mod audit;
mod call_reply;
mod clock;
mod commit_thread;
mod dispatch;
mod durable_documents;
mod eventfiles;
mod eventlog;
pub mod from_wire;
mod front;
mod handle;
mod http;
mod inbox;
mod index_ranges;
mod input;
mod jobs;
mod journal_table;
mod limit_warnings;
mod manager_group;
mod memory_failures;
mod metrics;
mod mirror;
mod notify;
pub mod operator;
mod options;
mod peaks;
mod peer_clients;
mod profiles;
mod published;
mod query;
mod queues;
mod reader;
mod reason_log;
mod reload;
mod reports;
mod run;
mod shared_state;
mod start;
mod starving;
mod statistics;
pub mod to_wire;
mod topics;
mod upload_copies;
mod upload_sweep;
mod upload_transfer;
mod uploads;
mod usage_history;
mod view;

pub use headroom_config::CallerLimits;
pub use http::description;
pub use http::service::InterfaceRoutes;
pub use manager_group::end_lease;
pub use options::{ManagerArguments, ManagerOptions};
pub use reload::ReloadOrigin;
pub use start::{RunningManager, start, start_for};
