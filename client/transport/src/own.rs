//! What a process keeps to itself.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// From now on other processes of the same user can read neither this one's memory nor the environment it was started with: tasks run as
/// the user of their executor, and look where they like. What it starts is not hidden so.
///
/// # Errors
/// The kernel refuses.
pub fn hide() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
