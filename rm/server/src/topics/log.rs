//! Topic `events`: the latest part of the event log, then new events.

use std::sync::Arc;

use headroom_wire::v1::events::{EventLevel, LoggedEvent};

use super::TopicMessage;
use crate::eventlog::{self, EventLog, EventPosition};

/// Maximum number of events in one message.
const FIRST: usize = 300;
/// Number of latest events that are searched for warnings.
const RECENT: u64 = 500;

/// Selection of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventTopicFilter {
    /// Filter of the event log.
    pub(crate) log: eventlog::EventFilter,
    /// Text that the events contain, in lower case.
    pub(crate) find: Option<String>,
}

impl EventTopicFilter {
    fn passes(&self, event: &LoggedEvent) -> bool {
        let has = |find: &String| {
            let names = [
                event.app.as_ref().map(ToString::to_string),
                event.node.as_ref().map(ToString::to_string),
            ];
            let texts = [
                event.reason.as_str(),
                event.object.as_str(),
                event.message.as_str(),
            ];
            texts
                .into_iter()
                .chain(names.iter().flatten().map(String::as_str))
                .any(|t| t.to_lowercase().contains(find))
        };
        self.find.as_ref().is_none_or(has)
    }
    fn place(&self, cursor: u64) -> EventPosition {
        EventPosition {
            cursor,
            filter: self.log.clone(),
        }
    }
    fn is_open(&self) -> bool {
        self.find.is_none() && self.log == eventlog::EventFilter::default()
    }
}

/// A reader of the topic.
#[derive(Debug)]
pub(crate) struct EventTopicReader {
    filter: EventTopicFilter,
    /// Position after the events that were sent; `None` before the first read.
    place: Option<EventPosition>,
}

impl EventTopicReader {
    /// Creates a reader that has all events up to number `seen`.
    pub(crate) fn new(filter: EventTopicFilter, seen: Option<u64>) -> EventTopicReader {
        let place = seen.map(|cursor| filter.place(cursor));
        EventTopicReader { filter, place }
    }

    /// Messages that are due now.
    pub(crate) fn look(&mut self, log: &EventLog) -> Vec<TopicMessage> {
        let topic = || "events".to_owned();
        let mut messages = Vec::new();
        let (mut place, mut first) = match self.place.take() {
            Some(place) => (place, false),
            None => (self.beginning(log), true),
        };
        let mut rows: Vec<Arc<LoggedEvent>> = Vec::new();
        let mut dropped = false;
        loop {
            match log.read(&mut place) {
                Ok(piece) if piece.is_empty() => break,
                Ok(piece) => rows.extend(piece.into_iter().filter(|e| self.filter.passes(e))),
                Err(old) => {
                    messages.push(TopicMessage::Resync {
                        topic: topic(),
                        oldest: old.oldest,
                    });
                    (place, first) = (self.beginning(log), true);
                    rows.clear();
                    dropped = false;
                }
            }
            if rows.len() > FIRST * 2 {
                dropped = true;
                rows.drain(..rows.len() - FIRST);
            }
        }
        let excess = rows.len().saturating_sub(FIRST);
        rows.drain(..excess);
        // A reader that falls behind learns that its list has a gap.
        if let Some(oldest) = rows.first().filter(|_| !first && (dropped || excess > 0)) {
            messages.push(TopicMessage::Resync {
                topic: topic(),
                oldest: oldest.index,
            });
            first = true;
        }
        if first || !rows.is_empty() {
            messages.push(TopicMessage::Events {
                topic: topic(),
                first,
                rows: rows.iter().map(|e| (**e).clone()).collect(),
            });
        }
        self.place = Some(place);
        messages
    }

    /// Start position. With a filter it is the oldest kept event, because few events may match.
    fn beginning(&self, log: &EventLog) -> EventPosition {
        let last = *log.watch().borrow();
        let back = u64::try_from(FIRST).unwrap_or(0);
        self.filter.place(if self.filter.is_open() {
            last.saturating_sub(back)
        } else {
            0
        })
    }
}

/// Latest warnings, oldest first.
pub(crate) fn latest_warnings(log: &EventLog, most: usize) -> Vec<Arc<LoggedEvent>> {
    let last = *log.watch().borrow();
    let warnings = eventlog::EventFilter {
        level: Some(EventLevel::Warning),
        ..eventlog::EventFilter::default()
    };
    let (mut place, mut found) = (
        EventPosition {
            cursor: last.saturating_sub(RECENT),
            filter: warnings,
        },
        Vec::new(),
    );
    while let Ok(piece) = log.read(&mut place) {
        if piece.is_empty() {
            break;
        }
        found.extend(piece);
    }
    found.drain(..found.len().saturating_sub(most));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Epoch, UnixMillis};

    fn event(reason: &str, level: EventLevel) -> LoggedEvent {
        let (object, message) = ("map/7@1".to_owned(), "limit reached".to_owned());
        LoggedEvent {
            index: 0,
            time: UnixMillis(1),
            level,
            reason: reason.into(),
            object,
            app: None,
            node: None,
            message,
        }
    }
    fn words(messages: &[TopicMessage]) -> Vec<String> {
        let row = |t: &TopicMessage| match t {
            TopicMessage::Events { first, rows, .. } => format!("{first}:{}", rows.len()),
            TopicMessage::Resync { .. }
            | TopicMessage::Snapshot { .. }
            | TopicMessage::Patch { .. }
            | TopicMessage::Missing { .. }
            | TopicMessage::Refused { .. } => t.word().to_owned(),
        };
        messages.iter().map(row).collect()
    }

    #[test]
    fn the_latest_events_come_first_and_then_new_events() {
        let log = EventLog::new(Epoch(2));
        log.push((0..400).map(|_| event("x", EventLevel::Normal)));
        let mut reading = EventTopicReader::new(EventTopicFilter::default(), None);
        assert_eq!(words(&reading.look(&log)), ["true:300"]);
        assert!(reading.look(&log).is_empty());
        log.push([event("OomKilled", EventLevel::Warning)]);
        assert_eq!(words(&reading.look(&log)), ["false:1"]);
    }

    #[test]
    fn a_reader_that_falls_behind_receives_a_resync() {
        for pushed in [301, 601, 5_000] {
            let log = EventLog::new(Epoch(2));
            log.push([event("x", EventLevel::Normal)]);
            let mut reading = EventTopicReader::new(EventTopicFilter::default(), None);
            assert_eq!(words(&reading.look(&log)), ["true:1"]);
            log.push((0..300).map(|_| event("x", EventLevel::Normal)));
            assert_eq!(words(&reading.look(&log)), ["false:300"]);
            log.push((0..pushed).map(|_| event("x", EventLevel::Normal)));
            let messages = reading.look(&log);
            assert_eq!(words(&messages), ["resync", "true:300"], "{pushed}");
            let TopicMessage::Resync { oldest, .. } = &messages[0] else {
                panic!("{messages:?}")
            };
            assert_eq!(*oldest, *log.watch().borrow() - 299);
        }
    }

    #[test]
    fn a_filter_searches_all_kept_events() {
        let log = EventLog::new(Epoch(2));
        log.push([event("OomKilled", EventLevel::Warning)]);
        log.push((0..1000).map(|_| event("x", EventLevel::Normal)));
        let level = Some(EventLevel::Warning);
        let warnings = EventTopicFilter {
            log: eventlog::EventFilter {
                level,
                ..eventlog::EventFilter::default()
            },
            find: None,
        };
        assert_eq!(
            words(&EventTopicReader::new(warnings, None).look(&log)),
            ["true:1"]
        );
        let named = EventTopicFilter {
            find: Some("oomk".into()),
            ..EventTopicFilter::default()
        };
        assert_eq!(
            words(&EventTopicReader::new(named, None).look(&log)),
            ["true:1"]
        );
    }

    #[test]
    fn an_application_filter_does_not_match_longer_ids() {
        let log = EventLog::new(Epoch(2));
        let of = |app: &str| LoggedEvent {
            app: app.parse().ok(),
            ..event("Escalated", EventLevel::Warning)
        };
        log.push([
            of("sort.1"),
            of("sort.10"),
            event("NodeLost", EventLevel::Warning),
        ]);
        let app = "sort.1".parse().ok();
        let own = EventTopicFilter {
            log: eventlog::EventFilter {
                app,
                ..eventlog::EventFilter::default()
            },
            find: None,
        };
        let mut reading = EventTopicReader::new(own, None);
        assert_eq!(words(&reading.look(&log)), ["true:1"]);
        log.push([of("sort.10")]);
        assert!(
            reading.look(&log).is_empty(),
            "later events are filtered too"
        );
        log.push([of("sort.1")]);
        assert_eq!(words(&reading.look(&log)), ["false:1"]);
    }

    #[test]
    fn the_latest_warnings_exclude_other_levels() {
        let log = EventLog::new(Epoch(2));
        log.push([
            event("a", EventLevel::Warning),
            event("b", EventLevel::Normal),
            event("c", EventLevel::Warning),
        ]);
        let found = |most| {
            latest_warnings(&log, most)
                .iter()
                .map(|e| e.reason.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (found(8), found(1)),
            (vec!["a".to_owned(), "c".to_owned()], vec!["c".to_owned()])
        );
    }

    #[test]
    fn a_returning_reader_continues_or_receives_a_resync() {
        let log = EventLog::new(Epoch(2));
        log.push((0..10).map(|_| event("x", EventLevel::Normal)));
        let seen = *log.watch().borrow() - 3;
        assert_eq!(
            words(&EventTopicReader::new(EventTopicFilter::default(), Some(seen)).look(&log)),
            ["false:3"]
        );
        log.push((0..100_500).map(|_| event("x", EventLevel::Normal)));
        assert_eq!(
            words(&EventTopicReader::new(EventTopicFilter::default(), Some(seen)).look(&log)),
            ["resync", "true:300"]
        );
    }
}
