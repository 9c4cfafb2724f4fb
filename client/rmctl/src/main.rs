//! `rmctl`: the command line of Headroom. Parses arguments, runs one verb and ends with its exit
//! code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    headroom_rmctl::run()
}
