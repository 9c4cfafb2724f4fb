//! The journal that the fake resource manager keeps for an application, with faults.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use headroom_types::Bytes;
use headroom_wire::v1::application_master::{AppendToJournal, JournalAppended, StoredJournal};
use headroom_wire::v1::error::ErrorCode;

use super::{Cluster, refuse};

/// Groups of all attempts, and what goes wrong.
#[derive(Clone, Debug)]
pub struct FakeJournal {
    /// Attempt, offset and records of each group.
    pub groups: Vec<(u32, u64, String)>,
    /// True after the journal has moved to the node of its master.
    pub moved: bool,
    /// Maximum size of all records. Bytes.
    pub limit: u64,
    /// Groups that were appended again after a lost answer.
    pub repeated: u32,
    /// Takes the group of every second call and loses the answer.
    pub loses_answers: bool,
    /// Takes no group, as during an election.
    pub silent: bool,
    /// The latest attempt; an earlier one is refused.
    pub latest: u32,
    calls: u32,
}

impl Default for FakeJournal {
    fn default() -> Self {
        FakeJournal {
            groups: Vec::new(),
            moved: false,
            limit: 1 << 20,
            repeated: 0,
            loses_answers: false,
            silent: false,
            latest: 1,
            calls: 0,
        }
    }
}

impl FakeJournal {
    /// All records, without the first lines of the attempts.
    pub fn records(&self) -> Vec<String> {
        let lines = self.groups.iter().flat_map(|(_, _, text)| text.lines());
        let records = lines.filter(|line| line.starts_with("{\"record\""));
        records.map(str::to_owned).collect()
    }

    fn size(&self) -> u64 {
        self.groups.iter().map(|(_, _, text)| length(text)).sum()
    }

    fn append(&mut self, body: &AppendToJournal) -> Result<u64, ErrorCode> {
        let attempt = body.attempt.attempt;
        if attempt != self.latest || (self.moved && !body.moved) {
            return Err(ErrorCode::HR0409);
        }
        if body.moved {
            self.moved = true;
            self.groups.clear();
            return Ok(body.offset);
        }
        let own = self
            .groups
            .iter()
            .filter(|(number, _, _)| *number == attempt);
        let end = own.map(|(_, _, text)| length(text)).sum();
        if body.offset == end {
            if self.size() + length(&body.records) > self.limit {
                return Err(ErrorCode::HR0413);
            }
            let group = (attempt, end, body.records.clone());
            self.groups.push(group);
            return Ok(end + length(&body.records));
        }
        let last = self.groups.last();
        if last == Some(&(attempt, body.offset, body.records.clone())) {
            self.repeated += 1;
            return Ok(end);
        }
        Err(ErrorCode::HR0409)
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).expect("small")
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct JournalQuery {
    attempt: u32,
}

pub(super) async fn read(
    State(cluster): State<Cluster>,
    Query(JournalQuery { attempt }): Query<JournalQuery>,
) -> Response {
    let stored = cluster.with(|i| {
        i.journal.latest = i.journal.latest.max(attempt);
        StoredJournal {
            records: i.journal.groups.iter().map(|g| g.2.as_str()).collect(),
            moved: i.journal.moved,
            limit: Bytes::new(i.journal.limit),
        }
    });
    Json(stored).into_response()
}

pub(super) async fn append(
    State(cluster): State<Cluster>,
    Json(body): Json<AppendToJournal>,
) -> Response {
    let answer = cluster.with(|i| {
        let journal = &mut i.journal;
        if journal.silent {
            i.seen.silent_appends += 1;
            return Err(ErrorCode::HR0503);
        }
        journal.calls += 1;
        let end = journal.append(&body)?;
        i.seen.journal_moved = journal.moved;
        if journal.loses_answers && journal.calls % 2 == 1 {
            return Err(ErrorCode::HR0503);
        }
        Ok(end)
    });
    match answer {
        Ok(end) => Json(JournalAppended { end }).into_response(),
        Err(code) => refuse(code, "the journal"),
    }
}
