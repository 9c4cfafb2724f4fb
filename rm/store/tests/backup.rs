//! Tests of check, backup and restore of a state directory without a resource manager.

#![allow(missing_docs)] // tests are read, not imported

use std::fs;
use std::path::Path;
use std::sync::Arc;

use headroom_rm_core::{AppSubmission, DurableRecord, MasterKind, SavedStage, SavedState};
use headroom_rm_store::backup::{ExistingStatePolicy, REPLACING, backup, restore};
use headroom_rm_store::check::check;
use headroom_rm_store::engine::database_path;
use headroom_rm_store::{JournalGroup, StoreError, open, snapshot};
use headroom_types::{AppId, StoreBackend, UnixMillis};

mod backends;
use backends::on_every_backend;

on_every_backend!(
    a_backup_is_restored_completely_in_either_backend,
    a_restore_does_not_reuse_numbers_given_after_the_backup,
    existing_files_and_state_are_not_overwritten,
    a_damaged_backup_is_refused_and_leaves_the_state_unchanged,
    an_interrupted_restore_can_be_run_again,
    a_directory_in_use_is_refused,
    a_check_counts_records_and_names_problems,
);

fn app(n: u32) -> AppId {
    AppId::new("job".parse().expect("name"), n)
}

/// Runs applications up to number `last`.
fn live(dir: &Path, backend: StoreBackend, last: u32) {
    let mut opened = open(dir, backend).expect("opens");
    let spec = AppSubmission {
        name: "job".parse().expect("name"),
        queue: "default".parse().expect("name"),
        priority: 0,
        user: "ann".into(),
        lifetime: None,
        master: MasterKind::Unmanaged,
        key: None,
    };
    let state = SavedState {
        stage: SavedStage::Running,
        diagnostics: String::new(),
        attempt: 1,
        charged: 0,
        uncharged: 0,
        master: None,
        master_node: None,
        master_size: None,
        master_heap: None,
        ended: None,
        queue: None,
        priority: None,
        until: None,
        runs: Vec::new(),
    };
    for n in opened.restored.last_app + 1..=last {
        let journal = &mut opened.journal;
        journal
            .append(&DurableRecord::App {
                app: app(n),
                spec: Arc::new(spec.clone()),
                submitted: UnixMillis(5),
            })
            .expect("appends");
        journal
            .append(&DurableRecord::State {
                app: app(n),
                state: Box::new(state.clone()),
            })
            .expect("appends");
        journal
            .append_document(&app(n), document(n))
            .expect("appends");
        for (_, group) in journals().into_iter().filter(|(app, _)| *app == n) {
            let all = group_records();
            let (small, large) = all.split_at(2);
            let records = if group.attempt == 1 { small } else { large };
            journal
                .append_journal_group(&app(n), &group, records.to_vec())
                .expect("appends");
        }
        journal.commit(&mut opened.store).expect("commits");
    }
    opened
        .journal
        .append(&DurableRecord::Node("n1".parse().expect("id")))
        .expect("appends");
    opened.commit().expect("commits");
}

/// The journal of the second application: one small group, and one of several entries.
fn journals() -> Vec<(u32, JournalGroup)> {
    let all = group_records();
    let (small, large) = all.split_at(2);
    vec![
        (2, JournalGroup::new(1, 0, small)),
        (2, JournalGroup::new(2, 0, large)),
    ]
}

fn group_records() -> Vec<u8> {
    [&b"a\n"[..], &[b'b'; 20_000], b"\n"].concat()
}

/// Text, JSON, or bytes that are neither.
fn document(n: u32) -> Vec<u8> {
    match n % 3 {
        0 => format!("{{\"z\":{n},\"a\":[1.50]}}").into_bytes(),
        1 => vec![b'a'; 20_000],
        _ => vec![0xff; 9_000],
    }
}

fn other(backend: StoreBackend) -> StoreBackend {
    StoreBackend::ALL
        .into_iter()
        .find(|b| *b != backend)
        .expect("two")
}

fn names(dir: &Path) -> Vec<String> {
    let all = fs::read_dir(dir)
        .expect("reads")
        .map(|e| e.expect("reads").file_name().to_string_lossy().into_owned());
    let mut all: Vec<String> = all.filter(|name| name != "lock").collect();
    all.sort();
    all
}

fn a_backup_is_restored_completely_in_either_backend(backend: StoreBackend) {
    let place = tempfile::tempdir().expect("a directory");
    let (from, file) = (place.path().join("from"), place.path().join("backup"));
    live(&from, backend, 9);
    let before = names(&from);
    let kept = backup(&from, &file).expect("writes");
    assert_eq!(
        (kept.backend, kept.records, kept.commit),
        (backend.to_string(), 9 * 3 + 2 + 2, 12)
    );
    assert_eq!(
        kept.bytes,
        fs::metadata(&file).expect("the file exists").len()
    );
    assert_eq!(
        names(&from),
        before,
        "the backup leaves no files in the directory"
    );
    for to in [backend, other(backend)] {
        let dir = place.path().join(to.as_str());
        let filled = restore(&dir, &file, to, ExistingStatePolicy::No).expect("fills");
        assert_eq!(
            (filled.backend, filled.records, filled.aside),
            (to.to_string(), kept.records, None)
        );
        let mut opened = open(&dir, to).expect("opens");
        assert_eq!(opened.journals, journals());
        let records = |n| opened.documents.master_journal(&app(n)).expect("reads");
        assert_eq!((records(1), records(2)), (b"".to_vec(), group_records()));
        let apps: Vec<u32> = opened.restored.apps.iter().map(|a| a.id.seq()).collect();
        assert_eq!(apps, (1..=9).collect::<Vec<_>>());
        assert!(
            (1..=9).all(|n| opened.documents.get(&app(n)).expect("reads") == Some(document(n)))
        );
        assert_eq!(opened.restored.nodes.len(), 1);
        opened
            .journal
            .append(&DurableRecord::AppGone(app(2)))
            .expect("appends");
        opened.commit().expect("commits");
        let gone = opened.documents.master_journal(&app(2)).expect("reads");
        assert_eq!(gone, b"", "it belongs to its application");
    }
}

fn a_restore_does_not_reuse_numbers_given_after_the_backup(backend: StoreBackend) {
    let place = tempfile::tempdir().expect("a directory");
    let (dir, file) = (place.path().join("state"), place.path().join("backup"));
    live(&dir, backend, 3);
    backup(&dir, &file).expect("writes");
    let mut epoch = 0;
    for last in 4..40 {
        live(&dir, backend, last);
        epoch = check(&dir)
            .expect("looks")
            .epoch
            .expect("the state is complete")
            .0;
    }
    let filled = restore(&dir, &file, backend, ExistingStatePolicy::MoveAside).expect("fills");
    let next = open(&dir, backend).expect("opens").restored;
    assert!(next.epoch.0 > epoch && next.last_app > 39, "{next:?}");
    assert_eq!(
        (filled.epoch.0 + 1, filled.last_app),
        (next.epoch.0, next.last_app)
    );
    let alone = place.path().join("elsewhere");
    restore(&alone, &file, backend, ExistingStatePolicy::No).expect("fills");
    let next = open(&alone, backend).expect("opens").restored;
    assert!(
        next.epoch.0 > epoch && next.last_app > 39,
        "also in an empty directory: {next:?}"
    );
}

fn existing_files_and_state_are_not_overwritten(backend: StoreBackend) {
    let place = tempfile::tempdir().expect("a directory");
    let (dir, file) = (place.path().join("state"), place.path().join("backup"));
    live(&dir, backend, 3);
    backup(&dir, &file).expect("writes");
    let text = fs::read(&file).expect("reads");
    assert!(matches!(
        backup(&dir, &file),
        Err(StoreError::NotEmpty { .. })
    ));
    assert_eq!(fs::read(&file).expect("reads"), text);
    live(&dir, backend, 4);
    let before = names(&dir);
    let refused = restore(&dir, &file, backend, ExistingStatePolicy::No)
        .expect_err("the directory contains state")
        .to_string();
    assert!(refused.contains("--replace"), "{refused}");
    assert_eq!(names(&dir), before);
    let filled =
        restore(&dir, &file, other(backend), ExistingStatePolicy::MoveAside).expect("fills");
    let aside = filled.aside.expect("the earlier state is kept");
    assert_eq!(
        names(&aside),
        before,
        "all earlier files are in {}",
        aside.display()
    );
    assert_eq!(
        open(&aside, backend)
            .expect("still opens")
            .restored
            .last_app,
        4
    );
    assert_eq!(
        open(&dir, other(backend))
            .expect("opens")
            .restored
            .apps
            .len(),
        3
    );
}

fn a_damaged_backup_is_refused_and_leaves_the_state_unchanged(backend: StoreBackend) {
    let place = tempfile::tempdir().expect("a directory");
    let (dir, file) = (place.path().join("state"), place.path().join("backup"));
    live(&dir, backend, 3);
    backup(&dir, &file).expect("writes");
    let (whole, before) = (fs::read(&file).expect("reads"), names(&dir));
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut changed = whole.clone();
        changed[at] ^= 0x04;
        for bytes in [&whole[..at], &changed[..]] {
            fs::write(&file, bytes).expect("writes");
            let refused =
                restore(&dir, &file, backend, ExistingStatePolicy::MoveAside).expect_err("damaged");
            assert!(
                matches!(refused, StoreError::Corrupt { .. })
                    && refused.to_string().contains("backup"),
                "{refused}"
            );
        }
    }
    assert_eq!(names(&dir), before);
    assert!(check(&dir).expect("looks").problems.is_empty());
}

fn an_interrupted_restore_can_be_run_again(backend: StoreBackend) {
    let place_ = tempfile::tempdir().expect("a directory");
    let (dir, file) = (place_.path().join("state"), place_.path().join("backup"));
    live(&dir, backend, 3);
    backup(&dir, &file).expect("writes");
    // The state after the first move of a restore.
    fs::write(dir.join(REPLACING), b"").expect("writes");
    fs::create_dir(dir.join("replaced-1")).expect("makes");
    fs::rename(
        database_path(&dir, backend),
        dir.join("replaced-1").join("moved"),
    )
    .expect("moves");
    let refused = open(&dir, backend)
        .expect_err("the restore is incomplete")
        .to_string();
    assert!(
        refused.contains("interrupted") && refused.contains("--replace"),
        "{refused}"
    );
    assert!(
        check(&dir).expect("looks").problems[0]
            .what
            .contains("interrupted")
    );
    restore(&dir, &file, backend, ExistingStatePolicy::MoveAside).expect("fills");
    assert_eq!(open(&dir, backend).expect("opens").restored.apps.len(), 3);
}

fn a_directory_in_use_is_refused(backend: StoreBackend) {
    let place = tempfile::tempdir().expect("a directory");
    let (dir, file) = (place.path().join("state"), place.path().join("backup"));
    live(&dir, backend, 3);
    backup(&dir, &file).expect("writes");
    let held = open(&dir, backend).expect("opens");
    let me = format!("(process {})", std::process::id());
    let tries = [
        check(&dir).map(drop),
        backup(&dir, &place.path().join("second")).map(drop),
        restore(&dir, &file, backend, ExistingStatePolicy::MoveAside).map(drop),
    ];
    for refused in tries {
        let text = refused.expect_err("in use").to_string();
        assert!(text.contains("in use") && text.contains(&me), "{text}");
    }
    drop(held);
    check(&dir).expect("free");
}

fn a_check_counts_records_and_names_problems(backend: StoreBackend) {
    let place_ = tempfile::tempdir().expect("a directory");
    let dir = place_.path().join("state");
    assert!(matches!(check(&dir), Err(StoreError::Nothing { .. })));
    live(&dir, backend, 3);
    let report = check(&dir).expect("looks");
    assert_eq!(
        (report.backend, report.last_app, report.commit),
        (Some(backend.to_string()), Some(3), Some(6))
    );
    assert_eq!(
        (report.acknowledged, report.epoch.map(|e| e.0)),
        (Some(6), Some(1))
    );
    let count = |kind: &str| report.records.get(kind).copied();
    let counts = [
        count("applications"),
        count("documents"),
        count("groups in journals of masters"),
        count("nodes"),
        count("numbers"),
        count("ended containers"),
    ];
    assert_eq!(counts, [Some(3), Some(3), Some(2), Some(1), Some(1), None]);
    assert_eq!(
        report.document_bytes,
        (1..=3)
            .map(|n| u64::try_from(document(n).len()).expect("small"))
            .sum::<u64>()
            + u64::try_from(group_records().len()).expect("small")
    );
    assert_eq!((report.snapshots.len(), report.problems.len()), (1, 0));
    // First the snapshot is damaged, then the database.
    let newest = snapshot::list(&dir)
        .expect("lists")
        .pop()
        .expect("a snapshot");
    fs::write(&newest, b"half").expect("writes");
    let report = check(&dir).expect("looks");
    assert!(
        report.problems[0].what.contains("snapshot-") && report.snapshots[0].wrong.is_some(),
        "{report:?}"
    );
    let database = match backend {
        StoreBackend::Sled => database_path(&dir, backend).join("db"),
        StoreBackend::Redb => database_path(&dir, backend),
    };
    fs::write(database, b"another content").expect("writes");
    let report = check(&dir).expect("looks");
    assert_eq!((report.commit, report.problems.len()), (None, 2));
    assert!(
        report.problems[0]
            .advice
            .contains("rmctl operator state restore"),
        "{report:?}"
    );
}
