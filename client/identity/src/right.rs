//! Rights in their text form, as in tokens: `job:submit`, `node:write`, `queue:root.etl`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use headroom_types::QueuePath;

/// A right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessRight {
    /// All rights.
    Admin,
    /// View nodes, queues, profiles and events.
    ClusterRead,
    /// View applications, their tasks, containers and logs.
    JobRead,
    /// Submit applications as oneself.
    JobSubmit,
    /// End and change one's own applications.
    JobKill,
    /// Drain, cordon and tag nodes, and undo it.
    NodeWrite,
    /// View the audit log and the metrics and settings of daemons.
    OperatorRead,
    /// Change queues, profiles and applications of other users.
    OperatorWrite,
    /// Submit to this queue and the queues below it, and to no other queue.
    Queue(QueuePath),
    /// View the applications of this queue and the queues below it.
    QueueView(QueuePath),
    /// View, change and end all applications of this queue and the queues below it; change the
    /// state of the queue.
    QueueAdmin(QueuePath),
}

/// The error of a text that is not a right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a right; the rights are {}", words().join(", "))]
pub struct ParseRightError {
    /// The rejected text.
    pub text: String,
}

const PLAIN: [AccessRight; 8] = [
    AccessRight::Admin,
    AccessRight::ClusterRead,
    AccessRight::JobRead,
    AccessRight::JobSubmit,
    AccessRight::JobKill,
    AccessRight::NodeWrite,
    AccessRight::OperatorRead,
    AccessRight::OperatorWrite,
];

/// All valid words.
pub fn words() -> Vec<String> {
    let plain = PLAIN.iter().map(AccessRight::to_string);
    plain
        .chain(["queue", "queue-view", "queue-admin"].map(|word| format!("{word}:NAME")))
        .collect()
}

/// The permission that a queue right grants on its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePermission {
    /// Submit to the queue.
    Submit,
    /// View its applications.
    View,
    /// Change and end its applications; change its state.
    Administer,
}

impl AccessRight {
    /// The permission and the queue of a queue right; `None` for other rights.
    pub fn queue_permission(&self) -> Option<(QueuePermission, &QueuePath)> {
        match self {
            AccessRight::Queue(queue) => Some((QueuePermission::Submit, queue)),
            AccessRight::QueueView(queue) => Some((QueuePermission::View, queue)),
            AccessRight::QueueAdmin(queue) => Some((QueuePermission::Administer, queue)),
            AccessRight::Admin
            | AccessRight::ClusterRead
            | AccessRight::JobRead
            | AccessRight::JobSubmit
            | AccessRight::JobKill
            | AccessRight::NodeWrite
            | AccessRight::OperatorRead
            | AccessRight::OperatorWrite => None,
        }
    }
}

impl fmt::Display for AccessRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessRight::Admin => f.write_str("admin"),
            AccessRight::ClusterRead => f.write_str("cluster:read"),
            AccessRight::JobRead => f.write_str("job:read"),
            AccessRight::JobSubmit => f.write_str("job:submit"),
            AccessRight::JobKill => f.write_str("job:kill"),
            AccessRight::NodeWrite => f.write_str("node:write"),
            AccessRight::OperatorRead => f.write_str("operator:read"),
            AccessRight::OperatorWrite => f.write_str("operator:write"),
            AccessRight::Queue(queue) => write!(f, "queue:{queue}"),
            AccessRight::QueueView(queue) => write!(f, "queue-view:{queue}"),
            AccessRight::QueueAdmin(queue) => write!(f, "queue-admin:{queue}"),
        }
    }
}

impl FromStr for AccessRight {
    type Err = ParseRightError;

    fn from_str(text: &str) -> Result<Self, ParseRightError> {
        let wrong = || ParseRightError {
            text: text.chars().take(80).collect(),
        };
        let about = |make: fn(QueuePath) -> AccessRight, queue: &str| {
            queue.parse().map(make).map_err(|_| wrong())
        };
        match text.split_once(':') {
            Some(("queue", queue)) => about(AccessRight::Queue, queue),
            Some(("queue-view", queue)) => about(AccessRight::QueueView, queue),
            Some(("queue-admin", queue)) => about(AccessRight::QueueAdmin, queue),
            Some(_) | None => PLAIN
                .iter()
                .find(|right| right.to_string() == text)
                .cloned()
                .ok_or_else(wrong),
        }
    }
}

headroom_types::textual!(AccessRight);

/// A set of rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct AccessRights(pub BTreeSet<AccessRight>);

impl AccessRights {
    /// All rights.
    pub fn all() -> Self {
        AccessRights([AccessRight::Admin].into())
    }

    /// Rights to view everything that is not reserved for operators.
    pub fn read_only() -> Self {
        AccessRights([AccessRight::ClusterRead, AccessRight::JobRead].into())
    }

    /// Default rights of a user: view everything, submit and change own applications.
    pub fn user_default() -> Self {
        AccessRights(
            [
                AccessRight::ClusterRead,
                AccessRight::JobRead,
                AccessRight::JobSubmit,
                AccessRight::JobKill,
            ]
            .into(),
        )
    }

    /// True if the set includes the right. `admin` includes all rights, `operator:*` includes read
    /// rights, and any right except `queue:` includes `cluster:read`.
    pub fn has(&self, right: &AccessRight) -> bool {
        let reads = matches!(right, AccessRight::ClusterRead | AccessRight::JobRead);
        let works = self.0.iter().any(|r| {
            r.queue_permission()
                .is_none_or(|(over, _)| over != QueuePermission::Submit)
        });
        self.0.contains(&AccessRight::Admin)
            || self.0.contains(right)
            || reads
                && (self.0.contains(&AccessRight::OperatorRead)
                    || self.0.contains(&AccessRight::OperatorWrite))
            || *right == AccessRight::ClusterRead && works
    }

    /// True if the set names queues for submission; then no other queue accepts submissions of the
    /// caller.
    pub fn names_queues(&self) -> bool {
        !self.0.contains(&AccessRight::Admin) && self.of(QueuePermission::Submit).next().is_some()
    }

    /// True if the set allows a submission to this queue. Without queue rights every queue is
    /// allowed.
    pub fn may_submit_to(&self, queue: &QueuePath) -> bool {
        !self.names_queues()
            || self
                .of(QueuePermission::Submit)
                .any(|of| queue.is_within(of))
            || self.may_administer(queue)
    }

    /// True if the set allows to view all applications of this queue.
    pub fn may_view_queue(&self, queue: &QueuePath) -> bool {
        self.has(&AccessRight::JobRead)
            || self.of(QueuePermission::View).any(|of| queue.is_within(of))
            || self.may_administer(queue)
    }

    /// True if the set allows to change and end all applications of this queue.
    pub fn may_administer(&self, queue: &QueuePath) -> bool {
        self.has(&AccessRight::OperatorWrite)
            || self
                .of(QueuePermission::Administer)
                .any(|of| queue.is_within(of))
    }

    /// True if the set allows to view some applications: all, own ones, or those of a queue.
    pub fn may_view_some(&self) -> bool {
        let some = |right: &AccessRight| {
            matches!(
                right,
                AccessRight::JobSubmit
                    | AccessRight::JobKill
                    | AccessRight::QueueView(_)
                    | AccessRight::QueueAdmin(_)
            )
        };
        self.has(&AccessRight::JobRead) || self.0.iter().any(some)
    }

    fn of(&self, wanted: QueuePermission) -> impl Iterator<Item = &QueuePath> {
        self.0.iter().filter_map(move |right| {
            right
                .queue_permission()
                .filter(|(over, _)| *over == wanted)
                .map(|(_, queue)| queue)
        })
    }
}

impl FromIterator<AccessRight> for AccessRights {
    fn from_iter<I: IntoIterator<Item = AccessRight>>(rights: I) -> Self {
        AccessRights(rights.into_iter().collect())
    }
}

impl fmt::Display for AccessRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(AccessRight::to_string).collect();
        f.pad(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(words: &[&str]) -> AccessRights {
        words
            .iter()
            .map(|w| w.parse::<AccessRight>().expect("a right"))
            .collect()
    }

    #[test]
    fn rights_round_trip_as_text() {
        let etl = || "root.etl".parse().expect("a queue");
        let about = [
            AccessRight::Queue(etl()),
            AccessRight::QueueView(etl()),
            AccessRight::QueueAdmin(etl()),
        ];
        for right in PLAIN.iter().cloned().chain(about) {
            assert_eq!(right.to_string().parse(), Ok(right));
        }
        let error = "job:write"
            .parse::<AccessRight>()
            .expect_err("none")
            .to_string();
        assert!(
            error.contains("job:submit") && error.contains("queue:NAME"),
            "{error}"
        );
    }

    #[test]
    fn broader_rights_include_narrower_ones() {
        assert!(PLAIN.iter().all(|right| AccessRights::all().has(right)));
        assert!(
            rights(&["operator:read"]).has(&AccessRight::JobRead)
                && !rights(&["operator:read"]).has(&AccessRight::OperatorWrite)
        );
        assert!(
            rights(&["job:submit"]).has(&AccessRight::ClusterRead)
                && !rights(&["job:submit"]).has(&AccessRight::JobRead)
        );
        assert!(!AccessRights::default().has(&AccessRight::ClusterRead));
        assert!(
            !rights(&["queue:root.etl"]).has(&AccessRight::ClusterRead),
            "a queue right alone includes no other right"
        );
    }

    #[test]
    fn a_queue_right_covers_only_its_queue() {
        let queue = |name: &str| name.parse::<QueuePath>().expect("a queue");
        let etl = rights(&["job:submit", "queue:root.etl"]);
        assert!(
            etl.may_submit_to(&queue("root.etl")) && etl.may_submit_to(&queue("root.etl.daily"))
        );
        assert!(!etl.may_submit_to(&queue("root.etlx")) && !etl.may_submit_to(&queue("root")));
        assert!(rights(&["job:submit"]).may_submit_to(&queue("root.etlx")));
        assert!(rights(&["admin", "queue:root.etl"]).may_submit_to(&queue("root")));
    }

    #[test]
    fn rights_on_a_queue_cover_the_queues_below() {
        let queue = |name: &str| name.parse::<QueuePath>().expect("a queue");
        let (views, keeps) = (
            rights(&["queue-view:root.etl"]),
            rights(&["queue-admin:root.etl", "queue:root.own"]),
        );
        assert!(
            views.may_view_queue(&queue("root.etl.daily"))
                && !views.may_view_queue(&queue("root"))
                && !views.may_administer(&queue("root.etl"))
        );
        assert!(
            keeps.may_view_queue(&queue("root.etl"))
                && keeps.may_administer(&queue("root.etl.daily"))
                && !keeps.may_administer(&queue("root.x"))
        );
        assert!(
            keeps.may_submit_to(&queue("root.own"))
                && keeps.may_submit_to(&queue("root.etl"))
                && !keeps.may_submit_to(&queue("root.x"))
        );
        assert!(
            views.may_view_some()
                && keeps.may_view_some()
                && !rights(&["cluster:read"]).may_view_some()
        );
        assert!(views.has(&AccessRight::ClusterRead) && !views.has(&AccessRight::JobRead));
        assert!(
            AccessRights::all().may_administer(&queue("root"))
                && rights(&["operator:read"]).may_view_queue(&queue("root"))
        );
    }
}
