//! The executor: runs the tasks of one job in slots, one cgroup per task, and reports the end of
//! each task to the master.
//!
//! The application master that requested the container owns the executor. The executor decides
//! nothing about retries or sizes, never connects to a node agent, and never changes a limit of its
//! own container. It keeps a result until the master acknowledges it.
//!
//! *Architecture Invariant*: `session`, `slots`, `results`, `master_search`, `report_truncation`,
//! `task_state`, `verdict`, `environment`, `fork_protocol` and `child_registry` are pure; `run` and `link` are the only owners of
//! their state.

#![forbid(unsafe_code)]

mod child_registry;
mod children;
mod clean_groups;
pub mod clock;
pub mod environment;
mod fork_protocol;
mod fork_server;
mod fork_servers;
pub mod growth;
pub mod heap;
mod kept_process;
pub mod launch;
mod limits;
pub mod link;
pub mod log_pool;
pub mod logs;
pub mod master_search;
pub mod payload;
mod read_bytes;
pub mod report_truncation;
pub mod results;
pub mod run;
pub mod sampler;
pub mod session;
pub mod slots;
mod spawn_failure;
pub mod task;
pub mod task_namespaces;
pub mod task_state;
pub mod taskgroup;
pub mod verdict;
mod warm_start;
