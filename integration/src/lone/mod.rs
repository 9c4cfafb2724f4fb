//! One real node agent under a resource manager that is played: for what an agent does alone, measured from outside.
//!
//! Owned by one measurement or test. The played manager remembers every word of the agent with its time; the agent is a child process
//! that can be killed and started again. When both are dropped nothing of them is left.

pub mod agent;
pub mod desk;
pub mod remains;
pub mod rounds;

pub use agent::{LoneAgent, Shape};
pub use desk::Desk;
