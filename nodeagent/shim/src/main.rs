//! `container-shim`: the parent of one container's processes, so that the agent can be restarted, upgraded or killed.
//!
//! `container-shim DIR` runs what `DIR/spec` says, waits for it, and writes `DIR/exit`. `container-shim --launcher` makes such shims by forks,
//! for an agent at the other end of its standard input. `container-shim --keeper` makes the delegated cgroup in which containers live ready, and holds it.
//! It never decides anything: no limit, no kill, no verdict.
//!
//! *Architecture Invariant*: one thread, no dependencies but libc, because one of it stays resident for each container.

// System calls are what this program is made of; each block says why it holds.
#![allow(unsafe_code)]

mod keeper;
mod launch;
mod launcher;
mod records;
mod supervise;
mod sys;
mod view;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str =
    "usage: container-shim DIR | container-shim --keeper | container-shim --launcher | container-shim --version\n";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match (args.next(), args.next()) {
        (Some(word), None) if word == OsStr::new("--keeper") => keeper::run(),
        // What follows is for people who look at the list of processes, and room for the names of containers.
        (Some(word), _) if word == OsStr::new("--launcher") => launcher::run(),
        (Some(word), None) if word == OsStr::new("--version") => {
            sys::say(1, concat!("container-shim ", env!("CARGO_PKG_VERSION"), "\n"));
            ExitCode::SUCCESS
        }
        (Some(dir), None) if !dir.as_encoded_bytes().starts_with(b"-") => supervise::run(Path::new(&dir), None),
        (_, _) => {
            sys::say(2, USAGE);
            ExitCode::from(2)
        }
    }
}
