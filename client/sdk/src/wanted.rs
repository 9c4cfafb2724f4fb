//! Which events, or which calls of the audit log, somebody wants to see. Pure: makes the queries of `GET /v1/events` and `/v1/audit`.

use headroom_types::{AppId, NodeId};
use headroom_wire::v1::events::{EventLevel, Reason, Topic};

/// Which events; all of what is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsWanted {
    /// Of this application.
    pub app: Option<AppId>,
    /// About this.
    pub topic: Option<Topic>,
    /// Of this level.
    pub level: Option<EventLevel>,
    /// With this word.
    pub reason: Option<Reason>,
    /// About something whose id begins so.
    pub object: Option<String>,
    /// On this node.
    pub node: Option<NodeId>,
}

impl EventsWanted {
    /// All of one application, or all.
    pub fn of(app: Option<AppId>) -> Self {
        EventsWanted { app, ..EventsWanted::default() }
    }

    /// The part of an address that says so, with `&` before each word.
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

/// Which calls; all of what is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditWanted {
    /// Of this caller.
    pub who: Option<String>,
    /// Whose verb has this in it.
    pub verb: Option<String>,
    /// Whose object has this in it.
    pub object: Option<String>,
    /// Those that were refused, or with false those that were done.
    pub refused: Option<bool>,
}

impl AuditWanted {
    /// The part of an address that says so, with `&` before each word.
    pub(crate) fn query(&self) -> String {
        let AuditWanted { who, verb, object, refused } = self.clone();
        query([("who", who), ("verb", verb), ("object", object), ("refused", refused.map(|r| r.to_string()))])
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
    if text.is_empty() { text } else { format!("&{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_goes_into_the_address() {
        assert_eq!(EventsWanted::default().query(), "");
        let wanted = EventsWanted {
            app: "sort.1".parse().ok(),
            topic: Some(Topic::Task),
            level: Some(EventLevel::Warning),
            reason: Some(Reason::Escalated),
            object: Some("map/7&x".into()),
            node: "n1".parse().ok(),
        };
        let kills = AuditWanted { verb: Some("POST kill".into()), refused: Some(true), ..AuditWanted::default() };
        assert_eq!(kills.query(), "&verb=POST+kill&refused=true");
        assert_eq!(wanted.query(), "&app=sort.1&topic=task&type=warning&reason=Escalated&object=map%2F7%26x&node=n1");
    }
}

/// Which rows of its tasks an application is read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRows {
    /// All: of a large job these are megabytes.
    All,
    /// None: the figures alone.
    None,
    /// The first hundred of those that matter: given up, running, waiting, done; the higher rung first.
    First,
}

impl TaskRows {
    /// The address of an application with these rows.
    pub fn path(self, app: &headroom_types::AppId) -> String {
        match self {
            TaskRows::All => format!("/v1/apps/{app}"),
            TaskRows::None => format!("/v1/apps/{app}?tasks=none"),
            TaskRows::First => format!("/v1/apps/{app}?tasks=first"),
        }
    }
}
