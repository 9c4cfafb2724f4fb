//! Lists that go on as things change. The resource manager answers when there is something new; nothing is asked again before.
//!
//! A terminal is drawn again, also every two seconds at the latest: what is only measured, such as memory in use, is no change that the
//! resource manager would wake anybody for. A pipe gets each row that is another one than before as a line of JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_client::retry::Backoff;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::follow::PATIENCE;
use crate::render::json;
use crate::select::field::Row;

/// A terminal is drawn again after this time at the latest.
const REDRAW: Duration = Duration::from_secs(2);
/// A pipe waits so long for one answer.
const LONGEST: Duration = Duration::from_secs(30);
/// Before the first answer, which comes at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Shows what is at `path` until Ctrl-C. `rows` takes the answer apart, `draw` makes a screen of it.
pub(crate) async fn watch<A: DeserializeOwned, T: Row>(
    context: &Context,
    path: &str,
    rows: impl Fn(A) -> Result<Vec<T>, Failure>,
    mut draw: impl AsyncFnMut(Vec<T>) -> Result<String, Failure>,
) -> Result<Exit, Failure> {
    let client = context.client()?;
    let redraw = context.term.screen && context.format.is_screen();
    let wait = if redraw { REDRAW } else { LONGEST };
    let mut printed = Printed::default();
    let (mut index, mut first, mut backoff) = (0, true, Backoff::usual());
    let mut silent: Option<Instant> = None;
    loop {
        let answer = tokio::select! {
            answer = client.get_after::<A>(path, index, if first { AT_ONCE } else { wait }) => answer,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Ok),
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
            // One that is restarted is waited for.
            Err(e) if !first && e.retryable() && silent.get_or_insert_with(Instant::now).elapsed() < PATIENCE => {
                tokio::time::sleep(backoff.wait()).await;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// What was printed of each row.
#[derive(Debug, Default)]
struct Printed {
    rows: BTreeMap<String, String>,
}

impl Printed {
    /// A line for each row that is another one than before.
    fn news<T: Row>(&mut self, rows: &[T]) -> String {
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
    fn only_what_is_new_is_printed() {
        let mut printed = Printed::default();
        let mut nodes = fixture::nodes();
        assert_eq!(printed.news(&nodes).lines().count(), nodes.len());
        assert_eq!(printed.news(&nodes), "");
        nodes[1].containers += 1;
        let news = printed.news(&nodes);
        assert!(news.lines().count() == 1 && news.contains("worker-03"), "{news}");
    }
}
