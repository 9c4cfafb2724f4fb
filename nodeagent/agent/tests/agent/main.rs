//! The agent against a real kernel and a small fake resource manager: launches, ends, evidence, stops, adoption.
//!
//! Runs as any user: with whatever enforcer the host has. Needs the `container-shim` beside the agent; it is built when missing.

// The agent's log belongs to the output of a test that failed.
#![allow(clippy::print_stderr)]

mod fake_rm;
mod node;
mod secured;

mod adoption;
mod alone;
mod ends;
mod files;
mod health;
mod hostile;
mod isolation;
mod life;
mod logs;
mod reach;
mod reload;
mod resize;
mod start;
mod yarn;
