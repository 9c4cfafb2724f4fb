//! Lists with `--watch`. They use long polls: the resource manager answers when the list has
//! changed.
//!
//! A terminal is redrawn at least every two seconds, because measured values such as memory use do
//! not end a long poll. A pipe gets each changed row as a line of JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_client::retry::ExponentialBackoff;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};
use crate::follow::SERVER_SILENCE_TIMEOUT;
use crate::interrupt::Interrupt;
use crate::render::json;
use crate::select::field::ListRow;

/// Longest interval between two redraws of a terminal.
const REDRAW: Duration = Duration::from_secs(2);
/// Longest wait of one poll for a pipe.
const LONGEST: Duration = Duration::from_secs(30);
/// Wait of the first poll, which returns at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Shows the list at `path` until Ctrl-C. `rows` converts the answer to rows, `draw` converts rows
/// to a screen.
pub(crate) async fn watch<A: DeserializeOwned, T: ListRow>(
    context: &CommandContext,
    path: &str,
    rows: impl Fn(A) -> CommandResult<Vec<T>>,
    mut draw: impl AsyncFnMut(Vec<T>) -> CommandResult<String>,
) -> CommandResult {
    let client = context.client()?;
    let redraw = context.term.screen && context.format.is_screen();
    let wait = if redraw { REDRAW } else { LONGEST };
    let mut printed = PrintedRows::default();
    let (mut index, mut first, mut backoff) = (0, true, ExponentialBackoff::usual());
    let (mut silent, interrupt) = (None::<Instant>, Interrupt::ctrl_c()?);
    loop {
        let answer = tokio::select! {
            biased;
            () = interrupt.asked() => return Ok(CommandExitCode::Ok),
            answer = client.get_after::<A>(path, index, if first { AT_ONCE } else { wait }) => answer,
        };
        match answer {
            Ok((answer, now)) => {
                (index, first, silent) = (now, false, None);
                backoff.reset();
                let rows = rows(answer)?;
                if redraw {
                    context.term.redraw(&draw(rows).await?);
                } else {
                    context.term.print(&printed.news(&rows));
                }
            }
            // The resource manager may be restarting.
            Err(e)
                if !first
                    && e.retryable()
                    && silent.get_or_insert_with(Instant::now).elapsed()
                        < SERVER_SILENCE_TIMEOUT =>
            {
                // The next turn ends at once after Ctrl-C.
                let _ = timeout(backoff.wait(), interrupt.asked()).await;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// The last printed line of each row.
#[derive(Debug, Default)]
struct PrintedRows {
    rows: BTreeMap<String, String>,
}

impl PrintedRows {
    /// A line for each row that has changed.
    fn news<T: ListRow>(&mut self, rows: &[T]) -> String {
        let mut out = String::new();
        for row in rows {
            let line = json::line(row);
            let before = self.rows.insert(row.id(), line.clone());
            if before.as_ref() != Some(&line) {
                out.push_str(&format!("{line}\n"));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn only_new_rows_are_printed() {
        let mut printed = PrintedRows::default();
        let mut nodes = fixture::nodes();
        assert_eq!(printed.news(&nodes).lines().count(), nodes.len());
        assert_eq!(printed.news(&nodes), "");
        nodes[1].containers += 1;
        let news = printed.news(&nodes);
        assert!(
            news.lines().count() == 1 && news.contains("worker-03"),
            "{news}"
        );
    }
}
