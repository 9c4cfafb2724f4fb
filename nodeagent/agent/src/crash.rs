//! Places where the agent can be made to die, for the test that it may be killed anywhere.
//!
//! `HEADROOM_CRASH_AT=NAME` in the environment of a build with debug assertions: the agent sends itself SIGKILL when it first comes to
//! the place of that name. Nothing of this is in a release build.

/// The variable that names a place.
#[cfg(debug_assertions)]
const VARIABLE: &str = "HEADROOM_CRASH_AT";

/// Dies here when `place` is the one that was named.
#[cfg(debug_assertions)]
pub(crate) fn at(place: &str) {
    use std::sync::OnceLock;
    static WANTED: OnceLock<Option<String>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var(VARIABLE).ok());
    if wanted.as_deref() == Some(place) {
        // The signal comes before this call returns; if it could not be sent, the test sees an agent that lives.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
pub(crate) fn at(_place: &str) {}
