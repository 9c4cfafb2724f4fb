mod rows;

use super::*;
use headroom_types::exit::MemoryEvents;
use proptest::prelude::*;
use rows::{events, own};

const MIB: u64 = 1 << 20;

#[test]
fn every_row_of_the_table_is_classified() {
    for r in rows::all() {
        let v = classify(&r.evidence, r.scope, r.codes);
        assert_eq!(
            (v.reason, v.dimension),
            (r.reason, r.dimension),
            "{}: {:#?}",
            r.what,
            r.evidence
        );
    }
}

#[test]
fn the_table_covers_every_reason() {
    let given: std::collections::BTreeSet<&str> =
        rows::all().into_iter().map(|r| r.reason.name()).collect();
    let all = [
        "heap_oom",
        "overhead_oom",
        "task_oom",
        "stalled_at_limit",
        "ancestor_oom",
        "node_oom",
        "killed_externally",
        "stopped",
        "preempted",
        "timeout",
        "exit",
        "signal",
    ];
    assert_eq!(
        given,
        all.into_iter().collect(),
        "launch_failed and node_lost are not ends of a program"
    );
}

fn any_events() -> impl Strategy<Value = MemoryEvents> {
    (0u64..4, 0u64..3, 0u64..3, 0u64..2)
        .prop_map(|(max, oom, kill, group)| events(max, oom, kill, group))
}

fn any_evidence() -> impl Strategy<Value = Evidence> {
    let enforcer = prop_oneof![
        Just(EnforcerKind::Cgroup2),
        Just(EnforcerKind::Cgroup1),
        Just(EnforcerKind::Poll)
    ];
    let end = prop_oneof![
        (0i32..140).prop_map(|c| (Some(c), None)),
        (1i32..32).prop_map(|s| (None, Some(s))),
        Just((None, None))
    ];
    let stop = proptest::option::of(prop_oneof![
        Just(StopCause::Asked),
        Just(StopCause::Preempted),
        Just(StopCause::Timeout),
        Just(StopCause::OverLimit),
        Just(StopCause::Stalled)
    ]);
    let level = prop_oneof![Just("container"), Just("containers"), Just("host")];
    let outer = proptest::collection::vec((level, any_events()), 0..3);
    let sizes = (
        1u64..200,
        0u64..200,
        proptest::option::of(1u64..200),
        0u64..200,
    );
    (
        enforcer,
        end,
        stop,
        any_events(),
        any_events(),
        outer,
        sizes,
    )
        .prop_map(
            |(
                enforcer,
                (exit_code, signal),
                stop_asked,
                local,
                below,
                outer,
                (limit, peak, budget, used),
            )| {
                let all = events(
                    local.max + below.max,
                    local.oom + below.oom,
                    local.oom_kill + below.oom_kill,
                    below.oom_group_kill,
                );
                let mut e = Evidence::empty(enforcer);
                e.exit_code = exit_code;
                e.signal = signal;
                e.stop_asked = stop_asked;
                e.own = own(limit, peak, all, local);
                e.outer = outer
                    .into_iter()
                    .map(|(l, local)| OuterLevel::counted(l, None, local))
                    .collect();
                e.heap_budget = budget.map(|b| Bytes::new(b * MIB));
                e.heap = budget.map(|_| HeapReport {
                    used: Bytes::new(used * MIB),
                    ..HeapReport::default()
                });
                e
            },
        )
}

proptest! {
    /// Safety: memory is the reason only if a counter, the runtime or our enforcer reports it.
    #[test]
    fn a_memory_verdict_needs_evidence_of_a_memory_failure(e in any_evidence(), task in any::<bool>()) {
        let scope = if task { VerdictScope::Task } else { VerdictScope::Container };
        let v = classify(&e, scope, &[3]);
        if v.reason.charge() == headroom_types::ExitCharge::Memory {
            let kills = e.own.events.oom_kill + e.own.events.oom_group_kill > 0;
            let ours = matches!(e.stop_asked, Some(StopCause::OverLimit | StopCause::Stalled));
            prop_assert!(kills || ours || e.exit_code == Some(3) || e.heap_marker.is_some());
            prop_assert!(v.dimension.is_some());
        } else {
            prop_assert_eq!(v.dimension, None);
        }
    }

    /// Safety: exit code 0 without an ordered stop is a success, with any other evidence.
    #[test]
    fn exit_code_0_is_success(mut e in any_evidence()) {
        e.exit_code = Some(0);
        e.signal = None;
        e.stop_asked = None;
        prop_assert_eq!(classify(&e, VerdictScope::Container, &[3]).reason, ExitReason::Exit { code: 0 });
    }

    /// Safety: a container's verdict never has the reason of a task.
    #[test]
    fn a_container_never_has_the_verdict_of_a_task(e in any_evidence()) {
        prop_assert_ne!(classify(&e, VerdictScope::Container, &[]).reason, ExitReason::TaskOom);
    }
}
