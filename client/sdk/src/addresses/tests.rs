use proptest::prelude::*;

use super::*;

fn list(text: &str) -> ManagerAddresses {
    ManagerAddresses::parse(text).expect("a list")
}

fn choice(text: &str) -> AddressChoice {
    AddressChoice::new(list(text), UnlistedLeaderPolicy::Follow)
}

fn standby(leader: &str) -> SendOutcome {
    SendOutcome::Standby {
        leader: Some(leader.to_owned()),
    }
}

const WITHOUT_LEADER: SendOutcome = SendOutcome::Standby { leader: None };

/// The addresses to which a call is sent whose outcomes are `outcomes`, and its last step.
fn send(
    choice: &mut AddressChoice,
    repetition: Repetition,
    outcomes: impl IntoIterator<Item = SendOutcome>,
) -> (Vec<String>, CallStep) {
    let mut route = choice.begin(repetition);
    let mut sent = Vec::new();
    for outcome in outcomes {
        sent.push(route.target().to_string());
        match choice.record(&mut route, outcome) {
            CallStep::SendAgain => {}
            step @ (CallStep::Done | CallStep::Fail | CallStep::Exhausted) => return (sent, step),
        }
    }
    panic!("the call goes on after {sent:?}");
}

#[test]
fn an_address_is_checked_and_its_mistake_is_named() {
    assert_eq!(
        list("http://a:1 , http://b:1/").to_string(),
        "http://a:1,http://b:1"
    );
    assert_eq!(list("unix:/run/rm.sock").count(), 1);
    let table = [
        ("lab:7070", "\"lab:7070\" is not an address"),
        ("http://a:1,lab:7070", "\"lab:7070\" is not an address"),
        ("http://a:1,http://", "\"http:\" is not an address"),
        ("unix:relative", "\"unix:relative\" is not an address"),
        ("ftp://a", "\"ftp://a\" is not an address"),
        ("", "\"\" is not an address"),
        ("http://a:1,,http://b:1", "no address at position 2"),
        ("http://a:80,http://A", "http://A is in the list twice"),
        ("http://a:1,https://b:1", "are in one list"),
        (
            "unix:/a,unix:/b",
            "unix:/a is in a list with other addresses",
        ),
    ];
    for (text, wanted) in table {
        let error = ManagerAddresses::parse(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn a_call_goes_on_at_the_next_address_and_later_calls_begin_there() {
    let mut choice = choice("http://a:1,http://b:1,http://c:1");
    let (sent, step) = send(
        &mut choice,
        Repetition::Forbidden,
        [
            SendOutcome::NotConnected,
            WITHOUT_LEADER,
            SendOutcome::Answered,
        ],
    );
    assert_eq!(step, CallStep::Done);
    assert_eq!(sent, ["http://a:1", "http://b:1", "http://c:1"]);
    assert_eq!(choice.current().as_str(), "http://c:1");
    let (sent, _) = send(
        &mut choice,
        Repetition::Forbidden,
        [SendOutcome::NotConnected, SendOutcome::Answered],
    );
    assert_eq!(sent, ["http://c:1", "http://a:1"], "the list is a circle");
}

#[test]
fn a_call_follows_to_the_leader_and_a_circle_ends() {
    let mut choice = choice("http://a:1,http://b:1,http://c:1");
    let (sent, _) = send(
        &mut choice,
        Repetition::Forbidden,
        [standby("http://C:1/"), SendOutcome::Answered],
    );
    assert_eq!(sent, ["http://a:1", "http://c:1"]);
    let circle = [
        standby("http://a:1"),
        standby("http://c:1"),
        standby("http://b:1"),
    ];
    let (sent, step) = send(&mut choice, Repetition::Forbidden, circle);
    assert_eq!(step, CallStep::Exhausted);
    assert_eq!(sent, ["http://c:1", "http://a:1", "http://b:1"]);
}

#[test]
fn a_standby_that_names_itself_is_left() {
    let mut choice = choice("http://a:1,http://b:1");
    let outcomes = [standby("http://a:1"), SendOutcome::Answered];
    let (sent, _) = send(&mut choice, Repetition::Forbidden, outcomes);
    assert_eq!(sent, ["http://a:1", "http://b:1"]);
}

/// True if a call to `addresses` follows a standby to `leader`.
fn follows(addresses: &str, policy: UnlistedLeaderPolicy, leader: &str) -> bool {
    let mut choice = AddressChoice::new(list(addresses), policy);
    let mut route = choice.begin(Repetition::Forbidden);
    let step = choice.record(&mut route, standby(leader));
    assert_eq!(
        step == CallStep::SendAgain,
        route.target().as_str() == leader
    );
    step == CallStep::SendAgain
}

#[test]
fn an_unlisted_leader_is_followed_within_the_policy() {
    let any = |leader| follows("http://a:1", UnlistedLeaderPolicy::Follow, leader);
    assert!(any("http://x:1"));
    for strange in [
        "https://x:1",
        "http://u@x:1",
        "http://x:1/path",
        "unix:/run/x",
        "nonsense",
    ] {
        assert!(!any(strange), "{strange}");
    }
    assert!(!follows(
        "http://a:1",
        UnlistedLeaderPolicy::Ignore,
        "http://x:1"
    ));
    let policy = UnlistedLeaderPolicy::Follow;
    assert!(!follows("https://a:1", policy, "http://x:1"));
    assert!(!follows("unix:/run/s", policy, "http://x:1"));
    let policy = UnlistedLeaderPolicy::FollowUnheard;
    assert!(!follows("http://localhost:1", policy, "http://10.0.0.7:1"));
    assert!(follows("http://localhost:1", policy, "http://127.0.0.1:2"));
    assert!(follows("https://a:1", policy, "https://10.0.0.7:1"));
}

#[test]
fn calls_leave_an_unlisted_leader_that_is_gone() {
    let mut choice = choice("http://a:1,http://b:1");
    let outcomes = [standby("http://x:1"), SendOutcome::Answered];
    send(&mut choice, Repetition::Forbidden, outcomes);
    assert_eq!(choice.current().as_str(), "http://x:1");
    let outcomes = [
        SendOutcome::NotConnected,
        WITHOUT_LEADER,
        SendOutcome::Answered,
    ];
    let (sent, _) = send(&mut choice, Repetition::Forbidden, outcomes);
    assert_eq!(sent, ["http://x:1", "http://a:1", "http://b:1"]);
}

#[test]
fn only_a_call_that_changes_nothing_is_sent_again_after_an_interruption() {
    let mut choice = choice("http://a:1,http://b:1");
    let (sent, step) = send(
        &mut choice,
        Repetition::Forbidden,
        [SendOutcome::Interrupted],
    );
    assert_eq!(
        (sent, step),
        (vec!["http://a:1".to_owned()], CallStep::Fail)
    );
    let outcomes = [SendOutcome::Interrupted, SendOutcome::Answered];
    let (sent, step) = send(&mut choice, Repetition::Allowed, outcomes);
    assert_eq!(step, CallStep::Done);
    assert_eq!(
        sent,
        ["http://b:1", "http://a:1"],
        "the next call begins elsewhere"
    );
}

#[test]
fn a_late_answer_or_failure_at_a_former_address_moves_nothing() {
    let mut choice = choice("http://a:1,http://b:1,http://c:1");
    let (mut answered, mut failed) = (
        choice.begin(Repetition::Forbidden),
        choice.begin(Repetition::Allowed),
    );
    let outcomes = [standby("http://c:1"), SendOutcome::Answered];
    send(&mut choice, Repetition::Forbidden, outcomes);
    choice.record(&mut answered, SendOutcome::Answered);
    assert_eq!(choice.current().as_str(), "http://c:1");
    choice.record(&mut failed, SendOutcome::Interrupted);
    assert_eq!(choice.current().as_str(), "http://c:1");
    assert_eq!(
        failed.target().as_str(),
        "http://c:1",
        "it goes where others were answered"
    );
}

#[test]
fn a_call_without_answer_goes_to_the_leader_that_replaced_its_target() {
    let leader = list("http://c:1").first().clone();
    let replaced = SendOutcome::Replaced {
        leader: leader.clone(),
    };
    let mut choice = choice("http://a:1,http://b:1,http://c:1");
    let outcomes = [replaced.clone(), SendOutcome::Answered];
    let (sent, step) = send(&mut choice, Repetition::Allowed, outcomes);
    assert_eq!(
        (sent, step),
        (
            vec!["http://a:1".to_owned(), "http://c:1".into()],
            CallStep::Done
        )
    );
    choice.leave(&leader);
    let (sent, step) = send(&mut choice, Repetition::Forbidden, [replaced]);
    assert_eq!(
        (sent, step),
        (vec!["http://a:1".to_owned()], CallStep::Fail)
    );
    assert_eq!(*choice.current(), leader, "later calls begin there");
}

#[test]
fn a_leader_replaces_an_address_if_it_is_another_manager() {
    let choice = choice("http://a:1,http://b:1");
    let target = choice.current().clone();
    let replacement = |named: &str, before: Option<&str>| {
        let leader = choice.replacement(&target, named, before);
        leader.map(|leader| leader.to_string())
    };
    assert_eq!(replacement("http://a:1/", None), None);
    assert_eq!(replacement("http://b:1", None), Some("http://b:1".into()));
    // Another name of the target, until it changes.
    assert_eq!(replacement("http://rm1:1", None), None);
    assert_eq!(replacement("http://rm1:1", Some("http://rm1:1")), None);
    assert_eq!(
        replacement("http://rm2:1", Some("http://rm1:1")),
        Some("http://rm2:1".into())
    );
    assert_eq!(replacement("https://b:1", None), None, "another scheme");
}

fn outcome() -> impl Strategy<Value = SendOutcome> {
    let leader = prop_oneof![
        Just(None),
        "[a-f]".prop_map(|host| Some(format!("http://{host}:1"))),
        Just(Some("nonsense".to_owned())),
    ];
    prop_oneof![
        1 => Just(SendOutcome::Answered),
        3 => Just(SendOutcome::NotConnected),
        2 => Just(SendOutcome::Interrupted),
        1 => "[a-f]".prop_map(|host| SendOutcome::Replaced {
            leader: list(&format!("http://{host}:1")).first().clone(),
        }),
        3 => leader.prop_map(|leader| SendOutcome::Standby { leader }),
    ]
}

proptest! {
    /// Safety: a call is sent to no address twice and to at most N + 1; a call that changes
    /// something is not sent again after it may have been executed. Liveness: a call that is
    /// refused everywhere without a named leader reaches every address of the list.
    #[test]
    fn a_call_is_bounded_and_a_change_is_sent_once(
        count in 1usize..5,
        calls in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(outcome(), 8)),
            1..6,
        ),
    ) {
        let addresses: Vec<String> =
            ["a", "b", "c", "d"].iter().take(count).map(|h| format!("http://{h}:1")).collect();
        let mut choice = choice(&addresses.join(","));
        for (is_repeatable, outcomes) in calls {
            let repetition =
                if is_repeatable { Repetition::Allowed } else { Repetition::Forbidden };
            let mut route = choice.begin(repetition);
            let (mut sent, mut interrupted) = (Vec::new(), false);
            let mut last = None;
            for outcome in outcomes {
                prop_assert!(is_repeatable || !interrupted, "sent after an interruption");
                let target = route.target().to_string();
                prop_assert!(!sent.contains(&target), "{target} twice: {sent:?}");
                sent.push(target);
                interrupted |=
                    matches!(outcome, SendOutcome::Interrupted | SendOutcome::Replaced { .. });
                let step = choice.record(&mut route, outcome);
                last = Some(step);
                if step != CallStep::SendAgain {
                    break;
                }
            }
            prop_assert!(sent.len() <= count + 1, "{sent:?}");
            prop_assert_ne!(last, Some(CallStep::SendAgain), "the call never ends: {:?}", sent);
            if last == Some(CallStep::Exhausted) && sent.len() <= count {
                prop_assert!(addresses.iter().all(|a| sent.contains(a)), "{sent:?}");
            }
        }
    }
}
