//! A daemon that runs for the program that started it (`--attached`): it reports its start as one line on standard output, and ends
//! when its standard input ends.
//!
//! The kernel closes the pipe however the other program ends, so no daemon outlives it.

use std::future::pending;
use std::io::{self, Read as _, Write as _};

use tokio::sync::oneshot;

/// The program that started this one, or nobody who would be waited for.
#[derive(Debug)]
pub struct Parent(Option<oneshot::Receiver<()>>);

impl Parent {
    /// Nobody.
    pub fn nobody() -> Parent {
        Parent(None)
    }

    /// Reports the start and watches standard input from now on, on a thread of its own.
    ///
    /// # Errors
    /// Standard output is closed, or the thread cannot be started.
    pub fn told(report: &str) -> io::Result<Parent> {
        let mut out = io::stdout().lock();
        out.write_all(report.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()?;
        let (lives, ended) = oneshot::channel();
        let wait = move || {
            // A read that fails is an end too.
            let mut bytes = [0; 64];
            while io::stdin().lock().read(&mut bytes).is_ok_and(|n| n > 0) {}
            drop(lives);
        };
        std::thread::Builder::new().name("attached".into()).spawn(wait)?;
        Ok(Parent(Some(ended)))
    }

    /// Returns when the other program has ended, and never where there is none.
    pub async fn ended(&mut self) {
        match &mut self.0 {
            Some(ended) => drop(ended.await),
            None => pending().await,
        }
    }
}
