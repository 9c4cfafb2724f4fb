//! Queries that wait: the caller names the index it has seen, and is answered when there is another one or its time is over.
//!
//! Looks at the published view at most ten times a second, however many batches there are and however many wait.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use headroom_wire::v1::error::{Code, Problem};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::error::Failure;
use super::{Web, limits};
use crate::view::{Part, View};

/// Longest wait of one call.
const MOST: Duration = Duration::from_secs(60);
/// Changes that come within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(100);

/// A time with its unit: `30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(Duration);

impl FromStr for Wait {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let time = headroom_config::raw::parse_duration(text).map_err(|e| format!("{e}; write a time such as 30s"))?;
        Ok(Wait(time.min(MOST)))
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How a query may wait: all the parameters of an address that shows one thing.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Patience {
    /// Answer only when something has changed since `index`, or after this time, such as `30s`; at most `60s`.
    #[param(value_type = Option<String>)]
    pub(crate) wait: Option<Wait>,
    /// The X-Headroom-Index of the answer before.
    pub(crate) index: Option<u64>,
}

/// The view as it is, or as soon as that part of it is another one than the caller has seen.
pub(crate) async fn view(web: &Web, part: Part, patience: Patience) -> Result<Arc<View>, Failure> {
    let view = web.handle.view().await?;
    let (wait, index) = match (patience.wait, patience.index) {
        (None, _) => return Ok(view),
        (Some(Wait(wait)), Some(index)) => (wait, index),
        (Some(_), None) => {
            let problem = Problem::new(Code::HR0400, "the parameters: wait is given without index");
            return Err(problem.hint("send the X-Headroom-Index of the answer before as index").into());
        }
    };
    if view.index(part) != index {
        return Ok(view);
    }
    let _place = limits::place(&web.streams)?;
    changed(web, part, index, view, Instant::now() + wait).await
}

/// Where a part stands that is not shown from the view itself: as of the view there is, or as soon as it is another one than the
/// caller has seen. Makes no view for a caller who does not wait.
pub(crate) async fn index(web: &Web, part: Part, patience: Patience) -> Result<u64, Failure> {
    match patience.wait {
        None => Ok(web.handle.last().index(part)),
        Some(_) => Ok(view(web, part, patience).await?.index(part)),
    }
}

async fn changed(web: &Web, part: Part, index: u64, mut view: Arc<View>, until: Instant) -> Result<Arc<View>, Failure> {
    let mut batches = web.handle.batches();
    batches.mark_changed();
    loop {
        tokio::select! {
            () = web.closing.cancelled() => return Ok(view),
            () = tokio::time::sleep_until(until) => return Ok(view),
            news = batches.changed() => if news.is_err() { return Ok(view) },
        }
        view = web.handle.view().await?;
        if view.index(part) != index {
            return Ok(view);
        }
        tokio::time::sleep_until(until.min(Instant::now() + TOGETHER)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_a_unit_and_an_end() {
        assert_eq!("30s".parse(), Ok(Wait(Duration::from_secs(30))));
        assert_eq!("2h".parse(), Ok(Wait(MOST)));
        assert!("30".parse::<Wait>().is_err() && "".parse::<Wait>().is_err());
    }
}
