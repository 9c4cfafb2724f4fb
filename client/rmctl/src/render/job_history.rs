//! Screens of the job history, and of the sizes that follow from it.

use headroom_types::UnixMillis;
use headroom_wire::v1::job_history::{JobHistory, JobHistoryRow};
use headroom_wire::v1::suggestions::Suggestion;

use super::figures::{or_dash, short, short_or_dash, span};
use super::table::{self, Column, wrap};
use super::{ListStyle, TextPainter};

/// Width of a line. Columns.
const COLUMNS: usize = 100;

/// All jobs with a history.
pub(crate) fn list(rows: &[JobHistoryRow], now: UnixMillis, paint: TextPainter) -> String {
    if rows.is_empty() {
        return "no ended job has a history yet\nnext: rmctl submit FILE\n".to_owned();
    }
    let columns: &[Column<'_, &JobHistoryRow>] = &[
        ("NAME", &|row| row.name.to_string()),
        ("USER", &|row| row.user.clone()),
        (">RUNS", &|row| row.runs.to_string()),
        (">TASKS", &|row| row.tasks.to_string()),
        (">LAST", &|row| format!("{} ago", span(now.since(row.last)))),
    ];
    table::list(rows, ListStyle::whole(paint), columns) + &paint.next("rmctl job suggest NAME")
}

/// A row for each stage, and the reasons as sentences.
pub(crate) fn suggestions(family: &JobHistory, found: &[Suggestion], paint: TextPainter) -> String {
    let runs = super::count(family.runs, "run");
    let head = format!(
        "{} of {}, {runs}\n\n",
        paint.strong(family.name.as_str()),
        family.user
    );
    let note = "next: rmctl explain sizes · rmctl profile suggest\n";
    head + &suggested(found, |one| one.kind.clone(), "STAGE", paint)
        + &enlarged(family)
        + &paint.dim(note)
}

/// The number of tasks that start with more memory than configured; empty without such tasks.
fn enlarged(family: &JobHistory) -> String {
    if family.enlarged.is_empty() {
        return String::new();
    }
    let count = family.enlarged.len();
    format!("tasks that start with the memory that they needed in an earlier job: {count}\n")
}

/// Suggestions for all jobs with a history, each with the name of its job.
pub(crate) fn all_suggestions(found: &[Suggestion], paint: TextPainter) -> String {
    if found.is_empty() {
        return "no job has a history for a suggestion\nnext: rmctl job families · rmctl profile list\n".to_owned();
    }
    let whole = |one: &Suggestion| format!("{}/{}", one.job, one.kind);
    suggested(found, whole, "JOB/STAGE", paint)
        + &paint.dim("next: rmctl profile set NAME --memory SIZE · rmctl job suggest NAME\n")
}

fn suggested(
    found: &[Suggestion],
    name: impl Fn(&Suggestion) -> String,
    what: &str,
    paint: TextPainter,
) -> String {
    let part = |of: f64, one: &Suggestion| {
        let is_known = one.allocated_gib_h > 0.0;
        or_dash(is_known.then(|| format!("{:.0}%", of / one.allocated_gib_h * 100.0)))
    };
    let wasted = |one: &Suggestion| (one.allocated_gib_h - one.needed_gib_h).max(0.0);
    let saved = |one: &Suggestion| one.allocated_gib_h - one.would_allocate_gib_h;
    let columns: &[Column<'_, &Suggestion>] = &[
        (what, &|one| name(one)),
        (">TASKS", &|one| one.tasks.to_string()),
        (">ASKED", &|one| short(one.asked)),
        (">P50", &|one| short(one.p50)),
        (">P95", &|one| short(one.p95)),
        (">MAX", &|one| short(one.max)),
        (">KILLS", &|one| one.kills.to_string()),
        (">WASTE", &|one| part(wasted(one), one)),
        (">SUGGEST", &|one| {
            let size = one.suggested.map(|size| paint.strong(&short(size)));
            size.unwrap_or_else(|| "too few".to_owned())
        }),
        (">THEN", &|one| short_or_dash(one.then)),
        (">SAVES", &|one| {
            or_dash(one.suggested.map(|_| part(saved(one), one)))
        }),
    ];
    let rows = table::list(found, ListStyle::whole(paint), columns);
    let words = found
        .iter()
        .flat_map(|one| wrap(&format!("{}: {}", name(one), one.why), COLUMNS));
    let words: String = words.map(|line| format!("{line}\n")).collect();
    let note = "WASTE: part of the given memory × time that was not needed. THEN: size after a failure at SUGGEST.\n\
                SAVES: part of the given memory × time that is saved, with each failing task counted twice.\n";
    rows + "\n" + &words + &paint.dim(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;

    #[test]
    fn families_are_listed_with_their_age() {
        let row = |name: &str, user: &str, runs| JobHistoryRow {
            user: user.to_owned(),
            name: name.parse().expect("a name"),
            runs,
            tasks: runs * 200,
            last: UnixMillis(1_000_000),
        };
        let rows = [row("count", "ann", 3), row("train", "bob", 1)];
        insta::assert_snapshot!(list(
            &rows,
            UnixMillis(1_000_000 + 90 * 60_000),
            TextPainter::PLAIN
        ));
        assert!(list(&[], UnixMillis(0), TextPainter::PLAIN).contains("no ended job"));
    }

    #[test]
    fn suggestions_are_listed_with_the_requested_sizes() {
        let name: headroom_types::Name = "count".parse().expect("a name");
        let (then, stated) = (Some(Bytes::from_mib(5120)), Some(Bytes::from_mib(736)));
        let one = |kind: &str, suggested: Option<Bytes>, why: &str| Suggestion {
            user: "ann".into(),
            job: name.clone(),
            kind: kind.to_owned(),
            tasks: 200,
            asked: Bytes::from_gib(4),
            p50: Bytes::from_mib(410),
            p95: Bytes::from_mib(700),
            max: Bytes::from_mib(5000),
            kills: 4,
            suggested,
            then: then.filter(|_| suggested.is_some()),
            stated,
            would_fail: 6,
            needed_gib_h: 3.2,
            allocated_gib_h: 26.67,
            would_allocate_gib_h: 5.31,
            one_size_gib_h: 33.0,
            why: why.to_owned(),
        };
        let found = [
            one(
                "map",
                Some(Bytes::from_mib(480)),
                "below P95 on purpose: holds 180 of 200 tasks; the others are tried again at 5 GiB: that takes 5.31 GiB·h, and one size for all 33.00",
            ),
            one(
                "reduce",
                None,
                "3 tasks that ended well are too few, 8 are needed",
            ),
        ];
        let family = JobHistory {
            user: "ann".into(),
            name: name.clone(),
            runs: 3,
            last: UnixMillis(0),
            kinds: Vec::new(),
            enlarged: Vec::new(),
        };
        let text = suggestions(&family, &found, TextPainter::PLAIN);
        assert!(
            text.lines().all(|line| line.chars().count() <= COLUMNS),
            "{text}"
        );
        insta::assert_snapshot!(text);
        insta::assert_snapshot!(all_suggestions(&found[..1], TextPainter::PLAIN));
        assert!(all_suggestions(&[], TextPainter::PLAIN).contains("rmctl job families"));
    }
}
