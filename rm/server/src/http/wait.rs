//! Long polling: a caller sends the index that it has seen, and receives the response when the
//! index changes or the wait ends.
//!
//! Each waiting call reads the published view at most ten times a second, independent of the number
//! of batches.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use headroom_types::AppId;
use headroom_wire::v1::error::ProblemDetails;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::error::HandlerResult;
use super::limits;
use super::web::WebHandlerState;
use crate::view::{ClusterSnapshot, ViewSection};

/// Maximum wait of one call.
const MOST: Duration = Duration::from_secs(60);
/// Time for which changes are collected into one response.
const TOGETHER: Duration = Duration::from_millis(100);

/// Wait time with its unit, such as `30s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitDuration(Duration);

impl WaitDuration {
    /// The time.
    pub(crate) fn time(self) -> Duration {
        self.0
    }
}

impl FromStr for WaitDuration {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let time = headroom_config::toml_reader::parse_duration(text)
            .map_err(|e| format!("{e}; write a time such as 30s"))?;
        Ok(WaitDuration(time.min(MOST)))
    }
}

headroom_types::parsed_text!(WaitDuration);

/// Long-poll parameters.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LongPollParams {
    /// Respond only when something has changed since `index`, or after this time, such as `30s`; at
    /// most `60s`.
    #[param(value_type = Option<String>)]
    pub(crate) wait: Option<WaitDuration>,
    /// X-Headroom-Index of the previous response.
    pub(crate) index: Option<u64>,
}

/// Returns the view, as soon as the index of `part` differs from the caller's.
pub(crate) async fn view(
    web: &WebHandlerState,
    part: ViewSection,
    long_poll: LongPollParams,
) -> HandlerResult<Arc<ClusterSnapshot>> {
    wait_for_change(web, |view| view.index(part), long_poll).await
}

/// Returns the view, as soon as the index that `index_of` reads from it differs from the caller's.
async fn wait_for_change(
    web: &WebHandlerState,
    index_of: impl Fn(&ClusterSnapshot) -> u64,
    long_poll: LongPollParams,
) -> HandlerResult<Arc<ClusterSnapshot>> {
    let view = web.reader.handle.view().await?;
    let (wait, index) = match (long_poll.wait, long_poll.index) {
        (None, _) => return Ok(view),
        (Some(WaitDuration(wait)), Some(index)) => (wait, index),
        (Some(_), None) => {
            let problem =
                ProblemDetails::bad_request("the parameters: wait is given without index");
            return Err(problem
                .hint("send the X-Headroom-Index of the previous response as index")
                .into());
        }
    };
    if index_of(&view) != index {
        return Ok(view);
    }
    let _place = limits::place(&web.streams)?;
    changed(web, index_of, index, view, Instant::now() + wait).await
}

/// Returns the index of a part that is not shown from the view itself, as soon as it differs from
/// the caller's. Makes no view for a caller that does not wait.
pub(crate) async fn index(
    web: &WebHandlerState,
    part: ViewSection,
    long_poll: LongPollParams,
) -> HandlerResult<u64> {
    match long_poll.wait {
        None => Ok(web.reader.handle.last().index(part)),
        Some(_) => Ok(view(web, part, long_poll).await?.index(part)),
    }
}

/// Returns the index of one application, as soon as it differs from the caller's. It grows with each
/// change of an application, and with each change of the task rows of this one.
pub(crate) async fn app_index(
    web: &WebHandlerState,
    app: &AppId,
    long_poll: LongPollParams,
) -> HandlerResult<u64> {
    let index_of =
        |view: &ClusterSnapshot| view.index(ViewSection::Apps) + web.reader.shared.jobs.index(app);
    let Some(WaitDuration(wait)) = long_poll.wait else {
        return Ok(index_of(&web.reader.handle.last()));
    };
    let (started, before) = (Instant::now(), web.reader.handle.last());
    let view = wait_for_change(web, index_of, long_poll).await?;
    if view.index(ViewSection::Apps) == before.index(ViewSection::Apps) {
        // Tasks of one job may end a thousand times a second.
        tokio::time::sleep_until(started + wait.min(TOGETHER)).await;
    }
    Ok(index_of(&view))
}

async fn changed(
    web: &WebHandlerState,
    index_of: impl Fn(&ClusterSnapshot) -> u64,
    index: u64,
    mut view: Arc<ClusterSnapshot>,
    until: Instant,
) -> HandlerResult<Arc<ClusterSnapshot>> {
    let mut batches = web.reader.handle.batches();
    batches.mark_changed();
    loop {
        tokio::select! {
            () = web.closing.cancelled() => return Ok(view),
            () = tokio::time::sleep_until(until) => return Ok(view),
            news = batches.changed() => if news.is_err() { return Ok(view) },
        }
        view = web.reader.handle.view().await?;
        if index_of(&view) != index {
            return Ok(view);
        }
        tokio::time::sleep_until(until.min(Instant::now() + TOGETHER)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_a_unit_and_a_maximum() {
        assert_eq!("30s".parse(), Ok(WaitDuration(Duration::from_secs(30))));
        assert_eq!("2h".parse(), Ok(WaitDuration(MOST)));
        assert!("30".parse::<WaitDuration>().is_err() && "".parse::<WaitDuration>().is_err());
    }
}
