//! One real node agent with a fake resource manager, for measurements of the agent alone.
//!
//! One measurement or test owns them. The fake manager is that of `headroom-test-fakes`; it records
//! the reports of the agent with their times. The agent is a child process that can be killed and
//! restarted. Dropping both removes everything they created.

pub mod agent;
pub mod kill_rounds;
pub mod leftover_counts;

pub use agent::{Shape, SingleAgent, start_manager};
