use super::*;
use crate::LaunchFailureKind;
use headroom_types::{EnforcerKind, Evidence, ExitReason};

fn report() -> Box<ExitReport> {
    Box::new(ExitReport {
        container: "job.1.e1.c1".parse().expect("id"),
        node: "n".parse().expect("name"),
        reason: ExitReason::Exit { code: 0 },
        evidence: Evidence::empty(EnforcerKind::Poll),
        diagnosis: Vec::new(),
        started: None,
        ended: UnixMillis(1),
        timeline: Vec::new(),
        log_tail: String::new(),
        tasks: Vec::new(),
    })
}

const GRACE: Duration = Duration::from_secs(2);
const NOW: Tick = Tick(10_000);

fn states() -> Vec<(&'static str, LifecyclePhase)> {
    let asked = Some(StopCause::Asked);
    vec![
        ("new", LifecyclePhase::New),
        ("preparing", LifecyclePhase::Preparing { stop: None }),
        ("preparing+stop", LifecyclePhase::Preparing { stop: asked }),
        ("starting", LifecyclePhase::Starting { stop: None }),
        ("starting+stop", LifecyclePhase::Starting { stop: asked }),
        ("running", LifecyclePhase::Running),
        (
            "grace",
            LifecyclePhase::Stopping {
                asked,
                step: StopProgress::Grace { kill_at: NOW },
            },
        ),
        (
            "killing",
            LifecyclePhase::Stopping {
                asked,
                step: StopProgress::Killing { again_at: NOW },
            },
        ),
        (
            "collecting",
            LifecyclePhase::Stopping {
                asked: None,
                step: StopProgress::Collecting,
            },
        ),
        (
            "exited",
            LifecyclePhase::Exited {
                report: report(),
                received: false,
            },
        ),
        (
            "exited+received",
            LifecyclePhase::Exited {
                report: report(),
                received: true,
            },
        ),
        ("acked", LifecyclePhase::Acked),
    ]
}

fn events() -> Vec<(&'static str, LifecycleEvent)> {
    vec![
        ("launch", LifecycleEvent::Launch),
        ("prepared", LifecycleEvent::Prepared),
        ("started", LifecycleEvent::Started { now: NOW }),
        (
            "failed",
            LifecycleEvent::Failed(LaunchFailure::new(
                LaunchFailureKind::ProgramNotFound,
                "no such program",
            )),
        ),
        (
            "stop",
            LifecycleEvent::Stop {
                cause: StopCause::Preempted,
                now: NOW,
            },
        ),
        (
            "over",
            LifecycleEvent::Stop {
                cause: StopCause::OverLimit,
                now: NOW,
            },
        ),
        ("deadline", LifecycleEvent::Deadline { now: NOW }),
        ("ended", LifecycleEvent::Ended),
        ("reported", LifecycleEvent::Reported(report())),
        ("received", LifecycleEvent::Received),
        ("new peer", LifecycleEvent::NewPeer),
        ("forget", LifecycleEvent::Forget),
    ]
}

fn label(state: &LifecyclePhase) -> &'static str {
    match state {
        LifecyclePhase::New => "new",
        LifecyclePhase::Preparing { stop: None } => "preparing",
        LifecyclePhase::Preparing { stop: Some(_) } => "preparing+stop",
        LifecyclePhase::Starting { stop: None } => "starting",
        LifecyclePhase::Starting { stop: Some(_) } => "starting+stop",
        LifecyclePhase::Running => "running",
        LifecyclePhase::Stopping {
            step: StopProgress::Grace { .. },
            ..
        } => "grace",
        LifecyclePhase::Stopping {
            step: StopProgress::Killing { .. },
            ..
        } => "killing",
        LifecyclePhase::Stopping {
            step: StopProgress::Collecting,
            ..
        } => "collecting",
        LifecyclePhase::Exited {
            received: false, ..
        } => "exited",
        LifecyclePhase::Exited { received: true, .. } => "exited+received",
        LifecyclePhase::Acked => "acked",
    }
}

fn cell(state: &LifecyclePhase, event: LifecycleEvent) -> String {
    let mut out = Vec::new();
    match apply_event(state, event, GRACE, &mut out) {
        Err(_) => {
            assert!(out.is_empty(), "a refused event has no effect");
            "!".into()
        }
        Ok(PhaseTransition::Stay) => {
            assert!(
                out.is_empty(),
                "an event that keeps the state has no effect"
            );
            "-".into()
        }
        Ok(PhaseTransition::To(next)) => {
            let effects: Vec<String> = out
                .iter()
                .map(|e| format!("{e:?}").to_lowercase())
                .collect();
            format!("{} [{}]", label(&next), effects.join(", "))
        }
    }
}

/// Covers each cell of the table: next state and effects. `-` keeps the state on purpose, `!` is
/// refused and logged.
#[test]
fn every_event_in_every_state() {
    let mut text = String::new();
    for (from, state) in states() {
        text.push_str(&format!("{from}\n"));
        for (name, event) in events() {
            text.push_str(&format!("  {name:9} {}\n", cell(&state, event)));
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_stop_is_recorded_before_the_signal() {
    for (_, state) in states() {
        for (_, event) in events() {
            let mut out = Vec::new();
            if apply_event(&state, event, GRACE, &mut out).is_err() {
                continue;
            }
            let asked_before = matches!(state, LifecyclePhase::Stopping { .. });
            if let Some(at) = out
                .iter()
                .position(|e| matches!(e, ContainerEffect::Terminate | ContainerEffect::Kill))
            {
                let before = at.checked_sub(1).and_then(|i| out.get(i));
                assert!(
                    asked_before || matches!(before, Some(ContainerEffect::RecordStop(_))),
                    "{state:?}: {out:?} at {at}"
                );
            }
        }
    }
}

#[test]
fn the_grace_period_ends_exactly_at_its_deadline() {
    let mut out = Vec::new();
    let state = LifecyclePhase::Stopping {
        asked: Some(StopCause::Asked),
        step: StopProgress::Grace { kill_at: Tick(100) },
    };
    assert_eq!(
        apply_event(
            &state,
            LifecycleEvent::Deadline { now: Tick(99) },
            GRACE,
            &mut out
        ),
        Ok(PhaseTransition::Stay)
    );
    let Ok(PhaseTransition::To(next)) = apply_event(
        &state,
        LifecycleEvent::Deadline { now: Tick(100) },
        GRACE,
        &mut out,
    ) else {
        panic!("stayed")
    };
    assert_eq!(
        (out.as_slice(), next.deadline()),
        ([ContainerEffect::Kill].as_slice(), Some(Tick(1100)))
    );
}
