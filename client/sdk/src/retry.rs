//! Exponential backoff, without clock or timer.

use std::time::Duration;

/// Waiting times that double from `first` to `most`.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialBackoff {
    next: Duration,
    most: Duration,
    first: Duration,
}

impl ExponentialBackoff {
    /// The default: 50 ms, doubling to 2 s.
    pub fn usual() -> Self {
        ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(2))
    }
    /// Waiting times from `first`, doubling up to `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        ExponentialBackoff {
            next: first,
            most,
            first,
        }
    }
    /// Returns the next waiting time.
    pub fn wait(&mut self) -> Duration {
        let now = self.next;
        self.next = (self.next * 2).min(self.most);
        now
    }
    /// Starts with the first waiting time again, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_maximum_and_resets() {
        let mut b = ExponentialBackoff::new(Duration::from_millis(50), Duration::from_millis(180));
        let waits: Vec<u128> = (0..4).map(|_| b.wait().as_millis()).collect();
        assert_eq!(waits, [50, 100, 180, 180]);
        b.reset();
        assert_eq!(b.wait().as_millis(), 50);
    }
}
