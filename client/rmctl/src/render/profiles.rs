//! Screens of profiles of the cluster: a table, one profile, and the changes of an import.

use headroom_types::{Name, UnixMillis};
use headroom_wire::v1::profiles::ClusterProfile;

use super::figures::{short, short_or_dash, span};
use super::table::{Column, list};
use super::{ListStyle, TextPainter, count};

/// All profiles.
pub(crate) fn screen(all: &[ClusterProfile], now: UnixMillis, look: ListStyle) -> String {
    if all.is_empty() && look.headers {
        return "the cluster has no profiles\nnext: rmctl profile set NAME --memory 1GiB · rmctl profile import FILE\n"
            .to_owned();
    }
    let columns: &[Column<'_, &ClusterProfile>] = &[
        ("PROFILE", &|p| p.name.to_string()),
        (">MEMORY", &|p| short(p.size().memory())),
        (">HEAP", &|p| short(p.heap)),
        (">OVERHEAD", &|p| short(p.overhead)),
        (">CPUS", &|p| p.cpus.to_string()),
        ("FOR", &|p| p.about.clone()),
        ("+>REVISION", &|p| p.revision.to_string()),
        ("+>CHANGED", &|p| ago(p, now)),
    ];
    list(all, look, columns) + &look.advice(look.paint.next("rmctl profile show NAME"))
}

fn ago(profile: &ClusterProfile, now: UnixMillis) -> String {
    format!("{} ago", span(now.since(profile.changed)))
}

/// One profile.
pub(crate) fn one(p: &ClusterProfile, now: UnixMillis, paint: TextPainter) -> String {
    let mut text = format!("{}  {}\n", paint.strong(p.name.as_str()), p.about);
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<10}{value}\n"));
    line("memory", p.size().to_string());
    line("cpus", p.cpus.to_string());
    line("revision", format!("{}, {}", p.revision, ago(p, now)));
    line("use", use_of(&p.name));
    text + &paint.next("rmctl profile list · rmctl job plan FILE")
}

/// The line of a job file that uses a profile.
pub(crate) fn use_of(name: &Name) -> String {
    format!("profile = \"{name}\" in an [executors.NAME] or a [[stage]]")
}

/// The profiles of a file before and after the import.
pub(crate) fn imported(
    rows: &[ClusterProfile],
    before: &[ClusterProfile],
    dry_run: bool,
    paint: TextPainter,
) -> String {
    let was = |row: &ClusterProfile| before.iter().find(|p| p.name == row.name);
    let is_changed = |row: &&ClusterProfile| was(row).is_none_or(|was| was.size() != row.size());
    let changed = rows.iter().filter(is_changed).count() as u64;
    let done = if dry_run { "would be set" } else { "set" };
    let columns: &[Column<'_, &ClusterProfile>] = &[
        ("PROFILE", &|row| row.name.to_string()),
        (">WAS", &|row| {
            short_or_dash(was(row).map(|p| p.size().memory()))
        }),
        (">IS", &|row| short(row.size().memory())),
        (">CPUS", &|row| row.cpus.to_string()),
        ("CHANGE", &|row| match was(row) {
            None => paint.good("+ new"),
            Some(was) if was.size() == row.size() => "= unchanged".to_owned(),
            Some(_) => paint.warn("~ changed"),
        }),
    ];
    list(rows, ListStyle::whole(paint), columns)
        + &format!("{} {done}\n", count(changed, "profile"))
        + &paint.next("rmctl profile list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus};

    const NOW: UnixMillis = UnixMillis(10_000_000);

    fn profile(name: &str, heap: u64, overhead: u64) -> ClusterProfile {
        ClusterProfile {
            name: name.parse().expect("a name"),
            heap: Bytes::from_mib(heap),
            overhead: Bytes::from_mib(overhead),
            cpus: Cpus::from_cores(2),
            about: if overhead > 0 {
                "most JVM jobs".to_owned()
            } else {
                String::new()
            },
            revision: heap,
            changed: UnixMillis(NOW.0 - 7_200_000),
        }
    }

    #[test]
    fn profiles_are_listed_and_shown() {
        let all = [profile("jvm-medium", 4096, 512), profile("small", 1024, 0)];
        insta::assert_snapshot!(screen(&all, NOW, ListStyle::WIDE));
        insta::assert_snapshot!(one(&all[0], NOW, TextPainter::PLAIN));
        assert!(screen(&[], NOW, ListStyle::USUAL).contains("rmctl profile set NAME"));
    }

    #[test]
    fn an_import_lists_its_changes() {
        let before = [profile("jvm-medium", 2048, 512), profile("small", 1024, 0)];
        let now = [
            profile("jvm-medium", 4096, 512),
            profile("large", 16_384, 0),
            profile("small", 1024, 0),
        ];
        insta::assert_snapshot!(imported(&now, &before, false, TextPainter::PLAIN));
    }
}
