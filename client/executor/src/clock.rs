//! The only wall clock of the executor.

use std::time::SystemTime;

use headroom_types::UnixMillis;

/// The current time.
pub fn now() -> UnixMillis {
    SystemTime::now().into()
}
