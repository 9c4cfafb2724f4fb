//! Crash points: places where tests can kill the agent.
//!
//! In a build with debug assertions, `HEADROOM_CRASH_AT=NAME` makes the agent send itself SIGKILL
//! when it first reaches the crash point of that name. A release build contains no crash points.

/// The variable that names a crash point.
#[cfg(debug_assertions)]
const VARIABLE: &str = "HEADROOM_CRASH_AT";

/// Kills the agent if `place` is the named crash point.
#[cfg(debug_assertions)]
pub(crate) fn at(place: &str) {
    use std::sync::OnceLock;
    static WANTED: OnceLock<Option<String>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var(VARIABLE).ok());
    if wanted.as_deref() == Some(place) {
        // SIGKILL arrives before this call returns. If it could not be sent, the test sees a
        // running agent.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
pub(crate) fn at(_place: &str) {}
