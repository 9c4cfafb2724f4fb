//! Sizes from observed memory needs: the next size of a task, and suggestions for users.
//!
//! Application masters and the resource manager share this calculation.
//!
//! *Architecture Invariant*: no clock, no files, no sockets; the same observations in the same
//! order give the same sizes.

#![forbid(unsafe_code)]

pub mod learn;
pub mod suggest;
