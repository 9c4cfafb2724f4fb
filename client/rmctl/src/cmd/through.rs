//! The end of a program that runs elsewhere, as the end of this one: `run`, `container exec` and `task exec`, the only verbs whose exit
//! code is not their own.

use crate::context::Context;
use crate::exit::{Exit, Failure};

/// A failure of ours, as other tools that run programs in containers have it.
pub(super) const OURS: i32 = 125;
/// It is there and could not be started.
pub(super) const NOT_STARTED: i32 = 126;
/// There is no such program.
pub(super) const NO_PROGRAM: i32 = 127;

/// Ends this process as the program ended.
pub(super) fn leave(context: &Context, ran: Result<i32, Failure>) -> Result<Exit, Failure> {
    match ran {
        Ok(0) => Ok(Exit::Ok),
        Ok(code) => std::process::exit(code),
        Err(failure) if failure.is_silent() => Err(failure),
        Err(failure) => {
            context.term.complain(&failure);
            std::process::exit(OURS)
        }
    }
}
