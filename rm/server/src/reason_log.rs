//! Log lines about events, whose tracing event is named after the reason. The systemd journal gives
//! a `MESSAGE_ID` to lines by this name.

/// Logs a line about an event of `$reason` in the caller's module. Reasons without a `MESSAGE_ID`
/// need no name.
macro_rules! log_reason {
    ($level:ident, $reason:expr, $($line:tt)+) => {{
        let given: headroom_types::Reason = $reason;
        if given == headroom_types::Reason::ResourceManagerStarted {
            tracing::$level!(name: "ResourceManagerStarted", $($line)+)
        } else if given == headroom_types::Reason::OomKilled {
            tracing::$level!(name: "OomKilled", $($line)+)
        } else if given == headroom_types::Reason::NodeOom {
            tracing::$level!(name: "NodeOom", $($line)+)
        } else if given == headroom_types::Reason::NodeLost {
            tracing::$level!(name: "NodeLost", $($line)+)
        } else if given == headroom_types::Reason::ConfigReloaded {
            tracing::$level!(name: "ConfigReloaded", $($line)+)
        } else if given == headroom_types::Reason::ConfigRefused {
            tracing::$level!(name: "ConfigRefused", $($line)+)
        } else {
            tracing::$level!($($line)+)
        }
    }};
}

pub(crate) use log_reason;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use headroom_types::Reason;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Collects the names of events.
    #[derive(Clone, Default)]
    struct EventNames(Arc<Mutex<Vec<&'static str>>>);

    impl Subscriber for EventNames {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.lock().expect("lock").push(event.metadata().name());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn every_reason_with_a_message_id_names_its_event() {
        let known = headroom_telemetry::journal::MESSAGES;
        let names = EventNames::default();
        let mut wanted = Vec::new();
        tracing::subscriber::with_default(names.clone(), || {
            for &reason in Reason::ALL {
                if known.iter().any(|message| message.key == reason.as_str()) {
                    wanted.push(reason.as_str());
                    log_reason!(info, reason, object = "node/n1", "{reason}: words");
                }
            }
        });
        assert_eq!(wanted.len(), 6);
        assert_eq!(*names.0.lock().expect("lock"), wanted);
    }
}
