//! Records of the journal: every fact and decision that a restarted master must know, one JSON
//! object per line.
//!
//! The core's durable state changes only by applying these records, in live operation and in replay
//! alike. A replayed master is therefore in exactly the state of the lost one. Rows are stored in
//! their wire form, which only ever gains fields.

use headroom_types::{
    Bytes, ContainerId, Name, NodeId, Profile, RequestId, TaskAttemptId, UnixMillis,
};
use headroom_wire::v1::job::AttemptRow;
use headroom_wire::v1::submission::SubmittedTask;
use serde::{Deserialize, Serialize};

use crate::policy::sizing::MeasuredNeed;
use crate::policy::{AttemptSize, ChargeAccount, GiveUpCause, TaskDecision};
use crate::taskset::TaskPosition;

/// Version of the journal format.
pub const VERSION: u32 = 1;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum JournalRecord {
    /// The first line.
    Begin(JournalHeader),
    /// A run of the master registered for the first time.
    JobStarted {
        /// Time of the registration.
        at: UnixMillis,
    },
    /// A run of the master continues with this journal and its secret.
    Run {
        /// Number of the application attempt.
        attempt: u32,
    },
    /// A container was granted.
    Gained {
        /// The container.
        container: ContainerId,
        /// Its request.
        request: RequestId,
        /// Its node.
        node: NodeId,
    },
    /// A container has ended, and its end was processed.
    Gone {
        /// The container.
        container: ContainerId,
        /// Its request.
        request: RequestId,
        /// True if it ended before an executor in it sent a hello.
        unused: bool,
        /// True if its launch failed, or its program failed at once. This counts as a failure of
        /// its node.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// An attempt is assigned to an executor. Written before the start message is sent.
    Placed {
        /// The task.
        task: TaskPosition,
        /// The attempt, without an end.
        row: Box<AttemptRow>,
    },
    /// An attempt has ended; contains the decision.
    Ended {
        /// The task.
        task: TaskPosition,
        /// The attempt with its end.
        row: Box<AttemptRow>,
        /// The budget to which the end is charged.
        account: ChargeAccount,
        /// True if it has to run again for another task's failure and stayed within its size.
        #[serde(alias = "innocent")] // the name in the version before
        collateral_rerun: bool,
        /// The decision on the task.
        next: TaskDecision,
        /// The measured need, if the executor reported it; only after a success.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        need: Option<MeasuredNeed>,
    },
    /// An attempt of a fenced stage has succeeded, and only its output will be committed. Written
    /// before the commit.
    Committing {
        /// The task.
        task: TaskPosition,
        /// The attempt with its end.
        row: Box<AttemptRow>,
        /// The measured need, if the executor reported it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        need: Option<MeasuredNeed>,
    },
    /// A running attempt gets another size. Written before the message to its executor.
    Grown {
        /// The task.
        task: TaskPosition,
        /// The attempt.
        attempt: TaskAttemptId,
        /// The new size.
        profile: Profile,
        /// Time of the growth.
        at: UnixMillis,
    },
    /// A waiting task gets another size or place without the end of an attempt.
    Moved {
        /// The task.
        task: TaskPosition,
        /// The new size.
        size: AttemptSize,
        /// The reason, for display.
        why: String,
    },
    /// The usage history of earlier jobs.
    Known {
        /// One entry for each stage with history.
        stages: Vec<KnownStage>,
    },
    /// The inputs of a stage's tasks were measured.
    Inputs {
        /// The stage's index in the job file.
        stage: usize,
        /// One for each task; `None` if it could not be measured. Bytes.
        sizes: Vec<Option<Bytes>>,
    },
    /// A waiting task is given up.
    GivenUp {
        /// The task.
        task: TaskPosition,
        /// The cause.
        cause: GiveUpCause,
        /// The message; contains the task and the remedy.
        message: String,
    },
    /// A running task is cancelled: it ends without a retry. Written before the stop message.
    Cancelled {
        /// The task.
        task: TaskPosition,
        /// The message; contains the task and the reason.
        message: String,
    },
    /// An attempt is evicted to free memory for a frozen task. Written before the stop message.
    #[serde(alias = "gave_way")] // the name in the version before
    Evicted {
        /// The task.
        task: TaskPosition,
        /// The number of the attempt.
        attempt: u32,
        /// The size of the next attempt.
        size: AttemptSize,
        /// The reason, for display.
        why: String,
    },
    /// The priority of a task has changed: it starts before tasks of a lower priority.
    Ranked {
        /// The task.
        task: TaskPosition,
        /// The new priority; the default is 0.
        priority: i32,
    },
    /// The maximum number of executors of a set has changed.
    Scaled {
        /// The index of the set in the job file.
        set: usize,
        /// The new maximum.
        count: u32,
    },
    /// A client declared a stage of a live job.
    StageDeclared {
        /// The stage.
        name: Name,
        /// The keys of its `[[stage]]` table.
        spec: serde_json::Value,
    },
    /// Tasks of a live stage were accepted. Their positions follow those of earlier tasks.
    TasksAccepted {
        /// The batch, as its client names it.
        batch: String,
        /// The stage's index.
        stage: usize,
        /// The tasks that were not known before.
        items: Vec<SubmittedTask>,
    },
    /// A client of a live job connected for the first time, or again after it was forgotten.
    SubmitterJoined {
        /// The client's name.
        client: String,
    },
    /// A client of a live job was not connected for a lease; results no longer wait for it.
    SubmitterForgotten {
        /// The client's name.
        client: String,
    },
    /// A client has processed all results up to this one.
    ResultsAcknowledged {
        /// The client's name.
        client: String,
        /// Cursor of the result.
        cursor: u64,
    },
    /// An attempt at a task of a live stage has returned this value. Written before its end.
    ValueReturned {
        /// The task.
        task: TaskPosition,
        /// The value; `None` if it is too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
        /// Size of a value that is too large. Bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        too_large: Option<Bytes>,
    },
    /// Tasks of a live job are cancelled: waiting ones end, running ones are not retried. Written
    /// before the stop messages.
    TasksCancelled {
        /// The tasks.
        tasks: Vec<TaskPosition>,
        /// The message; contains the reason.
        message: String,
    },
    /// A live job accepts no more tasks.
    JobClosed {
        /// The client that closed it; `None` after its lease has passed.
        client: Option<String>,
    },
    /// The job has ended.
    Over {
        /// True if all tasks are done.
        succeeded: bool,
        /// Time of the end.
        at: UnixMillis,
        /// The diagnostics, for display.
        diagnostics: String,
    },
}

/// Usage history of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownStage {
    /// The stage's index in the job file.
    pub stage: usize,
    /// For each earlier task, its peak in bytes and its run time in milliseconds; the oldest first.
    pub tasks: Vec<(Bytes, u64)>,
}

/// The identity of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// [`VERSION`].
    pub version: u32,
    /// Fingerprint of the checked job, which distinguishes it from the journal of another job.
    pub job: u64,
    /// The application.
    pub app: String,
    /// The secret with which executors authenticate themselves.
    pub token: String,
    /// The port that executors know; a restarted master listens there again.
    pub port: u16,
    /// The secret of the submission channel of a live job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_token: Option<String>,
}

/// FNV-1a over the checked job. It protects against mistakes, not against attacks. Keys that are
/// newer than the format do not count while they have their default, so that older journals are
/// still recognised.
pub fn fingerprint(job: &headroom_config::JobSpec) -> u64 {
    fingerprinted_text(job)
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The checked job in the format of the first journals.
fn fingerprinted_text(job: &headroom_config::JobSpec) -> String {
    let mut text = format!("{job:?}");
    for later in [
        "program",
        "output",
        "sizes",
        "kind",
        "input",
        "input_locality",
        "input_hosts",
        "breaker",
        "budget",
        "live",
        "fork_server",
    ] {
        text = text.replace(&format!(", {later}: None"), "");
    }
    // In the old format, growth was off unless a stage enabled it.
    text = text
        .replace(", grow: Usual(30s)", "")
        .replace(", grow: Off", "")
        .replace(", grow: Stated(", ", grow: Some(");
    text = text.replace("input: Some(Listed(", "input: Some(Told("); // the name in the version before
    text = text.replace(", drain_after: 1s, cpus: None", "");
    text = text.replace(", treatments: {}", "");
    text = text.replace("place: Where { nodes: {}, ", "place: Where { ");
    text.replace(
        ", place: Where { labels: {}, attributes: {}, tolerate: {} }",
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_older_than_default_growth_matches_its_job() {
        let job = |more: &str| {
            let text = format!(
                "version = 1\nname = \"j\"\n[profiles.exec]\nmemory = \"1GiB\"\n[executors.main]\nprofile = \"exec\"\n\
                 [[stage]]\nname = \"map\"\n{more}command = [\"prog\"]\n"
            );
            headroom_config::job::compile(&text, "job.toml").expect("compiles")
        };
        // In the old format, a stage without the key had `grow: None`, which was omitted; with it,
        // `grow: Some(30s)`.
        let (usual, stated) = (job(""), job("grow = true\n"));
        assert_eq!(fingerprint(&usual), fingerprint(&job("grow = false\n")));
        assert_ne!(fingerprint(&usual), fingerprint(&stated));
        let before = format!("{stated:?}").replace("grow: Stated(30s)", "grow: Some(30s)");
        assert!(before.contains(", grow: Some(30s)"), "{before}");
    }

    #[test]
    fn an_end_in_a_journal_of_the_version_before_is_read() {
        let row = r#"{"attempt":"map/7@1","profile":{"heap":67108864,"overhead":0,"cpus":1},"slots":1,"rung":1,
            "container":"j.1.e1.c2","node":"n1","started":5,"ended":9,"peak":null,"used":null,"reason":null,
            "dimension":null,"evidence":null,"grown":[{"at":7,"from":33554432,"to":67108864,"held_us":4711}]}"#;
        let line = format!(
            r#"{{"record":"ended","task":{{"stage":0,"index":7}},"row":{row},"account":"innocent","innocent":true,"next":{{"kind":"done"}}}}"#
        );
        let read: JournalRecord = serde_json::from_str(&line).expect("reads");
        let JournalRecord::Ended {
            row,
            account,
            collateral_rerun,
            ..
        } = &read
        else {
            panic!("{read:?}")
        };
        assert_eq!(
            (*account, *collateral_rerun, row.grown[0].frozen_us),
            (ChargeAccount::Bystander, true, Some(4711))
        );
        let written = serde_json::to_string(&read).expect("writes");
        assert!(
            !written.contains("innocent") && !written.contains("held_us"),
            "{written}"
        );
        assert_eq!(
            serde_json::from_str::<JournalRecord>(&written).expect("reads"),
            read
        );
    }

    #[test]
    fn a_journal_with_listed_input_sizes_matches_its_job() {
        let text = "version = 1\nname = \"j\"\n[profiles.exec]\nmemory = \"1GiB\"\n[executors.main]\nprofile = \"exec\"\n\
                    [[stage]]\nname = \"map\"\ninput = [\"5MiB\"]\ncommand = [\"prog\"]\n";
        let job = headroom_config::job::compile(text, "job.toml").expect("compiles");
        let text = fingerprinted_text(&job);
        assert!(text.contains("input: Some(Told(["), "{text}");
    }
}
