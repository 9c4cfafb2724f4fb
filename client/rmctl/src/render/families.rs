//! What is remembered of jobs that were run before, and the sizes that follow from it.

#[cfg(feature = "dev")]
use headroom_appmaster::suggest::Suggestion;
use headroom_types::UnixMillis;
#[cfg(feature = "dev")]
use headroom_wire::v1::families::Family;
use headroom_wire::v1::families::FamilyRow;

use super::Paint;
#[cfg(feature = "dev")]
use super::figures::short;
use super::figures::span;
use super::table::Table;

/// All families.
pub(crate) fn list(rows: &[FamilyRow], now: UnixMillis, paint: Paint) -> String {
    if rows.is_empty() {
        return "no job has ended yet that taught something\nnext: rmctl submit FILE\n".to_owned();
    }
    let mut table = Table::new(&["NAME", "USER", ">RUNS", ">TASKS", ">LAST"]);
    for row in rows {
        let last = format!("{} ago", span(now.since(row.last)));
        table.row([row.name.to_string(), row.user.clone(), row.runs.to_string(), row.tasks.to_string(), last]);
    }
    table.text() + &paint.dim("next: rmctl job suggest NAME") + "\n"
}

/// A row for each stage, and what to write into the job file.
#[cfg(feature = "dev")]
pub(crate) fn suggestions(family: &Family, found: &[Suggestion], paint: Paint) -> String {
    let headers = [
        "STAGE",
        ">TASKS",
        ">ASKED",
        ">P50",
        ">P95",
        ">MAX",
        ">SUGGESTED",
        ">KILLS",
        ">WOULD FAIL",
        ">GIVEN GiB·h",
        ">WOULD GIVE",
    ];
    let mut table = Table::new(&headers);
    for one in found {
        let suggested = one.suggested.map_or_else(|| "too few".to_owned(), |size| paint.strong(&short(size)));
        table.row([
            one.kind.clone(),
            one.tasks.to_string(),
            short(one.asked),
            short(one.p50),
            short(one.p95),
            short(one.max),
            suggested,
            one.kills.to_string(),
            one.would_fail.to_string(),
            format!("{:.2}", one.allocated_gib_h),
            format!("{:.2}", one.would_allocate_gib_h),
        ]);
    }
    let runs = super::count(family.runs, "run");
    let head = format!("{} of {}, {runs}\n\n", paint.strong(family.name.as_str()), family.user);
    let note = "WOULD FAIL: tasks that needed more than the suggestion; they are tried again larger,\n\
                and are counted twice in WOULD GIVE.\nnext: rmctl explain sizes · rmctl job families\n";
    head + &table.text() + "\n" + &paint.dim(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;

    #[test]
    fn families_are_listed_with_their_age() {
        let row = |name: &str, user: &str, runs| FamilyRow {
            user: user.to_owned(),
            name: name.parse().expect("a name"),
            runs,
            tasks: runs * 200,
            last: UnixMillis(1_000_000),
        };
        let rows = [row("count", "ann", 3), row("train", "bob", 1)];
        insta::assert_snapshot!(list(&rows, UnixMillis(1_000_000 + 90 * 60_000), Paint::PLAIN));
        assert!(list(&[], UnixMillis(0), Paint::PLAIN).contains("no job has ended"));
    }

    #[cfg(feature = "dev")]
    #[test]
    fn a_suggestion_stands_beside_what_was_asked() {
        let one = |kind: &str, suggested| Suggestion {
            kind: kind.to_owned(),
            tasks: 200,
            asked: Bytes::from_gib(4),
            p50: Bytes::from_mib(410),
            p95: Bytes::from_mib(700),
            max: Bytes::from_mib(5000),
            suggested,
            kills: 4,
            would_fail: 6,
            allocated_gib_h: 26.67,
            would_allocate_gib_h: 5.31,
        };
        let (name, kinds) = ("count".parse().expect("a name"), Vec::new());
        let family = Family { user: "ann".into(), name, runs: 3, last: UnixMillis(0), kinds };
        let found = [one("map", Some(Bytes::from_mib(736))), one("reduce", None)];
        insta::assert_snapshot!(suggestions(&family, &found, Paint::PLAIN));
    }
}
