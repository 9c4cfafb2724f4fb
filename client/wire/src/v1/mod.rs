//! Messages of API version 1.

pub mod acl;
pub mod application_master;
pub mod apps;
pub mod attached;
pub mod audit;
pub mod validation;
pub mod error;
pub mod events;
pub mod explain;
pub mod job_history;
pub mod job;
pub mod nodes;
pub mod operator;
pub mod profiles;
pub mod queue_tree;
pub mod queues;
pub mod container_access;
pub mod share;
pub mod suggestions;
pub mod task;
