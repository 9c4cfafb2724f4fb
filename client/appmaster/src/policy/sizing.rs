//! Sizes from the observed needs of tasks of a kind: one interface to the learners of all
//! quantities.
//!
//! A native program has one quantity. The heap and the overhead of a managed runtime are learned
//! separately, and a kill for one of them contains no information about the other. The core owns
//! this state and changes it only by applying records.
//!
//! *Architecture Invariant*: no clock, no files; the same observations in the same order give the
//! same sizes.

use headroom_config::MemoryQuantities;
use headroom_types::{Bytes, Dimension, Profile};
use headroom_wire::v1::job::MemoryFailureMode;
use serde::{Deserialize, Serialize};

use super::ladder;
use super::learn::ladder::KillPrices;
use super::learn::predict::PredictionMethod;
use super::learn::{SizeAfterKill, SizeLearner, SizeOrigin, SizeRequest};
use super::tovar::ObservedNeeds;

/// A task that needs a size.
#[derive(Clone, Copy, Debug)]
pub struct TaskSizeQuery<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// The quantities of its runtime.
    pub memory: MemoryQuantities,
    /// Size of its input; `None` if unknown. Bytes.
    pub input: Option<Bytes>,
    /// The size of its stage.
    pub stated: &'a Profile,
    /// Unique number of the task.
    pub task: u64,
}

/// The measured need of a finished task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredNeed {
    /// Heap of a managed runtime, if it was reported. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<Bytes>,
    /// All other memory; the complete need without a managed heap. Page cache does not count.
    /// Bytes.
    pub rest: Bytes,
}

impl MeasuredNeed {
    /// The sum of both. Bytes.
    pub fn memory(&self) -> Bytes {
        self.heap.unwrap_or_default().saturating_add(self.rest)
    }
    /// True if a size would have been enough.
    pub fn fits(&self, size: &Profile) -> bool {
        match self.heap {
            Some(heap) => heap <= size.heap && self.rest <= size.overhead,
            None => self.rest <= size.memory(),
        }
    }
}

/// A first size, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstTaskSize {
    /// The size.
    pub profile: Profile,
    /// False if it is the stated size of the stage.
    pub learned: bool,
    /// The reason, for display.
    pub why: String,
}

/// The rule that determines first sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizingRule {
    Headroom,
    Tovar,
}

/// The learned sizes of all kinds of a job.
#[derive(Clone, Debug)]
pub struct TaskSizePredictor {
    way: SizingRule,
    native: SizeLearner,
    heap: SizeLearner,
    overhead: SizeLearner,
    needs: ObservedNeeds,
}

impl TaskSizePredictor {
    /// A sizer without observations. `grows`: tasks at their limit get more memory while they run,
    /// so that a size that is too small costs little.
    pub fn new(mode: MemoryFailureMode, grows: bool) -> TaskSizePredictor {
        let way = if mode == MemoryFailureMode::Tovar {
            SizingRule::Tovar
        } else {
            SizingRule::Headroom
        };
        let prices = if grows {
            KillPrices::of_growth()
        } else {
            KillPrices::default()
        };
        let learner = || SizeLearner::new(Bytes::ZERO, prices);
        TaskSizePredictor {
            way,
            native: learner(),
            heap: learner(),
            overhead: learner(),
            needs: ObservedNeeds::default(),
        }
    }

    /// From now on a size that is too small costs an attempt, regardless of `grows` in
    /// [`TaskSizePredictor::new`].
    pub fn expect_kills(&mut self) {
        for learner in [&mut self.native, &mut self.heap, &mut self.overhead] {
            learner.set_prices(KillPrices::default());
        }
    }

    /// True when one more task of this kind may start in addition to the others that have
    /// started and have not ended.
    pub fn may_start(&self, kind: &str, memory: MemoryQuantities, begun: usize) -> bool {
        match (self.way, memory) {
            (SizingRule::Tovar, _) => true,
            (SizingRule::Headroom, MemoryQuantities::One) => self.native.may_start(kind, begun),
            (SizingRule::Headroom, MemoryQuantities::HeapAndOverhead) => {
                self.heap.may_start(kind, begun) && self.overhead.may_start(kind, begun)
            }
        }
    }

    /// Mean run time of the tasks of a kind. Seconds; 0 while none has ended.
    pub fn runtime_s(&self, kind: &str, memory: MemoryQuantities) -> f64 {
        match memory {
            MemoryQuantities::One => self.native.runtime_s(kind),
            MemoryQuantities::HeapAndOverhead => self.heap.runtime_s(kind),
        }
    }

    /// The first size of a task.
    pub fn first(&mut self, ask: &TaskSizeQuery<'_>) -> FirstTaskSize {
        match (self.way, ask.memory) {
            (SizingRule::Tovar, _) => match self.needs.first(ask.kind) {
                Some(size) => FirstTaskSize {
                    profile: ladder::in_proportion(ask.stated, size),
                    learned: true,
                    why: format!("the least expected waste of kind {}", ask.kind),
                },
                None => stated(ask),
            },
            (SizingRule::Headroom, MemoryQuantities::One) => {
                match one(&mut self.native, ask, ask.stated.memory()) {
                    Some((size, why)) => FirstTaskSize {
                        profile: ladder::with_heap_filling(ask.stated, size),
                        learned: true,
                        why,
                    },
                    None => stated(ask),
                }
            }
            (SizingRule::Headroom, MemoryQuantities::HeapAndOverhead) => {
                let heap = one(&mut self.heap, ask, ask.stated.heap);
                let overhead = one(&mut self.overhead, ask, ask.stated.overhead);
                if heap.is_none() && overhead.is_none() {
                    return stated(ask);
                }
                let words = |one: &Option<(Bytes, String)>| {
                    one.as_ref()
                        .map_or("as stated".to_owned(), |(_, why)| why.clone())
                };
                let why = format!("heap: {}; overhead: {}", words(&heap), words(&overhead));
                let profile = Profile {
                    heap: heap.map_or(ask.stated.heap, |(size, _)| size),
                    overhead: overhead.map_or(ask.stated.overhead, |(size, _)| size),
                    cpus: ask.stated.cpus,
                };
                FirstTaskSize {
                    profile,
                    learned: true,
                    why,
                }
            }
        }
    }

    /// Learned data about the need of a task that was killed at `size`, for the `failures`th time,
    /// because `dimension` ran out.
    pub fn after_kill(
        &mut self,
        ask: &TaskSizeQuery<'_>,
        dimension: Dimension,
        size: &Profile,
        failures: u32,
    ) -> SizeAfterKill {
        let (learner, had, stated) = match self.way {
            SizingRule::Tovar => return SizeAfterKill::Unknown,
            SizingRule::Headroom => self.of(ask, dimension, size),
        };
        learner.after_kill(&asks(ask, stated), had, failures)
    }

    /// Learns from a task that succeeded.
    pub fn ended(&mut self, ask: &TaskSizeQuery<'_>, need: &MeasuredNeed, runtime_s: f64) {
        self.needs.ended(ask.kind, need.memory(), runtime_s);
        match (ask.memory, need.heap) {
            (MemoryQuantities::One, _) => {
                self.native.record_success(
                    &asks(ask, ask.stated.memory()),
                    ask.task,
                    need.memory(),
                    runtime_s,
                );
            }
            (MemoryQuantities::HeapAndOverhead, Some(heap)) => {
                self.heap
                    .record_success(&asks(ask, ask.stated.heap), ask.task, heap, runtime_s);
                self.overhead.record_success(
                    &asks(ask, ask.stated.overhead),
                    ask.task,
                    need.rest,
                    runtime_s,
                );
            }
            // The use of its heap is unknown, and therefore the rest as well.
            (MemoryQuantities::HeapAndOverhead, None) => self.dropped(ask),
        }
    }

    /// Learns from a task that was killed at this size because `dimension` ran out.
    pub fn killed(&mut self, ask: &TaskSizeQuery<'_>, dimension: Dimension, size: &Profile) {
        let (learner, had, stated) = self.of(ask, dimension, size);
        learner.record_kill(&asks(ask, stated), ask.task, had);
    }

    /// Drops a killed task that will not run again: its need will never be known.
    pub fn dropped(&mut self, ask: &TaskSizeQuery<'_>) {
        for learner in [&mut self.native, &mut self.heap, &mut self.overhead] {
            learner.record_abandoned(ask.kind, ask.task);
        }
    }

    /// The learner of this quantity, the amount of it in `size`, and the amount that the stage
    /// states.
    fn of(
        &mut self,
        ask: &TaskSizeQuery<'_>,
        dimension: Dimension,
        size: &Profile,
    ) -> (&mut SizeLearner, Bytes, Bytes) {
        match (ask.memory, dimension) {
            (MemoryQuantities::One, _) => (&mut self.native, size.memory(), ask.stated.memory()),
            (MemoryQuantities::HeapAndOverhead, Dimension::Heap) => {
                (&mut self.heap, size.heap, ask.stated.heap)
            }
            (MemoryQuantities::HeapAndOverhead, Dimension::Overhead | Dimension::Native) => {
                (&mut self.overhead, size.overhead, ask.stated.overhead)
            }
        }
    }
}

fn asks<'a>(ask: &TaskSizeQuery<'a>, stated: Bytes) -> SizeRequest<'a> {
    SizeRequest {
        kind: ask.kind,
        input: ask.input,
        request: Some(stated),
    }
}

fn stated(ask: &TaskSizeQuery<'_>) -> FirstTaskSize {
    FirstTaskSize {
        profile: ask.stated.clone(),
        learned: false,
        why: format!(
            "the size of its stage; no size is known for kind {}",
            ask.kind
        ),
    }
}

/// The first size of one quantity; `None` for the stated size.
fn one(
    learner: &mut SizeLearner,
    ask: &TaskSizeQuery<'_>,
    stated: Bytes,
) -> Option<(Bytes, String)> {
    let first = learner.first(&asks(ask, stated));
    let why = match first.source {
        SizeOrigin::Kind(way) => format!("learned from kind {} by {}", ask.kind, words(way)),
        SizeOrigin::Pool => {
            "the ratio of need to stated size of the other kinds of the job".to_owned()
        }
        SizeOrigin::Killed => format!(
            "a quarter more than the size that was not enough for kind {}",
            ask.kind
        ),
        SizeOrigin::Request | SizeOrigin::Share => return None,
    };
    Some((first.size, why))
}

fn words(way: PredictionMethod) -> &'static str {
    match way {
        PredictionMethod::Median => "the median",
        PredictionMethod::Linear => "a line through its inputs",
        PredictionMethod::LogLog => "a line through the logarithms of its inputs",
        PredictionMethod::Nearest => "the nearest inputs",
    }
}

#[cfg(test)]
mod tests;
