//! Journals in a directory that nodes share: the take-over by later attempts, and the fence that
//! stops earlier ones.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use headroom_appmaster::journal::{JournalError, MasterJournal};
use headroom_appmaster::record::{self, JournalHeader, JournalRecord};
use headroom_appmaster::shared_journal;
use headroom_types::UnixMillis;
use proptest::prelude::*;

fn begin() -> JournalRecord {
    JournalRecord::Begin(JournalHeader {
        version: record::VERSION,
        job: 7,
        app: "job.1".into(),
        token: "secret".into(),
        port: 4711,
        submission_token: None,
    })
}

fn gone(seq: u64) -> JournalRecord {
    JournalRecord::Gone {
        container: format!("job.1.e1.c{seq}").parse().expect("id"),
        request: "set-main".parse().expect("id"),
        unused: false,
        failed: false,
    }
}

/// The directory of one application below that of all journals.
fn app_dir(journals: &Path) -> PathBuf {
    let app = "job.1".parse().expect("id");
    shared_journal::dir(journals, &app, UnixMillis(1_700_000_000_000))
}

/// Takes over and reads all records.
fn attempt(dir: &Path, number: u32) -> Result<(MasterJournal, Vec<JournalRecord>), JournalError> {
    let mut journal = MasterJournal::take_over(dir, number)?;
    let mut replay = journal.replay()?;
    let records = replay.by_ref().collect();
    journal.finish_replay(replay)?;
    Ok((journal, records))
}

fn is_deposed(result: Result<(), JournalError>, by: u32) -> bool {
    matches!(result, Err(JournalError::Deposed { by: other, .. }) if other == by)
}

/// Appends bytes to the file of an attempt, as the host of a paused attempt may do at any time.
fn late_write(dir: &Path, number: u32, bytes: &[u8]) {
    let file = OpenOptions::new()
        .append(true)
        .open(dir.join(format!("journal.{number}")));
    file.and_then(|mut f| f.write_all(bytes)).expect("writes");
}

#[test]
fn a_later_attempt_reads_all_records_and_stops_the_earlier_one_at_its_next_sync() {
    let all = tempfile::tempdir().expect("a directory");
    let dir = app_dir(all.path());
    let (mut first, records) = attempt(&dir, 1).expect("new");
    assert!(records.is_empty());
    first.append(&[begin(), gone(1)]).expect("durable");
    let (mut second, records) = attempt(&dir, 2).expect("takes over");
    assert_eq!(records, [begin(), gone(1)]);
    // The write succeeds; nothing may depend on it.
    first.write(&[gone(2)]).expect("written");
    assert!(is_deposed(first.sync(), 2));
    assert!(is_deposed(first.append(&[gone(3)]), 2), "for good");
    second.append(&[gone(4)]).expect("durable");
    let (mut third, records) = attempt(&dir, 3).expect("takes over");
    assert_eq!(
        records,
        [begin(), gone(1), gone(4)],
        "a late record is no part"
    );
    assert!(is_deposed(first.check_fence(), 3) && is_deposed(second.sync(), 3));
    third.append(&[gone(5)]).expect("durable");
    let (_, records) = attempt(&dir, 7).expect("attempts may be left out");
    assert_eq!(records, [begin(), gone(1), gone(4), gone(5)]);
}

#[test]
fn an_attempt_that_starts_late_is_refused_and_changes_nothing() {
    let all = tempfile::tempdir().expect("a directory");
    let dir = app_dir(all.path());
    let (mut third, _) = attempt(&dir, 3).expect("new");
    third.append(&[begin()]).expect("durable");
    let late = MasterJournal::take_over(&dir, 2).expect_err("attempt 3 was first");
    assert!(is_deposed(Err(late), 3));
    let twice = MasterJournal::take_over(&dir, 3).expect_err("used");
    assert!(
        matches!(twice, JournalError::AttemptUsed { attempt: 3, .. }),
        "{twice}"
    );
    third.append(&[gone(1)]).expect("not disturbed");
    let (_, records) = attempt(&dir, 4).expect("takes over");
    assert_eq!(records, [begin(), gone(1)]);
}

#[test]
fn attempts_that_ended_before_their_first_line_are_skipped() {
    let all = tempfile::tempdir().expect("a directory");
    let dir = app_dir(all.path());
    let (mut first, _) = attempt(&dir, 1).expect("new");
    first.append(&[begin(), gone(1)]).expect("durable");
    // Attempt 2 only claims; attempt 3 has an empty file; attempt 4 a torn first line.
    fs::write(dir.join("attempt.2"), "").expect("writes");
    drop(MasterJournal::take_over(&dir, 3).expect("takes over"));
    drop(MasterJournal::take_over(&dir, 4).expect("takes over"));
    late_write(&dir, 4, b"{\"version\":1,\"att");
    let (mut fifth, records) = attempt(&dir, 5).expect("takes over");
    assert_eq!(records, [begin(), gone(1)]);
    // The first line of attempt 4 arrives late: attempt 5 has decided.
    late_write(&dir, 4, b"empt\":4,\"earlier\":[]}\n");
    fifth.append(&[gone(2)]).expect("durable");
    let (_, records) = attempt(&dir, 6).expect("takes over");
    assert_eq!(records, [begin(), gone(1), gone(2)]);
}

#[test]
fn a_hole_in_the_last_pages_of_an_earlier_attempt_ends_its_records() {
    let all = tempfile::tempdir().expect("a directory");
    let dir = app_dir(all.path());
    let (mut first, _) = attempt(&dir, 1).expect("new");
    first.append(&[begin(), gone(1)]).expect("durable");
    // The host of attempt 1 has written the later page only.
    let mut late = vec![0; 100];
    late.push(b'\n');
    late.extend(serde_json::to_vec(&gone(9)).expect("w"));
    late.push(b'\n');
    late_write(&dir, 1, &late);
    let (_, records) = attempt(&dir, 2).expect("takes over");
    assert_eq!(records, [begin(), gone(1)]);
    let (_, records) = attempt(&dir, 3).expect("takes over");
    assert_eq!(records, [begin(), gone(1)]);
}

#[test]
fn damage_before_the_end_is_refused() {
    let all = tempfile::tempdir().expect("a directory");
    let dir = app_dir(all.path());
    let (mut first, _) = attempt(&dir, 1).expect("new");
    first.append(&[begin()]).expect("durable");
    late_write(&dir, 1, b"rubbish\n");
    first.append(&[gone(1)]).expect("durable");
    let refused = attempt(&dir, 2).expect_err("a line is lost");
    assert!(
        matches!(refused, JournalError::Damaged { line: 2, .. }),
        "{refused}"
    );
    let path = dir.join("journal.1");
    fs::write(&path, "no journal\n").expect("writes");
    let refused = attempt(&dir, 3).expect_err("no journal");
    assert!(matches!(refused, JournalError::Foreign { .. }), "{refused}");
    // A part that was read before is shorter now.
    let (mut fourth, _) = {
        fs::remove_file(&path).expect("removes");
        attempt(&dir, 4).expect("begins")
    };
    fourth.append(&[begin(), gone(1)]).expect("durable");
    drop(attempt(&dir, 5).expect("takes over"));
    let text = fs::read_to_string(dir.join("journal.4")).expect("reads");
    fs::write(dir.join("journal.4"), &text[..text.len() - 9]).expect("writes");
    let refused = attempt(&dir, 6).expect_err("shorter");
    assert!(matches!(refused, JournalError::Damaged { .. }), "{refused}");
}

#[test]
fn applications_of_two_clusters_and_directories_of_other_users_do_not_mix() {
    let all = tempfile::tempdir().expect("a directory");
    let app = "job.1".parse().expect("id");
    let other = shared_journal::dir(all.path(), &app, UnixMillis(1_700_000_000_001));
    assert_ne!(other, app_dir(all.path()));
    fs::create_dir(&other).expect("makes");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o770)).expect("sets");
    let refused = MasterJournal::take_over(&other, 1).expect_err("others may write");
    assert!(
        matches!(&refused, JournalError::NotPrivate { mode: 0o770, .. }),
        "{refused}"
    );
    let missing = app_dir(&all.path().join("not-mounted"));
    let refused = MasterJournal::take_over(&missing, 1).expect_err("not mounted");
    assert!(refused.to_string().contains("not-mounted"), "{refused}");
    let dir = app_dir(all.path());
    let (mut first, _) = attempt(&dir, 1).expect("new");
    fs::remove_dir_all(&dir).expect("the job has ended");
    let removed = first.append(&[begin()]).expect_err("removed");
    assert!(matches!(removed, JournalError::Removed { .. }), "{removed}");
}

proptest! {
    // Each case syncs many files.
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Safety: of a sequence of attempts, each with durable records and a torn end of any length,
    /// every later attempt reads exactly the durable records.
    #[test]
    fn durable_records_survive_any_sequence_of_torn_ends(
        ends in proptest::collection::vec((0u64..4, 0usize..90), 1..6)
    ) {
        let all = tempfile::tempdir().expect("a directory");
        let dir = app_dir(all.path());
        let mut durable = Vec::new();
        for (n, (count, torn)) in ends.iter().enumerate() {
            let number = u32::try_from(n).expect("small") + 1;
            let (mut journal, records) = attempt(&dir, number).expect("takes over");
            prop_assert_eq!(&records, &durable);
            let new: Vec<JournalRecord> = (0..*count).map(|k| gone(100 * n as u64 + k)).collect();
            journal.append(&new).expect("durable");
            durable.extend(new);
            let line = serde_json::to_vec(&gone(77)).expect("w");
            late_write(&dir, number, &line[..(*torn).min(line.len())]);
        }
        let (_, records) = attempt(&dir, 99).expect("takes over");
        prop_assert_eq!(records, durable);
    }
}
