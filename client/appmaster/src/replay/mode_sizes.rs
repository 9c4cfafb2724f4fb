//! The sizes of each mode: the first size of a task, and the next one after a kill.

use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;

use crate::policy::learn::ladder::KillPrices;
use crate::policy::learn::{SizeLearner, SizeRequest};
use crate::policy::tovar::ObservedNeeds;

/// Default share of a slot.
pub const SHARE: Bytes = Bytes::from_gib(4);
/// Slots of an executor, in modes with shared executors.
pub(super) const SLOTS: u64 = 4;
/// Maximum number of attempts of a task at one size.
const TRIES: u32 = 4;
/// Maximum number of attempts of a task that are killed for memory.
const MOST: u32 = 6;

/// The state of a mode.
#[derive(Debug)]
pub(super) struct ModeSizeSource {
    mode: MemoryFailureMode,
    learner: SizeLearner,
    needs: ObservedNeeds,
}

impl ModeSizeSource {
    pub(super) fn new(mode: MemoryFailureMode, grows: bool) -> ModeSizeSource {
        let prices = if grows {
            KillPrices::of_growth()
        } else {
            KillPrices::default()
        };
        ModeSizeSource {
            mode,
            learner: SizeLearner::new(SHARE, prices),
            needs: ObservedNeeds::default(),
        }
    }

    /// The first size. `running` tasks of its kind run already; `None` if the task may not start
    /// now.
    pub(super) fn first(&mut self, asks: &SizeRequest<'_>, running: usize) -> Option<Bytes> {
        Some(match self.mode {
            MemoryFailureMode::Headroom => {
                if !self.learner.may_start(asks.kind, running) {
                    return None;
                }
                self.learner.first(asks).size
            }
            MemoryFailureMode::Fixed => asks.request.unwrap_or(SHARE),
            MemoryFailureMode::Pinterest
            | MemoryFailureMode::Uber
            | MemoryFailureMode::Databricks => SHARE,
            MemoryFailureMode::Tovar => self.needs.first(asks.kind).unwrap_or(SHARE),
        })
    }

    /// The size after `failures` kills, the last at `size`. `None`: given up.
    pub(super) fn next(
        &mut self,
        asks: &SizeRequest<'_>,
        size: Bytes,
        failures: u32,
        largest: Bytes,
    ) -> Option<Bytes> {
        let executor = SHARE.mul_ratio(SLOTS, 1);
        let next = match self.mode {
            MemoryFailureMode::Headroom if failures >= MOST => None,
            MemoryFailureMode::Headroom => Some(self.learner.next(asks, size, failures, largest)),
            MemoryFailureMode::Fixed => (failures < TRIES).then_some(size),
            // twice the share, then executors of two, three and four times the size
            MemoryFailureMode::Pinterest if failures == 1 => Some(SHARE.mul_ratio(2, 1)),
            MemoryFailureMode::Pinterest => {
                (failures <= TRIES).then(|| executor.mul_ratio(u64::from(failures), 1))
            }
            MemoryFailureMode::Uber => (failures == 1).then_some(executor),
            MemoryFailureMode::Databricks => (failures < MOST).then(|| size.mul_ratio(2, 1)),
            MemoryFailureMode::Tovar => (failures < TRIES).then_some(largest),
        };
        // a task at the largest size ran alone: no larger size is left
        next.filter(|_| size < largest || self.mode == MemoryFailureMode::Fixed)
            .map(|next| next.min(largest))
    }

    /// The size of a growth step for a task at its limit.
    pub(super) fn grown(
        &mut self,
        asks: &SizeRequest<'_>,
        size: Bytes,
        largest: Bytes,
    ) -> Option<Bytes> {
        (size < largest).then(|| self.learner.grown(asks, size).min(largest))
    }

    pub(super) fn killed(&mut self, asks: &SizeRequest<'_>, task: u64, size: Bytes) {
        self.learner.record_kill(asks, task, size);
    }

    pub(super) fn ended(&mut self, asks: &SizeRequest<'_>, task: u64, peak: Bytes, runtime_s: f64) {
        match self.mode {
            MemoryFailureMode::Headroom => self.learner.record_success(asks, task, peak, runtime_s),
            MemoryFailureMode::Tovar => self.needs.ended(asks.kind, peak, runtime_s),
            MemoryFailureMode::Fixed
            | MemoryFailureMode::Pinterest
            | MemoryFailureMode::Uber
            | MemoryFailureMode::Databricks => {}
        }
    }
}
