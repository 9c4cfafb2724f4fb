//! Reports of learned sizes: an event when the initial size of a kind has changed by more than a
//! tenth since the last report.
//!
//! One fixed task represents its kind: its input is constant, so a change of its size shows that
//! something was learned. The check runs when waiting tasks are sized again, and reports only while
//! some wait. A converging size therefore causes a few events in a job of any length.

use std::collections::BTreeMap;

use headroom_types::Bytes;

/// Inverse of the minimum relative change that is reported: a tenth.
const WORTH_TELLING: u64 = 10;

/// Reported sizes. Not durable: a master that takes over starts with the sizes of that moment.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedSizes {
    /// For each kind, by its first stage. Bytes.
    sizes: BTreeMap<usize, Bytes>,
    resumed: bool,
}

impl ReportedSizes {
    /// Takes the current sizes as reported by an earlier run of this master.
    pub(super) fn resume(&mut self) {
        self.resumed = true;
    }

    /// Returns the size from which the current size of a kind differs so much that this is
    /// reported, and takes the current size as reported. `stated` is the size without learned data.
    pub(super) fn replace(&mut self, kind: usize, size: Bytes, stated: Bytes) -> Option<Bytes> {
        let before = match self.sizes.get(&kind) {
            Some(reported) => *reported,
            None if self.resumed => size,
            None => stated,
        };
        let worth = is_worth_telling(before, size);
        self.sizes.insert(kind, if worth { size } else { before });
        worth.then_some(before)
    }
}

fn is_worth_telling(before: Bytes, now: Bytes) -> bool {
    before
        .get()
        .abs_diff(now.get())
        .saturating_mul(WORTH_TELLING)
        > before.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_change_of_at_most_a_tenth_is_not_reported() {
        let worth = |before, now| is_worth_telling(Bytes::from_mib(before), Bytes::from_mib(now));
        assert_eq!(
            [
                worth(100, 110),
                worth(100, 90),
                worth(100, 111),
                worth(100, 89)
            ],
            [false, false, true, true]
        );
        assert!(
            is_worth_telling(Bytes::ZERO, Bytes::new(1))
                && !is_worth_telling(Bytes::MAX, Bytes::MAX)
        );
    }
}
