//! Selection and order of the rows of a list. Pure: rows are compared as documents and returned
//! unchanged.

pub(crate) mod field;
pub(crate) mod filter;

use std::cmp::Ordering;
use std::time::Duration;

use headroom_types::UnixMillis;
use serde_json::Value;

use crate::exit::{CommandFailure, CommandResult};
use field::{ListRow, RowDocument, number};
use filter::RowFilter;

/// The options of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowSelection {
    /// Filter expression.
    pub(crate) filter: Option<RowFilter>,
    /// Sort order.
    pub(crate) order: Option<RowSortOrder>,
    /// Only rows that began within this time.
    pub(crate) since: Option<Duration>,
    /// Maximum number of rows.
    pub(crate) limit: Option<usize>,
}

/// A sort order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowSortOrder {
    /// The field.
    pub(crate) field: String,
    /// Descending order.
    pub(crate) falling: bool,
}

impl std::str::FromStr for RowSortOrder {
    type Err = String;
    /// Parses `memory`, or `-memory` for descending order.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (field, falling) = text
            .strip_prefix('-')
            .map_or((text, false), |rest| (rest, true));
        if field.is_empty() {
            Err("name a field".to_owned())
        } else {
            Ok(RowSortOrder {
                field: field.to_owned(),
                falling,
            })
        }
    }
}

impl RowSelection {
    /// True if all rows are shown in their original order.
    pub(crate) fn is_all(&self) -> bool {
        self.filter.is_none()
            && self.order.is_none()
            && self.since.is_none()
            && self.limit.is_none()
    }

    /// Whether a new row of a watched list matches the filter.
    pub(crate) fn takes<T: ListRow>(&self, row: &T) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| filter.holds(&RowDocument::of(row)))
    }

    /// The selected rows in the selected order.
    pub(crate) fn of<T: ListRow>(&self, rows: Vec<T>, now: UnixMillis) -> CommandResult<Vec<T>> {
        if self.is_all() {
            return Ok(rows);
        }
        let mut kept: Vec<(T, RowDocument)> = rows
            .into_iter()
            .map(|row| (RowDocument::of(&row), row))
            .map(|(doc, row)| (row, doc))
            .collect();
        let fields = self
            .filter
            .iter()
            .flat_map(RowFilter::fields)
            .chain(self.order.as_ref().map(|o| o.field.as_str()));
        for field in fields {
            known(field, &kept)?;
        }
        if let Some(since) = self.since {
            if kept.iter().any(|(row, _)| row.started_at().is_none()) {
                return Err(CommandFailure::usage("--since: these rows have no time"));
            }
            kept.retain(|(row, _)| {
                row.started_at()
                    .is_some_and(|started_at| now.since(started_at) <= since)
            });
        }
        if let Some(filter) = &self.filter {
            kept.retain(|(_, doc)| filter.holds(doc));
        }
        if let Some(order) = &self.order {
            kept.sort_by(|(_, a), (_, b)| {
                compare(&a.get(&order.field), &b.get(&order.field), order.falling)
            });
        }
        kept.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(kept.into_iter().map(|(row, _)| row).collect())
    }
}

/// A field that no row has is a mistake of the user, not an empty result.
fn known<T>(field: &str, rows: &[(T, RowDocument)]) -> CommandResult<()> {
    let Some((_, first)) = rows.first() else {
        return Ok(());
    };
    if rows.iter().any(|(_, doc)| doc.get(field).is_some()) {
        return Ok(());
    }
    let names = first.names();
    let failure = CommandFailure::usage(format!("no row has a field {field:?}"));
    let failure = failure.near(field, names.iter().map(String::as_str));
    Err(failure.help(format!("fields: {}", names.join(", "))))
}

/// Compares numbers by value and other values by their text. Missing values come last in both
/// orders.
fn compare(a: &Option<Value>, b: &Option<Value>, falling: bool) -> Ordering {
    let there = |v: &Option<Value>| v.clone().filter(|v| !v.is_null());
    let (a, b) = match (there(a), there(b)) {
        (Some(a), Some(b)) => (a, b),
        (a, b) => return b.is_some().cmp(&a.is_some()),
    };
    let order = match (number(&a), number(&b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (_, _) => field::text(&a).cmp(&field::text(&b)),
    };
    if falling { order.reverse() } else { order }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CommandExitCode;
    use crate::render::fixture;

    fn ids(wanted: &RowSelection) -> Vec<String> {
        let rows = fixture::nodes();
        wanted
            .of(rows, fixture::NOW)
            .expect("rows")
            .iter()
            .map(ListRow::id)
            .collect()
    }

    #[test]
    fn rows_are_filtered_sorted_and_cut() {
        let filter = |text: &str| RowSelection {
            filter: Some(text.parse().expect(text)),
            ..RowSelection::default()
        };
        assert_eq!(
            ids(&filter("state == ready && free > 5GiB")),
            ["worker-03", "worker-05"]
        );
        assert_eq!(
            ids(&filter("offers.memory >= 30GiB || state != ready")),
            ["worker-03", "worker-04"]
        );
        let by = |text: &str, limit| RowSelection {
            order: Some(text.parse().expect(text)),
            limit,
            ..RowSelection::default()
        };
        assert_eq!(ids(&by("-used", Some(2))), ["worker-03", "worker-01"]);
        assert_eq!(
            ids(&by("free", None)),
            ["worker-01", "worker-03", "worker-04", "worker-05"]
        );
    }

    #[test]
    fn an_unknown_field_is_an_error() {
        let wanted = RowSelection {
            filter: Some("stat == ready".parse().expect("reads")),
            ..RowSelection::default()
        };
        let wrong = wanted
            .of(fixture::nodes(), fixture::NOW)
            .expect_err("no such field");
        assert_eq!(wrong.exit(), CommandExitCode::Usage);
        assert!(
            wrong.to_string().contains("did you mean \"state\"?"),
            "{wrong}"
        );
        assert!(
            wanted
                .of(
                    Vec::<headroom_wire::v1::nodes::NodeView>::new(),
                    fixture::NOW
                )
                .is_ok(),
            "no rows, no error"
        );
    }

    #[test]
    fn rows_without_a_time_refuse_since() {
        let wanted = RowSelection {
            since: Some(Duration::from_secs(60)),
            ..RowSelection::default()
        };
        assert!(wanted.of(fixture::nodes(), fixture::NOW).is_err());
        let events = wanted
            .of(fixture::events(), UnixMillis(fixture::START + 120_000))
            .expect("events have times");
        assert_eq!(events.len(), 4, "an older event is left out");
    }

    #[test]
    fn missing_values_sort_last() {
        let (none, one, two) = (None, Some(Value::from(1)), Some(Value::from(10)));
        assert_eq!(
            (compare(&none, &one, false), compare(&none, &one, true)),
            (Ordering::Greater, Ordering::Greater)
        );
        assert_eq!(
            (compare(&one, &two, false), compare(&one, &two, true)),
            (Ordering::Less, Ordering::Greater)
        );
    }
}
