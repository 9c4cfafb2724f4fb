//! Query parameter `tasks`: selection of task rows. All rows of a job with 3,000 tasks are more
//! than a megabyte.

use std::cmp::Reverse;
use std::str::FromStr;

use headroom_types::ExitCharge;
use headroom_wire::v1::job::{TaskRow, TaskState};
use serde::Deserialize;
use utoipa::IntoParams;

use super::wait::{LongPollParams, WaitDuration};

/// Rows of one page.
pub(crate) const PAGE: usize = 100;

/// Selection of task rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskRowSelection {
    /// All rows.
    #[default]
    All,
    /// No rows: only the totals.
    None,
    /// Tasks with an attempt that was killed for memory.
    Kills,
    /// The first [`PAGE`] rows, by importance.
    First,
    /// One page of [`PAGE`] rows; the first page is 1.
    Page(usize),
}

impl FromStr for TaskRowSelection {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(TaskRowSelection::All),
            "none" => Ok(TaskRowSelection::None),
            "kills" => Ok(TaskRowSelection::Kills),
            "first" => Ok(TaskRowSelection::First),
            number => match number.parse() {
                Ok(page) if page > 0 => Ok(TaskRowSelection::Page(page)),
                Ok(_) | Err(_) => Err(format!(
                    "tasks: {text:?} is not all, none, kills, first or a page number from 1"
                )),
            },
        }
    }
}

headroom_types::parsed_text!(TaskRowSelection);

/// Query parameters of an application.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AppDetailQuery {
    /// Task rows in the response: `all`, `none`, `kills` for tasks with an attempt that was killed
    /// for memory, `first`, or a page number. `first` is the first 100 of failed, running, waiting
    /// and done tasks, with those on a higher rung first. A page has 100 rows and counts from 1.
    /// The header Link has the address of the next page.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    pub(crate) tasks: TaskRowSelection,
    /// Respond only when something has changed since `index`, or after this time, such as `30s`; at
    /// most `60s`.
    #[param(value_type = Option<String>)]
    wait: Option<WaitDuration>,
    /// X-Headroom-Index of the previous response.
    index: Option<u64>,
}

impl AppDetailQuery {
    /// Long-poll parameters.
    pub(crate) fn long_poll(self) -> LongPollParams {
        LongPollParams {
            wait: self.wait,
            index: self.index,
        }
    }
}

impl TaskRowSelection {
    /// Selected rows of `rows`, in their order.
    pub(crate) fn of<T>(
        self,
        rows: impl Iterator<Item = T>,
        row: impl Fn(&T) -> &TaskRow,
    ) -> Vec<T> {
        match self {
            TaskRowSelection::All => rows.collect(),
            TaskRowSelection::None => Vec::new(),
            TaskRowSelection::Kills => rows.filter(|one| was_killed(row(one))).collect(),
            TaskRowSelection::First => {
                let mut rows: Vec<T> = rows.collect();
                rows.sort_by_cached_key(|one| (order(row(one).state), Reverse(row(one).rung)));
                rows.truncate(PAGE);
                rows
            }
            TaskRowSelection::Page(page) => rows
                .skip((page - 1).saturating_mul(PAGE))
                .take(PAGE)
                .collect(),
        }
    }

    /// Number of the next page, for a job with this number of rows.
    pub(crate) fn next(self, rows: usize) -> Option<usize> {
        match self {
            TaskRowSelection::Page(page) if page.saturating_mul(PAGE) < rows => Some(page + 1),
            TaskRowSelection::Page(_)
            | TaskRowSelection::All
            | TaskRowSelection::None
            | TaskRowSelection::Kills
            | TaskRowSelection::First => None,
        }
    }
}

/// Rank of a state by importance.
fn order(state: TaskState) -> u8 {
    match state {
        TaskState::Failed => 0,
        TaskState::Running => 1,
        TaskState::Pending => 2,
        TaskState::Blocked => 3,
        TaskState::Done => 4,
    }
}

fn was_killed(row: &TaskRow) -> bool {
    row.attempts.iter().any(|attempt| {
        attempt
            .reason
            .is_some_and(|reason| reason.charge() == ExitCharge::Memory)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_number_from_1() {
        assert_eq!(
            ["all", "none", "kills", "first", "7"].map(str::parse),
            [
                TaskRowSelection::All,
                TaskRowSelection::None,
                TaskRowSelection::Kills,
                TaskRowSelection::First,
                TaskRowSelection::Page(7)
            ]
            .map(Ok)
        );
        for wrong in ["0", "-1", "some", ""] {
            assert!(wrong.parse::<TaskRowSelection>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_page_has_no_next() {
        assert_eq!(
            [1, 2, 3].map(|page| TaskRowSelection::Page(page).next(201)),
            [Some(2), Some(3), None]
        );
        assert_eq!(
            [
                TaskRowSelection::Page(2).next(200),
                TaskRowSelection::Page(1).next(0),
                TaskRowSelection::All.next(9_999)
            ],
            [None, None, None]
        );
    }
}
