//! What clients of YARN's web interface call things. Shared by the resource manager and the node agent, which both answer them.
//!
//! Names and shapes only. Never decides what is shown.

pub mod accept;
pub mod end;
pub mod error;
pub mod ids;
pub mod time;

/// The release of YARN whose interface is followed.
pub const FOLLOWS: &str = "3.4.1";
