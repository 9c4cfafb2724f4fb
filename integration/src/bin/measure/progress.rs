//! Progress messages on standard error.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Interval of polls.
const LOOK: Duration = Duration::from_millis(50);
/// Interval of progress messages.
const PRINT_INTERVAL: Duration = Duration::from_secs(5);

/// Prints a message.
#[allow(clippy::print_stderr)] // results go to standard output, messages go here
pub(crate) fn print_line(what: &str) {
    eprintln!("{what}");
}

/// Waits.
pub(crate) async fn wait(what: &str, time: Duration) {
    print_line(&format!("{what}: {} s", time.as_secs()));
    tokio::time::sleep(time).await;
}

/// Waits until `look` returns at least `wanted`.
pub(crate) async fn until(
    what: &str,
    wanted: usize,
    time: Duration,
    mut look: impl FnMut() -> usize,
) -> Result<()> {
    let (started, mut printed) = (Instant::now(), Instant::now());
    loop {
        let there = look();
        if there >= wanted {
            print_line(&format!(
                "{what}: {there} after {:.1} s",
                started.elapsed().as_secs_f64()
            ));
            return Ok(());
        }
        if printed.elapsed() >= PRINT_INTERVAL {
            printed = Instant::now();
            print_line(&format!("{what}: {there} of {wanted}"));
        }
        if started.elapsed() >= time {
            bail!(
                "timed out after {} s waiting for {wanted} {what}; there are {there}",
                time.as_secs()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}
