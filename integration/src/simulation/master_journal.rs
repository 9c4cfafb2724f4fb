//! The journal of a simulated master, and the effects that wait for it.

use std::collections::BTreeMap;

use headroom_appmaster::event::MasterEffect;
use headroom_appmaster::record::JournalRecord;
use headroom_types::ContainerId;

/// The journal of a master.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    /// Its token, which is also its key in the invariant checker.
    pub(crate) token: String,
    pub(crate) records: Vec<JournalRecord>,
    /// The attempt that took it over last.
    pub(crate) attempt: u32,
}

/// The effects of one turn. They leave when the records are durable.
#[derive(Debug)]
pub(super) struct SimEffectGroup {
    pub(super) records: Vec<JournalRecord>,
    /// The other effects; messages to executors with the connection at the time of the turn.
    pub(super) rest: Vec<(Option<u64>, MasterEffect)>,
}

impl SimEffectGroup {
    pub(super) fn of(effects: Vec<MasterEffect>, lines: &BTreeMap<ContainerId, u64>) -> Self {
        let (mut records, mut rest) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                MasterEffect::Record(record) => records.push(*record),
                MasterEffect::Send { container, message } => {
                    let line = lines.get(&container).copied();
                    rest.push((line, MasterEffect::Send { container, message }));
                }
                MasterEffect::Commit { .. }
                | MasterEffect::Resize { .. }
                | MasterEffect::Measure { .. }
                | MasterEffect::Answer { .. }
                | MasterEffect::Sync
                | MasterEffect::Finish(_) => {
                    rest.push((None, effect));
                }
            }
        }
        SimEffectGroup { records, rest }
    }
}
