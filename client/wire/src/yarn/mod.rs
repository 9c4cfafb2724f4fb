//! Names and shapes of YARN's web interface. The resource manager and the node agent both implement
//! it.
//!
//! Types only; this module never decides which data a response contains.

pub mod accept;
pub mod end;
pub mod error;
pub mod ids;
pub mod time;

/// The YARN release whose interface Headroom follows.
pub const YARN_VERSION: &str = "3.4.1";
