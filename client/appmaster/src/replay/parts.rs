//! Heap and overhead as two quantities, compared with one knob that sets both.
//!
//! A trace has one quantity, so each need is divided by a rule that is **made up**. Six in ten
//! kinds stay within the 10 % rule. One kind in four has 15 to 40 % of its need outside the heap,
//! and the others 50 to 80 %. Each task deviates from its kind by up to a fifth.
//!
//! The knob is Spark's default: the heap, plus a tenth of it for all other memory, and both doubled
//! after a kill. It starts from the request, or the share of a slot. The learned knob starts from
//! the value that the kind turned out to need.

use std::collections::BTreeMap;

use headroom_config::{ExecutorSpec, Idempotent, MemoryQuantities, RetrySpec, TaskRuntime};
use headroom_types::{Bytes, Cpus, Dimension, ExitReason, Profile};
use headroom_wire::v1::job::MemoryFailureMode;
use serde::Serialize;

use super::mode_sizes::SHARE;
use super::trace::RecordedTask;
use crate::policy::blame::AttemptFate;
use crate::policy::classify::{AttemptEndClass, MemoryFailure};
use crate::policy::learn::ladder::KillPrices;
use crate::policy::learn::{SizeLearner, SizeRequest};
use crate::policy::sizing::{MeasuredNeed, TaskSizePredictor, TaskSizeQuery};
use crate::policy::{
    AttemptPlace, AttemptSize, DecisionInput, SpentBudgets, TaskDecision, TaskSizeCap, decide,
};

/// Results of one knob and of two quantities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MemorySplitResults {
    /// One knob, stated and doubled. GiB·h.
    pub one_knob_gib_h: f64,
    /// One knob, learned. GiB·h.
    pub one_knob_learned_gib_h: f64,
    /// Heap and overhead, learned separately. GiB·h.
    pub apart_gib_h: f64,
    /// Kills with the one knob.
    pub one_knob_kills: u64,
    /// Kills with two quantities.
    pub apart_kills: u64,
    /// Tasks that were lost with two quantities although some host could have held them.
    pub apart_lost_avoidable: u64,
}

impl MemorySplitResults {
    pub(super) fn add(&mut self, other: &MemorySplitResults) {
        self.one_knob_gib_h += other.one_knob_gib_h;
        self.one_knob_learned_gib_h += other.one_knob_learned_gib_h;
        self.apart_gib_h += other.apart_gib_h;
        self.one_knob_kills += other.one_knob_kills;
        self.apart_kills += other.apart_kills;
        self.apart_lost_avoidable += other.apart_lost_avoidable;
    }
}

/// The rule that sets both quantities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemorySplitRule {
    /// The heap is set, a tenth of it is added, and both are doubled after a kill.
    OneKnob,
    /// The same, with a learned value of the knob.
    OneKnobLearned,
    /// Each quantity is learned and raised separately.
    Apart,
}

/// The state of a rule.
#[derive(Debug)]
pub(super) struct MemorySplitSizes {
    rule: MemorySplitRule,
    knob: SizeLearner,
    sizer: TaskSizePredictor,
    set: Option<(ExecutorSpec, RetrySpec)>,
    /// Current profile of each task.
    has: BTreeMap<usize, Profile>,
    /// Kills of each task by quantity.
    kills: BTreeMap<(usize, Dimension), u32>,
    /// Stated profile of each task.
    stated: BTreeMap<usize, Profile>,
}

impl MemorySplitSizes {
    pub(super) fn new(rule: MemorySplitRule) -> MemorySplitSizes {
        let text = "version = 1\nname = \"trace\"\n[profiles.exec]\nmemory = \"4GiB\"\ncpus = 1\n[executors.main]\nprofile = \"exec\"\n\
                    reserve = \"0B\"\n[[stage]]\nname = \"work\"\ncommand = [\"work\"]\n";
        let job = headroom_config::job::compile(text, "trace").ok();
        let set = job.and_then(|job| Some((job.executors.first()?.clone(), job.retry)));
        let (knob, sizer) = (
            SizeLearner::new(SHARE, KillPrices::default()),
            TaskSizePredictor::new(MemoryFailureMode::Headroom, false),
        );
        MemorySplitSizes {
            rule,
            knob,
            sizer,
            set,
            has: BTreeMap::new(),
            kills: BTreeMap::new(),
            stated: BTreeMap::new(),
        }
    }

    /// The first size of both together; `None` if the task may not start now.
    pub(super) fn first(&mut self, n: usize, task: &RecordedTask, running: usize) -> Option<Bytes> {
        let stated = of_knob(task.request.unwrap_or(SHARE).mul_ratio(10, 11));
        let has = match self.rule {
            MemorySplitRule::OneKnob => stated.clone(),
            MemorySplitRule::OneKnobLearned => {
                let asks = knob_asks(task, &stated);
                if !self.knob.may_start(&task.kind, running) {
                    return None;
                }
                of_knob(self.knob.first(&asks).size)
            }
            MemorySplitRule::Apart => {
                if !self
                    .sizer
                    .may_start(&task.kind, MemoryQuantities::HeapAndOverhead, running)
                {
                    return None;
                }
                self.sizer.first(&ask(n, task, &stated)).profile
            }
        };
        let memory = has.memory();
        self.has.insert(n, has);
        self.stated.insert(n, stated);
        Some(memory)
    }

    /// Limits a profile to the memory of a host.
    pub(super) fn cut(&mut self, n: usize, whole: Bytes) {
        if let Some(has) = self.has.get_mut(&n).filter(|has| has.memory() > whole) {
            *has = crate::policy::ladder::in_proportion(has, whole);
        }
    }

    pub(super) fn fits(&self, n: usize, task: &RecordedTask) -> bool {
        let (heap, overhead) = parts(n, task);
        self.has
            .get(&n)
            .is_some_and(|has| heap <= has.heap && overhead <= has.overhead)
    }

    /// The size after `failures` kills. `None`: given up.
    pub(super) fn next(
        &mut self,
        n: usize,
        task: &RecordedTask,
        failures: u32,
        largest: Bytes,
    ) -> Option<Bytes> {
        let (has, stated) = (self.has.get(&n)?.clone(), self.stated.get(&n)?.clone());
        let next = match self.rule {
            MemorySplitRule::OneKnob if has.memory() >= largest => None,
            MemorySplitRule::OneKnob => Some(of_knob(has.heap.mul_ratio(2, 1))),
            MemorySplitRule::OneKnobLearned => {
                let asks = knob_asks(task, &stated);
                self.knob.record_kill(&asks, number(n), has.heap);
                let most = largest.mul_ratio(10, 11);
                (has.heap < most).then(|| of_knob(self.knob.next(&asks, has.heap, failures, most)))
            }
            MemorySplitRule::Apart => self.apart(n, task, (&has, &stated), failures, largest),
        };
        let next = next.map(|next| {
            if next.memory() > largest {
                crate::policy::ladder::in_proportion(&next, largest)
            } else {
                next
            }
        });
        let memory = next.as_ref().map(Profile::memory);
        self.has.extend(next.map(|next| (n, next)));
        memory
    }

    fn apart(
        &mut self,
        n: usize,
        task: &RecordedTask,
        (has, stated): (&Profile, &Profile),
        failures: u32,
        largest: Bytes,
    ) -> Option<Profile> {
        let (heap, overhead) = parts(n, task);
        let dimension = if heap > has.heap {
            Dimension::Heap
        } else {
            Dimension::Overhead
        };
        let ask = ask(n, task, stated);
        let alike = self.kills.entry((n, dimension)).or_default();
        *alike += 1;
        let known = self.sizer.after_kill(&ask, dimension, has, *alike);
        self.sizer.killed(&ask, dimension, has);
        let (set, retry) = self.set.as_ref()?;
        let size = AttemptSize {
            profile: has.clone(),
            slots: 1,
            rung: failures,
            place: AttemptPlace::Own,
        };
        // At a kill for one quantity, the use of the other is at most its size.
        let (live, off_heap) = (Some(heap.min(has.heap)), overhead.min(has.overhead));
        let (_, next) = decide(&DecisionInput {
            mode: MemoryFailureMode::Headroom,
            task: "a task",
            reason: if dimension == Dimension::Heap {
                ExitReason::HeapOom
            } else {
                ExitReason::OverheadOom
            },
            class: AttemptEndClass::Memory(MemoryFailure {
                dimension,
                off_heap,
                live,
                spike: false,
            }),
            fate: AttemptFate::Own,
            size: &size,
            set,
            runtime: TaskRuntime::Jvm,
            idempotent: Idempotent::Yes,
            retry,
            spent: SpentBudgets {
                memory: failures.saturating_sub(1),
                ..SpentBudgets::default()
            },
            cap: TaskSizeCap {
                task: largest,
                largest: Some(largest),
                by_job: false,
            },
            known,
            bound: None,
            remote_input: Bytes::ZERO,
            treated: None,
        });
        match next {
            TaskDecision::Again { size, .. } => Some(size.profile),
            TaskDecision::GiveUp { .. } | TaskDecision::Done => {
                self.sizer.dropped(&ask);
                None
            }
        }
    }

    pub(super) fn ended(&mut self, n: usize, task: &RecordedTask) {
        let (heap, overhead) = parts(n, task);
        let Some(stated) = self.stated.get(&n) else {
            return;
        };
        match self.rule {
            MemorySplitRule::OneKnob => {}
            MemorySplitRule::OneKnobLearned => {
                let need = heap.max(overhead.mul_ratio(10, 1));
                self.knob
                    .record_success(&knob_asks(task, stated), number(n), need, task.runtime_s);
            }
            MemorySplitRule::Apart => {
                let need = MeasuredNeed {
                    heap: Some(heap),
                    rest: overhead,
                };
                self.sizer
                    .ended(&ask(n, task, stated), &need, task.runtime_s);
            }
        }
    }
}

/// A heap, and a tenth of it for all other memory.
fn of_knob(heap: Bytes) -> Profile {
    Profile {
        heap,
        overhead: heap.mul_ratio(1, 10),
        cpus: Cpus::from_cores(1),
    }
}

fn knob_asks<'a>(task: &'a RecordedTask, stated: &Profile) -> SizeRequest<'a> {
    SizeRequest {
        kind: &task.kind,
        input: task.input,
        request: Some(stated.heap),
    }
}

fn ask<'a>(n: usize, task: &'a RecordedTask, stated: &'a Profile) -> TaskSizeQuery<'a> {
    TaskSizeQuery {
        kind: &task.kind,
        memory: MemoryQuantities::HeapAndOverhead,
        input: task.input,
        stated,
        task: number(n),
    }
}

fn number(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// A need, divided into heap and overhead.
pub(super) fn parts(n: usize, task: &RecordedTask) -> (Bytes, Bytes) {
    let of_kind = task
        .kind
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, b| {
            (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
    let (sort, place) = (mixed(of_kind) % 100, mixed(of_kind ^ 1) % 1000);
    // Thousandths of the need.
    let (from, to) = match sort {
        0..60 => (40, 75),
        60..85 => (150, 400),
        _ => (500, 800),
    };
    let share = from + (to - from) * place / 1000;
    let share = (share * (800 + mixed(number(n)) % 400) / 1000).min(900);
    let overhead = task.peak.mul_ratio(share, 1000);
    (task.peak.saturating_sub(overhead), overhead)
}

fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(kind: &str) -> RecordedTask {
        RecordedTask {
            kind: kind.into(),
            input: None,
            peak: Bytes::from_gib(3),
            runtime_s: 1.0,
            request: None,
            cpus: 1,
        }
    }

    #[test]
    fn few_kinds_need_most_of_their_memory_outside_the_heap() {
        let shares: Vec<f64> = (0..400)
            .map(|k| {
                let (heap, overhead) = parts(7, &task(&format!("kind-{k}")));
                assert_eq!(heap.saturating_add(overhead), Bytes::from_gib(3));
                overhead.as_gib_f64() / heap.as_gib_f64()
            })
            .collect();
        let within = shares.iter().filter(|share| **share <= 0.1).count();
        assert!((200..=280).contains(&within), "{within}");
        assert!(shares.iter().any(|share| *share > 1.5));
    }

    #[test]
    fn a_single_size_raises_the_heap_for_memory_outside_it() {
        let native = (0..99)
            .map(|k| task(&format!("kind-{k}")))
            .find(|t| parts(0, t).1 > parts(0, t).0)
            .expect("a native kind");
        let whole = Bytes::from_gib(128);
        let mut knob = MemorySplitSizes::new(MemorySplitRule::OneKnob);
        let mut size = knob.first(0, &native, 0).expect("at once");
        let mut failures = 0;
        while !knob.fits(0, &native) {
            failures += 1;
            size = knob.next(0, &native, failures, whole).expect("fits a host");
        }
        let mut apart = MemorySplitSizes::new(MemorySplitRule::Apart);
        let mut both = apart.first(0, &native, 0).expect("at once");
        failures = 0;
        while !apart.fits(0, &native) {
            failures += 1;
            both = apart
                .next(0, &native, failures, whole)
                .expect("fits a host");
        }
        assert!(
            size > both.mul_ratio(2, 1),
            "{size} against {both} for a need of 3 GiB"
        );
    }
}
