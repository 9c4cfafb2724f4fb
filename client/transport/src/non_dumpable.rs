//! Protection of a process's memory and environment from other processes.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes this process non-dumpable: other processes of the same user can then read neither its
/// memory nor its initial environment. Tasks run as the user of their master and could otherwise
/// read both.
///
/// Only for processes that start no child: a child could not set its own out-of-memory score before
/// it has executed its program.
///
/// # Errors
/// The kernel refuses the call.
pub fn make_non_dumpable() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
