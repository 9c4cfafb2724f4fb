//! Filters of events and of the audit log: the query strings of `GET /v1/events` and `/v1/audit`.

use headroom_types::{AppId, NodeId};
use headroom_wire::v1::events::{EventLevel, EventTopic, Reason};

/// Filter of events; an event must match all given fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Application of the event.
    pub app: Option<AppId>,
    /// Topic of the event.
    pub topic: Option<EventTopic>,
    /// Level of the event.
    pub level: Option<EventLevel>,
    /// Reason of the event.
    pub reason: Option<Reason>,
    /// Prefix of the object's id.
    pub object: Option<String>,
    /// Node of the event.
    pub node: Option<NodeId>,
}

impl EventQuery {
    /// All events of one application, or of all applications.
    pub fn of(app: Option<AppId>) -> Self {
        EventQuery {
            app,
            ..EventQuery::default()
        }
    }

    /// The filter as query parameters, each with a leading `&`.
    pub(crate) fn query(&self) -> String {
        let level = self.level.map(|level| match level {
            EventLevel::Normal => "normal".to_owned(),
            EventLevel::Warning => "warning".to_owned(),
        });
        let words = [
            ("app", self.app.as_ref().map(ToString::to_string)),
            ("topic", self.topic.map(|t| t.as_str().to_owned())),
            ("type", level),
            ("reason", self.reason.map(|r| r.as_str().to_owned())),
            ("object", self.object.clone()),
            ("node", self.node.as_ref().map(ToString::to_string)),
        ];
        query(words)
    }
}

/// Filter of the audit log; an entry must match all given fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// The caller.
    pub who: Option<String>,
    /// Part of the verb.
    pub verb: Option<String>,
    /// Part of the object.
    pub object: Option<String>,
    /// `true` for refused calls, `false` for calls that succeeded.
    pub refused: Option<bool>,
}

impl AuditQuery {
    /// The filter as query parameters, each with a leading `&`.
    pub(crate) fn query(&self) -> String {
        let AuditQuery {
            who,
            verb,
            object,
            refused,
        } = self.clone();
        query([
            ("who", who),
            ("verb", verb),
            ("object", object),
            ("refused", refused.map(|r| r.to_string())),
        ])
    }
}

fn query(words: impl IntoIterator<Item = (&'static str, Option<String>)>) -> String {
    let mut text = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in words {
        if let Some(value) = value {
            text.append_pair(name, &value);
        }
    }
    let text = text.finish();
    if text.is_empty() {
        text
    } else {
        format!("&{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_is_in_the_query() {
        assert_eq!(EventQuery::default().query(), "");
        let wanted = EventQuery {
            app: "sort.1".parse().ok(),
            topic: Some(EventTopic::Task),
            level: Some(EventLevel::Warning),
            reason: Some(Reason::Escalated),
            object: Some("map/7&x".into()),
            node: "n1".parse().ok(),
        };
        let kills = AuditQuery {
            verb: Some("POST kill".into()),
            refused: Some(true),
            ..AuditQuery::default()
        };
        assert_eq!(kills.query(), "&verb=POST+kill&refused=true");
        assert_eq!(
            wanted.query(),
            "&app=sort.1&topic=task&type=warning&reason=Escalated&object=map%2F7%26x&node=n1"
        );
    }
}

/// The task rows that the resource manager returns with an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRowScope {
    /// All rows; megabytes for a large job.
    All,
    /// No rows, only the counts.
    None,
    /// The first 100 rows in the order failed, running, waiting, done; the higher rung first.
    First,
}

impl TaskRowScope {
    /// The path of an application with these rows.
    pub fn path(self, app: &headroom_types::AppId) -> String {
        match self {
            TaskRowScope::All => format!("/v1/apps/{app}"),
            TaskRowScope::None => format!("/v1/apps/{app}?tasks=none"),
            TaskRowScope::First => format!("/v1/apps/{app}?tasks=first"),
        }
    }
}
