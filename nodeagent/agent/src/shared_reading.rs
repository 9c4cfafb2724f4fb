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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_later_call_reads_anew() {
        let shared = SharedReading::default();
        assert_eq!(shared.read(|| 1), 1);
        assert_eq!(shared.read(|| 2), 2);
    }

    #[test]
    fn a_call_takes_a_reading_that_began_after_it() {
        // As if another job had begun its reading while this call waited for the lock.
        let later = Instant::now() + Duration::from_secs(3600);
        let shared = SharedReading(Mutex::new(Some((later, 7))));
        assert_eq!(shared.read(|| 8), 7);
    }
}
