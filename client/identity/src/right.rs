//! What somebody may do, in words that stand in tokens: `job:submit`, `node:write`, `queue:root.etl`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use headroom_types::QueuePath;

/// One thing that somebody may do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Everything.
    Admin,
    /// See nodes, queues, profiles and what happens.
    ClusterRead,
    /// See applications, their tasks, containers and logs.
    JobRead,
    /// Submit applications in one's own name.
    JobSubmit,
    /// End and change one's own applications.
    JobKill,
    /// Drain, cordon and mark nodes, and take them back.
    NodeWrite,
    /// See the record of changes and what the daemons say of themselves.
    OperatorRead,
    /// Change queues, profiles and other people's applications.
    OperatorWrite,
    /// Submit to this queue and those below it, and to no other.
    Queue(QueuePath),
    /// See the applications in this queue and those below it.
    QueueView(QueuePath),
    /// See, change and end the applications in this queue and those below it, whoever they belong to; open and close it.
    QueueAdmin(QueuePath),
}

/// Why a text is no right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no right; there are {}", words().join(", "))]
pub struct ParseRightError {
    /// What was given.
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

/// Every word that is a right.
pub fn words() -> Vec<String> {
    let plain = PLAIN.iter().map(Right::to_string);
    plain.chain(["queue", "queue-view", "queue-admin"].map(|word| format!("{word}:NAME"))).collect()
}

/// What a right about a queue lets do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Submit to it.
    Submit,
    /// See what is in it.
    View,
    /// Change and end what is in it, and open and close it.
    Administer,
}

impl Right {
    /// What it lets do in which queue and those below; nothing for rights that are about no queue.
    pub fn over(&self) -> Option<(Over, &QueuePath)> {
        match self {
            Right::Queue(queue) => Some((Over::Submit, queue)),
            Right::QueueView(queue) => Some((Over::View, queue)),
            Right::QueueAdmin(queue) => Some((Over::Administer, queue)),
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
        let wrong = || ParseRightError { text: text.chars().take(80).collect() };
        let about = |make: fn(QueuePath) -> Right, queue: &str| queue.parse().map(make).map_err(|_| wrong());
        match text.split_once(':') {
            Some(("queue", queue)) => about(Right::Queue, queue),
            Some(("queue-view", queue)) => about(Right::QueueView, queue),
            Some(("queue-admin", queue)) => about(Right::QueueAdmin, queue),
            Some(_) | None => PLAIN.iter().find(|right| right.to_string() == text).cloned().ok_or_else(wrong),
        }
    }
}

headroom_types::textual!(Right);

/// All that somebody may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Rights(pub BTreeSet<Right>);

impl Rights {
    /// Everything.
    pub fn all() -> Self {
        Rights([Right::Admin].into())
    }

    /// Looking at everything that is no operator's business.
    pub fn reading() -> Self {
        Rights([Right::ClusterRead, Right::JobRead].into())
    }

    /// What somebody who works with the cluster has: looking, and applications of their own.
    pub fn working() -> Self {
        Rights([Right::ClusterRead, Right::JobRead, Right::JobSubmit, Right::JobKill].into())
    }

    /// Whether this may be done. Whoever may do more may do less: an administrator everything, an operator all that reads.
    pub fn has(&self, right: &Right) -> bool {
        let reads = matches!(right, Right::ClusterRead | Right::JobRead);
        let works = self.0.iter().any(|r| r.over().is_none_or(|(over, _)| over != Over::Submit));
        self.0.contains(&Right::Admin)
            || self.0.contains(right)
            || reads && (self.0.contains(&Right::OperatorRead) || self.0.contains(&Right::OperatorWrite))
            || *right == Right::ClusterRead && works
    }

    /// Whether some queues are named: then nothing may be submitted to others.
    pub fn names_queues(&self) -> bool {
        !self.0.contains(&Right::Admin) && self.of(Over::Submit).next().is_some()
    }

    /// Whether something may be submitted to this queue. Without a word about queues: to each.
    pub fn takes_queue(&self, queue: &QueuePath) -> bool {
        !self.names_queues() || self.of(Over::Submit).any(|of| queue.is_within(of)) || self.administers(queue)
    }

    /// Whether all that is in this queue may be seen.
    pub fn views(&self, queue: &QueuePath) -> bool {
        self.has(&Right::JobRead) || self.of(Over::View).any(|of| queue.is_within(of)) || self.administers(queue)
    }

    /// Whether all that is in this queue may be changed and ended.
    pub fn administers(&self, queue: &QueuePath) -> bool {
        self.has(&Right::OperatorWrite) || self.of(Over::Administer).any(|of| queue.is_within(of))
    }

    /// Whether some applications may be seen: all, or one's own, or those of some queue.
    pub fn looks(&self) -> bool {
        let some =
            |right: &Right| matches!(right, Right::JobSubmit | Right::JobKill | Right::QueueView(_) | Right::QueueAdmin(_));
        self.has(&Right::JobRead) || self.0.iter().any(some)
    }

    fn of(&self, wanted: Over) -> impl Iterator<Item = &QueuePath> {
        self.0.iter().filter_map(move |right| right.over().filter(|(over, _)| *over == wanted).map(|(_, queue)| queue))
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
        words.iter().map(|w| w.parse::<Right>().expect("a right")).collect()
    }

    #[test]
    fn a_right_is_read_as_it_is_written() {
        let etl = || "root.etl".parse().expect("a queue");
        let about = [Right::Queue(etl()), Right::QueueView(etl()), Right::QueueAdmin(etl())];
        for right in PLAIN.iter().cloned().chain(about) {
            assert_eq!(right.to_string().parse(), Ok(right));
        }
        let error = "job:write".parse::<Right>().expect_err("none").to_string();
        assert!(error.contains("job:submit") && error.contains("queue:NAME"), "{error}");
    }

    #[test]
    fn whoever_may_do_more_may_do_less() {
        assert!(PLAIN.iter().all(|right| Rights::all().has(right)));
        assert!(rights(&["operator:read"]).has(&Right::JobRead) && !rights(&["operator:read"]).has(&Right::OperatorWrite));
        assert!(rights(&["job:submit"]).has(&Right::ClusterRead) && !rights(&["job:submit"]).has(&Right::JobRead));
        assert!(!Rights::default().has(&Right::ClusterRead));
        assert!(!rights(&["queue:root.etl"]).has(&Right::ClusterRead), "a queue alone opens no door");
    }

    #[test]
    fn a_queue_that_is_named_keeps_to_itself() {
        let queue = |name: &str| name.parse::<QueuePath>().expect("a queue");
        let etl = rights(&["job:submit", "queue:root.etl"]);
        assert!(etl.takes_queue(&queue("root.etl")) && etl.takes_queue(&queue("root.etl.daily")));
        assert!(!etl.takes_queue(&queue("root.etlx")) && !etl.takes_queue(&queue("root")));
        assert!(rights(&["job:submit"]).takes_queue(&queue("root.etlx")));
        assert!(rights(&["admin", "queue:root.etl"]).takes_queue(&queue("root")));
    }

    #[test]
    fn who_looks_after_a_queue_looks_after_those_below() {
        let queue = |name: &str| name.parse::<QueuePath>().expect("a queue");
        let (views, keeps) = (rights(&["queue-view:root.etl"]), rights(&["queue-admin:root.etl", "queue:root.own"]));
        assert!(views.views(&queue("root.etl.daily")) && !views.views(&queue("root")) && !views.administers(&queue("root.etl")));
        assert!(
            keeps.views(&queue("root.etl"))
                && keeps.administers(&queue("root.etl.daily"))
                && !keeps.administers(&queue("root.x"))
        );
        assert!(
            keeps.takes_queue(&queue("root.own"))
                && keeps.takes_queue(&queue("root.etl"))
                && !keeps.takes_queue(&queue("root.x"))
        );
        assert!(views.looks() && keeps.looks() && !rights(&["cluster:read"]).looks());
        assert!(views.has(&Right::ClusterRead) && !views.has(&Right::JobRead));
        assert!(Rights::all().administers(&queue("root")) && rights(&["operator:read"]).views(&queue("root")));
    }
}
