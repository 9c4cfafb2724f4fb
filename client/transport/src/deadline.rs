//! Deadlines on the monotonic clock.
//!
//! tokio rounds each deadline up to its next millisecond, also one that has passed already.

use tokio::time::{Instant, sleep_until};

/// Returns at the deadline, and at once if it has passed. Without a deadline it never returns.
///
/// For deadlines that move when the caller acts on them. A loop spins around one that stays in the
/// past: see [`ticked`].
pub async fn reached(deadline: impl Into<Option<Instant>>) {
    match deadline.into() {
        Some(deadline) if deadline <= Instant::now() => {}
        deadline => ticked(deadline).await,
    }
}

/// Returns at the first tick of tokio's timer after the deadline, up to two milliseconds later.
/// Without a deadline it never returns.
pub async fn ticked(deadline: impl Into<Option<Instant>>) {
    match deadline.into() {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_deadline_that_has_passed_needs_no_tick() {
        let mut context = Context::from_waker(Waker::noop());
        let mut is_reached = |deadline: Option<Instant>| {
            pin!(reached(deadline)).poll(&mut context) == Poll::Ready(())
        };
        let now = Instant::now();
        assert!(is_reached(Some(now)));
        assert!(!is_reached(Some(now + Duration::from_secs(3600))));
        assert!(!is_reached(None));
        let ticked = pin!(ticked(now)).poll(&mut context);
        assert_eq!(ticked, Poll::Pending);
    }
}
