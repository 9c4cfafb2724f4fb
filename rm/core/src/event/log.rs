//! Lines of the event log.
//!
//! Plain data. A reader formats the message; the step that creates a line only stores the values.

use std::fmt;
use std::time::Duration;

use headroom_types::{AppId, ContainerId, ExitReason, NodeId, QueuePath, Reason, RequestId};

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSeverity {
    /// Expected.
    Normal,
    /// Unexpected; needs attention.
    Warning,
}

/// Line of the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLogLine {
    /// Severity.
    pub level: LogSeverity,
    /// Reason from the closed list.
    pub reason: Reason,
    /// Object of the line.
    pub object: LogObject,
    /// Node where it happened.
    pub node: Option<NodeId>,
    /// Message for users; see [`EventLogLine::message`].
    pub words: LogMessage,
}

/// Object of a line. Displays as its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogObject {
    /// The resource manager itself.
    Manager,
    /// An application.
    App(AppId),
    /// A container.
    Container(ContainerId),
    /// A node.
    Node(NodeId),
    /// A queue.
    Queue(QueuePath),
}

/// Message of a line. Frequent container events are stored as values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogMessage {
    /// Formatted text.
    Text(String),
    /// A container of this request runs; `None` for a master.
    Runs(Option<RequestId>),
    /// A container ended.
    Ended(ExitReason),
    /// A container was granted to a request after this waiting time.
    Granted(RequestId, ContainerId, Duration),
}

impl EventLogLine {
    /// Application of the object.
    pub fn app(&self) -> Option<&AppId> {
        match &self.object {
            LogObject::App(app) => Some(app),
            LogObject::Container(container) => Some(&container.app),
            LogObject::Manager | LogObject::Node(_) | LogObject::Queue(_) => None,
        }
    }
    /// Message for users.
    pub fn message(&self) -> String {
        match &self.words {
            LogMessage::Text(text) => text.clone(),
            LogMessage::Runs(request) => {
                let name = request.as_ref().map_or("master", RequestId::as_str);
                format!(
                    "{name} runs on {}",
                    self.node.as_ref().map_or("a node", NodeId::as_str)
                )
            }
            LogMessage::Ended(reason) => reason.sentence(),
            LogMessage::Granted(request, container, waited) => {
                let node = self.node.as_ref().map_or("a node", NodeId::as_str);
                format!(
                    "{request} has {container} on {node} after {} ms",
                    waited.as_millis()
                )
            }
        }
    }
}

impl fmt::Display for LogObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogObject::Manager => f.pad("resourcemanager"),
            LogObject::App(app) => app.fmt(f),
            LogObject::Container(container) => container.fmt(f),
            LogObject::Node(node) => node.fmt(f),
            LogObject::Queue(queue) => queue.fmt(f),
        }
    }
}

impl From<String> for LogMessage {
    fn from(text: String) -> Self {
        LogMessage::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::id;

    #[test]
    fn container_events_have_a_message() {
        let object = LogObject::Container(id("job.1.e1.c2"));
        let line = |words| EventLogLine {
            level: LogSeverity::Normal,
            reason: Reason::ContainerStarted,
            object: object.clone(),
            node: Some(id("n1")),
            words,
        };
        assert_eq!(
            line(LogMessage::Runs(Some(id("main")))).message(),
            "main runs on n1"
        );
        assert_eq!(line(LogMessage::Runs(None)).message(), "master runs on n1");
        assert_eq!(
            line(LogMessage::Ended(ExitReason::Exit { code: 3 })).message(),
            "the program ended with exit code 3"
        );
        assert_eq!(
            (
                object.to_string().as_str(),
                line(String::new().into()).app()
            ),
            ("job.1.e1.c2", Some(&id("job.1")))
        );
    }
}
