//! One real node agent with a fake resource manager, for measurements of the agent alone.
//!
//! One measurement or test owns them. The fake manager records each message of the agent with its
//! time. The agent is a child process that can be killed and restarted. Dropping both removes
//! everything they created.

pub mod agent;
pub mod fake_manager;
pub mod kill_rounds;
pub mod leftover_counts;

pub use agent::{Shape, SingleAgent};
pub use fake_manager::FakeManager;
