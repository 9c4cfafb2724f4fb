//! Sizes that follow from what tasks needed: what a master gives the next task of a kind, and what people are told to ask for.
//!
//! One calculation for the master, which goes by it, and for the resource manager, which shows it.
//!
//! *Architecture Invariant*: no clock, no files, no sockets; the same observations in the same order give the same sizes.

#![forbid(unsafe_code)]

pub mod learn;
pub mod suggest;
