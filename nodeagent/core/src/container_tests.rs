use super::*;
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

fn states() -> Vec<(&'static str, State)> {
    let asked = Some(StopCause::Asked);
    vec![
        ("new", State::New),
        ("preparing", State::Preparing { stop: None }),
        ("preparing+stop", State::Preparing { stop: asked }),
        ("starting", State::Starting { stop: None }),
        ("starting+stop", State::Starting { stop: asked }),
        ("running", State::Running),
        ("grace", State::Stopping { asked, step: Step::Grace { kill_at: NOW } }),
        ("killing", State::Stopping { asked, step: Step::Killing { again_at: NOW } }),
        ("collecting", State::Stopping { asked: None, step: Step::Collecting }),
        ("exited", State::Exited { report: report(), received: false }),
        ("exited+received", State::Exited { report: report(), received: true }),
        ("acked", State::Acked),
    ]
}

fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("launch", Event::Launch),
        ("prepared", Event::Prepared),
        ("started", Event::Started { now: NOW }),
        ("failed", Event::Failed { why: "no such program".into() }),
        ("stop", Event::Stop { cause: StopCause::Preempted, now: NOW }),
        ("over", Event::Stop { cause: StopCause::OverLimit, now: NOW }),
        ("deadline", Event::Deadline { now: NOW }),
        ("ended", Event::Ended),
        ("reported", Event::Reported(report())),
        ("received", Event::Received),
        ("new peer", Event::NewPeer),
        ("forget", Event::Forget),
    ]
}

fn label(state: &State) -> &'static str {
    match state {
        State::New => "new",
        State::Preparing { stop: None } => "preparing",
        State::Preparing { stop: Some(_) } => "preparing+stop",
        State::Starting { stop: None } => "starting",
        State::Starting { stop: Some(_) } => "starting+stop",
        State::Running => "running",
        State::Stopping { step: Step::Grace { .. }, .. } => "grace",
        State::Stopping { step: Step::Killing { .. }, .. } => "killing",
        State::Stopping { step: Step::Collecting, .. } => "collecting",
        State::Exited { received: false, .. } => "exited",
        State::Exited { received: true, .. } => "exited+received",
        State::Acked => "acked",
    }
}

fn cell(state: &State, event: Event) -> String {
    let mut out = Vec::new();
    match on(state, event, GRACE, &mut out) {
        Err(_) => {
            assert!(out.is_empty(), "what is refused has no effect");
            "!".into()
        }
        Ok(Answer::Stay) => {
            assert!(out.is_empty(), "what stays has no effect");
            "-".into()
        }
        Ok(Answer::To(next)) => {
            let effects: Vec<String> = out.iter().map(|e| format!("{e:?}").to_lowercase()).collect();
            format!("{} [{}]", label(&next), effects.join(", "))
        }
    }
}

/// Covers each cell of the table: next state and effects. `-` keeps the state on purpose, `!` is
/// refused and logged.
#[test]
fn every_cell() {
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
fn a_stop_is_explained_before_it_is_done() {
    for (_, state) in states() {
        for (_, event) in events() {
            let mut out = Vec::new();
            if on(&state, event, GRACE, &mut out).is_err() {
                continue;
            }
            let asked_before = matches!(state, State::Stopping { .. });
            if let Some(at) = out.iter().position(|e| matches!(e, Effect::Terminate | Effect::Kill)) {
                let before = at.checked_sub(1).and_then(|i| out.get(i));
                assert!(asked_before || matches!(before, Some(Effect::RecordStop(_))), "{state:?}: {out:?} at {at}");
            }
        }
    }
}

#[test]
fn patience_ends_when_it_is_over_and_not_before() {
    let mut out = Vec::new();
    let state = State::Stopping { asked: Some(StopCause::Asked), step: Step::Grace { kill_at: Tick(100) } };
    assert_eq!(on(&state, Event::Deadline { now: Tick(99) }, GRACE, &mut out), Ok(Answer::Stay));
    let Ok(Answer::To(next)) = on(&state, Event::Deadline { now: Tick(100) }, GRACE, &mut out) else { panic!("stayed") };
    assert_eq!((out.as_slice(), next.deadline()), ([Effect::Kill].as_slice(), Some(Tick(1100))));
}
