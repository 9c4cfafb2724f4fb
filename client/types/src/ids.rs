//! Ids as types of their own. Each one parses from what it displays, and none can leave a directory when used as a file name.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}; it looks like {example}")]
pub struct ParseIdError {
    /// What was given.
    pub text: String,
    /// What was wanted.
    pub what: &'static str,
    /// One that is right.
    pub example: &'static str,
}

fn wrong(text: &str, what: &'static str, example: &'static str) -> ParseIdError {
    ParseIdError { text: text.chars().take(80).collect(), what, example }
}

/// Letters, digits, `-` and `_`, first a letter or digit, at most 63 characters.
fn is_word(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// In JSON these types are the text that `Display` writes and `FromStr` reads. The crate that uses it depends on serde.
#[macro_export]
macro_rules! textual {
    ($($id:ty),* $(,)?) => {$(
        impl ::serde::Serialize for $id {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> ::serde::Deserialize<'de> for $id {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(d)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    )*};
}
textual!(Name, NodeId, RequestId, QueuePath, AppId, AttemptId, ContainerId, TaskId, TaskAttemptId);

/// Longest text that is kept in place. Bytes.
const SHORT: usize = 22;

/// The text of an id. A short one is kept in place, so that a copy shares nothing and a comparison looks nowhere else; a clone of a
/// long one shares it.
#[derive(Clone)]
enum Text {
    /// What is behind its length is zero, and nothing else in it is.
    Short { len: u8, bytes: [u8; SHORT] },
    /// More than that.
    Long(Arc<str>),
}

impl Text {
    /// A text that was checked: no zero in it.
    fn new(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text.as_bytes());
                Text::Short { len, bytes }
            }
            (None, _) | (_, Err(_)) => Text::Long(text.into()),
        }
    }
    fn as_str(&self) -> &str {
        match self {
            Text::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Long(text) => text,
        }
    }
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Text::Long(text) => text.as_bytes(),
        }
    }
    #[inline]
    fn fingerprint(&self) -> u64 {
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        match self {
            // what differs is mostly at the end: its bits have to be low for the product to spread them
            Text::Short { bytes, .. } => words(bytes).into_iter().map(u64::swap_bytes).fold(0, mix),
            Text::Long(text) => {
                let (words, rest) = text.as_bytes().as_chunks::<8>();
                let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
                mix(hash, rest.iter().fold(1, |word, byte| word << 8 | u64::from(*byte)))
            }
        }
    }
}

/// The bytes as numbers that compare as they do; the last two overlap.
#[inline]
fn words(bytes: &[u8; SHORT]) -> [u64; 3] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = *bytes;
    let first = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let second = u64::from_be_bytes([i, j, k, l, m, n, o, p]);
    [first, second, u64::from_be_bytes([o, p, q, r, s, t, u, v])]
}

impl PartialEq for Text {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Text::Short { bytes, .. }, Text::Short { bytes: others, .. }) => bytes == others,
            (Text::Long(text), Text::Long(other)) => Arc::ptr_eq(text, other) || text == other,
            (Text::Short { .. }, Text::Long(_)) | (Text::Long(_), Text::Short { .. }) => false,
        }
    }
}
impl Eq for Text {}
impl Ord for Text {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Text::Short { bytes, .. }, Text::Short { bytes: others, .. }) => words(bytes).cmp(&words(others)),
            (Text::Long(text), Text::Long(other)) if Arc::ptr_eq(text, other) => Ordering::Equal,
            (Text::Short { .. } | Text::Long(_), _) => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}
impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Defines an id that is one checked word.
macro_rules! word_id {
    ($(#[$doc:meta])* $id:ident, $what:literal, $example:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $id(Text);
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($id)).field(&self.as_str()).finish()
            }
        }
        impl $id {
            /// The text of it.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
            /// A number that is the same for equal ids, on every machine and in every run.
            #[inline]
            pub fn fingerprint(&self) -> u64 {
                self.0.fingerprint()
            }
        }
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl FromStr for $id {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok($id(Text::new(text))) } else { Err(wrong(text, $what, $example)) }
            }
        }
    };
}

word_id!(
    /// A name that people give: of a job, a stage, a profile, a queue, an executor set.
    Name, "a name (letters, digits, - and _, at most 63)", "word-count", is_word
);
word_id!(
    /// A node, by its host name.
    NodeId, "a node name", "worker-01", |t| t.split('.').all(is_word) && t.len() <= 63
);
word_id!(
    /// A container request, named by the application that asks, so that asking twice asks once.
    RequestId, "a request id (letters, digits, - _ . and at most 63)", "executor-main", |t| t.split('.').all(is_word) && t.len() <= 63
);

/// A queue by its place in the tree: `root`, `root.etl`, `root.etl.nightly`. Read without `root.` too.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePath(Arc<str>);

/// Most levels of queues below the root.
const MAX_DEPTH: usize = 8;

impl QueuePath {
    /// The queue that holds all others.
    pub fn root() -> Self {
        QueuePath("root".into())
    }
    /// The queue used when none is named.
    pub fn default_leaf() -> Self {
        QueuePath("root.default".into())
    }
    /// The whole path, `root` first.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// As people write it: without `root.`, but for the root itself.
    pub fn short(&self) -> &str {
        self.0.strip_prefix("root.").unwrap_or(&self.0)
    }
    /// The last word.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('.').map_or(&*self.0, |(_, last)| last)
    }
    /// The queue that holds it; `None` for the root.
    pub fn parent(&self) -> Option<QueuePath> {
        self.0.rsplit_once('.').map(|(parent, _)| QueuePath(parent.into()))
    }
    /// The queue of this name in it.
    pub fn child(&self, name: &Name) -> QueuePath {
        QueuePath(format!("{}.{name}", self.0).into())
    }
    /// True for itself and every queue that holds it.
    pub fn is_within(&self, outer: &QueuePath) -> bool {
        self.0.strip_prefix(&*outer.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}
impl fmt::Display for QueuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
impl fmt::Debug for QueuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueuePath").field(&self.as_str()).finish()
    }
}
impl FromStr for QueuePath {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let below = match text.strip_prefix("root") {
            Some("") => return Ok(QueuePath::root()),
            Some(rest) => rest.strip_prefix('.').unwrap_or(text),
            None => text,
        };
        let levels = below.split('.').count();
        if below.split('.').all(is_word) && levels <= MAX_DEPTH && below.len() <= 255 {
            return Ok(QueuePath(format!("root.{below}").into()));
        }
        Err(wrong(text, "a queue (names joined by dots, at most 8 levels)", "root.etl.nightly"))
    }
}

/// One application: the name it was submitted under and the resource manager's running number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppId {
    // compared first
    seq: u32,
    name: Name,
}

impl AppId {
    /// The application number `seq`, submitted as `name`.
    pub fn new(name: Name, seq: u32) -> Self {
        AppId { name, seq }
    }
    /// The name it was submitted under.
    pub fn name(&self) -> &Name {
        &self.name
    }
    /// The running number; unique for the whole life of a cluster.
    pub fn seq(&self) -> u32 {
        self.seq
    }
}

impl Ord for AppId {
    /// In the order of submission.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seq, &self.name).cmp(&(other.seq, &other.name))
    }
}
impl PartialOrd for AppId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_none() && f.precision().is_none() {
            return write!(f, "{}.{}", self.name.as_str(), self.seq);
        }
        f.pad(&format!("{}.{}", self.name, self.seq))
    }
}
impl FromStr for AppId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || wrong(text, "an application id", "word-count.7");
        let (name, seq) = text.rsplit_once('.').ok_or_else(bad)?;
        Ok(AppId { name: name.parse().map_err(|_| bad())?, seq: number(seq).ok_or_else(bad)? })
    }
}

/// A decimal number without sign or leading zeros, so that an id has one spelling only.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let canonical =
        text == "0" || (text.starts_with(|c: char| ('1'..='9').contains(&c)) && text.bytes().all(|b| b.is_ascii_digit()));
    if canonical { text.parse().ok() } else { None }
}

/// One run of an application's master.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The application.
    pub app: AppId,
    /// 1 for the first run.
    pub attempt: u32,
}
impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.app, self.attempt))
    }
}
impl FromStr for AttemptId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || wrong(text, "an application attempt id", "word-count.7@1");
        let (app, attempt) = text.rsplit_once('@').ok_or_else(bad)?;
        Ok(AttemptId { app: app.parse().map_err(|_| bad())?, attempt: number(attempt).ok_or_else(bad)? })
    }
}

/// One life of the resource manager. Every message carries it, so that a stale peer is fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One container: application, epoch of the grant, running number within the epoch. Also the name of its cgroup and directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId {
    /// Whose it is.
    pub app: AppId,
    /// The resource manager's life in which it was granted.
    pub epoch: Epoch,
    /// Counts up within the epoch.
    pub seq: u64,
}
impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_none() && f.precision().is_none() {
            return write!(f, "{}.{}.e{}.c{}", self.app.name.as_str(), self.app.seq, self.epoch.0, self.seq);
        }
        f.pad(&format!("{}.e{}.c{}", self.app, self.epoch, self.seq))
    }
}
impl FromStr for ContainerId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || wrong(text, "a container id", "word-count.7.e3.c12");
        let (rest, seq) = text.rsplit_once(".c").ok_or_else(bad)?;
        let (app, epoch) = rest.rsplit_once(".e").ok_or_else(bad)?;
        Ok(ContainerId {
            app: app.parse().map_err(|_| bad())?,
            epoch: Epoch(number(epoch).ok_or_else(bad)?),
            seq: number(seq).ok_or_else(bad)?,
        })
    }
}

/// One task of a job: stage and index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The stage.
    pub stage: Name,
    /// The place in the stage's array, from 0.
    pub index: u32,
}
impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.stage, self.index))
    }
}
impl FromStr for TaskId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || wrong(text, "a task id", "map/7");
        let (stage, index) = text.rsplit_once('/').ok_or_else(bad)?;
        Ok(TaskId { stage: stage.parse().map_err(|_| bad())?, index: number(index).ok_or_else(bad)? })
    }
}

/// One attempt at a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskAttemptId {
    /// The task.
    pub task: TaskId,
    /// 1 for the first attempt.
    pub attempt: u32,
}
impl TaskAttemptId {
    /// The same id as one path component, for cgroups and log files: `map-7-2`.
    pub fn file_name(&self) -> String {
        format!("{}-{}-{}", self.task.stage, self.task.index, self.attempt)
    }
}
impl fmt::Display for TaskAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.task, self.attempt))
    }
}
impl FromStr for TaskAttemptId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || wrong(text, "a task attempt id", "map/7@2");
        let (task, attempt) = text.rsplit_once('@').ok_or_else(bad)?;
        Ok(TaskAttemptId { task: task.parse().map_err(|_| bad())?, attempt: number(attempt).ok_or_else(bad)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_id_can_leave_its_directory() {
        for text in ["..", ".", "a/b", "../x", "", "-a", "a b", "a\0b", "ä"] {
            assert!(text.parse::<Name>().is_err() && text.parse::<NodeId>().is_err(), "{text:?}");
            assert!(text.parse::<RequestId>().is_err(), "{text:?}");
        }
        assert!("../../etc.1.e1.c1".parse::<ContainerId>().is_err());
    }

    #[test]
    fn a_queue_is_read_with_and_without_its_root() {
        let queue = |text: &str| text.parse::<QueuePath>();
        assert_eq!(queue("etl.nightly"), queue("root.etl.nightly"));
        assert_eq!(queue("root").expect("root").parent(), None);
        let etl = queue("etl").expect("queue");
        assert_eq!((etl.as_str(), etl.name(), etl.parent()), ("root.etl", "etl", Some(QueuePath::root())));
        assert!(queue("etl.nightly").expect("queue").is_within(&etl) && etl.is_within(&etl));
        assert!(!queue("etlx").expect("queue").is_within(&etl));
        assert_eq!(queue("rooty").expect("queue").as_str(), "root.rooty");
        for text in ["", ".", "root.", "a..b", "a/b", "a.b.c.d.e.f.g.h.i"] {
            assert!(queue(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ids_have_one_spelling() {
        assert!("job.07".parse::<AppId>().is_err() && "job.+7".parse::<AppId>().is_err());
        assert!("map/7@02".parse::<TaskAttemptId>().is_err());
    }

    proptest! {
        /// Where a text is kept makes no difference.
        #[test]
        fn names_compare_as_their_texts_do(a in "[a-z0-9_.-]{0,25}", b in "[a-z0-9_.-]{0,25}") {
            let (one, other) = (Text::new(&a), Text::new(&b));
            prop_assert_eq!((one.as_str(), one.cmp(&other), one == other), (a.as_str(), a.cmp(&b), a == b));
            prop_assert_eq!(one.fingerprint(), Text::new(&a).fingerprint());
        }

        #[test]
        fn container_ids_round_trip(name in "[a-z][a-z0-9_-]{0,20}", seq in any::<u32>(), epoch in any::<u32>(), c in any::<u64>()) {
            let id = ContainerId { app: AppId::new(name.parse().expect("name"), seq), epoch: Epoch(epoch), seq: c };
            prop_assert_eq!(id.to_string().parse::<ContainerId>(), Ok(id));
        }

        #[test]
        fn task_attempt_ids_round_trip(stage in "[a-z][a-z0-9_-]{0,20}", index in any::<u32>(), attempt in any::<u32>()) {
            let id = TaskAttemptId { task: TaskId { stage: stage.parse().expect("name"), index }, attempt };
            prop_assert_eq!(id.to_string().parse::<TaskAttemptId>(), Ok(id));
        }
    }
}
