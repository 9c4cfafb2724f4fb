//! Sizes from the observed needs of tasks of a kind: one interface to the learners of all
//! quantities.
//!
//! A native program has one quantity. The heap and the overhead of a managed runtime are learned
//! separately, and a kill for one of them contains no information about the other. The core owns
//! this state and changes it only by applying records.
//!
//! *Architecture Invariant*: no clock, no files; the same observations in the same order give the
//! same sizes.

use headroom_config::Memory;
use headroom_types::{Bytes, Dimension, Profile};
use headroom_wire::v1::job::Mode;
use serde::{Deserialize, Serialize};

use super::ladder;
use super::learn::predict::Way;
use super::learn::rungs::Prices;
use super::learn::{After, Asks, Learner, Source};
use super::tovar::Needs;

/// A task that needs a size.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// The quantities of its runtime.
    pub memory: Memory,
    /// Size of its input; `None` if unknown. Bytes.
    pub input: Option<Bytes>,
    /// The size of its stage.
    pub stated: &'a Profile,
    /// Unique number of the task.
    pub task: u64,
}

/// The measured need of a finished task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// Heap of a managed runtime, if it was reported. Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<Bytes>,
    /// All other memory; the complete need without a managed heap. Page cache does not count.
    /// Bytes.
    pub rest: Bytes,
}

impl Need {
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
pub struct Told {
    /// The size.
    pub profile: Profile,
    /// False if it is the stated size of the stage.
    pub learned: bool,
    /// The reason, for display.
    pub why: String,
}

/// The rule that determines first sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Headroom,
    Tovar,
}

/// The learned sizes of all kinds of a job.
#[derive(Clone, Debug)]
pub struct Sizer {
    way: Whose,
    native: Learner,
    heap: Learner,
    overhead: Learner,
    needs: Needs,
}

impl Sizer {
    /// A sizer without observations. `grows`: tasks at their limit get more memory while they run,
    /// so that a size that is too small costs little.
    pub fn new(mode: Mode, grows: bool) -> Sizer {
        let way = match mode {
            Mode::Tovar => Whose::Tovar,
            Mode::Headroom | Mode::Pinterest | Mode::Uber | Mode::Databricks | Mode::Fixed => Whose::Headroom,
        };
        let prices = if grows { Prices::of_growth() } else { Prices::default() };
        let learner = || Learner::new(Bytes::ZERO, prices);
        Sizer { way, native: learner(), heap: learner(), overhead: learner(), needs: Needs::default() }
    }

    /// From now on a size that is too small costs an attempt, regardless of `grows` in
    /// [`Sizer::new`].
    pub fn expect_kills(&mut self) {
        for learner in [&mut self.native, &mut self.heap, &mut self.overhead] {
            learner.set_prices(Prices::default());
        }
    }

    /// True when one more task of this kind may start in addition to `begun` others that have not
    /// ended.
    pub fn may_start(&self, kind: &str, memory: Memory, begun: usize) -> bool {
        match (self.way, memory) {
            (Whose::Tovar, _) => true,
            (Whose::Headroom, Memory::One) => self.native.may_start(kind, begun),
            (Whose::Headroom, Memory::HeapAndOverhead) => {
                self.heap.may_start(kind, begun) && self.overhead.may_start(kind, begun)
            }
        }
    }

    /// Mean run time of the tasks of a kind. Seconds; 0 while none has ended.
    pub fn runtime_s(&self, kind: &str, memory: Memory) -> f64 {
        match memory {
            Memory::One => self.native.runtime_s(kind),
            Memory::HeapAndOverhead => self.heap.runtime_s(kind),
        }
    }

    /// The first size of a task.
    pub fn first(&mut self, ask: &Ask<'_>) -> Told {
        match (self.way, ask.memory) {
            (Whose::Tovar, _) => match self.needs.first(ask.kind) {
                Some(size) => Told {
                    profile: ladder::in_proportion(ask.stated, size),
                    learned: true,
                    why: format!("the least expected waste of kind {}", ask.kind),
                },
                None => stated(ask),
            },
            (Whose::Headroom, Memory::One) => match one(&mut self.native, ask, ask.stated.memory()) {
                Some((size, why)) => Told { profile: ladder::with_heap_filling(ask.stated, size), learned: true, why },
                None => stated(ask),
            },
            (Whose::Headroom, Memory::HeapAndOverhead) => {
                let heap = one(&mut self.heap, ask, ask.stated.heap);
                let overhead = one(&mut self.overhead, ask, ask.stated.overhead);
                if heap.is_none() && overhead.is_none() {
                    return stated(ask);
                }
                let words = |one: &Option<(Bytes, String)>| one.as_ref().map_or("as stated".to_owned(), |(_, why)| why.clone());
                let why = format!("heap: {}; overhead: {}", words(&heap), words(&overhead));
                let profile = Profile {
                    heap: heap.map_or(ask.stated.heap, |(size, _)| size),
                    overhead: overhead.map_or(ask.stated.overhead, |(size, _)| size),
                    cpus: ask.stated.cpus,
                };
                Told { profile, learned: true, why }
            }
        }
    }

    /// Learned data about the need of a task that was killed at `size`, for the `failures`th time,
    /// because `dimension` ran out.
    pub fn after_kill(&mut self, ask: &Ask<'_>, dimension: Dimension, size: &Profile, failures: u32) -> After {
        let (learner, had, stated) = match self.way {
            Whose::Tovar => return After::Unknown,
            Whose::Headroom => self.of(ask, dimension, size),
        };
        learner.after_kill(&asks(ask, stated), had, failures)
    }

    /// Learns from a task that succeeded.
    pub fn ended(&mut self, ask: &Ask<'_>, need: &Need, runtime_s: f64) {
        self.needs.ended(ask.kind, need.memory(), runtime_s);
        match (ask.memory, need.heap) {
            (Memory::One, _) => {
                self.native.ended(&asks(ask, ask.stated.memory()), ask.task, need.memory(), runtime_s);
            }
            (Memory::HeapAndOverhead, Some(heap)) => {
                self.heap.ended(&asks(ask, ask.stated.heap), ask.task, heap, runtime_s);
                self.overhead.ended(&asks(ask, ask.stated.overhead), ask.task, need.rest, runtime_s);
            }
            // The use of its heap is unknown, and therefore the rest as well.
            (Memory::HeapAndOverhead, None) => self.dropped(ask),
        }
    }

    /// Learns from a task that was killed at this size because `dimension` ran out.
    pub fn killed(&mut self, ask: &Ask<'_>, dimension: Dimension, size: &Profile) {
        let (learner, had, stated) = self.of(ask, dimension, size);
        learner.killed(&asks(ask, stated), ask.task, had);
    }

    /// Drops a killed task that will not run again: its need will never be known.
    pub fn dropped(&mut self, ask: &Ask<'_>) {
        for learner in [&mut self.native, &mut self.heap, &mut self.overhead] {
            learner.dropped(ask.kind, ask.task);
        }
    }

    /// The learner of this quantity, the amount of it in `size`, and the amount that the stage
    /// states.
    fn of(&mut self, ask: &Ask<'_>, dimension: Dimension, size: &Profile) -> (&mut Learner, Bytes, Bytes) {
        match (ask.memory, dimension) {
            (Memory::One, _) => (&mut self.native, size.memory(), ask.stated.memory()),
            (Memory::HeapAndOverhead, Dimension::Heap) => (&mut self.heap, size.heap, ask.stated.heap),
            (Memory::HeapAndOverhead, Dimension::Overhead | Dimension::Native) => {
                (&mut self.overhead, size.overhead, ask.stated.overhead)
            }
        }
    }
}

fn asks<'a>(ask: &Ask<'a>, stated: Bytes) -> Asks<'a> {
    Asks { kind: ask.kind, input: ask.input, request: Some(stated) }
}

fn stated(ask: &Ask<'_>) -> Told {
    Told {
        profile: ask.stated.clone(),
        learned: false,
        why: format!("the size of its stage; nothing is known of kind {}", ask.kind),
    }
}

/// The first size of one quantity; `None` for the stated size.
fn one(learner: &mut Learner, ask: &Ask<'_>, stated: Bytes) -> Option<(Bytes, String)> {
    let first = learner.first(&asks(ask, stated));
    let why = match first.source {
        Source::Kind(way) => format!("learned from kind {} by {}", ask.kind, words(way)),
        Source::Pool => "what the other kinds of the job turned out to need of what was stated".to_owned(),
        Source::Killed => format!("a quarter more than what was not enough for kind {}", ask.kind),
        Source::Request | Source::Share => return None,
    };
    Some((first.size, why))
}

fn words(way: Way) -> &'static str {
    match way {
        Way::Median => "the median",
        Way::Linear => "a line through its inputs",
        Way::LogLog => "a line through the logarithms of its inputs",
        Way::Nearest => "the nearest inputs",
    }
}

#[cfg(test)]
mod tests;
