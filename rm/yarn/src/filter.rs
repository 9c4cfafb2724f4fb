//! Filters for lists of applications. All parameters are parsed before any application is read.

use std::collections::BTreeSet;
use std::str::FromStr;

use headroom_rm_reports::ApplicationReport;
use headroom_types::QueuePath;

use crate::app_kind::AppKind;
use crate::error::{YarnError, YarnResult};
use crate::request::YarnQueryParams;
use crate::state::{AppState, FinalStatus};

/// Parts of an application that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    ResourceRequests,
    Timeouts,
    AppNodeLabel,
    AmNodeLabel,
    ResourceInfo,
}

impl Part {
    pub(crate) const ALL: [(&str, Part); 5] = [
        ("resourceRequests", Part::ResourceRequests),
        ("timeouts", Part::Timeouts),
        ("appNodeLabelExpression", Part::AppNodeLabel),
        ("amNodeLabelExpression", Part::AmNodeLabel),
        ("resourceInfo", Part::ResourceInfo),
    ];
}

/// Parsed filter. An empty list or `None` matches all applications.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    states: Vec<AppState>,
    status: Option<FinalStatus>,
    user: Option<String>,
    queue: Option<QueuePath>,
    name: Option<String>,
    types: Vec<String>,
    tags: Vec<String>,
    started: Range,
    finished: Range,
    limit: Option<usize>,
    /// Parts that are left out of the response.
    pub(crate) without: BTreeSet<Part>,
}

/// Range of times, both ends included. Milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    begin: Option<u64>,
    end: Option<u64>,
}

impl Range {
    fn of(asked: &YarnQueryParams, name: &str) -> YarnResult<Self> {
        let (begin, end) = (
            number(asked, &format!("{name}Begin"))?,
            number(asked, &format!("{name}End"))?,
        );
        if let (Some(begin), Some(end)) = (begin, end)
            && begin > end
        {
            return Err(YarnError::bad(format!("{name}Begin is after {name}End")));
        }
        Ok(Range { begin, end })
    }
    fn is_open(self) -> bool {
        self.begin.is_none() && self.end.is_none()
    }
    fn holds(self, at: u64) -> bool {
        self.begin.is_none_or(|begin| at >= begin) && self.end.is_none_or(|end| at <= end)
    }
}

fn number<T: FromStr>(asked: &YarnQueryParams, name: &str) -> YarnResult<Option<T>> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            YarnError::bad(format!(
                "{name} must be a number of 0 or more, and is {text:?}"
            ))
        })
    };
    asked.one(name).map(read).transpose()
}

impl Filter {
    /// Parses the parameters. A word that is not in its list is refused: an empty response would
    /// look as if nothing ran.
    pub(crate) fn of(asked: &YarnQueryParams) -> YarnResult<Self> {
        let states = [asked.all("states"), asked.all("state")].concat();
        let limit: Option<usize> = number(asked, "limit")?;
        if limit == Some(0) {
            return Err(YarnError::bad("limit must be above 0"));
        }
        let queue = asked
            .one("queue")
            .map(|q| q.parse().map_err(|e| YarnError::bad(format!("queue: {e}"))))
            .transpose()?;
        let parts = asked
            .all("deSelects")
            .into_iter()
            .map(|part| word("deSelects", &Part::ALL, part));
        let tags: Vec<String> = asked
            .all("applicationTags")
            .into_iter()
            .map(str::to_lowercase)
            .collect();
        Ok(Filter {
            states: app_states(&states)?,
            status: asked.one("finalStatus").map(final_status).transpose()?,
            user: asked.one("user").map(str::to_owned),
            queue,
            name: asked.one("name").map(str::to_owned),
            types: asked
                .all("applicationTypes")
                .into_iter()
                .map(str::to_owned)
                .collect(),
            tags,
            started: Range::of(asked, "startedTime")?,
            finished: Range::of(asked, "finishedTime")?,
            limit,
            without: parts.collect::<Result<_, _>>()?,
        })
    }

    /// Matching applications in order of submission; if they exceed the limit, the latest.
    pub(crate) fn choose(&self, mut apps: Vec<ApplicationReport>) -> Vec<ApplicationReport> {
        apps.retain(|app| self.wants(app));
        let surplus = self
            .limit
            .map_or(0, |limit| apps.len().saturating_sub(limit));
        apps.split_off(surplus)
    }

    fn wants(&self, app: &ApplicationReport) -> bool {
        let kind = AppKind::of(app);
        let tagged = || {
            kind.tags
                .iter()
                .any(|tag| self.tags.contains(&tag.to_lowercase()))
        };
        (self.states.is_empty() || self.states.contains(&AppState::of(app.state)))
            && self.status.is_none_or(|status| status == FinalStatus::of(app.state))
            && self.user.as_ref().is_none_or(|user| *user == app.user)
            && self.queue.as_ref().is_none_or(|queue| app.queue.is_within(queue))
            && self.name.as_ref().is_none_or(|name| *name == kind.name)
            && (self.types.is_empty() || self.types.contains(&kind.kind))
            && (self.tags.is_empty() || tagged())
            && self.started.holds(app.submitted.0)
            // A running application has no end time.
            && (self.finished.is_open() || app.ended.is_some_and(|ended| self.finished.holds(ended.0)))
    }
}

/// States by name, ignoring case.
pub(crate) fn app_states(names: &[&str]) -> YarnResult<Vec<AppState>> {
    let all = AppState::ALL.map(|state| (state.as_str(), state));
    names
        .iter()
        .map(|name| word("states", &all, name))
        .collect()
}

fn final_status(name: &str) -> YarnResult<FinalStatus> {
    let all = FinalStatus::ALL.map(|status| (status.as_str(), status));
    word("finalStatus", &all, name)
}

/// Value for a word of a closed list, ignoring case.
pub(crate) fn word<T: Copy>(parameter: &str, all: &[(&str, T)], given: &str) -> YarnResult<T> {
    let found = all
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(given));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        YarnError::bad(format!(
            "{parameter}: {given:?} is not one of {}",
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> YarnQueryParams {
        YarnQueryParams(
            pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn an_unknown_value_of_a_parameter_is_refused() {
        for wrong in [
            ("states", "RUNNING,SLEEPING"),
            ("finalStatus", "DONE"),
            ("deSelects", "all"),
            ("limit", "0"),
            ("limit", "-1"),
        ] {
            assert!(Filter::of(&asked(&[wrong])).is_err(), "{wrong:?}");
        }
        assert!(
            Filter::of(&asked(&[
                ("startedTimeBegin", "5"),
                ("startedTimeEnd", "4")
            ]))
            .is_err()
        );
        assert!(Filter::of(&asked(&[("queue", "a//b")])).is_err());
    }

    #[test]
    fn values_are_parsed_in_any_case() {
        let filter = Filter::of(&asked(&[
            ("states", "running"),
            ("state", "FINISHED"),
            ("deSelects", "timeouts"),
        ]))
        .expect("valid");
        assert_eq!(filter.states, [AppState::Running, AppState::Finished]);
        assert!(filter.without.contains(&Part::Timeouts) && filter.without.len() == 1);
    }

    #[test]
    fn a_range_includes_both_ends() {
        let range = Range {
            begin: Some(3),
            end: Some(5),
        };
        assert_eq!(
            [2, 3, 5, 6].map(|at| range.holds(at)),
            [false, true, true, false]
        );
        assert!(Range::default().holds(0) && Range::default().is_open());
    }
}
