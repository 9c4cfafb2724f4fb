//! Sizes and counts as floating-point numbers, and sizes back as bytes.

use headroom_types::Bytes;

/// The size, rounded up.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes are far below 2^53
pub(super) fn whole(size: f64) -> Bytes {
    Bytes::new(size.ceil().min(1e18) as u64)
}

/// The size in bytes.
#[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
pub(super) fn float(size: Bytes) -> f64 {
    size.get() as f64
}

/// The number of elements.
#[allow(clippy::cast_precision_loss)] // small numbers
pub(super) fn count(n: usize) -> f64 {
    n as f64
}

/// The number of observations.
#[allow(clippy::cast_precision_loss)] // small numbers
pub(super) fn count_u64(n: u64) -> f64 {
    n as f64
}
