//! The executor: runs the tasks of one job in slots, one cgroup per task, and tells their master how each of them ended.
//!
//! Owned by the application master that asked for its container. It decides nothing about retries or sizes, never speaks to a
//! node agent, and never changes a limit of its own container. A result is kept until the master has acknowledged it.
//!
//! *Architecture Invariant*: `slots`, `results`, `fit`, `life`, `verdict` and `environment` are pure; `run` is the one owner of
//! their state.

#![forbid(unsafe_code)]

pub mod clock;
pub mod environment;
pub mod fit;
pub mod growth;
pub mod heap;
pub mod launch;
pub mod life;
mod limits;
pub mod link;
pub mod logs;
pub mod meter;
mod reads;
pub mod results;
pub mod run;
pub mod slots;
pub mod task;
pub mod taskgroup;
pub mod verdict;
