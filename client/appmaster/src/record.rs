//! What is written down: every fact and decision that a restarted master must not forget, one JSON object a line.
//!
//! The core's lasting state changes only by applying these records, live and on replay alike, so a replayed master stands exactly
//! where the lost one stood. Rows are kept in the form of the wire, which only ever gains fields.

use headroom_types::{Bytes, ContainerId, NodeId, Profile, RequestId, TaskAttemptId, UnixMillis};
use headroom_wire::v1::job::AttemptRow;
use serde::{Deserialize, Serialize};

use crate::policy::sizing::Need;
use crate::policy::{Account, Cause, Next, Size};
use crate::taskset::TaskKey;

/// Version of the journal's format.
pub const VERSION: u32 = 1;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Begin(Begin),
    /// A run of the master registered for the first time.
    JobStarted {
        /// When.
        at: UnixMillis,
    },
    /// A run of the master goes on with this journal, and with its secret.
    Run {
        /// Which.
        attempt: u32,
    },
    /// A container was granted.
    Gained {
        /// Which.
        container: ContainerId,
        /// For what.
        request: RequestId,
        /// Where.
        node: NodeId,
    },
    /// A container has ended and its end was taken in.
    Gone {
        /// Which.
        container: ContainerId,
        /// For what.
        request: RequestId,
        /// Whether it ended before any executor in it had said hello.
        unused: bool,
        /// Whether it could not be started, or its program failed at once: that counts against its node.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// An attempt is given to an executor. Written before the executor is told.
    Placed {
        /// The task.
        task: TaskKey,
        /// The attempt, without an end.
        row: Box<AttemptRow>,
    },
    /// An attempt has ended, and this was decided.
    Ended {
        /// The task.
        task: TaskKey,
        /// The attempt with its end.
        row: Box<AttemptRow>,
        /// To which budget it goes.
        account: Account,
        /// Whether it had to run again for another task's failure, and had stayed within its size.
        innocent: bool,
        /// What becomes of the task.
        next: Next,
        /// What it needed, as far as its executor could tell; only of those that ended well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        need: Option<Need>,
    },
    /// An attempt of a fenced stage has ended well, and its output and no other becomes the task's. Written before that is done.
    Committing {
        /// The task.
        task: TaskKey,
        /// The attempt with its end.
        row: Box<AttemptRow>,
        /// What it needed, as far as its executor could tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        need: Option<Need>,
    },
    /// A running attempt is given another size. Written before its executor is told.
    Grown {
        /// The task.
        task: TaskKey,
        /// Its attempt.
        attempt: TaskAttemptId,
        /// The size it has from now on.
        profile: Profile,
        /// When.
        at: UnixMillis,
    },
    /// A waiting task gets another place without an attempt having ended.
    Moved {
        /// The task.
        task: TaskKey,
        /// With what it goes on.
        size: Size,
        /// Why, for people.
        why: String,
    },
    /// What earlier jobs of the family have needed.
    Known {
        /// One for each stage of which something is known.
        stages: Vec<KnownStage>,
    },
    /// The inputs of a stage's tasks were measured.
    Inputs {
        /// The stage's place in the job file.
        stage: usize,
        /// One for each task; `None` for what could not be measured. Bytes.
        sizes: Vec<Option<Bytes>>,
    },
    /// A waiting task is given up.
    GivenUp {
        /// The task.
        task: TaskKey,
        /// What kind of end it is.
        cause: Cause,
        /// Names the task and what to do.
        message: String,
    },
    /// A task that runs is to end and not to be tried again. Written before its executor is told.
    Cancelled {
        /// The task.
        task: TaskKey,
        /// Names the task, and why.
        message: String,
    },
    /// An attempt is to end so that a held task can be given its memory. Written before its executor is told.
    GaveWay {
        /// The task.
        task: TaskKey,
        /// The attempt's number.
        attempt: u32,
        /// What the task begins anew with.
        size: Size,
        /// To whom, for people.
        why: String,
    },
    /// A task begins before those of a lower priority.
    Ranked {
        /// The task.
        task: TaskKey,
        /// 0 is the usual.
        priority: i32,
    },
    /// So many executors of a set at most, from now on.
    Scaled {
        /// Its place in the job file.
        set: usize,
        /// How many.
        count: u32,
    },
    /// Everything is decided.
    Over {
        /// Whether all tasks are done.
        succeeded: bool,
        /// When.
        at: UnixMillis,
        /// For people.
        diagnostics: String,
    },
}

/// What earlier tasks of a stage have needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownStage {
    /// The stage's place in the job file.
    pub stage: usize,
    /// Of each task its peak, in bytes, and how long it ran, in milliseconds; the oldest first.
    pub tasks: Vec<(Bytes, u64)>,
}

/// What the journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// [`VERSION`].
    pub version: u32,
    /// Fingerprint of the checked job, so that another job's journal is never taken for this one's.
    pub job: u64,
    /// The application.
    pub app: String,
    /// The secret executors prove themselves with.
    pub token: String,
    /// The port executors know; a restarted master listens there again.
    pub port: u16,
}

/// FNV-1a over the job as it was checked. Not a defence against anybody, only against mistakes. What a job file could not say
/// when the format was made is left out where it is not said, so that journals from before are known again.
pub fn fingerprint(job: &headroom_config::JobSpec) -> u64 {
    let mut text = format!("{job:?}");
    for later in ["program", "output", "sizes", "kind", "input", "input_locality", "input_hosts", "breaker", "budget"] {
        text = text.replace(&format!(", {later}: None"), "");
    }
    // Growth was off unless a stage asked for it.
    text = text.replace(", grow: Usual(30s)", "").replace(", grow: Off", "").replace(", grow: Stated(", ", grow: Some(");
    text = text.replace(", drain_after: 1s, cpus: None", "");
    text = text.replace(", treatments: {}", "");
    text = text.replace("place: Where { nodes: {}, ", "place: Where { ");
    text = text.replace(", place: Where { labels: {}, attributes: {}, tolerate: {} }", "");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_from_before_growth_was_the_default_is_this_jobs() {
        let job = |more: &str| {
            let text = format!(
                "version = 1\nname = \"j\"\n[profiles.exec]\nmemory = \"1GiB\"\n[executors.main]\nprofile = \"exec\"\n\
                 [[stage]]\nname = \"map\"\n{more}command = [\"prog\"]\n"
            );
            headroom_config::job::compile(&text, "job.toml").expect("compiles")
        };
        // Without the word, a stage had `grow: None`, which was left out; with it, `grow: Some(30s)`.
        let (usual, stated) = (job(""), job("grow = true\n"));
        assert_eq!(fingerprint(&usual), fingerprint(&job("grow = false\n")));
        assert_ne!(fingerprint(&usual), fingerprint(&stated));
        let before = format!("{stated:?}").replace("grow: Stated(30s)", "grow: Some(30s)");
        assert!(before.contains(", grow: Some(30s)"), "{before}");
    }
}
