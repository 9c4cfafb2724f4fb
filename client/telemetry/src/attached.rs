//! A daemon that runs for the program that started it (`--attached`): it reports its start as one line on standard output, and ends
//! when its standard input ends.
//!
//! The kernel closes the pipe however the other program ends, so no daemon outlives it.

use std::io::{self, Read as _, Write as _};

/// Writes the report.
///
/// # Errors
/// Standard output is closed.
pub fn report(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Calls `ended` at the end of standard input, on a thread of its own.
///
/// # Errors
/// The thread cannot be started.
pub fn at_end_of_input(ended: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let wait = move || {
        // A read that fails is an end too.
        let mut bytes = [0; 64];
        while io::stdin().lock().read(&mut bytes).is_ok_and(|n| n > 0) {}
        ended();
    };
    std::thread::Builder::new().name("attached".into()).spawn(wait).map(drop)
}
