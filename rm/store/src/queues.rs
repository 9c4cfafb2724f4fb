//! The tree of queues on disk, and its conversion from and to the core's types.
//!
//! One record holds the whole tree, so that a reader never sees a partial change. Pure; the core
//! validates the tree.

use std::collections::BTreeMap;

use headroom_rm_core::queue::spec::{
    self, LeafOrder, QueueDefinition, QueuePreemption, QueueState,
};
use headroom_types::{Bytes, Cpus, Name};
use serde::{Deserialize, Serialize};

/// The tree that was set at run time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredQueueTree {
    /// Increases with every change.
    pub generation: u64,
    /// The root queue with all its descendants.
    pub root: QueueRecord,
}

/// One queue with its children. Missing fields have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueRecord {
    /// The guaranteed share.
    pub guaranteed: ShareRecord,
    /// The maximum share.
    pub maximum: ShareRecord,
    /// The weight against its siblings.
    pub weight: Option<u32>,
    /// The priority among its siblings; a higher value comes first.
    pub priority: i32,
    /// The order of its applications.
    pub order: AppOrderRecord,
    /// Maximum share of one user. In thousandths.
    pub user_limit: Option<u32>,
    /// Maximum share of application masters. In thousandths.
    pub master_share: Option<u32>,
    /// Maximum number of running applications.
    pub max_running: Option<u32>,
    /// Maximum number of applications that have not ended.
    pub max_apps: Option<u32>,
    /// Whether it accepts applications and grants containers.
    #[serde(alias = "gate")] // the name in the version before
    pub state: QueueStateRecord,
    /// Whether its containers can be preempted.
    pub preemptable: Option<bool>,
    /// Maximum lifetime of an application. In milliseconds.
    pub max_lifetime_ms: Option<u64>,
    /// Its child queues.
    pub children: BTreeMap<Name, QueueRecord>,
}

/// A share, separate for each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareRecord {
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<AmountRecord<Bytes>>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<AmountRecord<Cpus>>,
    /// Countable resources.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<Name, AmountRecord<u64>>,
}

/// The amount of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmountRecord<T> {
    /// A part of the parent. In thousandths.
    Part(u32),
    /// An absolute amount.
    Exactly(T),
}

/// The order of the applications of one leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppOrderRecord {
    /// First come, first served.
    #[default]
    Fifo,
    /// The application with the smallest use comes first.
    Fair,
}

/// Whether a queue accepts applications and grants containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueStateRecord {
    /// It does both.
    #[default]
    #[serde(alias = "open")] // the name in the version before
    Running,
    /// It accepts applications and grants no containers.
    Paused,
    /// It grants containers and accepts no applications.
    Draining,
    /// It does neither.
    #[serde(alias = "closed")] // the name in the version before
    Stopped,
}

mirror_struct!(QueueRecord, QueueDefinition, of, spec, {
    guaranteed(|share| ShareRecord::of(&share), ShareRecord::spec),
    maximum(|share| ShareRecord::of(&share), ShareRecord::spec),
    weight,
    priority,
    order(AppOrderRecord::of, AppOrderRecord::saved),
    user_limit,
    master_share,
    max_running,
    max_apps,
    state(QueueStateRecord::of, QueueStateRecord::saved),
    preemptable(
        |preemption| Some(preemption == QueuePreemption::Yes),
        |preemptable: Option<bool>| match preemptable {
            Some(false) => QueuePreemption::No,
            Some(true) | None => QueuePreemption::Yes,
        }
    ),
    max_lifetime_ms,
    children(
        |children: BTreeMap<Name, QueueDefinition>| {
            let children = children.iter();
            children.map(|(name, child)| (name.clone(), QueueRecord::of(child))).collect()
        },
        |children: BTreeMap<Name, QueueRecord>| {
            let children = children.into_iter();
            children.map(|(name, child)| (name, child.spec())).collect()
        }
    ),
});

mirror_enum!(AppOrderRecord, LeafOrder, { Fifo, Fair });

mirror_enum!(QueueStateRecord, QueueState, {
    Running,
    Paused,
    Draining,
    Stopped,
});

impl ShareRecord {
    fn of(share: &spec::QueueShare) -> Self {
        ShareRecord {
            memory: share.memory.map(AmountRecord::of),
            cpus: share.cpus.map(AmountRecord::of),
            extra: share
                .extra
                .iter()
                .map(|(name, amount)| (name.clone(), AmountRecord::of(*amount)))
                .collect(),
        }
    }
    fn spec(self) -> spec::QueueShare {
        spec::QueueShare {
            memory: self.memory.map(AmountRecord::spec),
            cpus: self.cpus.map(AmountRecord::spec),
            extra: self
                .extra
                .into_iter()
                .map(|(name, amount)| (name, amount.spec()))
                .collect(),
        }
    }
}

impl<T> AmountRecord<T> {
    fn of(amount: spec::ShareOrAmount<T>) -> Self {
        match amount {
            spec::ShareOrAmount::Part(part) => AmountRecord::Part(part),
            spec::ShareOrAmount::Exactly(exactly) => AmountRecord::Exactly(exactly),
        }
    }
    fn spec(self) -> spec::ShareOrAmount<T> {
        match self {
            AmountRecord::Part(part) => spec::ShareOrAmount::Part(part),
            AmountRecord::Exactly(exactly) => spec::ShareOrAmount::Exactly(exactly),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("name")
    }

    fn share() -> spec::QueueShare {
        spec::QueueShare {
            memory: Some(spec::ShareOrAmount::Part(600)),
            cpus: Some(spec::ShareOrAmount::Exactly(Cpus::from_milli(2500))),
            extra: BTreeMap::from([
                (name("gpu"), spec::ShareOrAmount::Exactly(4)),
                (name("fpga"), spec::ShareOrAmount::Part(1000)),
            ]),
        }
    }

    /// Each field differs from its default.
    fn explicit_queue(state: spec::QueueState) -> spec::QueueDefinition {
        spec::QueueDefinition {
            guaranteed: share(),
            maximum: spec::QueueShare {
                memory: Some(spec::ShareOrAmount::Exactly(Bytes::from_mib(512))),
                ..share()
            },
            weight: Some(3),
            priority: -7,
            order: spec::LeafOrder::Fair,
            user_limit: Some(250),
            master_share: Some(100),
            max_running: Some(12),
            max_apps: Some(400),
            state,
            preemptable: spec::QueuePreemption::No,
            max_lifetime_ms: Some(86_400_000),
            children: BTreeMap::new(),
        }
    }

    #[test]
    fn a_queue_tree_is_restored_unchanged() {
        for state in [
            spec::QueueState::Running,
            spec::QueueState::Paused,
            spec::QueueState::Draining,
            spec::QueueState::Stopped,
        ] {
            let inner = spec::QueueDefinition {
                children: BTreeMap::from([(name("deep"), explicit_queue(state))]),
                ..explicit_queue(state)
            };
            let children = BTreeMap::from([
                (name("etl"), inner),
                (name("plain"), spec::QueueDefinition::default()),
            ]);
            let root = spec::QueueDefinition {
                children,
                ..spec::QueueDefinition::default()
            };
            let text = serde_json::to_string(&QueueRecord::of(&root)).expect("encodes");
            let read: QueueRecord = serde_json::from_str(&text).expect("reads");
            assert_eq!(read.spec(), root);
        }
    }

    #[test]
    fn a_state_of_the_version_before_is_read() {
        let states = [
            ("open", spec::QueueState::Running),
            ("paused", spec::QueueState::Paused),
            ("draining", spec::QueueState::Draining),
            ("closed", spec::QueueState::Stopped),
        ];
        for (former, state) in states {
            let read: QueueRecord =
                serde_json::from_str(&format!(r#"{{"gate":"{former}"}}"#)).expect("reads");
            assert_eq!(read.spec().state, state);
        }
    }

    #[test]
    fn a_missing_key_has_its_default() {
        let read: QueueRecord =
            serde_json::from_str(r#"{"children":{"etl":{"weight":2}}}"#).expect("reads");
        let etl = spec::QueueDefinition {
            weight: Some(2),
            ..spec::QueueDefinition::default()
        };
        assert_eq!(
            read.spec(),
            spec::QueueDefinition {
                children: BTreeMap::from([(name("etl"), etl)]),
                ..spec::QueueDefinition::default()
            }
        );
    }
}
