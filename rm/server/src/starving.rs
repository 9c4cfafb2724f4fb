//! Starving requests: each is reported once for each wait.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_rm_core::app::ClusterApplication;
use headroom_rm_core::{Cluster, EventLogLine, LogMessage, LogObject, LogSeverity};
use headroom_types::{AppId, Reason, RequestId, Tick};

/// Wait after which a request starves.
const STARVING: Duration = Duration::from_secs(300);

/// Requests that were reported.
#[derive(Debug, Default)]
pub(crate) struct StarvingRequests {
    reported: BTreeSet<(AppId, RequestId)>,
}

impl StarvingRequests {
    /// Log lines for requests that started to starve.
    pub(crate) fn look(&mut self, cluster: &Cluster, now: Tick) -> Vec<EventLogLine> {
        let since = |app: &ClusterApplication, request: &RequestId| {
            app.requests.get(request).map(|r| now.since(r.waiting))
        };
        let waiting = cluster
            .waiting()
            .filter_map(|(app, id)| Some((app, id, since(app, id)?)));
        let (mut still, mut lines) = (BTreeSet::new(), Vec::new());
        for (app, request, waited) in waiting.filter(|(_, _, waited)| *waited >= STARVING) {
            let key = (app.id.clone(), request.clone());
            if !self.reported.contains(&key) {
                let why = cluster.sentence(app, request, now).unwrap_or_default();
                let message = format!("{request} has waited for {} s: {why}", waited.as_secs());
                let (object, words) = (LogObject::App(app.id.clone()), LogMessage::Text(message));
                lines.push(EventLogLine {
                    level: LogSeverity::Warning,
                    reason: Reason::RequestStarving,
                    object,
                    node: None,
                    words,
                });
            }
            still.insert(key);
        }
        self.reported = still;
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_rm_core::ClusterSettings;
    use headroom_rm_core::testkit::{ClusterScenario, size};
    use headroom_types::ExitReason;

    #[test]
    fn a_starving_request_is_reported_once_for_each_wait() {
        let patient = ClusterSettings {
            master_silence: Duration::from_secs(3600),
            ..ClusterSettings::default()
        };
        let (mut s, mut starving) = (ClusterScenario::with(patient), StarvingRequests::default());
        s.node("n1", size(4, 4));
        let (greedy, other) = (s.app("greedy"), s.app("other"));
        s.ask(&greedy, "all", 1, size(4, 4)).expect("asks");
        s.ask_waits(&other, "work", 1, size(2, 1));
        s.settle().alive_for(Duration::from_secs(299));
        assert_eq!(starving.look(&s.cluster, s.now), []);
        s.alive_for(Duration::from_secs(2));
        let lines = starving.look(&s.cluster, s.now);
        assert_eq!(
            (lines.len(), lines[0].reason, lines[0].level, lines[0].app()),
            (
                1,
                Reason::RequestStarving,
                LogSeverity::Warning,
                Some(&other)
            )
        );
        let message = lines[0].message();
        assert!(
            message.starts_with("work has waited for 301 s: ") && message.len() > 40,
            "{message}"
        );
        s.alive_for(Duration::from_secs(400));
        assert_eq!(
            starving.look(&s.cluster, s.now),
            [],
            "the request is already reported"
        );
        let all = s.alive(&greedy)[0].clone();
        s.exit(&all, ExitReason::Exit { code: 0 }).settle();
        assert_eq!(
            (starving.look(&s.cluster, s.now), s.alive(&other).len()),
            (vec![], 1)
        );
        s.check();
    }
}
