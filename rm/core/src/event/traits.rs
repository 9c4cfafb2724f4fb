//! Where a node stands and what it is, and how that is changed by an operator.
//!
//! Plain data.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::Name;

/// Where a node stands and what it is, for placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Nodes of one rack fail together.
    pub rack: Option<Name>,
    /// Words an ask can insist on.
    pub labels: BTreeSet<Name>,
    /// Only asks that insist on one of its labels come here.
    pub exclusive: Exclusive,
    /// Named values an ask can compare.
    pub attributes: BTreeMap<Name, String>,
    /// Only asks that tolerate every one of these come here. The value may be empty.
    pub taints: BTreeMap<Name, String>,
}

impl Traits {
    /// True when it is kept for nobody: an ask without any wish may come.
    pub fn takes_all(&self) -> bool {
        self.exclusive == Exclusive::No && self.taints.is_empty()
    }
}

/// Whether a node is kept for asks that name one of its labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclusive {
    /// It is open to all.
    #[default]
    No,
    /// It is kept for them.
    Yes,
}

/// What is to change of what an operator says of a node. What is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagChange {
    /// Whether it gets new containers.
    pub cordon: Option<Cordon>,
    /// Labels it has from now on.
    pub labels: BTreeSet<Name>,
    /// Labels that are not said any more.
    pub drop_labels: BTreeSet<Name>,
    /// Attributes from now on; `None` for one that is not said any more.
    pub attributes: BTreeMap<Name, Option<String>>,
    /// Taints from now on; `None` for one that is not said any more.
    pub taints: BTreeMap<Name, Option<String>>,
}

/// Whether a node gets new containers, by an operator's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cordon {
    /// It gets none, for this reason; those it has stay.
    On(String),
    /// It gets some again.
    Off,
}
