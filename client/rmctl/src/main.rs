//! `rmctl`: the command line of Headroom. Reads arguments, runs one verb, ends with that verb's exit code. Decides nothing itself.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    headroom_rmctl::run()
}
