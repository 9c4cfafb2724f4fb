//! A daemon that runs on behalf of the program that started it (`--attached`). It reports its start
//! as one line on standard output, and ends when its standard input ends.
//!
//! The kernel closes the pipe however the parent ends, so the daemon does not outlive it.

use std::future::pending;
use std::io::{self, Read as _, Write as _};

use tokio::sync::oneshot;

/// The program that started this one, if its end must be watched.
#[derive(Debug)]
pub struct ParentProcess(Option<oneshot::Receiver<()>>);

impl ParentProcess {
    /// No parent to watch.
    pub fn none() -> ParentProcess {
        ParentProcess(None)
    }

    /// Writes the report to standard output and watches standard input on a thread of its own.
    ///
    /// # Errors
    /// Standard output is closed, or the thread cannot be started.
    pub fn report_start(report: &str) -> io::Result<ParentProcess> {
        let mut out = io::stdout().lock();
        out.write_all(report.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()?;
        let (lives, ended) = oneshot::channel();
        let wait = move || {
            // A read error also counts as the end of the input.
            let mut bytes = [0; 64];
            while io::stdin().lock().read(&mut bytes).is_ok_and(|n| n > 0) {}
            drop(lives);
        };
        std::thread::Builder::new()
            .name("attached".into())
            .spawn(wait)?;
        Ok(ParentProcess(Some(ended)))
    }

    /// Returns when the parent has ended; never returns without a parent.
    pub async fn ended(&mut self) {
        match &mut self.0 {
            Some(ended) => drop(ended.await),
            None => pending().await,
        }
    }
}
