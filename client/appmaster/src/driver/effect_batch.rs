//! The order of the effects of one turn: records, starts that follow their write, and all others
//! when the records are durable. Pure.

use std::collections::BTreeSet;

use headroom_types::ContainerId;
use headroom_wire::v1::task::ToExecutor;

use crate::event::MasterEffect;
use crate::record::JournalRecord;

/// Effects in the order in which they are carried out.
#[derive(Debug, Default)]
pub(super) struct EffectBatch {
    /// Records of the journal.
    pub(super) records: Vec<JournalRecord>,
    /// Starts that follow the write of the records.
    pub(super) starts: Vec<(ContainerId, ToExecutor)>,
    /// What follows when the records are durable.
    pub(super) rest: Vec<MasterEffect>,
}

impl EffectBatch {
    /// Sorts the effects of one turn. `waiting` are the executors to which an earlier message
    /// waits.
    pub(super) fn new(
        effects: Vec<MasterEffect>,
        mut waiting: BTreeSet<ContainerId>,
    ) -> EffectBatch {
        let mut batch = EffectBatch::default();
        // A start does not overtake another message to its executor, except acknowledgements.
        for effect in effects {
            match effect {
                MasterEffect::Record(record) => batch.records.push(*record),
                MasterEffect::Send { container, message }
                    if may_follow_write(&message) && !waiting.contains(&container) =>
                {
                    batch.starts.push((container, *message));
                }
                MasterEffect::Send { container, message } => {
                    if !matches!(*message, ToExecutor::Ack { .. }) {
                        waiting.insert(container.clone());
                    }
                    batch.rest.push(MasterEffect::Send { container, message });
                }
                MasterEffect::Commit { .. }
                | MasterEffect::Resize { .. }
                | MasterEffect::Measure { .. }
                | MasterEffect::Answer { .. }
                | MasterEffect::Sync
                | MasterEffect::Finish(_) => batch.rest.push(effect),
            }
        }
        batch
    }
}

/// True for a start whose attempt leaves nothing outside of its container by which a second attempt
/// with the same number would fail.
fn may_follow_write(message: &ToExecutor) -> bool {
    matches!(message, ToExecutor::Start(start) if start.output.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::v1::task::TaskStart;

    fn start(container: &str, output: Option<&str>) -> MasterEffect {
        let start: TaskStart = serde_json::from_value(serde_json::json!({
            "attempt": "map/7@1", "command": ["true"], "env": {}, "slots": 1,
            "heap_exit_codes": [], "output": output,
        }))
        .expect("a start");
        send(container, ToExecutor::Start(Box::new(start)))
    }

    fn send(container: &str, message: ToExecutor) -> MasterEffect {
        MasterEffect::Send {
            container: container.parse().expect("a container"),
            message: Box::new(message),
        }
    }

    fn attempt() -> headroom_types::TaskAttemptId {
        "map/6@1".parse().expect("an attempt")
    }

    #[test]
    fn starts_follow_the_write_unless_they_own_a_directory_or_would_overtake_a_message() {
        let earlier = BTreeSet::from(["job.1.e1.c5".parse().expect("a container")]);
        let effects = vec![
            send("job.1.e1.c2", ToExecutor::Ack { attempt: attempt() }),
            start("job.1.e1.c2", None),
            start("job.1.e1.c3", Some("/out/7.1")),
            send("job.1.e1.c4", ToExecutor::Stop { attempt: attempt() }),
            start("job.1.e1.c4", None),
            start("job.1.e1.c5", None),
            MasterEffect::Sync,
        ];
        let batch = EffectBatch::new(effects, earlier);
        let early: Vec<String> = batch.starts.iter().map(|(c, _)| c.to_string()).collect();
        assert_eq!(early, ["job.1.e1.c2"]);
        assert_eq!(batch.rest.len(), 6);
        assert!(matches!(batch.rest.last(), Some(MasterEffect::Sync)));
    }
}
