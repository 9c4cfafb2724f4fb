//! Bytes read by a task, from the kernel's counters of its processes.
//!
//! When a parent reaps a child, the kernel adds the child's count to the parent. The sum over live
//! processes therefore falls only if a process ends that no process of the task reaps. The result
//! is the largest observed sum, a lower bound.

use std::time::{Duration, Instant};

use headroom_node_cgroup::reads::so_far;
use headroom_types::Bytes;

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of sampled processes.
const MAX_PROCESSES: usize = 64;

/// Bytes read by one task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadBytesSampler {
    most: Option<Bytes>,
    at: Option<Instant>,
}

impl ReadBytesSampler {
    /// Samples the live processes if the interval has passed.
    pub(crate) fn look(&mut self, pids: impl FnOnce() -> Vec<i32>) {
        if self.at.is_none_or(|at| at.elapsed() >= SAMPLE_INTERVAL) {
            self.at = Some(Instant::now());
            self.take(sum(&pids(), so_far));
        }
    }

    /// Takes the last sample. The main process has ended and is not reaped; other processes may
    /// still run.
    pub(crate) fn last(&mut self, main: i32, others: &[i32]) -> Option<Bytes> {
        let others: Vec<i32> = others.iter().copied().filter(|pid| *pid != main).collect();
        let all: Vec<i32> = std::iter::once(main).chain(others).collect();
        self.take(sum(&all, so_far));
        self.most
    }

    fn take(&mut self, seen: Option<Bytes>) {
        self.most = self.most.max(seen);
    }
}

/// The sum over all readable processes; `None` if none is readable.
fn sum(pids: &[i32], of: impl Fn(i32) -> Option<Bytes>) -> Option<Bytes> {
    pids.iter()
        .take(MAX_PROCESSES)
        .filter_map(|pid| of(*pid))
        .reduce(Bytes::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_sum_counts_and_unreadable_processes_are_skipped() {
        let of = |mib: [Option<u64>; 3]| {
            move |pid: i32| {
                usize::try_from(pid)
                    .ok()
                    .and_then(|n| mib.get(n).copied().flatten())
                    .map(Bytes::from_mib)
            }
        };
        let mut reads = ReadBytesSampler::default();
        reads.take(sum(&[0, 1, 2], of([Some(4), Some(8), None])));
        reads.take(sum(&[0, 1, 2], of([Some(5), None, None])));
        assert_eq!(
            reads.most,
            Some(Bytes::from_mib(12)),
            "reads of an unreaped process count"
        );
        reads.take(sum(&[0], of([Some(20), None, None])));
        assert_eq!(reads.most, Some(Bytes::from_mib(20)));
        assert_eq!(sum(&[7], of([None; 3])), None);
    }
}
