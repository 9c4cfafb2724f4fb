//! Messages of API version 1.

pub mod acl;
pub mod am;
pub mod apps;
pub mod attached;
pub mod audit;
pub mod convert;
pub mod error;
pub mod events;
pub mod explain;
pub mod families;
pub mod job;
pub mod nodes;
pub mod operator;
pub mod profiles;
pub mod queue_tree;
pub mod queues;
pub mod reach;
pub mod share;
pub mod suggestions;
pub mod task;
