//! Events of a master in words, for the trace of a run.

use headroom_appmaster::event::MasterEvent;
use headroom_wire::v1::application_master::ApplicationUpdateKind;

pub(super) fn event_words(event: &MasterEvent) -> String {
    match event {
        MasterEvent::Registered {
            epoch,
            containers,
            cursor,
            ..
        } => {
            format!(
                "registered, epoch {epoch}, {} containers, cursor {cursor}",
                containers.len()
            )
        }
        MasterEvent::Update { cursor, what } => update_words(*cursor, what),
        MasterEvent::Known(family) => format!("the usage history of {} runs", family.runs),
        MasterEvent::Refused {
            request, sentence, ..
        } => format!("refusal of {request}: {sentence}"),
        MasterEvent::Hello(h) => format!(
            "hello of {}, {} run, {} unacknowledged",
            h.container,
            h.running.len(),
            h.unacked.len()
        ),
        MasterEvent::Started { container, attempt } => format!("{attempt} runs in {container}"),
        MasterEvent::Usage { container, .. } => format!("usage of {container}"),
        MasterEvent::Ended { container, report } => {
            format!("{} ended in {container}: {}", report.attempt, report.reason)
        }
        MasterEvent::Committed { attempt, error, .. } => {
            format!("the commit of the output of {attempt} ended: {error:?}")
        }
        MasterEvent::Leftover { container, left } => {
            format!("{} of ended tasks in {container}", left.memory)
        }
        MasterEvent::Pressure { attempt, limit, .. } => format!("{attempt} is frozen near {limit}"),
        MasterEvent::LimitSet { set, .. } => format!("{} has {}", set.attempt, set.limit),
        MasterEvent::ResizeRefused { container, refusal } => {
            format!("{container} keeps its size: {refusal:?}")
        }
        MasterEvent::Inputs { stage, .. } => format!("the inputs of stage {stage} were measured"),
        MasterEvent::LineDown { container } => format!("connection to {container} lost"),
        MasterEvent::SubmitterJoined { client, .. } => format!("submitter {client} connected"),
        MasterEvent::Submission { .. } => "a message of a submitter".into(),
        MasterEvent::SubmitterLeft { .. } => "a submitter disconnected".into(),
        MasterEvent::Stop => "stop".into(),
        MasterEvent::Timer => "timer".into(),
    }
}

fn update_words(cursor: u64, what: &ApplicationUpdateKind) -> String {
    match what {
        ApplicationUpdateKind::Allocated(g) => {
            format!(
                "update {cursor}: {} granted to {} on {}",
                g.container, g.request, g.node
            )
        }
        ApplicationUpdateKind::Running { container } => {
            format!("update {cursor}: {container} runs")
        }
        ApplicationUpdateKind::Exited { report, .. } => {
            format!(
                "update {cursor}: {} ended: {}",
                report.container, report.reason
            )
        }
        ApplicationUpdateKind::Resized {
            container, version, ..
        } => {
            format!("update {cursor}: {container} has size {version}")
        }
        ApplicationUpdateKind::ResizeFailed { container, why, .. } => {
            format!("update {cursor}: {container} keeps its size: {why}")
        }
        ApplicationUpdateKind::PreemptSoon { container, .. } => {
            format!("update {cursor}: {container} will be preempted")
        }
        ApplicationUpdateKind::NodeDraining { node, .. } => {
            format!("update {cursor}: {node} is draining")
        }
        ApplicationUpdateKind::Scale(order) => {
            format!(
                "update {cursor}: {} executors of {:?}",
                order.count, order.executors
            )
        }
        ApplicationUpdateKind::Order(order) => {
            format!("update {cursor}: {:?} for {}", order.action, order.task)
        }
        ApplicationUpdateKind::Expired { request, .. } => {
            format!("update {cursor}: {request} has waited too long")
        }
        ApplicationUpdateKind::Alive => "update: alive".into(),
    }
}
