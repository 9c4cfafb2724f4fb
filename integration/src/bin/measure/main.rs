//! Measurements of the whole house.
#![forbid(unsafe_code)]
fn main() {}
