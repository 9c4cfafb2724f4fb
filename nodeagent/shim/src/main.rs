//! `container-shim`: the parent of one container's processes, so that the agent can be restarted,
//! upgraded or killed.
//!
//! `container-shim DIR` runs the program of `DIR/spec`, waits for it, and writes `DIR/exit`.
//! `container-shim --launcher` forks such shims for an agent at the other end of its standard
//! input. `container-shim --keeper` prepares the delegated cgroup of all containers, and holds it.
//! The program decides nothing: no limit, no kill, no verdict.
//!
//! *Architecture Invariant*: one thread, which the start of a program relies on; and no dependencies but
//! libc, because one process stays resident for each container.

// This program consists of system calls; each block states why it is sound.
#![allow(unsafe_code)]

mod keeper;
mod launch;
mod launcher;
mod records;
mod spare;
mod step_failure;
mod supervise;
mod sys;
mod view;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use crate::supervise::{AgentConnection, SupervisedEnd};

const USAGE: &str = "usage: container-shim DIR | container-shim --keeper | container-shim --launcher | container-shim --version\n";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match (args.next(), args.next()) {
        (Some(word), None) if word == OsStr::new("--keeper") => keeper::run(),
        // The further arguments are shown in process lists and reserve memory for container names.
        (Some(word), _) if word == OsStr::new("--launcher") => launcher::run(),
        (Some(word), None) if word == OsStr::new("--version") => {
            sys::write_text(
                1,
                concat!("container-shim ", env!("CARGO_PKG_VERSION"), "\n"),
            );
            ExitCode::SUCCESS
        }
        (Some(dir), None) if !dir.as_encoded_bytes().starts_with(b"-") => {
            sys::ignore_termination();
            match supervise::run(Path::new(&dir), None, AgentConnection::Pipe) {
                SupervisedEnd::Exit(code) => code,
                // Only an agent with a socket reads the record first.
                SupervisedEnd::Read(record) => ExitCode::from(u8::from(record.sync_all().is_err())),
            }
        }
        (_, _) => {
            sys::write_text(2, USAGE);
            ExitCode::from(2)
        }
    }
}
