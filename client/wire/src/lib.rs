//! The messages between the parts, as JSON under `/v1`, and the words that clients of YARN know things by.
//!
//! *Architecture Invariant*: serde types only, additive within v1, one golden sample per message. What arrives is parsed into
//! the types of `headroom-types` here or in [`v1::convert`]; nothing behind it sees raw text.

#![forbid(unsafe_code)]

pub mod v1;
pub mod yarn;
