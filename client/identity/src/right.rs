//! Rights in their text form, as in tokens: `job:submit`, `node:write`, `queue:root.etl`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use headroom_types::QueuePath;

/// A right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
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

const PLAIN: [Right; 8] = [
    Right::Admin,
    Right::ClusterRead,
    Right::JobRead,
    Right::JobSubmit,
    Right::JobKill,
    Right::NodeWrite,
    Right::OperatorRead,
    Right::OperatorWrite,
];

/// All valid words.
pub fn words() -> Vec<String> {
    let plain = PLAIN.iter().map(Right::to_string);
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

impl Right {
    /// The permission and the queue of a queue right; `None` for other rights.
    pub fn queue_permission(&self) -> Option<(QueuePermission, &QueuePath)> {
        match self {
            Right::Queue(queue) => Some((QueuePermission::Submit, queue)),
            Right::QueueView(queue) => Some((QueuePermission::View, queue)),
            Right::QueueAdmin(queue) => Some((QueuePermission::Administer, queue)),
            Right::Admin
            | Right::ClusterRead
            | Right::JobRead
            | Right::JobSubmit
            | Right::JobKill
            | Right::NodeWrite
            | Right::OperatorRead
            | Right::OperatorWrite => None,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Right::Admin => f.write_str("admin"),
            Right::ClusterRead => f.write_str("cluster:read"),
            Right::JobRead => f.write_str("job:read"),
            Right::JobSubmit => f.write_str("job:submit"),
            Right::JobKill => f.write_str("job:kill"),
            Right::NodeWrite => f.write_str("node:write"),
            Right::OperatorRead => f.write_str("operator:read"),
            Right::OperatorWrite => f.write_str("operator:write"),
            Right::Queue(queue) => write!(f, "queue:{queue}"),
            Right::QueueView(queue) => write!(f, "queue-view:{queue}"),
            Right::QueueAdmin(queue) => write!(f, "queue-admin:{queue}"),
        }
    }
}

impl FromStr for Right {
    type Err = ParseRightError;

    fn from_str(text: &str) -> Result<Self, ParseRightError> {
        let wrong = || ParseRightError {
            text: text.chars().take(80).collect(),
        };
        let about = |make: fn(QueuePath) -> Right, queue: &str| {
            queue.parse().map(make).map_err(|_| wrong())
        };
        match text.split_once(':') {
            Some(("queue", queue)) => about(Right::Queue, queue),
            Some(("queue-view", queue)) => about(Right::QueueView, queue),
            Some(("queue-admin", queue)) => about(Right::QueueAdmin, queue),
            Some(_) | None => PLAIN
                .iter()
                .find(|right| right.to_string() == text)
                .cloned()
                .ok_or_else(wrong),
        }
    }
}

headroom_types::textual!(Right);

/// A set of rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Rights(pub BTreeSet<Right>);

impl Rights {
    /// All rights.
    pub fn all() -> Self {
        Rights([Right::Admin].into())
    }

    /// Rights to view everything that is not reserved for operators.
    pub fn read_only() -> Self {
        Rights([Right::ClusterRead, Right::JobRead].into())
    }

    /// Default rights of a user: view everything, submit and change own applications.
    pub fn user_default() -> Self {
        Rights(
            [
                Right::ClusterRead,
                Right::JobRead,
                Right::JobSubmit,
                Right::JobKill,
            ]
            .into(),
        )
    }

    /// True if the set includes the right. `admin` includes all rights, `operator:*` includes read
    /// rights, and any right except `queue:` includes `cluster:read`.
    pub fn has(&self, right: &Right) -> bool {
        let reads = matches!(right, Right::ClusterRead | Right::JobRead);
        let works = self.0.iter().any(|r| {
            r.queue_permission()
                .is_none_or(|(over, _)| over != QueuePermission::Submit)
        });
        self.0.contains(&Right::Admin)
            || self.0.contains(right)
            || reads
                && (self.0.contains(&Right::OperatorRead) || self.0.contains(&Right::OperatorWrite))
            || *right == Right::ClusterRead && works
    }

    /// True if the set names queues for submission; then no other queue accepts submissions of the
    /// caller.
    pub fn names_queues(&self) -> bool {
        !self.0.contains(&Right::Admin) && self.of(QueuePermission::Submit).next().is_some()
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
        self.has(&Right::JobRead)
            || self.of(QueuePermission::View).any(|of| queue.is_within(of))
            || self.may_administer(queue)
    }

    /// True if the set allows to change and end all applications of this queue.
    pub fn may_administer(&self, queue: &QueuePath) -> bool {
        self.has(&Right::OperatorWrite)
            || self
                .of(QueuePermission::Administer)
                .any(|of| queue.is_within(of))
    }

    /// True if the set allows to view some applications: all, own ones, or those of a queue.
    pub fn may_view_some(&self) -> bool {
        let some = |right: &Right| {
            matches!(
                right,
                Right::JobSubmit | Right::JobKill | Right::QueueView(_) | Right::QueueAdmin(_)
            )
        };
        self.has(&Right::JobRead) || self.0.iter().any(some)
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

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Rights(rights.into_iter().collect())
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Right::to_string).collect();
        f.pad(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(words: &[&str]) -> Rights {
        words
            .iter()
            .map(|w| w.parse::<Right>().expect("a right"))
            .collect()
    }

    #[test]
    fn rights_round_trip_as_text() {
        let etl = || "root.etl".parse().expect("a queue");
        let about = [
            Right::Queue(etl()),
            Right::QueueView(etl()),
            Right::QueueAdmin(etl()),
        ];
        for right in PLAIN.iter().cloned().chain(about) {
            assert_eq!(right.to_string().parse(), Ok(right));
        }
        let error = "job:write".parse::<Right>().expect_err("none").to_string();
        assert!(
            error.contains("job:submit") && error.contains("queue:NAME"),
            "{error}"
        );
    }

    #[test]
    fn broader_rights_include_narrower_ones() {
        assert!(PLAIN.iter().all(|right| Rights::all().has(right)));
        assert!(
            rights(&["operator:read"]).has(&Right::JobRead)
                && !rights(&["operator:read"]).has(&Right::OperatorWrite)
        );
        assert!(
            rights(&["job:submit"]).has(&Right::ClusterRead)
                && !rights(&["job:submit"]).has(&Right::JobRead)
        );
        assert!(!Rights::default().has(&Right::ClusterRead));
        assert!(
            !rights(&["queue:root.etl"]).has(&Right::ClusterRead),
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
        assert!(views.has(&Right::ClusterRead) && !views.has(&Right::JobRead));
        assert!(
            Rights::all().may_administer(&queue("root"))
                && rights(&["operator:read"]).may_view_queue(&queue("root"))
        );
    }
}
