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
    /// The value, never from a reading that began before `since`. Blocks while another job reads.
    pub(crate) fn read_since(&self, since: Instant, read: impl FnOnce() -> T) -> T {
        // If a job panicked, the last complete reading is still valid.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((began, value)) = &*last
            && *began >= since
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
    use super::*;

    #[test]
    fn a_reading_serves_all_that_needed_one_when_it_began() {
        let (shared, first) = (SharedReading::default(), Instant::now());
        assert_eq!(shared.read_since(first, || 1), 1);
        assert_eq!(shared.read_since(first, || 2), 1);
        let later = Instant::now();
        assert_eq!(
            shared.read_since(later, || 2),
            2,
            "the first one is too old"
        );
        assert_eq!(shared.read_since(first, || 3), 2);
    }
}
