//! Messages of API version 1.

pub mod acl;
pub mod application_master;
pub mod apps;
pub mod attached;
pub mod audit;
pub mod container_access;
pub mod error;
pub mod events;
pub mod explain;
pub mod job;
pub mod job_history;
pub mod known_containers;
pub mod node_channel;
pub mod node_groups;
pub mod nodes;
pub mod operator;
pub mod profiles;
pub mod queue_tree;
pub mod queues;
pub mod share;
pub mod submission;
pub mod suggestions;
pub mod task;
pub mod uploads;
pub mod validation;
