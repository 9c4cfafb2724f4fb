//! Time of one step, and the list to which the step appends its effects.
//!
//! `Cluster::step` creates it and passes it down. It only appends: an effect is never read or
//! removed.

use headroom_types::{AppId, ContainerId, NodeId, Reason, Tick, UnixMillis};

use crate::event::{
    ClusterEffect, ContainerCommand, EventLogLine, LogMessage, LogObject, LogSeverity, MasterUpdate,
};
use crate::save::DurableRecord;

/// Time of a step, and its effects.
#[derive(Debug)]
pub(crate) struct StepContext<'a> {
    pub(crate) now: Tick,
    pub(crate) wall: UnixMillis,
    pub(crate) out: &'a mut Vec<ClusterEffect>,
}

impl StepContext<'_> {
    #[inline]
    pub(crate) fn save(&mut self, save: DurableRecord) {
        self.out.push(ClusterEffect::Save(Box::new(save)));
    }
    #[inline]
    pub(crate) fn send_command(
        &mut self,
        node: &NodeId,
        container: &ContainerId,
        want: ContainerCommand,
    ) {
        self.out.push(ClusterEffect::SendCommand {
            node: node.clone(),
            container: container.clone(),
            want,
        });
    }
    #[inline]
    pub(crate) fn update(&mut self, app: &AppId, update: MasterUpdate) {
        self.out.push(ClusterEffect::Update {
            app: app.clone(),
            update,
        });
    }
    pub(crate) fn illegal(&mut self, what: String) {
        self.out.push(ClusterEffect::Illegal { what });
    }
    #[inline]
    pub(crate) fn log(&mut self, line: EventLogLine) {
        self.out.push(ClusterEffect::Log(line));
    }
    pub(crate) fn log_app(
        &mut self,
        level: LogSeverity,
        reason: Reason,
        app: &AppId,
        message: String,
    ) {
        self.log(EventLogLine {
            level,
            reason,
            object: LogObject::App(app.clone()),
            node: None,
            words: LogMessage::Text(message),
        });
    }
    pub(crate) fn log_node(
        &mut self,
        level: LogSeverity,
        reason: Reason,
        node: &NodeId,
        message: String,
    ) {
        let object = LogObject::Node(node.clone());
        self.log(EventLogLine {
            level,
            reason,
            object,
            node: Some(node.clone()),
            words: LogMessage::Text(message),
        });
    }
}
