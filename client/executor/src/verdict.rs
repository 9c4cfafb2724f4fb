//! The report of a task from the observations at its end: pure.

use headroom_node_core::{VerdictScope, classify, diagnose, timeline};
use headroom_types::exit::MemorySample;
use headroom_types::{
    Bytes, Certainty, ContainerId, Diagnosis, EnforcerKind, Evidence, ExitReason, SubCause,
    TaskAttemptId, TaskReport, UnixMillis,
};
use headroom_wire::v1::task::TaskStart;

use crate::payload::TaskValue;

/// All observations at the end of a task.
#[derive(Debug)]
pub struct TaskEndEvidence {
    /// The evidence; [`report_of_end`] adds the limit and the heap budget of the start.
    pub evidence: Evidence,
    /// Time of the first instruction.
    pub started: UnixMillis,
    /// Time of the end of its process.
    pub ended: UnixMillis,
    /// Memory from start to end.
    pub timeline: Vec<MemorySample>,
    /// The end of its standard error.
    pub log_tail: String,
    /// Bytes read by its processes, a lower bound.
    pub read: Option<Bytes>,
    /// The value of its program.
    pub value: TaskValue,
    /// True if all its processes have ended and both logs are empty.
    pub silent: bool,
}

/// The verdict on a task that ran.
pub fn report_of_end(
    container: &ContainerId,
    start: &TaskStart,
    mut end: TaskEndEvidence,
) -> TaskReport {
    let mut evidence = end.evidence;
    evidence.own.limit = evidence.own.limit.or(start.limit);
    evidence.heap_budget = start.heap;
    let (value, value_too_large) = match end.value {
        TaskValue::Absent => (None, None),
        TaskValue::Text(text) => (Some(text), None),
        TaskValue::TooLarge(size) => (None, Some(size)),
        TaskValue::Unreadable(why) => {
            evidence.missing.push(format!("the value file: {why}"));
            (None, None)
        }
    };
    let verdict = classify(&evidence, VerdictScope::Task, &start.heap_exit_codes);
    timeline::mark_end(&mut end.timeline, verdict.reason, &evidence);
    TaskReport {
        attempt: start.attempt.clone(),
        container: container.clone(),
        reason: verdict.reason,
        dimension: verdict.dimension,
        diagnosis: diagnose(&evidence, &verdict),
        evidence,
        started: Some(end.started),
        ended: end.ended,
        timeline: end.timeline,
        log_tail: end.log_tail,
        read: end.read,
        value,
        value_too_large,
        silent: end.silent,
    }
}

/// The report of a task that did not start.
pub fn not_started(
    container: &ContainerId,
    attempt: &TaskAttemptId,
    enforcer: EnforcerKind,
    at: UnixMillis,
    why: &str,
) -> TaskReport {
    let mut evidence = Evidence::empty(enforcer);
    evidence.missing.push(format!("not started: {why}"));
    TaskReport {
        attempt: attempt.clone(),
        container: container.clone(),
        reason: ExitReason::LaunchFailed,
        dimension: None,
        evidence,
        diagnosis: vec![Diagnosis::new(
            SubCause::NotStarted,
            Certainty::Certain,
            format!("the executor did not start the task: {why}"),
            "correct the named problem, or run the task on another executor",
        )],
        started: None,
        ended: at,
        timeline: Vec::new(),
        log_tail: why.to_owned(),
        read: None,
        value: None,
        value_too_large: None,
        silent: false,
    }
}

/// Sample starts for tests.
#[cfg(test)]
pub(crate) mod samples {
    use headroom_wire::v1::task::TaskStart;

    /// The smallest start of an attempt.
    pub(crate) fn start(attempt: &str) -> TaskStart {
        TaskStart {
            attempt: attempt.parse().expect("id"),
            command: vec!["x".into()],
            env: std::collections::BTreeMap::new(),
            cwd: None,
            slots: 1,
            limit: None,
            heap: None,
            heap_exit_codes: Vec::new(),
            timeout_ms: None,
            freeze_timeout_ms: None,
            output: None,
            input: None,
            fork_server: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::exit::{CgroupStats, HeapReport, MemoryEvents};
    use headroom_types::{Dimension, StopCause};

    fn start(limit: u64, heap: Option<u64>) -> TaskStart {
        TaskStart {
            limit: Some(Bytes::from_mib(limit)),
            heap: heap.map(Bytes::from_mib),
            heap_exit_codes: vec![3],
            ..samples::start("map/7@1")
        }
    }

    fn ending(exit_code: Option<i32>, signal: Option<i32>) -> TaskEndEvidence {
        TaskEndEvidence {
            evidence: Evidence {
                exit_code,
                signal,
                own: CgroupStats {
                    limit: Some(Bytes::from_mib(64)),
                    peak: Some(Bytes::from_mib(64)),
                    ..CgroupStats::default()
                },
                ..Evidence::empty(EnforcerKind::Cgroup2)
            },
            started: UnixMillis(1),
            ended: UnixMillis(2),
            timeline: Vec::new(),
            log_tail: String::new(),
            read: None,
            value: TaskValue::Absent,
            silent: false,
        }
    }

    fn killed_at_own_limit() -> TaskEndEvidence {
        let moved = MemoryEvents {
            oom: 1,
            oom_kill: 2,
            oom_group_kill: 1,
            ..MemoryEvents::default()
        };
        let mut end = ending(None, Some(9));
        end.evidence.own.events = moved;
        end.evidence.own.local = moved;
        end
    }

    fn verdict(start: &TaskStart, end: TaskEndEvidence) -> (ExitReason, Option<Dimension>) {
        let report = report_of_end(&"job.1.e1.c1".parse().expect("id"), start, end);
        (report.reason, report.dimension)
    }

    #[test]
    fn the_verdict_of_a_kill_depends_on_the_declared_runtime() {
        assert_eq!(
            verdict(&start(64, None), killed_at_own_limit()),
            (ExitReason::TaskOom, Some(Dimension::Native))
        );
        let heap = |used| {
            let mut end = killed_at_own_limit();
            end.evidence.heap = Some(HeapReport {
                used: Bytes::from_mib(used),
                committed: Bytes::from_mib(48),
                ..HeapReport::default()
            });
            verdict(&start(64, Some(48)), end)
        };
        assert_eq!(
            heap(10),
            (ExitReason::OverheadOom, Some(Dimension::Overhead))
        );
        assert_eq!(heap(48), (ExitReason::HeapOom, Some(Dimension::Heap)));
    }

    #[test]
    fn ends_without_a_memory_failure_are_classified() {
        assert_eq!(
            verdict(&start(64, None), ending(Some(0), None)),
            (ExitReason::Exit { code: 0 }, None)
        );
        assert_eq!(
            verdict(&start(64, None), ending(Some(4), None)),
            (ExitReason::Exit { code: 4 }, None)
        );
        assert_eq!(
            verdict(&start(64, None), ending(None, Some(9))),
            (ExitReason::KilledExternally, None)
        );
        let mut stopped = ending(None, Some(15));
        stopped.evidence.stop_asked = Some(StopCause::Asked);
        assert_eq!(
            verdict(&start(64, None), stopped),
            (ExitReason::Stopped, None)
        );
    }

    #[test]
    fn a_declared_exit_code_is_a_full_heap() {
        assert_eq!(
            verdict(&start(64, Some(32)), ending(Some(3), None)),
            (ExitReason::HeapOom, Some(Dimension::Heap))
        );
    }

    #[test]
    fn the_value_file_becomes_a_part_of_the_report() {
        let report = |value| {
            let end = TaskEndEvidence {
                value,
                ..ending(Some(0), None)
            };
            report_of_end(&"job.1.e1.c1".parse().expect("id"), &start(64, None), end)
        };
        let text = report(TaskValue::Text("7".into()));
        assert_eq!(
            (text.value.as_deref(), text.value_too_large),
            (Some("7"), None)
        );
        let large = report(TaskValue::TooLarge(Bytes::from_mib(1)));
        assert_eq!(
            (large.value, large.value_too_large),
            (None, Some(Bytes::from_mib(1)))
        );
        let odd = report(TaskValue::Unreadable("it is a symbolic link".into()));
        assert!(odd.value.is_none() && odd.evidence.missing[0].contains("symbolic link"));
    }

    #[test]
    fn a_refusal_names_its_reason() {
        let report = not_started(
            &"j.1.e1.c1".parse().expect("id"),
            &start(1, None).attempt,
            EnforcerKind::Poll,
            UnixMillis(5),
            "no room",
        );
        assert_eq!(report.reason, ExitReason::LaunchFailed);
        assert!(
            report.log_tail.contains("no room") && report.evidence.missing[0].contains("no room")
        );
    }
}
