//! Sessions of a submission channel against a model of a live job, over connections that break at
//! any line.

#![allow(missing_docs)] // tests are read, not imported

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headroom_client::submission_session::MAX_QUEUED_TASKS;
use headroom_client::{SubmissionEvent, SubmissionInputError, SubmissionSession};
use headroom_types::Name;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::submission::{
    FromSubmitter, MAX_BATCH_TASKS, MAX_LINE_BYTES, SubmittedTask, SubmittedTaskOutcome,
    SubmittedTaskResult, ToSubmitter,
};
use proptest::prelude::*;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn task(key: impl Into<String>) -> SubmittedTask {
    SubmittedTask {
        key: key.into(),
        ..SubmittedTask::default()
    }
}

/// A live job: accepts each batch and each key once, and keeps results until they are acknowledged.
#[derive(Debug)]
struct ModelJob {
    capacity: usize,
    /// Declared stages, or those of the job file.
    stages: BTreeSet<String>,
    batches: BTreeSet<String>,
    /// Accepted keys in order; true once ended.
    tasks: Vec<(String, bool)>,
    results: Vec<SubmittedTaskResult>,
    kept_from: u64,
    is_closed: bool,
    late_tasks: usize,
    first_seen: BTreeMap<String, usize>,
}

impl ModelJob {
    fn new(capacity: usize) -> Self {
        ModelJob {
            capacity,
            stages: ["file".to_owned()].into(),
            batches: BTreeSet::new(),
            tasks: Vec::new(),
            results: Vec::new(),
            kept_from: 0,
            is_closed: false,
            late_tasks: 0,
            first_seen: BTreeMap::new(),
        }
    }

    fn open(&self) -> usize {
        self.tasks.iter().filter(|(_, ended)| !ended).count()
    }

    fn credit(&self) -> u32 {
        u32::try_from(self.capacity - self.open()).expect("small")
    }

    fn end(&mut self, at: usize, outcome: SubmittedTaskOutcome) -> Option<ToSubmitter> {
        let (key, ended) = self.tasks.get_mut(at).filter(|(_, ended)| !ended)?;
        *ended = true;
        let result = SubmittedTaskResult {
            cursor: self.results.len() as u64 + 1,
            key: key.clone(),
            task: "file/0".parse().expect("a task"),
            outcome,
            value: None,
            value_too_large: None,
            reason: None,
            dimension: None,
            message: String::new(),
            log_tail: String::new(),
            attempts: Vec::new(),
        };
        self.results.push(result.clone());
        Some(ToSubmitter::Ended(Box::new(result)))
    }

    fn add(&mut self, batch: &str, stage: &Name, items: &[SubmittedTask]) -> ToSubmitter {
        let subject = Some(batch.to_owned());
        let refused = |code: ErrorCode| ToSubmitter::Refused {
            subject: subject.clone(),
            error: Box::new(ProblemDetails::new(code, "no")),
        };
        if !self.batches.contains(batch) {
            if !self.stages.contains(stage.as_str()) {
                return refused(ErrorCode::HR0404);
            }
            if self.open() + items.len() > self.capacity {
                return refused(ErrorCode::HR0429);
            }
            self.late_tasks += if self.is_closed { items.len() } else { 0 };
            self.batches.insert(batch.to_owned());
            for item in items {
                let place = self.tasks.len();
                assert_eq!(self.first_seen.insert(item.key.clone(), place), None);
                self.tasks.push((item.key.clone(), false));
            }
        }
        ToSubmitter::Accepted {
            batch: batch.to_owned(),
            credit: self.credit(),
        }
    }

    fn received(&mut self, message: FromSubmitter) -> Vec<ToSubmitter> {
        match message {
            FromSubmitter::Submitter { after, .. } => {
                let welcome = ToSubmitter::Welcome {
                    version: 1,
                    credit: self.credit(),
                    cursor: self.results.len() as u64,
                    closed: self.is_closed,
                };
                assert!(
                    after >= self.kept_from,
                    "an unprocessed result is forgotten"
                );
                let later = self.results.iter().filter(|result| result.cursor > after);
                let ended = later.map(|result| ToSubmitter::Ended(Box::new(result.clone())));
                std::iter::once(welcome).chain(ended).collect()
            }
            FromSubmitter::Stage { name, .. } => {
                self.stages.insert(name.to_string());
                vec![ToSubmitter::StageAccepted { name }]
            }
            FromSubmitter::Tasks {
                batch,
                stage,
                items,
            } => vec![self.add(&batch, &stage, &items)],
            FromSubmitter::Cancel { keys } => {
                let cancelled = |job: &mut ModelJob, key| {
                    let at = job.first_seen.get(&key).copied()?;
                    job.end(at, SubmittedTaskOutcome::Cancelled)
                };
                keys.into_iter()
                    .filter_map(|key| cancelled(self, key))
                    .collect()
            }
            FromSubmitter::CancelAll => (0..self.tasks.len())
                .filter_map(|at| self.end(at, SubmittedTaskOutcome::Cancelled))
                .collect(),
            FromSubmitter::Close => {
                self.is_closed = true;
                Vec::new()
            }
            FromSubmitter::Ack { cursor } => {
                self.kept_from = self.kept_from.max(cursor);
                Vec::new()
            }
            FromSubmitter::Leave | FromSubmitter::Alive => Vec::new(),
        }
    }
}

/// A session and a job with the lines between them.
#[derive(Debug)]
struct SessionPair {
    session: SubmissionSession,
    job: ModelJob,
    is_connected: bool,
    /// The job has received the first line of this connection.
    is_known: bool,
    up: VecDeque<FromSubmitter>,
    down: VecDeque<ToSubmitter>,
    ended: Vec<SubmittedTaskResult>,
    accepted: Vec<String>,
    dropped: BTreeSet<String>,
}

impl SessionPair {
    fn new(capacity: usize) -> Self {
        SessionPair {
            session: SubmissionSession::new("client", "prefix", 0),
            job: ModelJob::new(capacity),
            is_connected: false,
            is_known: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
            ended: Vec::new(),
            accepted: Vec::new(),
            dropped: BTreeSet::new(),
        }
    }

    fn lose_connection(&mut self) {
        (self.is_connected, self.is_known) = (false, false);
        self.up.clear();
        self.down.clear();
        self.session.disconnected();
    }

    fn send(&mut self) {
        if !self.is_connected {
            self.is_connected = true;
            let first = self.session.connected();
            self.up.push_back(first);
        }
        while let Some(message) = self.session.next_message() {
            let bytes = serde_json::to_string(&message).expect("JSON").len();
            assert!(bytes < MAX_LINE_BYTES, "{bytes}");
            self.up.push_back(message);
        }
    }

    /// Passes lines on to the job, which reports its credit after a cancellation.
    fn deliver_up(&mut self, lines: usize) {
        for message in self
            .up
            .drain(..lines.min(self.up.len()))
            .collect::<Vec<_>>()
        {
            self.is_known = true;
            let credit = self.job.credit();
            let answers = self.job.received(message);
            self.down.extend(answers);
            if self.job.credit() > credit {
                let credit = self.job.credit();
                self.down.push_back(ToSubmitter::Credit { credit });
            }
        }
    }

    fn deliver_down(&mut self, lines: usize) {
        for message in self
            .down
            .drain(..lines.min(self.down.len()))
            .collect::<Vec<_>>()
        {
            match self.session.received(message) {
                Some(SubmissionEvent::Ended(result)) => self.ended.push(*result),
                Some(SubmissionEvent::TasksAccepted { keys }) => self.accepted.extend(keys),
                Some(
                    SubmissionEvent::TasksRefused { keys, .. }
                    | SubmissionEvent::StageRefused { keys, .. },
                ) => self.dropped.extend(keys),
                Some(
                    SubmissionEvent::Connected { .. }
                    | SubmissionEvent::StageAccepted { .. }
                    | SubmissionEvent::States { .. }
                    | SubmissionEvent::Refused { .. }
                    | SubmissionEvent::Over { .. },
                )
                | None => {}
            }
        }
    }

    fn end_task(&mut self, at: usize) {
        let ended = self.job.end(at, SubmittedTaskOutcome::Succeeded);
        if let (Some(ended), true) = (ended, self.is_known) {
            self.down.push_back(ended);
            let credit = self.job.credit();
            self.down.push_back(ToSubmitter::Credit { credit });
        }
    }

    /// Lets everything finish on connections that do not break.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            self.send();
            self.deliver_up(usize::MAX);
            self.deliver_down(usize::MAX);
            (0..self.job.tasks.len()).for_each(|at| self.end_task(at));
            self.deliver_down(usize::MAX);
            if let Some(last) = self.ended.last() {
                self.session.acknowledge(last.cursor);
            }
            self.session.tick();
            self.send();
            if self.session.unaccepted() == 0 && self.session.open() == 0 && self.up.is_empty() {
                return;
            }
        }
        panic!("the session does not finish: {self:?}");
    }
}

/// One step of a random run.
#[derive(Clone, Debug)]
enum SessionStep {
    Add(usize),
    Declare,
    Send,
    Up(usize),
    Down(usize),
    Lose,
    End(usize),
    Acknowledge,
    Cancel(usize),
    CancelAll,
}

fn steps() -> impl Strategy<Value = Vec<SessionStep>> {
    let step = prop_oneof![
        3 => (1..40usize).prop_map(SessionStep::Add),
        1 => Just(SessionStep::Declare),
        6 => Just(SessionStep::Send),
        6 => (1..6usize).prop_map(SessionStep::Up),
        6 => (1..6usize).prop_map(SessionStep::Down),
        2 => Just(SessionStep::Lose),
        4 => (0..200usize).prop_map(SessionStep::End),
        2 => Just(SessionStep::Acknowledge),
        1 => (0..200usize).prop_map(SessionStep::Cancel),
        1 => Just(SessionStep::CancelAll),
    ];
    prop::collection::vec(step, 0..120)
}

fn run(pair: &mut SessionPair, steps: Vec<SessionStep>) -> usize {
    let (mut added, mut stage) = (0, "file");
    for step in steps {
        match step {
            SessionStep::Add(n) => {
                for at in added..added + n {
                    pair.session
                        .add_task(name(stage), task(format!("k{at}")))
                        .expect("is open");
                }
                added += n;
            }
            SessionStep::Declare => {
                stage = "live";
                let spec = serde_json::json!({"command": ["true"]});
                pair.session
                    .declare_stage(name(stage), spec)
                    .expect("is open");
            }
            SessionStep::Send => pair.send(),
            SessionStep::Up(lines) => pair.deliver_up(lines),
            SessionStep::Down(lines) => pair.deliver_down(lines),
            SessionStep::Lose => pair.lose_connection(),
            SessionStep::End(at) => pair.end_task(at),
            SessionStep::Acknowledge => {
                let last = pair.ended.last().map_or(0, |result| result.cursor);
                pair.session.acknowledge(last);
                pair.session.tick();
            }
            SessionStep::Cancel(at) => {
                let dropped = pair.session.cancel([format!("k{at}")]).expect("few");
                pair.dropped.extend(dropped);
            }
            SessionStep::CancelAll => {
                let dropped = pair.session.cancel_all();
                pair.dropped.extend(dropped);
            }
        }
    }
    added
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Safety: every task that was added is accepted at most once, in order, and has exactly one
    /// result, or it was dropped before it was sent. Liveness: the session finishes.
    #[test]
    fn each_task_has_one_result_over_lost_connections(steps in steps(), capacity in 1..50usize) {
        let mut pair = SessionPair::new(capacity);
        let added = run(&mut pair, steps);
        pair.session.close();
        pair.finish();
        let keys: Vec<&String> = pair.job.tasks.iter().map(|(key, _)| key).collect();
        let number = |key: &str| key[1..].parse::<usize>().expect("a number");
        prop_assert!(keys.windows(2).all(|pair| number(pair[0]) < number(pair[1])), "{keys:?}");
        let results: BTreeSet<&String> = pair.ended.iter().map(|result| &result.key).collect();
        prop_assert_eq!(results.len(), pair.ended.len(), "a result arrived twice");
        for at in 0..added {
            let key = format!("k{at}");
            prop_assert!(results.contains(&key) != pair.dropped.contains(&key), "{}", key);
        }
        prop_assert!(pair.job.is_closed && pair.job.late_tasks == 0);
        prop_assert_eq!(pair.job.kept_from, pair.job.results.len() as u64, "all are acknowledged");
    }
}

#[test]
fn nothing_is_sent_before_the_welcome() {
    let mut pair = SessionPair::new(10);
    pair.session
        .add_task(name("file"), task("a"))
        .expect("fits");
    pair.send();
    assert!(
        matches!(&*pair.up.make_contiguous(), [FromSubmitter::Submitter { client, after: 0, .. }] if client == "client")
    );
    pair.deliver_up(1);
    pair.deliver_down(1);
    pair.send();
    assert!(matches!(pair.up[0], FromSubmitter::Tasks { .. }));
}

#[test]
fn batches_stay_within_the_credit_and_the_line() {
    let mut pair = SessionPair::new(10_000);
    for at in 0..2500 {
        pair.session
            .add_task(name("file"), task(format!("k{at}")))
            .expect("fits");
    }
    let large = SubmittedTask {
        input: Some("x".repeat(64 << 10)),
        ..task("large")
    };
    for at in 0..40 {
        let key = format!("large{at}");
        let large = SubmittedTask {
            key,
            ..large.clone()
        };
        pair.session.add_task(name("file"), large).expect("fits");
    }
    let mut sizes = Vec::new();
    while pair.session.unaccepted() > 0 {
        pair.send();
        let batches = pair.up.iter().filter_map(|message| match message {
            FromSubmitter::Tasks { items, .. } => Some(items.len()),
            FromSubmitter::Submitter { .. }
            | FromSubmitter::Stage { .. }
            | FromSubmitter::Cancel { .. }
            | FromSubmitter::CancelAll
            | FromSubmitter::Close
            | FromSubmitter::Ack { .. }
            | FromSubmitter::Leave
            | FromSubmitter::Alive => None,
        });
        sizes.extend(batches);
        pair.deliver_up(usize::MAX);
        pair.deliver_down(usize::MAX);
    }
    assert_eq!(sizes[..2], [MAX_BATCH_TASKS; 2]);
    assert!(sizes[3..].iter().all(|n| *n < 16), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 2540);
}

#[test]
fn invalid_calls_change_nothing() {
    let mut session = SubmissionSession::new("c", "p", 0);
    let stage = || name("s");
    let refused = |session: &mut SubmissionSession, task| session.add_task(stage(), task);
    assert!(matches!(
        refused(&mut session, task("")),
        Err(SubmissionInputError::KeyLength { .. })
    ));
    let input = SubmittedTask {
        input: Some("x".repeat((64 << 10) + 1)),
        ..task("a")
    };
    assert!(matches!(
        refused(&mut session, input),
        Err(SubmissionInputError::InputTooLarge { bytes: 65_537, .. })
    ));
    let args = SubmittedTask {
        args: vec!["x".repeat(1 << 20)],
        ..task("a")
    };
    assert!(matches!(
        refused(&mut session, args),
        Err(SubmissionInputError::TaskTooLarge { .. })
    ));
    let tags = (0..17).map(|n| (n.to_string(), String::new())).collect();
    assert!(matches!(
        refused(&mut session, SubmittedTask { tags, ..task("a") }),
        Err(SubmissionInputError::TooManyTags { tags: 17, .. })
    ));
    assert_eq!(session.unaccepted(), 0);
    let spec = |text: &str| serde_json::json!({"command": [text]});
    session.declare_stage(stage(), spec("a")).expect("is new");
    session.declare_stage(stage(), spec("a")).expect("is equal");
    assert!(matches!(
        session.declare_stage(stage(), spec("b")),
        Err(SubmissionInputError::StageRedeclared { .. })
    ));
    for at in 0..MAX_QUEUED_TASKS {
        session
            .add_task(stage(), task(at.to_string()))
            .expect("fits");
    }
    assert_eq!(
        refused(&mut session, task("one more")),
        Err(SubmissionInputError::Full)
    );
    session.close();
    assert_eq!(
        refused(&mut session, task("late")),
        Err(SubmissionInputError::Closed)
    );
}

#[test]
fn a_refused_stage_drops_its_tasks_and_a_batch_beyond_the_credit_waits() {
    let mut pair = SessionPair::new(10);
    pair.send();
    pair.deliver_up(1);
    pair.deliver_down(1);
    let problem = |code| Box::new(ProblemDetails::new(code, "no"));
    let spec = serde_json::json!({"command": 7});
    pair.session
        .declare_stage(name("bad"), spec)
        .expect("is new");
    pair.session.add_task(name("bad"), task("a")).expect("fits");
    pair.send();
    let refused = pair.session.received(ToSubmitter::Refused {
        subject: Some("bad".into()),
        error: problem(ErrorCode::HR0400),
    });
    assert!(matches!(
        refused,
        Some(SubmissionEvent::StageRefused { keys, .. }) if keys == ["a"]
    ));
    pair.up.clear();
    pair.session
        .add_task(name("file"), task("b"))
        .expect("fits");
    pair.send();
    let Some(FromSubmitter::Tasks { batch, .. }) = pair.up.pop_front() else {
        panic!("{:?}", pair.up)
    };
    let full = ToSubmitter::Refused {
        subject: Some(batch.clone()),
        error: problem(ErrorCode::HR0429),
    };
    assert_eq!(pair.session.received(full), None);
    pair.send();
    assert!(pair.up.is_empty(), "it waits for credit");
    pair.session.received(ToSubmitter::Credit { credit: 1 });
    pair.send();
    assert!(
        matches!(pair.up.pop_front(), Some(FromSubmitter::Tasks { batch: again, .. }) if again == batch)
    );
}

#[test]
fn heartbeats_and_acknowledgements_are_due_by_time() {
    let mut pair = SessionPair::new(10);
    pair.session
        .add_task(name("file"), task("a"))
        .expect("fits");
    pair.send();
    pair.deliver_up(usize::MAX);
    pair.deliver_down(usize::MAX);
    pair.send();
    pair.deliver_up(usize::MAX);
    pair.end_task(0);
    pair.deliver_down(usize::MAX);
    pair.session.acknowledge(7);
    assert_eq!(pair.session.cursor(), 1, "no more than was passed on");
    assert_eq!(pair.session.next_message(), None);
    pair.session.tick();
    let ack = FromSubmitter::Ack { cursor: 1 };
    assert_eq!(pair.session.next_message(), Some(ack));
    (0..2).for_each(|_| pair.session.tick());
    assert_eq!(pair.session.next_message(), None);
    pair.session.tick();
    assert_eq!(pair.session.next_message(), Some(FromSubmitter::Alive));
    pair.session.leave();
    assert_eq!(pair.session.next_message(), Some(FromSubmitter::Leave));
    assert_eq!(pair.session.next_message(), None);
}
