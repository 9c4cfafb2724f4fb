//! The agent with a real kernel and a fake resource manager: launches, ends, evidence, stops,
//! adoption.
//!
//! The tests run as any user, with the best enforcer of the host. They need `container-shim` next
//! to the agent, and build it if it is missing.

// The agent's log is part of the output of a failed test.
#![allow(clippy::print_stderr)]

mod fake_rm;
mod node;
mod secured;

mod adoption;
mod container_access;
mod disconnected;
mod ends;
mod files;
mod health;
mod hostile;
mod isolation;
mod logs;
mod reload;
mod resize;
mod spare_shims;
mod start;
mod stops;
mod yarn;
