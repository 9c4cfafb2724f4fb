//! Recent reasons why requests of one application were not placed.
//!
//! The application's record owns the list. A repeated reason only increases a count. The number of
//! entries is limited, and the oldest is dropped first.

use std::collections::VecDeque;
use std::sync::Arc;

use headroom_types::{RequestId, UnixMillis};

/// Most entries for one application.
const MOST: usize = 20;

/// Reason why a container was not placed, for the time in which it was valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    /// Time of the first occurrence.
    pub since: UnixMillis,
    /// Time of the latest occurrence.
    pub at: UnixMillis,
    /// Number of occurrences.
    pub times: u32,
    /// The request.
    pub request: RequestId,
    /// The reason.
    pub sentence: Arc<str>,
}

/// Recent reasons of one application; the number is limited.
#[derive(Clone, Debug, Default)]
pub struct WaitReasonLog {
    reasons: VecDeque<WaitReason>,
    /// Part of the hash of each reason's request, which avoids most comparisons of ids.
    tags: VecDeque<u32>,
}

impl WaitReasonLog {
    /// All kept reasons, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &WaitReason> {
        self.reasons.iter()
    }
    /// Records a reason.
    pub(crate) fn note(&mut self, at: UnixMillis, request: &RequestId, sentence: Arc<str>) {
        let tag = tag(request);
        if self.tags.contains(&tag) {
            let mut reasons = self.reasons.iter_mut().rev();
            if let Some(last) = reasons.find(|last| last.request == *request)
                && last.sentence == sentence
            {
                last.at = at;
                last.times = last.times.saturating_add(1);
                return;
            }
        }
        if self.reasons.len() >= MOST {
            self.reasons.pop_front();
            self.tags.pop_front();
        }
        self.tags.push_back(tag);
        self.reasons.push_back(WaitReason {
            since: at,
            at,
            times: 1,
            request: request.clone(),
            sentence,
        });
    }
}

#[allow(clippy::cast_possible_truncation)] // the lower half of the bits
fn tag(request: &RequestId) -> u32 {
    request.fingerprint() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::id;

    #[test]
    fn a_repeated_reason_is_counted_and_the_oldest_is_dropped_first() {
        let (mut ring, a, b) = (WaitReasonLog::default(), id("a"), id("b"));
        ring.note(UnixMillis(1), &a, "full".into());
        ring.note(UnixMillis(2), &b, "full".into());
        ring.note(UnixMillis(3), &a, "full".into());
        let first = ring.iter().next().expect("noted");
        assert_eq!(
            (first.since, first.at, first.times),
            (UnixMillis(1), UnixMillis(3), 2)
        );
        for n in 0..MOST as u64 {
            ring.note(UnixMillis(n), &a, format!("{n} short").into());
        }
        assert_eq!(ring.iter().count(), MOST);
        assert_eq!(
            ring.iter().next().map(|entry| &*entry.sentence),
            Some("0 short")
        );
    }
}
