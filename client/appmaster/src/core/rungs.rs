//! What is told of learned sizes: an event when what a kind of tasks begins with has moved by more than a tenth since it was told.
//!
//! One task of the kind stands for all of them, always the same one: its input is what it is, so when its size moves, something was
//! learned. It is looked at when those that wait are sized anew, and told only while some of them do. A size that settles down is told a
//! few times in a job however many tasks there are.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Reason};

use super::Core;
use crate::event::Now;
use crate::spec;
use crate::taskset::TaskKey;

/// A size that has moved by less than this part of what was told is not told anew.
const WORTH_TELLING: u64 = 10;

/// What was told. Nothing lasting: a master that goes on where another one ended begins with what is so then.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// For each kind, by its first stage. Bytes.
    sizes: BTreeMap<usize, Bytes>,
    resumed: bool,
}

impl Told {
    /// An earlier run of this master has told what is known now.
    pub(super) fn resume(&mut self) {
        self.resumed = true;
    }
}

impl Core {
    /// Those that wait have been sized anew, and there are some.
    pub(super) fn tell_learned(&mut self, now: Now, kind: usize) {
        let first = TaskKey { stage: kind, index: 0 };
        let Some((size, why)) = self.learned_size(first) else { return };
        let size = size.memory();
        let Some(stage) = self.job.stages.get(kind) else { return };
        let stated = || spec::first_size_with(&self.job, stage, self.first_charge(first)).memory();
        let before = match self.learning.told.sizes.get(&kind) {
            Some(told) => *told,
            None if self.learning.told.resumed => size,
            None => stated(),
        };
        let worth = is_worth_telling(before, size);
        if worth {
            let name = stage.name.to_string();
            let message = format!("a task such as {name}/0 begins with {size}, {before} before: {why}");
            self.view.tell(now, Reason::RungLearned, name, message);
        }
        self.learning.told.sizes.insert(kind, if worth { size } else { before });
    }
}

fn is_worth_telling(before: Bytes, now: Bytes) -> bool {
    before.get().abs_diff(now.get()).saturating_mul(WORTH_TELLING) > before.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_more_or_less_is_not_told() {
        let worth = |before, now| is_worth_telling(Bytes::from_mib(before), Bytes::from_mib(now));
        assert_eq!([worth(100, 110), worth(100, 90), worth(100, 111), worth(100, 89)], [false, false, true, true]);
        assert!(is_worth_telling(Bytes::ZERO, Bytes::new(1)) && !is_worth_telling(Bytes::MAX, Bytes::MAX));
    }
}
