//! Exit codes of `run`, `container exec` and `task exec`, which pass on the exit code of a program
//! that runs in a container. No other verb does so.

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};

/// Exit code of a failure of rmctl itself, as in other container tools.
pub(super) const OURS: i32 = 125;
/// Exit code of a program that exists and cannot be started.
pub(super) const NOT_STARTED: i32 = 126;
/// Exit code of a program that does not exist.
pub(super) const NO_PROGRAM: i32 = 127;

/// Ends this process with the exit code of the program.
pub(super) fn leave(context: &CommandContext, ran: CommandResult<i32>) -> CommandResult {
    match ran {
        Ok(0) => Ok(CommandExitCode::Ok),
        Ok(code) => std::process::exit(code),
        Err(failure) if failure.is_silent() => Err(failure),
        Err(failure) => {
            context.term.complain(&failure);
            std::process::exit(OURS)
        }
    }
}
