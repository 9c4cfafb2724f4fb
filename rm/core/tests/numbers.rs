//! Tests of application numbers that are reserved before the submission.

use std::time::Duration;

use headroom_rm_core::testkit::{ClusterScenario, id};
use headroom_rm_core::{AppSubmission, CallAnswer, CallRefusal, ClusterCall, MasterKind};
use headroom_types::AppId;

/// An application gets its reserved number at any later time and with every retry; no other
/// application gets it.
#[test]
fn a_reserved_number_is_for_one_application() {
    let mut s = ClusterScenario::new();
    let named = |name: &str| {
        let master = MasterKind::Unmanaged;
        let (name, queue, key) = (id(name), id("default"), Some(format!("key of {name}")));
        Box::new(AppSubmission {
            name,
            queue,
            priority: 0,
            user: "u".into(),
            lifetime: None,
            master,
            key,
        })
    };
    let Ok(CallAnswer::Reserved { number }) = s.call(ClusterCall::Reserve) else {
        panic!("no number is reserved")
    };
    let other = s.app("other");
    assert!(other.seq() > number, "other applications get later numbers");
    let first = s.call(ClusterCall::SubmitAs {
        number,
        app: named("late"),
    });
    assert_eq!(
        first,
        Ok(CallAnswer::Submitted {
            app: AppId::new(id("late"), number),
            attempt: 1
        })
    );
    assert_eq!(
        s.call(ClusterCall::SubmitAs {
            number,
            app: named("thief")
        }),
        Err(CallRefusal::NotReserved(number))
    );
    s.restart();
    s.after(Duration::from_secs(1));
    assert_eq!(
        s.call(ClusterCall::SubmitAs {
            number,
            app: named("late")
        }),
        first,
        "the key identifies the application"
    );
    assert_eq!(
        s.call(ClusterCall::SubmitAs {
            number: 99,
            app: named("guess")
        }),
        Err(CallRefusal::NotReserved(99))
    );
    assert!(s.app("next").seq() > other.seq());
    s.check();
}
