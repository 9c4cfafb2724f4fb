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
    plain.chain(["queue:NAME".to_owned()]).collect()
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
        }
    }
}

impl FromStr for Right {
    type Err = ParseRightError;

    fn from_str(text: &str) -> Result<Self, ParseRightError> {
        let wrong = || ParseRightError { text: text.chars().take(80).collect() };
        match text.strip_prefix("queue:") {
            Some(queue) => queue.parse().map(Right::Queue).map_err(|_| wrong()),
            None => PLAIN.iter().find(|right| right.to_string() == text).cloned().ok_or_else(wrong),
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
        let works = self.0.iter().any(|r| !matches!(r, Right::Queue(_)));
        self.0.contains(&Right::Admin)
            || self.0.contains(right)
            || reads && (self.0.contains(&Right::OperatorRead) || self.0.contains(&Right::OperatorWrite))
            || *right == Right::ClusterRead && works
    }

    /// Whether some queues are named: then no others may be used.
    pub fn names_queues(&self) -> bool {
        !self.0.contains(&Right::Admin) && self.0.iter().any(|right| matches!(right, Right::Queue(_)))
    }

    /// Whether something may be submitted to this queue. Without a word about queues: to each.
    pub fn takes_queue(&self, queue: &QueuePath) -> bool {
        let mut named = self.0.iter().filter_map(|right| match right {
            Right::Queue(queue) => Some(queue),
            Right::Admin
            | Right::ClusterRead
            | Right::JobRead
            | Right::JobSubmit
            | Right::JobKill
            | Right::NodeWrite
            | Right::OperatorRead
            | Right::OperatorWrite => None,
        });
        let (at, below) = (queue.to_string(), |of: &QueuePath| format!("{of}."));
        let mut some = named.by_ref().peekable();
        some.peek().is_none() || self.0.contains(&Right::Admin) || some.any(|of| of == queue || at.starts_with(&below(of)))
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
        for right in PLAIN.iter().cloned().chain([Right::Queue("root.etl".parse().expect("a queue"))]) {
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
}
