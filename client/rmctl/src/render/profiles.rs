//! Screens of profiles of the cluster: a table, one profile, and the changes of an import.

use headroom_types::{Name, UnixMillis};
use headroom_wire::v1::profiles::ClusterProfile;

use super::figures::{short, span};
use super::table::Table;
use super::{ListStyle, TextPainter, count};

/// All profiles.
pub(crate) fn screen(all: &[ClusterProfile], now: UnixMillis, look: ListStyle) -> String {
    let paint = look.paint;
    if all.is_empty() && look.headers {
        return "the cluster has no profiles\nnext: rmctl profile set NAME --memory 1GiB · rmctl profile import FILE\n"
            .to_owned();
    }
    let mut headers = vec!["PROFILE", ">MEMORY", ">HEAP", ">OVERHEAD", ">CPUS", "FOR"];
    if look.wide {
        headers.extend([">REVISION", ">CHANGED"]);
    }
    let mut table = Table::new(&headers);
    for p in all {
        let mut cells = vec![
            p.name.to_string(),
            short(p.size().memory()),
            short(p.heap),
            short(p.overhead),
            p.cpus.to_string(),
        ];
        cells.push(p.about.clone());
        if look.wide {
            cells.extend([p.revision.to_string(), ago(p, now)]);
        }
        table.row(cells);
    }
    table.of(look.headers) + &look.advice(paint.dim("next: rmctl profile show NAME") + "\n")
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
    text + &paint.dim("next: rmctl profile list · rmctl job plan FILE") + "\n"
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
    let mut table = Table::new(&["PROFILE", ">WAS", ">IS", ">CPUS", "CHANGE"]);
    let mut changed = 0_u32;
    for row in rows {
        let was = before.iter().find(|p| p.name == row.name);
        let change = match was {
            None => paint.good("+ new"),
            Some(was) if was.size() == row.size() => "= unchanged".to_owned(),
            Some(_) => paint.warn("~ changed"),
        };
        changed += u32::from(was.is_none_or(|was| was.size() != row.size()));
        let old = was.map_or_else(|| "–".to_owned(), |p| short(p.size().memory()));
        table.row([
            row.name.to_string(),
            old,
            short(row.size().memory()),
            row.cpus.to_string(),
            change,
        ]);
    }
    let done = if dry_run { "would be set" } else { "set" };
    table.text()
        + &format!("{} {done}\n", count(changed, "profile"))
        + &paint.dim("next: rmctl profile list")
        + "\n"
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
