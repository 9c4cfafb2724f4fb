//! What a process keeps to itself.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// From now on other processes of the same user can read neither this one's memory nor the environment it was started with: tasks run as
/// the user of their master, and look where they like. Only for who starts nothing: a child could not set its own out-of-memory score before
/// it has executed its program.
///
/// # Errors
/// The kernel refuses.
pub fn hide() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
