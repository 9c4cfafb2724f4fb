//! The messages between the parts, as JSON under `/v1`, and the names and shapes of YARN's
//! interface.
//!
//! *Architecture Invariant*: serde types only, additive within v1, one golden sample per message.
//! This module, with [`v1::validation`], parses every message into the types of `headroom-types`;
//! later code sees no raw text.

#![forbid(unsafe_code)]

pub mod v1;
pub mod yarn;
