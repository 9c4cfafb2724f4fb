use super::*;

const HOUR_MS: u64 = 3_600_000;
const OOM: &str = Reason::OomKilled.as_str();

fn event(app: Option<&str>, reason: &str) -> LoggedEvent {
    LoggedEvent {
        index: 0,
        time: UnixMillis(1000),
        level: EventLevel::Normal,
        reason: reason.into(),
        object: "o".into(),
        app: app.map(|a| a.parse().expect("id")),
        node: None,
        message: String::new(),
    }
}
fn place(cursor: u64) -> EventPosition {
    EventPosition {
        cursor,
        ..EventPosition::default()
    }
}
fn indexes(log: &EventLog, place: &mut EventPosition) -> Vec<u64> {
    log.read(place)
        .expect("kept")
        .iter()
        .map(|e| e.index)
        .collect()
}
const BASE: u64 = 3 << 32;

#[test]
fn reading_continues_from_a_cursor() {
    let log = EventLog::new(Epoch(3));
    log.push((0..3).map(|_| event(None, "x")));
    let mut at = place(0);
    assert_eq!(indexes(&log, &mut at), [BASE + 1, BASE + 2, BASE + 3]);
    assert!(indexes(&log, &mut at).is_empty());
    log.push([event(None, "x")]);
    assert_eq!(indexes(&log, &mut at), [BASE + 4]);
    assert_eq!(indexes(&log, &mut place(BASE + 3)), [BASE + 4]);
    assert!(
        indexes(&log, &mut place(u64::MAX)).is_empty(),
        "a cursor in the future returns no events yet"
    );
}

#[test]
fn a_cursor_of_an_earlier_incarnation_returns_all_new_events() {
    let log = EventLog::new(Epoch(3));
    log.push([event(None, "x")]);
    assert_eq!(indexes(&log, &mut place((2 << 32) + 77)), [BASE + 1]);
}

#[test]
fn a_cursor_before_the_oldest_kept_event_is_refused() {
    let log = EventLog::new(Epoch(3));
    log.push((0..MOST + 10).map(|_| event(None, "x")));
    assert_eq!(
        log.read(&mut place(BASE + 5)),
        Err(EventPositionExpired { oldest: BASE + 11 })
    );
    assert_eq!(
        log.read(&mut place((2 << 32) + 7)),
        Err(EventPositionExpired { oldest: BASE + 11 })
    );
    assert_eq!(indexes(&log, &mut place(BASE + 10))[0], BASE + 11);
    assert_eq!(
        indexes(&log, &mut place(0))[0],
        BASE + 11,
        "cursor 0 returns all kept events"
    );
}

#[test]
fn a_filter_selects_the_events_of_an_application() {
    let log = EventLog::new(Epoch(3));
    log.push([
        event(Some("a.1"), "x"),
        event(Some("b.2"), "x"),
        event(None, "x"),
        event(Some("a.1"), "x"),
    ]);
    let filter = EventFilter {
        app: Some("a.1".parse().expect("id")),
        ..EventFilter::default()
    };
    let mut at = EventPosition { cursor: 0, filter };
    assert_eq!(indexes(&log, &mut at), [BASE + 1, BASE + 4]);
}

#[test]
fn memory_kills_are_counted_for_an_hour() {
    let log = EventLog::new(Epoch(3));
    log.push([event(None, OOM), event(None, "x"), event(None, OOM)]);
    assert_eq!(log.memory_hour(UnixMillis(1000 + HOUR_MS)).kills, 2);
    assert_eq!(log.memory_hour(UnixMillis(1001 + HOUR_MS)).kills, 0);
}

#[test]
fn each_filter_selects_the_matching_events() {
    let log = EventLog::new(Epoch(3));
    let mut warning = event(Some("a.1"), "OomKilled");
    (warning.level, warning.time, warning.object) =
        (EventLevel::Warning, UnixMillis(9000), "map/7@1".into());
    let mut node = event(None, "NodeReady");
    node.node = Some("n1".parse().expect("id"));
    log.push([
        event(Some("a.1"), "TaskGrown"),
        warning,
        node,
        event(None, "WordOfLater"),
    ]);
    let seen = |filter: EventFilter| {
        indexes(&log, &mut EventPosition { cursor: 0, filter })
            .into_iter()
            .map(|n| n - BASE)
            .collect::<Vec<_>>()
    };
    let all = EventFilter::default;
    assert_eq!(seen(all()), [1, 2, 3, 4]);
    assert_eq!(
        seen(EventFilter {
            level: Some(EventLevel::Warning),
            ..all()
        }),
        [2]
    );
    assert_eq!(
        seen(EventFilter {
            topic: Some(EventTopic::Task),
            ..all()
        }),
        [1]
    );
    assert_eq!(
        seen(EventFilter {
            topic: Some(EventTopic::Node),
            ..all()
        }),
        [3]
    );
    assert_eq!(
        seen(EventFilter {
            reason: Some(Reason::OomKilled),
            ..all()
        }),
        [2]
    );
    assert_eq!(
        seen(EventFilter {
            object: Some("map/7".into()),
            ..all()
        }),
        [2]
    );
    assert_eq!(
        seen(EventFilter {
            node: Some("n1".parse().expect("id")),
            ..all()
        }),
        [3]
    );
    assert_eq!(
        seen(EventFilter {
            since: Some(UnixMillis(9000)),
            ..all()
        }),
        [2]
    );
}

fn on_disk(dir: &tempfile::TempDir, epoch: u32) -> EventLog {
    opened(epoch, dir, RetentionLimits::default())
}

fn opened(epoch: u32, dir: &tempfile::TempDir, kept: RetentionLimits) -> EventLog {
    let log = EventLog::open(Epoch(epoch), dir.path(), kept);
    log.restore(dir.path());
    log
}

#[test]
fn events_of_an_earlier_incarnation_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = on_disk(&dir, 1);
    first.push([event(None, "one"), event(None, OOM)]);
    first.close();
    let second = on_disk(&dir, 2);
    second.push([event(None, "three")]);
    let base = (1 << 32, 2 << 32);
    assert_eq!(
        indexes(&second, &mut place(0)),
        [base.0 + 1, base.0 + 2, base.1 + 1]
    );
    assert_eq!(
        indexes(&second, &mut place(base.0 + 1)),
        [base.0 + 2, base.1 + 1],
        "an earlier cursor continues"
    );
    assert_eq!(second.memory_hour(UnixMillis(2000)).kills, 1);
    assert!(
        !second.counts().contains_key(OOM),
        "events of an earlier incarnation are not counted again"
    );
    second.close();
    let third = on_disk(&dir, 3);
    assert_eq!(indexes(&third, &mut place(base.1)), [base.1 + 1]);
    third.close();
}

#[test]
fn events_that_precede_the_restored_ones_in_time_follow_them_in_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = on_disk(&dir, 1);
    first.push([event(None, "one"), event(None, OOM)]);
    first.close();
    let second = EventLog::open(Epoch(2), dir.path(), RetentionLimits::default());
    second.push([event(None, "three"), event(None, OOM)]);
    assert!(!*second.restored.borrow());
    second.restore(dir.path());
    assert!(*second.restored.borrow());
    let base = (1 << 32, 2 << 32);
    assert_eq!(
        indexes(&second, &mut place(0)),
        [base.0 + 1, base.0 + 2, base.1 + 1, base.1 + 2]
    );
    assert_eq!(second.memory_hour(UnixMillis(2000)).kills, 2);
    second.close();
}

#[test]
fn events_of_the_version_before_have_their_present_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = on_disk(&dir, 1);
    first.push([event(None, "NodeSilent"), event(None, OOM)]);
    first.close();
    let second = on_disk(&dir, 2);
    let read = second.read(&mut place(0)).expect("kept");
    let reasons: Vec<&str> = read.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, [Reason::NodeSuspect.as_str(), OOM]);
    second.close();
}

#[test]
fn a_cursor_before_the_events_on_disk_is_refused_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = RetentionLimits {
        segment: headroom_types::Bytes::from_kib(64),
        segments: 2,
    };
    let first = opened(1, &dir, kept);
    for _ in 0..20 {
        first.push((0..200).map(|_| event(None, "x")));
    }
    first.close();
    assert_eq!(first.unwritten(), 0);
    let second = opened(2, &dir, kept);
    let oldest = indexes(&second, &mut place(0))[0];
    assert!(oldest > (1 << 32) + 1, "bounded");
    assert_eq!(
        second.read(&mut place((1 << 32) + 1)),
        Err(EventPositionExpired { oldest })
    );
    assert_eq!(indexes(&second, &mut place(oldest - 1))[0], oldest);
    second.close();
}
