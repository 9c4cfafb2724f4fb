//! Conversion between Headroom ids and YARN ids.
//!
//! | Headroom | YARN |
//! | --- | --- |
//! | `word-count.7` | `application_1700000000000_0007` |
//! | `word-count.7@2` | `appattempt_1700000000000_0007_000002` |
//! | `word-count.7.e3.c12` | `container_e03_1700000000000_0007_02_000012` |
//!
//! YARN ids contain no name. An application is found by its number, which is unique. The attempt of
//! a container (`02`) is shown, but not needed to find it. In YARN the long number is the start
//! time of the resource manager. Here it is a constant, so that ids survive restarts and node
//! agents write the same ids.

use std::fmt;
use std::str::FromStr;

use headroom_types::{AppId, AttemptId, ContainerId, Epoch};

/// Replaces the start time of the resource manager in YARN ids. Milliseconds since 1970, a moment
/// in November 2023.
pub const CLUSTER_TIMESTAMP: u64 = 1_700_000_000_000;

/// The error of a text that is not a YARN id of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what} of this cluster; it looks like {example}")]
pub struct ParseYarnId {
    /// The rejected text.
    pub text: String,
    /// The expected kind of id.
    pub what: &'static str,
    /// A valid example.
    pub example: &'static str,
}

/// A YARN application id: its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct YarnApplicationId(pub u32);

/// A YARN application attempt id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct YarnAttemptId {
    /// The application.
    pub app: YarnApplicationId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// A YARN container id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct YarnContainerId {
    /// The application.
    pub app: YarnApplicationId,
    /// Run of the master in which it was granted. Not needed to find the container.
    pub attempt: u32,
    /// Epoch in which it was granted.
    pub epoch: Epoch,
    /// Sequence number within the epoch.
    pub seq: u64,
}

impl YarnApplicationId {
    /// Converts a Headroom id.
    pub fn of(app: &AppId) -> Self {
        YarnApplicationId(app.seq())
    }
}

impl YarnAttemptId {
    /// Converts a Headroom id.
    pub fn of(attempt: &AttemptId) -> Self {
        YarnAttemptId {
            app: YarnApplicationId::of(&attempt.app),
            attempt: attempt.attempt,
        }
    }
}

impl YarnContainerId {
    /// Converts a Headroom id of a container that was granted in this run of its master.
    pub fn of(container: &ContainerId, attempt: u32) -> Self {
        YarnContainerId {
            app: YarnApplicationId::of(&container.app),
            attempt,
            epoch: container.epoch,
            seq: container.seq,
        }
    }
    /// True if it identifies this container.
    pub fn identifies(&self, container: &ContainerId) -> bool {
        self.app.0 == container.app.seq()
            && self.epoch == container.epoch
            && self.seq == container.seq
    }
    /// The Headroom id, for a container of this application.
    pub fn to_container_id(&self, app: AppId) -> ContainerId {
        ContainerId {
            app,
            epoch: self.epoch,
            seq: self.seq,
        }
    }
}

impl fmt::Display for YarnApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "application_{CLUSTER_TIMESTAMP}_{:04}", self.0)
    }
}
impl fmt::Display for YarnAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "appattempt_{CLUSTER_TIMESTAMP}_{:04}_{:06}",
            self.app.0, self.attempt
        )
    }
}
impl fmt::Display for YarnContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let YarnContainerId {
            app,
            attempt,
            epoch,
            seq,
        } = self;
        write!(
            f,
            "container_e{:02}_{CLUSTER_TIMESTAMP}_{:04}_{attempt:02}_{seq:06}",
            epoch.0, app.0
        )
    }
}

/// The numbers after `prefix`, if there are exactly `N`. Leading zeros are valid, as in YARN; signs
/// are not.
fn numbers<const N: usize>(text: &str, prefix: &str) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut words = text.strip_prefix(prefix)?.split('_');
    for number in &mut numbers {
        let word = words.next()?;
        *number = word
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| word.parse().ok())
            .flatten()?;
    }
    words.next().is_none().then_some(numbers)
}

fn small(n: u64) -> Option<u32> {
    u32::try_from(n).ok()
}

impl FromStr for YarnApplicationId {
    type Err = ParseYarnId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || match numbers::<2>(text, "application_")? {
            [CLUSTER_TIMESTAMP, app] => small(app).map(YarnApplicationId),
            [_, _] => None,
        };
        read().ok_or_else(|| wrong(text, "an application", "application_1700000000000_0007"))
    }
}
impl FromStr for YarnAttemptId {
    type Err = ParseYarnId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || match numbers::<3>(text, "appattempt_")? {
            [CLUSTER_TIMESTAMP, app, attempt] => Some(YarnAttemptId {
                app: YarnApplicationId(small(app)?),
                attempt: small(attempt)?,
            }),
            [_, _, _] => None,
        };
        read().ok_or_else(|| {
            wrong(
                text,
                "an application attempt",
                "appattempt_1700000000000_0007_000002",
            )
        })
    }
}
impl FromStr for YarnContainerId {
    type Err = ParseYarnId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || match numbers::<5>(text, "container_e")? {
            [epoch, CLUSTER_TIMESTAMP, app, attempt, seq] => Some(YarnContainerId {
                app: YarnApplicationId(small(app)?),
                attempt: small(attempt)?,
                epoch: Epoch(small(epoch)?),
                seq,
            }),
            [_, _, _, _, _] => None,
        };
        read().ok_or_else(|| {
            wrong(
                text,
                "a container",
                "container_e03_1700000000000_0007_02_000012",
            )
        })
    }
}

fn wrong(text: &str, what: &'static str, example: &'static str) -> ParseYarnId {
    ParseYarnId {
        text: text.chars().take(80).collect(),
        what,
        example,
    }
}

headroom_types::textual!(YarnApplicationId, YarnAttemptId, YarnContainerId);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_have_the_format_of_yarn() {
        let id: ContainerId = "word-count.7.e3.c12".parse().expect("id");
        assert_eq!(
            YarnApplicationId::of(&id.app).to_string(),
            "application_1700000000000_0007"
        );
        let attempt = AttemptId {
            app: id.app.clone(),
            attempt: 2,
        };
        assert_eq!(
            YarnAttemptId::of(&attempt).to_string(),
            "appattempt_1700000000000_0007_000002"
        );
        assert_eq!(
            YarnContainerId::of(&id, 2).to_string(),
            "container_e03_1700000000000_0007_02_000012"
        );
    }

    #[test]
    fn ids_of_other_clusters_and_kinds_are_refused() {
        for text in [
            "application_1_0007",
            "application_1700000000000_",
            "application_1700000000000_+7",
            "application_1700000000000_7_1",
        ] {
            assert!(text.parse::<YarnApplicationId>().is_err(), "{text}");
        }
        assert!(
            "appattempt_1700000000000_0007"
                .parse::<YarnAttemptId>()
                .is_err()
        );
        assert!(
            "application_1700000000000_4294967296"
                .parse::<YarnApplicationId>()
                .is_err(),
            "application numbers have 32 bits"
        );
        assert!(
            "container_e03_1700000000000_0007_02_0000x2"
                .parse::<YarnContainerId>()
                .is_err()
        );
        assert!(
            "container_1700000000000_0007_02_000012"
                .parse::<YarnContainerId>()
                .is_err(),
            "every container id has an epoch"
        );
    }

    proptest! {
        /// An id is unchanged after a round trip through YARN's form.
        #[test]
        fn ids_round_trip(seq in any::<u32>(), attempt in 1u32..=u32::MAX, epoch in any::<u32>(), c in any::<u64>()) {
            let id = ContainerId { app: AppId::new("job".parse().expect("name"), seq), epoch: Epoch(epoch), seq: c };
            let app: YarnApplicationId = YarnApplicationId::of(&id.app).to_string().parse().expect("an application");
            prop_assert_eq!(app.0, seq);
            let run = YarnAttemptId { app, attempt };
            prop_assert_eq!(run.to_string().parse::<YarnAttemptId>(), Ok(run));
            let name: YarnContainerId = YarnContainerId::of(&id, attempt).to_string().parse().expect("a container");
            prop_assert!(name.identifies(&id) && name.attempt == attempt);
            prop_assert_eq!(name.to_container_id(id.app.clone()), id);
        }
    }
}
