//! Typed ids. Each id parses from its `Display` text. No id can leave a directory when it is used
//! as a file name.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::UnixMillis;

/// The error of a text that is not a valid id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}; it looks like {example}")]
pub struct ParseIdError {
    /// The rejected text, cut to 80 characters.
    pub text: String,
    /// The kind of id that was expected.
    pub what: &'static str,
    /// A valid example.
    pub example: &'static str,
}

fn parse_error(text: &str, what: &'static str, example: &'static str) -> ParseIdError {
    ParseIdError {
        text: text.chars().take(80).collect(),
        what,
        example,
    }
}

/// True for letters, digits, `-` and `_`, with a letter or digit first and at most 63 characters.
fn is_word(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// Implements serde for types whose JSON form is the text that `Display` writes and `FromStr`
/// reads. A crate that uses the macro depends on serde.
#[macro_export]
macro_rules! textual {
    ($($id:ty),* $(,)?) => {$(
        impl ::serde::Serialize for $id {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        $crate::parsed_text!($id);
    )*};
}

/// Implements `Deserialize` for types that are read from a text with `FromStr`.
#[macro_export]
macro_rules! parsed_text {
    ($($id:ty),* $(,)?) => {$(
        impl<'de> ::serde::Deserialize<'de> for $id {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(d)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    )*};
}
textual!(
    Name,
    NodeId,
    RequestId,
    QueuePath,
    AppId,
    AttemptId,
    ContainerId,
    TaskId,
    TaskAttemptId
);

/// Longest text that is stored inline. Bytes.
const MAX_INLINE_BYTES: usize = 22;

/// The text of an id. A short text is stored inline: copies share nothing and a comparison follows
/// no pointer. Clones of a long text share one allocation.
#[derive(Clone)]
enum InlineText {
    /// A text of at most [`MAX_INLINE_BYTES`] bytes. The bytes after `len` are zero; no other byte
    /// is zero.
    Short {
        len: u8,
        bytes: [u8; MAX_INLINE_BYTES],
    },
    /// A longer text.
    Long(Arc<str>),
}

impl InlineText {
    /// Stores a checked text. The text contains no zero byte.
    fn new(text: &str) -> Self {
        let mut bytes = [0; MAX_INLINE_BYTES];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text.as_bytes());
                InlineText::Short { len, bytes }
            }
            (None, _) | (_, Err(_)) => InlineText::Long(text.into()),
        }
    }
    fn as_str(&self) -> &str {
        match self {
            InlineText::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            InlineText::Long(text) => text,
        }
    }
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            InlineText::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            InlineText::Long(text) => text.as_bytes(),
        }
    }
    #[inline]
    fn fingerprint(&self) -> u64 {
        let mix =
            |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        match self {
            // Ids differ mostly at their end. The swap makes those bits low, so that the product
            // spreads them.
            InlineText::Short { bytes, .. } => comparison_words(bytes)
                .into_iter()
                .map(u64::swap_bytes)
                .fold(0, mix),
            InlineText::Long(text) => {
                let (words, rest) = text.as_bytes().as_chunks::<8>();
                let hash = words
                    .iter()
                    .fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
                mix(
                    hash,
                    rest.iter()
                        .fold(1, |word, byte| word << 8 | u64::from(*byte)),
                )
            }
        }
    }
}

/// The bytes as three numbers that compare in the same order. The last two numbers overlap.
#[inline]
fn comparison_words(bytes: &[u8; MAX_INLINE_BYTES]) -> [u64; 3] {
    let [
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        i,
        j,
        k,
        l,
        m,
        n,
        o,
        p,
        q,
        r,
        s,
        t,
        u,
        v,
    ] = *bytes;
    let first = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let second = u64::from_be_bytes([i, j, k, l, m, n, o, p]);
    [first, second, u64::from_be_bytes([o, p, q, r, s, t, u, v])]
}

impl PartialEq for InlineText {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (InlineText::Short { bytes, .. }, InlineText::Short { bytes: others, .. }) => {
                bytes == others
            }
            (InlineText::Long(text), InlineText::Long(other)) => {
                Arc::ptr_eq(text, other) || text == other
            }
            (InlineText::Short { .. }, InlineText::Long(_))
            | (InlineText::Long(_), InlineText::Short { .. }) => false,
        }
    }
}
impl Eq for InlineText {}
impl Ord for InlineText {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (InlineText::Short { bytes, .. }, InlineText::Short { bytes: others, .. }) => {
                comparison_words(bytes).cmp(&comparison_words(others))
            }
            (InlineText::Long(text), InlineText::Long(other)) if Arc::ptr_eq(text, other) => {
                Ordering::Equal
            }
            (InlineText::Short { .. } | InlineText::Long(_), _) => {
                self.as_bytes().cmp(other.as_bytes())
            }
        }
    }
}
impl PartialOrd for InlineText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Hash for InlineText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Defines an id that is one checked text.
macro_rules! word_id {
    ($(#[$doc:meta])* $id:ident, $what:literal, $example:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $id(InlineText);
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($id)).field(&self.as_str()).finish()
            }
        }
        impl $id {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
            /// A hash that is the same for equal ids on every machine and in every run.
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
                if check(text) { Ok($id(InlineText::new(text))) } else { Err(parse_error(text, $what, $example)) }
            }
        }
    };
}

word_id!(
    /// A name that users choose for a job, stage, profile, queue or executor set.
    Name, "a name (letters, digits, - and _, at most 63)", "word-count", is_word
);
word_id!(
    /// A node, identified by its host name.
    NodeId, "a node name", "worker-01", |t| t.split('.').all(is_word) && t.len() <= 63
);
word_id!(
    /// A container request. The application chooses the id, so a repeated request has no further
    /// effect.
    RequestId, "a request id (letters, digits, - _ . and at most 63)", "executor-main", |t| t.split('.').all(is_word) && t.len() <= 63
);

/// A queue, by its path in the tree: `root`, `root.etl`, `root.etl.nightly`. The `root.` prefix is
/// optional when parsed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePath(Arc<str>);

/// Maximum number of queue levels below the root.
const MAX_QUEUE_DEPTH: usize = 8;

impl QueuePath {
    /// The root queue.
    pub fn root() -> Self {
        QueuePath("root".into())
    }
    /// The queue of applications that name no queue.
    pub fn default_leaf() -> Self {
        QueuePath("root.default".into())
    }
    /// The full path, with `root` first.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The path without the `root.` prefix; `root` for the root queue.
    pub fn short(&self) -> &str {
        self.0.strip_prefix("root.").unwrap_or(&self.0)
    }
    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('.').map_or(&*self.0, |(_, last)| last)
    }
    /// The parent queue; `None` for the root.
    pub fn parent(&self) -> Option<QueuePath> {
        self.0
            .rsplit_once('.')
            .map(|(parent, _)| QueuePath(parent.into()))
    }
    /// The child queue with this name.
    pub fn child(&self, name: &Name) -> QueuePath {
        QueuePath(format!("{}.{name}", self.0).into())
    }
    /// True if `outer` is this queue or one of its ancestors.
    pub fn is_within(&self, outer: &QueuePath) -> bool {
        self.0
            .strip_prefix(&*outer.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
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
        if below.split('.').all(is_word) && levels <= MAX_QUEUE_DEPTH && below.len() <= 255 {
            return Ok(QueuePath(format!("root.{below}").into()));
        }
        Err(parse_error(
            text,
            "a queue (names joined by dots, at most 8 levels)",
            "root.etl.nightly",
        ))
    }
}

/// An application: the name of its submission and a sequence number from the resource manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppId {
    // Declared first, because the derived `PartialEq` compares fields in order and numbers differ.
    seq: u32,
    name: Name,
}

impl AppId {
    /// The application with number `seq`, submitted as `name`.
    pub fn new(name: Name, seq: u32) -> Self {
        AppId { name, seq }
    }
    /// The name of the submission.
    pub fn name(&self) -> &Name {
        &self.name
    }
    /// The sequence number, unique over all incarnations of a cluster.
    pub fn seq(&self) -> u32 {
        self.seq
    }
    /// Name of the directory of its journal below that of all journals. The time of the submission
    /// distinguishes applications of two clusters with the same id.
    pub fn journal_directory(&self, submitted: UnixMillis) -> String {
        format!("{self}.{}", submitted.0)
    }
}

impl Ord for AppId {
    /// Compares in the order of submission.
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
        let bad = || parse_error(text, "an application id", "word-count.7");
        let (name, seq) = text.rsplit_once('.').ok_or_else(bad)?;
        Ok(AppId {
            name: name.parse().map_err(|_| bad())?,
            seq: parse_canonical_number(seq).ok_or_else(bad)?,
        })
    }
}

/// Parses a decimal number without sign or leading zeros, so that each id has exactly one spelling.
fn parse_canonical_number<T: FromStr>(text: &str) -> Option<T> {
    let canonical = text == "0"
        || (text.starts_with(|c: char| ('1'..='9').contains(&c))
            && text.bytes().all(|b| b.is_ascii_digit()));
    if canonical { text.parse().ok() } else { None }
}

/// One run of an application master.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The application.
    pub app: AppId,
    /// Number of the run, from 1.
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
        let bad = || parse_error(text, "an application attempt id", "word-count.7@1");
        let (app, attempt) = text.rsplit_once('@').ok_or_else(bad)?;
        Ok(AttemptId {
            app: app.parse().map_err(|_| bad())?,
            attempt: parse_canonical_number(attempt).ok_or_else(bad)?,
        })
    }
}

/// An incarnation of the resource manager. Every message carries it, so that peers with a stale
/// epoch are fenced.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u32);
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A container: application, epoch of the grant, and sequence number within the epoch. The id also
/// names its cgroup and directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId {
    /// The application that owns the container.
    pub app: AppId,
    /// The epoch in which the container was granted.
    pub epoch: Epoch,
    /// Sequence number within the epoch.
    pub seq: u64,
}
impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_none() && f.precision().is_none() {
            return write!(
                f,
                "{}.{}.e{}.c{}",
                self.app.name.as_str(),
                self.app.seq,
                self.epoch.0,
                self.seq
            );
        }
        f.pad(&format!("{}.e{}.c{}", self.app, self.epoch, self.seq))
    }
}
impl FromStr for ContainerId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || parse_error(text, "a container id", "word-count.7.e3.c12");
        let (rest, seq) = text.rsplit_once(".c").ok_or_else(bad)?;
        let (app, epoch) = rest.rsplit_once(".e").ok_or_else(bad)?;
        Ok(ContainerId {
            app: app.parse().map_err(|_| bad())?,
            epoch: Epoch(parse_canonical_number(epoch).ok_or_else(bad)?),
            seq: parse_canonical_number(seq).ok_or_else(bad)?,
        })
    }
}

/// A task of a job: stage and index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The stage.
    pub stage: Name,
    /// The index in the stage, from 0.
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
        let bad = || parse_error(text, "a task id", "map/7");
        let (stage, index) = text.rsplit_once('/').ok_or_else(bad)?;
        Ok(TaskId {
            stage: stage.parse().map_err(|_| bad())?,
            index: parse_canonical_number(index).ok_or_else(bad)?,
        })
    }
}

/// One attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskAttemptId {
    /// The task.
    pub task: TaskId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}
impl TaskAttemptId {
    /// The id as one path component, for cgroups and log files: `map-7-2`.
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
        let bad = || parse_error(text, "a task attempt id", "map/7@2");
        let (task, attempt) = text.rsplit_once('@').ok_or_else(bad)?;
        Ok(TaskAttemptId {
            task: task.parse().map_err(|_| bad())?,
            attempt: parse_canonical_number(attempt).ok_or_else(bad)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_id_can_leave_its_directory() {
        for text in ["..", ".", "a/b", "../x", "", "-a", "a b", "a\0b", "ä"] {
            assert!(
                text.parse::<Name>().is_err() && text.parse::<NodeId>().is_err(),
                "{text:?}"
            );
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
        assert_eq!(
            (etl.as_str(), etl.name(), etl.parent()),
            ("root.etl", "etl", Some(QueuePath::root()))
        );
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
        /// Inline and shared texts compare alike.
        #[test]
        fn names_compare_as_their_texts_do(a in "[a-z0-9_.-]{0,25}", b in "[a-z0-9_.-]{0,25}") {
            let (one, other) = (InlineText::new(&a), InlineText::new(&b));
            prop_assert_eq!((one.as_str(), one.cmp(&other), one == other), (a.as_str(), a.cmp(&b), a == b));
            prop_assert_eq!(one.fingerprint(), InlineText::new(&a).fingerprint());
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
