//! Take-overs, lost answers, merges and damage, with a store in memory.

use std::io::Read as _;
use std::time::Duration;

use super::*;

/// A node with its copy of the journal.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Node {
        Node(tempfile::tempdir().expect("tempdir"))
    }

    fn copy(&self) -> JournalTail {
        JournalTail::beside(&self.0.path().join("journal"), Duration::from_secs(3600))
    }

    async fn take_over(
        &self,
        directory: &ObjectDirectory,
        attempt: u32,
    ) -> Result<(ObjectLog, JournalTail), JournalError> {
        self.take_over_as(directory, attempt, "process").await
    }

    async fn take_over_as(
        &self,
        directory: &ObjectDirectory,
        attempt: u32,
        process: &str,
    ) -> Result<(ObjectLog, JournalTail), JournalError> {
        let process = process.to_owned();
        let (first, mut copy) = (FirstLine { attempt, process }, self.copy());
        let records = self.0.path().join("records");
        let log = ObjectLog::take_over(directory.clone(), &first, records, &mut copy).await?;
        Ok((log, copy))
    }
}

fn records(log: &ObjectLog) -> String {
    let mut text = String::new();
    let mut records = log.records().expect("a file");
    records.read_to_string(&mut text).expect("reads");
    text
}

#[tokio::test]
async fn the_next_attempt_reads_every_group_and_fences_the_earlier_one() {
    let (directory, here, there) = (ObjectDirectory::in_memory(), Node::new(), Node::new());
    let (mut first, _) = here.take_over(&directory, 1).await.expect("a new journal");
    assert_eq!(records(&first), "");
    first.append(b"one\n").await.expect("durable");
    first.append(b"two\nthree\n").await.expect("durable");
    let (mut second, _) = there.take_over(&directory, 2).await.expect("it takes over");
    assert_eq!(records(&second), "one\ntwo\nthree\n");
    let refused = first.append(b"four\n").await.expect_err("it is deposed");
    assert!(
        matches!(refused, JournalError::Deposed { by: 2, .. }),
        "{refused}"
    );
    second.append(b"five\n").await.expect("durable");
    let (third, _) = here.take_over(&directory, 3).await.expect("it takes over");
    assert_eq!(records(&third), "one\ntwo\nthree\nfive\n");
    let late = there.take_over(&directory, 2).await.expect_err("late");
    assert!(
        matches!(late, JournalError::Deposed { by: 3, .. }),
        "{late}"
    );
    let second = there.take_over_as(&directory, 3, "another").await;
    let second = second.expect_err("used");
    let is_used = matches!(second, JournalError::AttemptUsed { attempt: 3, .. });
    assert!(is_used, "{second}");
}

#[tokio::test]
async fn a_group_whose_answer_was_lost_is_acknowledged() {
    let (directory, node) = (ObjectDirectory::in_memory(), Node::new());
    let (mut log, _) = node.take_over(&directory, 1).await.expect("a new journal");
    let name = group_name(log.next);
    let created = directory.create(&name, "one\n".into()).await.expect("made");
    assert_eq!(created, CreateResult::Created);
    log.append(b"one\n").await.expect("it is the own group");
    log.append(b"two\n").await.expect("durable");
    directory.remove_all().await.expect("removed");
    directory
        .create(&group_name(log.next), "x\n".into())
        .await
        .expect("made");
    let foreign = log.append(b"three\n").await.expect_err("another text");
    assert!(
        matches!(foreign, JournalError::Deposed { by: 0, .. }),
        "{foreign}"
    );
}

#[tokio::test]
async fn a_take_over_whose_answer_was_lost_is_the_own_one() {
    let (directory, node) = (ObjectDirectory::in_memory(), Node::new());
    let own = FirstLine {
        attempt: 1,
        process: "process".to_owned(),
    };
    let text = own.line().expect("writes") + "missing\n";
    let name = group_name(1);
    directory.create(&name, text.into()).await.expect("made");
    let (mut log, copy) = node.take_over(&directory, 1).await.expect("it is its own");
    assert_eq!(records(&log), "missing\n");
    log.append(b"one\n").await.expect("durable");
    let (second, _) = node.take_over(&directory, 2).await.expect("it takes over");
    assert_eq!(records(&second), "missing\none\n");
    drop(copy);
}

#[tokio::test]
async fn records_that_only_the_copy_has_are_part_of_the_take_over() {
    let (directory, here, there) = (ObjectDirectory::in_memory(), Node::new(), Node::new());
    let (mut log, mut copy) = here.take_over(&directory, 1).await.expect("a new journal");
    copy.write(b"one\n");
    log.append(b"one\n").await.expect("durable");
    copy.write(b"two\nthr"); // written on the node only
    let (second, _) = here.take_over(&directory, 2).await.expect("it takes over");
    assert_eq!(records(&second), "one\ntwo\n");
    let (third, _) = there.take_over(&directory, 3).await.expect("it takes over");
    assert_eq!(records(&third), "one\ntwo\n", "the other node has no copy");
    let (fourth, _) = here.take_over(&directory, 4).await.expect("it takes over");
    assert_eq!(
        records(&fourth),
        "one\ntwo\n",
        "its copy is of an earlier attempt"
    );
}

#[tokio::test]
async fn groups_are_merged_and_take_overs_stay() {
    let (directory, node) = (ObjectDirectory::in_memory(), Node::new());
    let (mut first, _) = node.take_over(&directory, 1).await.expect("a new journal");
    let mut expected = String::new();
    for n in 0..GROUPS_PER_PART + 3 {
        let line = format!("{n}\n");
        first.append(line.as_bytes()).await.expect("durable");
        expected += &line;
    }
    let merge = first.merge.take().expect("one is due");
    merge.await.expect("it does not panic");
    let names = directory.list().await.expect("listed");
    let part = part_name(2, GROUPS_PER_PART + 1);
    let groups = [1, 2, 3, 4].map(|n| group_name(if n == 1 { 1 } else { GROUPS_PER_PART + n }));
    assert_eq!(names, [&groups[..], &[part]].concat());
    // A group that an earlier attempt writes late, or that was not removed, is in the part already.
    directory
        .create(&group_name(7), "late\n".into())
        .await
        .expect("made");
    let (second, _) = node.take_over(&directory, 2).await.expect("it takes over");
    assert_eq!(records(&second), expected);
    let deposed = first.append(b"x\n").await.expect_err("deposed");
    assert!(
        matches!(deposed, JournalError::Deposed { by: 2, .. }),
        "{deposed}"
    );
}

#[tokio::test]
async fn a_missing_object_is_reported_and_a_removed_journal_too() {
    let (directory, node) = (ObjectDirectory::in_memory(), Node::new());
    let (mut log, _) = node.take_over(&directory, 1).await.expect("a new journal");
    for line in [b"one\n", b"two\n"] {
        log.append(line).await.expect("durable");
    }
    directory
        .remove(vec![group_name(2)])
        .await
        .expect("removed");
    let damaged = node.take_over(&directory, 2).await.expect_err("incomplete");
    assert!(
        damaged
            .to_string()
            .contains("group-0000000000000002 is missing"),
        "{damaged}"
    );
}
