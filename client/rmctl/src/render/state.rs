//! Screens of state directories: contents, backup, restore.

use headroom_rm_store::backup::{BackupSummary, RestoreSummary};
use headroom_rm_store::check::{SnapshotReport, StateReport};
use headroom_types::Bytes;

use super::figures::{or_dash, short};
use super::table::{Column, list};
use super::{ListStyle, TextPainter, count};

/// Screen of `rmctl operator state check`.
pub(crate) fn report(report: &StateReport, paint: TextPainter) -> String {
    let (mut text, look) = (facts(report), ListStyle::whole(paint));
    if !report.records.is_empty() {
        let columns: &[Column<'_, (&String, &usize)>] = &[
            ("RECORDS", &|(kind, _)| kind.clone()),
            (">COUNT", &|(_, count)| count.to_string()),
        ];
        text += &format!("\n{}", list(&report.records, look, columns));
    }
    if !report.snapshots.is_empty() {
        let name = |copy: &SnapshotReport| {
            let name = copy.file.file_name();
            name.map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let state = |copy: &SnapshotReport| match copy.wrong {
            None => paint.good("whole"),
            Some(_) => paint.bad("damaged"),
        };
        let columns: &[Column<'_, &SnapshotReport>] = &[
            ("SNAPSHOT", &name),
            (">COMMIT", &|copy| or_dash(copy.commit)),
            (">RECORDS", &|copy| or_dash(copy.records)),
            ("STATE", &state),
        ];
        text += &format!("\n{}", list(&report.snapshots, look, columns));
    }
    text.push('\n');
    for problem in &report.problems {
        text += &format!(
            "{} {}\n  {}\n",
            paint.bad("✗"),
            problem.what,
            problem.advice
        );
    }
    if report.problems.is_empty() {
        text += &format!("{} no problem found\n", paint.good("✓"));
    }
    text
}

fn facts(report: &StateReport) -> String {
    let acknowledged = report
        .acknowledged
        .map(|n| format!(" ({n} acknowledged)"))
        .unwrap_or_default();
    [
        ("state", report.dir.display().to_string()),
        ("store", or_dash(report.backend.as_ref())),
        ("last commit", or_dash(report.commit) + &acknowledged),
        ("epoch", or_dash(report.epoch)),
        ("last application", or_dash(report.last_app)),
        ("documents", short(Bytes::new(report.document_bytes))),
    ]
    .map(|(name, value)| format!("{name:<18}{value}\n"))
    .concat()
}

/// Screen of `rmctl operator state backup`.
pub(crate) fn kept(kept: &BackupSummary) -> String {
    format!(
        "{} ({}): {} of {}, up to commit {}\nnext: rmctl operator state restore --state DIR --from {}\n",
        kept.file.display(),
        short(Bytes::new(kept.bytes)),
        records(kept.records),
        kept.backend,
        kept.commit,
        kept.file.display()
    )
}

/// Screen of `rmctl operator state restore`.
pub(crate) fn filled(filled: &RestoreSummary) -> String {
    let mut text = format!(
        "{} holds {}, up to commit {}, in {}\nnumbers skip ahead: the next epoch is {}, the next application {}\n",
        filled.dir.display(),
        records(filled.records),
        filled.commit,
        filled.backend,
        filled.epoch.0.saturating_add(1),
        filled.last_app.saturating_add(1)
    );
    if let Some(aside) = &filled.aside {
        text += &format!("the previous contents are in {}\n", aside.display());
    }
    if filled.backend == "etcd" {
        return text + "next: start the resource managers, whose configuration names this etcd\n";
    }
    text + &format!(
        "next: resourcemanager --state {} --store {}\n",
        filled.dir.display(),
        filled.backend
    )
}

fn records(n: usize) -> String {
    count(u64::try_from(n).unwrap_or(u64::MAX), "record")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use headroom_rm_store::check::{SnapshotReport, StateProblem};
    use headroom_types::Epoch;

    fn whole() -> StateReport {
        let copy = |n: u64| SnapshotReport {
            file: format!("/var/lib/rm/snapshot-{n}.jsonl").into(),
            commit: Some(n),
            records: Some(7),
            wrong: None,
        };
        StateReport {
            dir: "/var/lib/rm".into(),
            backend: Some("sled".into()),
            epoch: Some(Epoch(4)),
            last_app: Some(12),
            commit: Some(90),
            acknowledged: Some(90),
            records: BTreeMap::from([
                ("applications".to_owned(), 12),
                ("documents".to_owned(), 9),
                ("nodes".to_owned(), 3),
            ]),
            document_bytes: 3 << 20,
            snapshots: vec![copy(60), copy(88)],
            problems: Vec::new(),
        }
    }

    #[test]
    fn a_whole_directory() {
        insta::assert_snapshot!(report(&whole(), TextPainter::PLAIN));
    }

    #[test]
    fn a_damaged_directory() {
        let mut damaged = whole();
        (damaged.epoch, damaged.last_app, damaged.commit) = (None, None, None);
        (damaged.records, damaged.document_bytes) = (BTreeMap::new(), 0);
        let file = "/var/lib/rm/snapshot-88.jsonl".into();
        damaged.snapshots[1] = SnapshotReport {
            file,
            commit: None,
            records: None,
            wrong: Some("it is truncated".into()),
        };
        let (what, advice) = (
            "/var/lib/rm/store: it contains 3 records instead of 24".into(),
            "Restore a backup".into(),
        );
        damaged.problems.push(StateProblem { what, advice });
        insta::assert_snapshot!(report(&damaged, TextPainter::PLAIN));
    }

    #[test]
    fn a_backup_and_a_restore() {
        let kept_ = BackupSummary {
            file: "/b/rm".into(),
            backend: "sled".into(),
            commit: 90,
            records: 24,
            bytes: 3 << 20,
        };
        let filled_ = RestoreSummary {
            dir: "/var/lib/rm".into(),
            backend: "redb".into(),
            commit: 90,
            records: 24,
            epoch: Epoch(1004),
            last_app: 1_000_012,
            aside: Some("/var/lib/rm/replaced-1790000000".into()),
        };
        insta::assert_snapshot!(kept(&kept_) + "\n" + &filled(&filled_));
    }
}
