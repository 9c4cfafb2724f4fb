//! Tests of the session: the order of its calls, and the end of each phase.

use headroom_client::FailedAttempt;
use headroom_types::{Bytes, Cpus};
use headroom_wire::v1::application_master::ContainerGrant;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};

use super::*;

fn container(n: u32) -> ContainerId {
    format!("job.1.e1.c{n}").parse().expect("an id")
}

fn new_session() -> ManagerSession {
    let attempt = AttemptId {
        app: container(1).app,
        attempt: 1,
    };
    ManagerSession::new(attempt, "tcp://127.0.0.1:1".into(), None, Tick(0))
}

fn size() -> Resource {
    Resource::new(Bytes::from_mib(64), Cpus::from_cores(1))
}

fn refused(code: ErrorCode) -> ClientError {
    ClientError::Problem(Box::new(ProblemDetails::new(code, "no")))
}

fn registered() -> SessionInput {
    SessionInput::Registered(Ok(MasterRegistered {
        epoch: Epoch(1),
        largest: size(),
        containers: Vec::new(),
        confirmed: Vec::new(),
        cursor: 4,
        known: None,
        traces: None,
    }))
}

fn report() -> JobReport {
    JobReport {
        patch: JobViewPatch::default(),
        complete: true,
        acknowledged: 4,
        open: Vec::new(),
        spent: Vec::new(),
        releases: Vec::new(),
    }
}

fn take(session: &mut ManagerSession, now: u64, input: SessionInput) -> Vec<SessionEffect> {
    let mut out = Vec::new();
    let taken = session.take(Tick(now), input, &mut out);
    assert!(taken.is_ok(), "{taken:?}");
    out
}

fn wake(session: &mut ManagerSession, now: u64) -> Vec<SessionEffect> {
    let mut out = Vec::new();
    session.wake(Tick(now), report, &mut out);
    out
}

/// A session that is registered and waits for the answer to its first synchronisation.
fn syncing() -> ManagerSession {
    let mut session = new_session();
    session.register(&mut Vec::new());
    take(&mut session, 10, registered());
    let calls = wake(&mut session, 10);
    assert!(
        matches!(
            calls.as_slice(),
            [SessionEffect::Call(ManagerCall::Sync(_))]
        ),
        "{calls:?}"
    );
    session
}

fn rejected(code: ErrorCode) -> SessionInput {
    SessionInput::Synced(Err(UnacceptedReport {
        error: refused(code),
        patch: Some(Box::default()),
    }))
}

#[test]
fn a_registration_opens_the_stream_before_the_core_processes_it() {
    let mut session = new_session();
    session.register(&mut Vec::new());
    assert_eq!(session.next_timer(), None);
    let effects = take(&mut session, 10, registered());
    let position = StreamPosition {
        epoch: Epoch(1),
        cursor: 4,
    };
    assert!(
        matches!(
            effects.as_slice(),
            [
                SessionEffect::SelectCollector(None),
                SessionEffect::OpenStream(_, from),
                SessionEffect::Event(MasterEvent::Registered { .. }),
            ] if *from == position
        ),
        "{effects:?}"
    );
    assert_eq!(session.next_timer(), Some(Tick(10)));
}

#[test]
fn a_refused_registration_ends_the_run_and_a_silent_one_after_30_seconds() {
    let mut session = new_session();
    let input = SessionInput::Registered(Err(refused(ErrorCode::HR0409)));
    let taken = session.take(Tick(5), input, &mut Vec::new());
    assert!(matches!(taken, Err(SessionFailure::Refused(_))));
    let mut session = new_session();
    take(
        &mut session,
        30_000,
        SessionInput::Registered(Err(ClientError::NotSent)),
    );
    let input = SessionInput::Registered(Err(ClientError::NotSent));
    let taken = session.take(Tick(30_001), input, &mut Vec::new());
    assert!(matches!(taken, Err(SessionFailure::Unreachable(_))));
}

#[test]
fn a_stale_sync_registers_again_and_returns_its_rows() {
    let mut session = syncing();
    let effects = take(&mut session, 20, rejected(ErrorCode::HR0410));
    assert!(
        matches!(
            effects.as_slice(),
            [
                SessionEffect::RestorePatch(_),
                SessionEffect::Call(ManagerCall::Register(_))
            ]
        ),
        "{effects:?}"
    );
}

#[test]
fn a_registration_names_the_known_containers_unless_an_earlier_manager_refuses_that() {
    let mut session = syncing();
    let granted = ApplicationUpdate {
        cursor: 5,
        what: ApplicationUpdateKind::Allocated(ContainerGrant {
            container: container(1),
            request: "set-main".parse().expect("an id"),
            node: "n1".parse().expect("an id"),
            resource: size(),
            attempt: 1,
            running: false,
        }),
    };
    let (number, _) = session.stream.open_at(StreamPosition {
        epoch: Epoch(1),
        cursor: 4,
    });
    let update = SessionInput::Update(number, Box::new(granted));
    take(&mut session, 15, update);
    let named = |effects: &[SessionEffect]| match effects {
        [.., SessionEffect::Call(ManagerCall::Register(body))] => {
            body.containers.contains(&container(1))
        }
        other => panic!("{other:?}"),
    };
    let effects = take(&mut session, 20, rejected(ErrorCode::HR0410));
    assert!(named(&effects));

    let unknown_field = || SessionInput::Registered(Err(refused(ErrorCode::HR0400)));
    take(&mut session, 30, unknown_field());
    assert!(!named(&wake(&mut session, 5_000)));
    let taken = session.take(Tick(5_010), unknown_field(), &mut Vec::new());
    assert!(matches!(taken, Err(SessionFailure::Refused(_))));
}

/// Errors of calls while no resource manager leads.
fn without_leader() -> [ClientError; 3] {
    let attempt = |address: &str, code| FailedAttempt {
        address: address.to_owned(),
        error: refused(code),
    };
    let all = ClientError::NoLeader {
        attempts: vec![
            attempt("http://rm1:7070", ErrorCode::HR0421),
            attempt("http://rm2:7070", ErrorCode::HR0503),
        ],
    };
    [refused(ErrorCode::HR0421), refused(ErrorCode::HR0503), all]
}

#[test]
fn a_master_waits_for_the_next_leader_and_registers_there() {
    for error in without_leader() {
        let mut session = syncing();
        let failed = UnacceptedReport { error, patch: None };
        let effects = take(&mut session, 20, SessionInput::Synced(Err(failed)));
        assert!(effects.is_empty(), "{effects:?}");
        assert!(!session.is_over());
        let calls = wake(&mut session, 5_000);
        assert!(
            matches!(
                calls.as_slice(),
                [SessionEffect::Call(ManagerCall::Sync(_))]
            ),
            "{calls:?}"
        );
        let effects = take(&mut session, 5_010, rejected(ErrorCode::HR0410));
        assert!(
            effects
                .iter()
                .any(|effect| matches!(effect, SessionEffect::Call(ManagerCall::Register(_)))),
            "{effects:?}"
        );
    }
}

#[test]
fn a_registration_and_the_end_of_a_job_wait_for_the_next_leader() {
    for error in without_leader() {
        let mut session = new_session();
        session.register(&mut Vec::new());
        // Later than the time after which a silent resource manager ends the run.
        let input = SessionInput::Registered(Err(error));
        assert!(take(&mut session, 60_000, input).is_empty());
        assert!(!session.is_over());
    }
    for error in without_leader() {
        let mut session = syncing();
        let synced = MasterSyncReply {
            verdicts: Vec::new(),
            stop: false,
        };
        take(&mut session, 20, SessionInput::Synced(Ok(synced)));
        let outcome = JobOutcome {
            ending: JobEndKind::Succeeded,
            diagnostics: String::new(),
        };
        session.finish(Tick(30), outcome);
        wake(&mut session, 30);
        let failed = UnacceptedReport { error, patch: None };
        take(&mut session, 40, SessionInput::Finished(Err(failed)));
        assert!(!session.is_over());
        let calls = wake(&mut session, 5_000);
        assert!(
            matches!(
                calls.as_slice(),
                [SessionEffect::Call(ManagerCall::Finish(_))]
            ),
            "{calls:?}"
        );
    }
}

#[test]
fn a_size_is_not_refused_by_a_standby() {
    for error in without_leader() {
        let mut session = new_session();
        session.resize(container(1), size(), &mut Vec::new());
        let effects = take(&mut session, 5, SessionInput::Resized(Err(error)));
        assert!(
            matches!(
                effects.as_slice(),
                [SessionEffect::Event(MasterEvent::ResizeRefused {
                    refusal: SizeRefusal::NoAnswer(_),
                    ..
                })]
            ),
            "{effects:?}"
        );
    }
}

#[test]
fn an_unknown_master_stops_its_job_and_is_over() {
    let mut session = syncing();
    let effects = take(&mut session, 20, rejected(ErrorCode::HR0404));
    assert!(
        matches!(
            effects.as_slice(),
            [
                SessionEffect::RestorePatch(_),
                SessionEffect::Event(MasterEvent::Stop)
            ]
        ),
        "{effects:?}"
    );
    assert!(session.is_over() && session.next_timer().is_none());
}

#[test]
fn a_replaced_master_is_over_and_leaves_its_executors() {
    let mut session = syncing();
    let effects = take(&mut session, 20, rejected(ErrorCode::HR0409));
    assert!(
        matches!(effects.as_slice(), [SessionEffect::RestorePatch(_)]),
        "no stop of the job: {effects:?}"
    );
    assert_eq!(session.end(), Some(SessionEnd::Replaced));
}

#[test]
fn the_end_is_reported_until_it_is_answered() {
    let mut session = syncing();
    take(
        &mut session,
        20,
        SessionInput::Synced(Ok(MasterSyncReply {
            verdicts: Vec::new(),
            stop: false,
        })),
    );
    let outcome = JobOutcome {
        ending: JobEndKind::Succeeded,
        diagnostics: String::new(),
    };
    session.finish(Tick(30), outcome);
    for now in [30, 80] {
        let calls = wake(&mut session, now);
        assert!(
            matches!(calls.as_slice(), [SessionEffect::Call(ManagerCall::Finish(body))] if body.succeeded),
            "{calls:?}"
        );
        let failed = UnacceptedReport {
            error: ClientError::NotSent,
            patch: None,
        };
        take(&mut session, now, SessionInput::Finished(Err(failed)));
        assert!(!session.is_over());
    }
    take(&mut session, 90, SessionInput::Finished(Ok(())));
    assert!(session.is_over());
}

#[test]
fn changed_rows_call_no_silent_resource_manager_before_the_retry() {
    let mut session = syncing();
    for now in [20, 70] {
        let failed = UnacceptedReport {
            error: ClientError::NotSent,
            patch: None,
        };
        take(&mut session, now, SessionInput::Synced(Err(failed)));
        session.sync_soon(Tick(now));
        let retry = session.next_timer().expect("a retry");
        assert!(retry >= Tick(now + 50), "{retry:?} after {now}");
        let calls = wake(&mut session, retry.0);
        assert_eq!(calls.len(), 1, "{calls:?}");
    }
}

#[test]
fn a_later_registration_names_the_nodes_of_the_containers() {
    let nodes = |effects: &[SessionEffect]| {
        let body = effects.iter().find_map(|effect| {
            if let SessionEffect::Call(ManagerCall::Register(body)) = effect {
                return Some(body.nodes.clone());
            }
            None
        });
        body.expect("a registration")
    };
    let mut first = Vec::new();
    new_session().register(&mut first);
    assert_eq!(nodes(&first), None, "an earlier run may have containers");
    let mut session = syncing();
    let effects = take(&mut session, 20, rejected(ErrorCode::HR0410));
    assert_eq!(nodes(&effects), Some(std::collections::BTreeSet::new()));
}

#[test]
fn sizes_are_requested_one_after_the_other() {
    let mut session = new_session();
    let mut out = Vec::new();
    session.resize(container(1), size(), &mut out);
    session.resize(container(2), size(), &mut out);
    assert!(
        matches!(out.as_slice(), [SessionEffect::Resize(first, _)] if *first == container(1)),
        "{out:?}"
    );
    let input = SessionInput::Resized(Err(refused(ErrorCode::HR0409)));
    let effects = take(&mut session, 5, input);
    assert!(
        matches!(
            effects.as_slice(),
            [
                SessionEffect::Event(MasterEvent::ResizeRefused { container: refused, refusal: SizeRefusal::Manager(_) }),
                SessionEffect::Resize(next, _),
            ] if *refused == container(1) && *next == container(2)
        ),
        "{effects:?}"
    );
}
