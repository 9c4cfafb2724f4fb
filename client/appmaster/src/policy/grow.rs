//! The size of a growth step for a running task near its limit.
//!
//! A step adds half of the size instead of doubling it: a step costs milliseconds and no work, so
//! that it need not plan far ahead. Only memory that can grow while the program runs is raised: the
//! memory of a native program, and the memory outside the heap of a managed runtime, whose heap is
//! fixed at its start.

pub use headroom_config::job::growth::mode_allows_growth;
use headroom_config::{MemoryQuantities, TaskRuntime};
use headroom_types::{Bytes, Profile};
use headroom_wire::v1::job::MemoryFailureMode;

use super::attempt_size::TaskSizeCap;
use super::ladder;

/// Maximum number of steps of one attempt. From 64 MiB they exceed the memory of any machine.
const MOST_STEPS: usize = 24;
/// Minimum size of a step.
const MIN_STEP: Bytes = Bytes::from_mib(8);

/// A running task near its limit.
#[derive(Clone, Copy, Debug)]
pub struct GrowthInput<'a> {
    /// The mode of the job.
    pub mode: MemoryFailureMode,
    /// Current profile of the attempt.
    pub profile: &'a Profile,
    /// The manager of its memory.
    pub runtime: TaskRuntime,
    /// The largest size that a task can get.
    pub cap: TaskSizeCap,
    /// Number of earlier growth steps.
    pub steps: usize,
}

/// The next profile, or the reason for no growth, for display.
pub fn next(pressed: &GrowthInput<'_>) -> Result<Profile, String> {
    if !mode_allows_growth(pressed.mode) {
        return Err(format!(
            "mode {} does not grow running tasks",
            pressed.mode.as_str()
        ));
    }
    if pressed.steps >= MOST_STEPS {
        return Err(format!("it has grown {MOST_STEPS} times already"));
    }
    let (profile, cap) = (pressed.profile, pressed.cap.task);
    let memory = profile.memory();
    let part = match pressed.runtime.memory() {
        MemoryQuantities::One => memory.mul_ratio(1, 2),
        MemoryQuantities::HeapAndOverhead => {
            profile.overhead.mul_ratio(1, 2).max(memory.mul_ratio(1, 8))
        }
    };
    let wanted = ladder::rounded(memory.saturating_add(part.max(MIN_STEP))).min(cap);
    if wanted <= memory {
        return Err(format!(
            "it has the largest size, set by {}",
            pressed.cap.words()
        ));
    }
    Ok(filled(pressed.runtime, profile, wanted))
}

/// `profile` enlarged to `memory`, with the heap of a managed runtime unchanged.
pub fn filled(runtime: TaskRuntime, profile: &Profile, memory: Bytes) -> Profile {
    match runtime.memory() {
        MemoryQuantities::One => ladder::with_heap_filling(profile, memory),
        MemoryQuantities::HeapAndOverhead => ladder::with_overhead_filling(profile, memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Cpus;

    const NO_CAP: TaskSizeCap = TaskSizeCap {
        task: Bytes::MAX,
        largest: None,
        by_job: false,
    };

    fn grown(
        runtime: TaskRuntime,
        heap: u64,
        overhead: u64,
        cap: TaskSizeCap,
    ) -> Result<(u64, u64), String> {
        let profile = Profile {
            heap: Bytes::from_mib(heap),
            overhead: Bytes::from_mib(overhead),
            cpus: Cpus::from_cores(1),
        };
        let grown = next(&GrowthInput {
            mode: MemoryFailureMode::Headroom,
            profile: &profile,
            runtime,
            cap,
            steps: 0,
        })?;
        Ok((grown.heap.whole_mib(), grown.overhead.whole_mib()))
    }

    #[test]
    fn a_native_task_grows_by_half_and_a_jvm_outside_its_heap() {
        assert_eq!(grown(TaskRuntime::Native, 64, 0, NO_CAP), Ok((96, 0)));
        assert_eq!(
            grown(TaskRuntime::Native, 8, 0, NO_CAP),
            Ok((16, 0)),
            "small tasks get the minimum step"
        );
        assert_eq!(grown(TaskRuntime::Jvm, 96, 32, NO_CAP), Ok((96, 48)));
        assert_eq!(
            grown(TaskRuntime::Jvm, 400, 8, NO_CAP),
            Ok((400, 64)),
            "a small overhead does not set the step"
        );
    }

    #[test]
    fn cap_mode_and_number_of_steps_limit_growth() {
        let cap = TaskSizeCap {
            task: Bytes::from_mib(80),
            largest: None,
            by_job: true,
        };
        assert_eq!(grown(TaskRuntime::Native, 64, 0, cap), Ok((80, 0)));
        assert!(grown(TaskRuntime::Native, 80, 0, cap).is_err_and(|why| why.contains("retry.cap")));
        let profile = Profile {
            heap: Bytes::from_mib(64),
            overhead: Bytes::ZERO,
            cpus: Cpus::from_cores(1),
        };
        let pressed = GrowthInput {
            mode: MemoryFailureMode::Headroom,
            profile: &profile,
            runtime: TaskRuntime::Native,
            cap: NO_CAP,
            steps: MOST_STEPS,
        };
        assert!(next(&pressed).is_err());
        assert!(
            next(&GrowthInput {
                mode: MemoryFailureMode::Uber,
                steps: 0,
                ..pressed
            })
            .is_err_and(|why| why.contains("uber"))
        );
    }

    #[test]
    fn three_times_the_size_is_three_steps() {
        let mut memory = Profile {
            heap: Bytes::from_mib(64),
            overhead: Bytes::ZERO,
            cpus: Cpus::from_cores(1),
        };
        let mut steps = 0;
        while memory.memory() < Bytes::from_mib(192) {
            let pressed = GrowthInput {
                mode: MemoryFailureMode::Headroom,
                profile: &memory,
                runtime: TaskRuntime::Native,
                cap: NO_CAP,
                steps,
            };
            memory = next(&pressed).expect("grows");
            steps += 1;
        }
        assert_eq!(steps, 3);
    }
}
