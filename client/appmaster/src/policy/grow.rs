//! How much more a running task is given when it comes near its limit.
//!
//! Steps are half as large again, not twice: a step costs milliseconds and no work, so it need not look far ahead. Only what can grow
//! while the program runs does: all of a native program's memory, and what is outside the heap of a managed runtime, whose
//! heap was fixed when it began.

pub use headroom_config::job::grow::is_part_of;
use headroom_config::{Memory, Runtime};
use headroom_types::{Bytes, Profile};
use headroom_wire::v1::job::Mode;

use super::{Cap, ladder};

/// Most steps of one attempt. From 64 MiB they lead beyond any machine.
const MOST_STEPS: usize = 24;
/// The least that a step gives.
const LEAST: Bytes = Bytes::from_mib(8);

/// A running task near its limit.
#[derive(Clone, Copy, Debug)]
pub struct Pressed<'a> {
    /// How the job's memory failures are answered.
    pub mode: Mode,
    /// What the attempt has now.
    pub profile: &'a Profile,
    /// What manages its memory.
    pub runtime: Runtime,
    /// The largest size a task can be given.
    pub cap: Cap,
    /// How often it was given more already.
    pub steps: usize,
}

/// The size it should have instead, or why it gets no more, for people.
pub fn next(pressed: &Pressed<'_>) -> Result<Profile, String> {
    if !is_part_of(pressed.mode) {
        return Err(format!("mode {} gives nothing more to what runs", pressed.mode.as_str()));
    }
    if pressed.steps >= MOST_STEPS {
        return Err(format!("it was given more {MOST_STEPS} times"));
    }
    let (profile, cap) = (pressed.profile, pressed.cap.task);
    let memory = profile.memory();
    let part = match pressed.runtime.memory() {
        Memory::One => memory.mul_ratio(1, 2),
        Memory::HeapAndOverhead => profile.overhead.mul_ratio(1, 2).max(memory.mul_ratio(1, 8)),
    };
    let wanted = ladder::rounded(memory.saturating_add(part.max(LEAST))).min(cap);
    if wanted <= memory {
        return Err(format!("it has the largest size, set by {}", pressed.cap.words()));
    }
    Ok(filled(pressed.runtime, profile, wanted))
}

/// `profile` with all of `memory`, and the heap of a managed runtime as it is.
pub fn filled(runtime: Runtime, profile: &Profile, memory: Bytes) -> Profile {
    match runtime.memory() {
        Memory::One => ladder::with_heap_filling(profile, memory),
        Memory::HeapAndOverhead => ladder::with_overhead_filling(profile, memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Cpus;

    const NO_CAP: Cap = Cap { task: Bytes::MAX, largest: None, by_job: false };

    fn grown(runtime: Runtime, heap: u64, overhead: u64, cap: Cap) -> Result<(u64, u64), String> {
        let profile = Profile { heap: Bytes::from_mib(heap), overhead: Bytes::from_mib(overhead), cpus: Cpus::from_cores(1) };
        let grown = next(&Pressed { mode: Mode::Headroom, profile: &profile, runtime, cap, steps: 0 })?;
        Ok((grown.heap.whole_mib(), grown.overhead.whole_mib()))
    }

    #[test]
    fn a_native_task_gets_half_as_much_again_and_a_jvm_more_outside_its_heap() {
        assert_eq!(grown(Runtime::Native, 64, 0, NO_CAP), Ok((96, 0)));
        assert_eq!(grown(Runtime::Native, 8, 0, NO_CAP), Ok((16, 0)), "small ones get a step worth the while");
        assert_eq!(grown(Runtime::Jvm, 96, 32, NO_CAP), Ok((96, 48)));
        assert_eq!(grown(Runtime::Jvm, 400, 8, NO_CAP), Ok((400, 64)), "a small overhead is no measure");
    }

    #[test]
    fn the_cap_the_mode_and_the_number_of_steps_bound_it() {
        let cap = Cap { task: Bytes::from_mib(80), largest: None, by_job: true };
        assert_eq!(grown(Runtime::Native, 64, 0, cap), Ok((80, 0)));
        assert!(grown(Runtime::Native, 80, 0, cap).is_err_and(|why| why.contains("retry.cap")));
        let profile = Profile { heap: Bytes::from_mib(64), overhead: Bytes::ZERO, cpus: Cpus::from_cores(1) };
        let pressed =
            Pressed { mode: Mode::Headroom, profile: &profile, runtime: Runtime::Native, cap: NO_CAP, steps: MOST_STEPS };
        assert!(next(&pressed).is_err());
        assert!(next(&Pressed { mode: Mode::Uber, steps: 0, ..pressed }).is_err_and(|why| why.contains("uber")));
    }

    #[test]
    fn three_times_the_size_is_three_steps() {
        let mut memory = Profile { heap: Bytes::from_mib(64), overhead: Bytes::ZERO, cpus: Cpus::from_cores(1) };
        let mut steps = 0;
        while memory.memory() < Bytes::from_mib(192) {
            let pressed = Pressed { mode: Mode::Headroom, profile: &memory, runtime: Runtime::Native, cap: NO_CAP, steps };
            memory = next(&pressed).expect("grows");
            steps += 1;
        }
        assert_eq!(steps, 3);
    }
}
