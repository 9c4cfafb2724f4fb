//! Words to the person who waits, on standard error.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);
/// How often it is told.
const TELL: Duration = Duration::from_secs(5);

/// Says something.
#[allow(clippy::print_stderr)] // figures go to standard output, words go here
pub(crate) fn tell(what: &str) {
    eprintln!("{what}");
}

/// Lets time pass.
pub(crate) async fn wait(what: &str, time: Duration) {
    tell(&format!("{what}: {} s", time.as_secs()));
    tokio::time::sleep(time).await;
}

/// Waits until there are so many.
pub(crate) async fn until(what: &str, wanted: usize, time: Duration, mut look: impl FnMut() -> usize) -> Result<()> {
    let (begun, mut told) = (Instant::now(), Instant::now());
    loop {
        let there = look();
        if there >= wanted {
            tell(&format!("{what}: {there} after {:.1} s", begun.elapsed().as_secs_f64()));
            return Ok(());
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            tell(&format!("{what}: {there} of {wanted}"));
        }
        if begun.elapsed() >= time {
            bail!("waited {} s in vain for {wanted} {what}; there are {there}", time.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}
