//! A value that many jobs need at the same time, such as counters of the host: read once for all of
//! them.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The last reading of a value, with the time at which it began.
#[derive(Debug)]
pub(crate) struct SharedReading<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for SharedReading<T> {
    fn default() -> Self {
        SharedReading(Mutex::new(None))
    }
}

impl<T: Clone> SharedReading<T> {
    /// The value, never from a reading that began before this call. Blocks while another job reads.
    pub(crate) fn read(&self, read: impl FnOnce() -> T) -> T {
        let called = Instant::now();
        // If a job panicked, the last complete reading is still valid.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((began, value)) = &*last
            && *began >= called
        {
            return value.clone();
        }
        let began = Instant::now();
        let value = read();
        *last = Some((began, value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_later_call_reads_anew() {
        let shared = SharedReading::default();
        assert_eq!(shared.read(|| 1), 1);
        assert_eq!(shared.read(|| 2), 2);
    }

    #[test]
    fn callers_that_wait_for_a_reading_share_the_next_one() {
        let (shared, readings) = (SharedReading::default(), AtomicU32::new(0));
        let (begun, waiting) = (Barrier::new(2), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                shared.read(|| {
                    begun.wait();
                    // The others have called before this reading ends.
                    while waiting.load(Ordering::SeqCst) < 8 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    readings.fetch_add(1, Ordering::SeqCst)
                })
            });
            begun.wait();
            for _ in 0..8 {
                scope.spawn(|| {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    shared.read(|| readings.fetch_add(1, Ordering::SeqCst))
                });
            }
        });
        assert!((2..=9).contains(&readings.load(Ordering::SeqCst)));
    }
}
