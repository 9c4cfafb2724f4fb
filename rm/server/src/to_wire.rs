//! Conversions from the types of the core to wire messages and problems. No decisions are made
//! here.

use headroom_rm_core as core;
use headroom_rm_core::CallRefusal;
use headroom_types::{AttemptId, ContainerId, Epoch, JobOrder, LaunchSpec, RequestId, millis};
use headroom_wire::v1::application_master::{
    self, ApplicationUpdate, ApplicationUpdateKind, ContainerGrant, PlacementRequest,
    PlacementResponse, PlacementVerdict,
};
use headroom_wire::v1::apps::{
    AppState, AttemptView, ContainerView, DesiredSize, NodeFitExplanation, NodeReservation,
    PendingExplanation,
};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemReason};
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::known_containers::{ConfirmedContainers, ContainerNumbers};
use headroom_wire::v1::nodes::{
    ContainerDesiredState, DesiredContainer, DesiredStateLine, NodeDrainMark, NodeTraits,
    OperatorTags, RunOrder,
};

use crate::mirror::{match_variants, move_fields};
use crate::queues;

/// A bug whose details are in the log of the resource manager.
pub(crate) fn internal_error() -> ProblemDetails {
    ProblemDetails::internal("internal error in the resource manager; its log has the details")
}

/// Converts a refusal to a problem with its code.
pub fn problem(refusal: &CallRefusal) -> ProblemDetails {
    let says = |code| ProblemDetails::new(code, refusal.to_string());
    match refusal {
        CallRefusal::NoSuchApp(_)
        | CallRefusal::NoSuchContainer(_)
        | CallRefusal::NoSuchRequest { .. }
        | CallRefusal::NoSuchTask { .. } => says(ErrorCode::HR0404),
        CallRefusal::StaleEpoch { .. }
        | CallRefusal::NodeNotRegistered(_)
        | CallRefusal::MasterNotRegistered(_) => says(ErrorCode::HR0410).hint("register again"),
        CallRefusal::Recovering(_) => says(ErrorCode::HR0503).hint("try again in a second"),
        CallRefusal::KeyTaken(_) => {
            says(ErrorCode::HR0409).hint("use a new key for a new application")
        }
        CallRefusal::NotReserved(_) => says(ErrorCode::HR0409).hint("request a new number"),
        CallRefusal::Overtaken { latest, .. } => {
            let problem = says(ErrorCode::HR0409)
                .hint(format!("register again with a serial above {latest}"));
            ProblemDetails {
                above: Some(*latest),
                ..problem
            }
        }
        CallRefusal::StaleAttempt { .. } => {
            says(ErrorCode::HR0409).hint("this attempt has been replaced and must end")
        }
        CallRefusal::NotLaunched(_) | CallRefusal::AppEnding { .. } => says(ErrorCode::HR0409),
        CallRefusal::NotOver { app, .. } => {
            says(ErrorCode::HR0409).hint(format!("end it first: rmctl kill {app}"))
        }
        CallRefusal::NoSuchNode(_) | CallRefusal::NoSuchQueue(_) => says(ErrorCode::HR0404),
        CallRefusal::NotALeaf { .. } => says(ErrorCode::HR0400),
        CallRefusal::BadQueues(problems) => {
            queues::problem(problems.iter().map(queues::found).collect())
        }
        CallRefusal::QueueNotAdmitting { .. } | CallRefusal::NotResizable { .. } => {
            says(ErrorCode::HR0409)
        }
        CallRefusal::Decommissioned(_) => {
            says(ErrorCode::HR0409).reason(ProblemReason::NodeDecommissioned)
        }
        CallRefusal::NoRoom { .. } => {
            says(ErrorCode::HR0409).hint("try again when a container on the node has ended")
        }
        CallRefusal::Conflict { .. } => {
            says(ErrorCode::HR0409).hint("read it again, and send its current version")
        }
        CallRefusal::NeverFits { .. } => {
            says(ErrorCode::HR0422).hint("request less, or add a node that is large enough")
        }
        CallRefusal::TooManyTags { node, .. } => {
            says(ErrorCode::HR0413).hint(format!("rmctl node show {node} lists them"))
        }
        CallRefusal::TooMany { .. } => {
            says(ErrorCode::HR0429).hint("try again when some of them are done")
        }
    }
}

/// Converts the state of an application.
pub fn app_state(state: core::app::ApplicationState) -> AppState {
    use core::app::ApplicationState;
    match state {
        ApplicationState::Accepted => AppState::Accepted,
        ApplicationState::Running => AppState::Running,
        ApplicationState::Finishing { .. } => AppState::Finishing,
        ApplicationState::Ended {
            outcome: core::ApplicationOutcome::Succeeded,
        } => AppState::Finished,
        ApplicationState::Ended {
            outcome: core::ApplicationOutcome::Failed,
        } => AppState::Failed,
        ApplicationState::Ended {
            outcome: core::ApplicationOutcome::Killed,
        } => AppState::Killed,
    }
}

/// Converts the verdict about a request.
pub fn ask_answer(request: RequestId, verdict: core::RequestVerdict) -> PlacementResponse {
    let verdict = match verdict {
        core::RequestVerdict::Fits => PlacementVerdict::Fits,
        core::RequestVerdict::Waits { sentence } => PlacementVerdict::Waits {
            sentence: sentence.to_string(),
        },
        core::RequestVerdict::Never { sentence, largest } => {
            PlacementVerdict::Never { sentence, largest }
        }
    };
    PlacementResponse { request, verdict }
}

/// Converts a grant.
pub fn granted(granted: core::GrantedContainer) -> ContainerGrant {
    move_fields!(
        granted, core::GrantedContainer => ContainerGrant,
        { container, request, node, resource, attempt, running }
    )
}

/// Maximum number of groups of confirmed containers. With more sizes, containers are listed.
const MAX_CONFIRMED_GROUPS: usize = 64;

/// Converts the live containers of an application. Those that its master has named are confirmed, in
/// groups of one size and state; the others are listed.
pub fn live_containers(
    live: Vec<core::GrantedContainer>,
    named: &ContainerNumbers,
) -> (Vec<ContainerGrant>, Vec<ConfirmedContainers>) {
    let (mut listed, mut confirmed) = (Vec::new(), Vec::<ConfirmedContainers>::new());
    for container in live {
        let of_its_kind = |group: &&mut ConfirmedContainers| {
            group.running == container.running && group.resource == container.resource
        };
        if !named.contains(&container.container) {
            listed.push(granted(container));
        } else if let Some(group) = confirmed.iter_mut().find(of_its_kind) {
            group.containers.insert(&container.container);
        } else if confirmed.len() < MAX_CONFIRMED_GROUPS {
            let mut containers = ContainerNumbers::default();
            containers.insert(&container.container);
            confirmed.push(ConfirmedContainers {
                resource: container.resource,
                running: container.running,
                containers,
            });
        } else {
            listed.push(granted(container));
        }
    }
    (listed, confirmed)
}

/// Converts an update for a master.
pub fn update(update: core::MasterUpdate) -> ApplicationUpdate {
    use core::UpdateKind;
    let what = match_variants!(
        update.what, UpdateKind => ApplicationUpdateKind,
        {
            Running { container },
            Resized { container, resource, version },
            ResizeFailed { container, resource, version, why },
            PreemptSoon { container, at, why },
            NodeDraining { node, until },
            Expired { request, why },
        },
        UpdateKind::Allocated(grant) => ApplicationUpdateKind::Allocated(granted(grant)),
        UpdateKind::Exited { request, report } => ApplicationUpdateKind::Exited {
            request,
            report: Box::new((*report).clone()),
        },
        UpdateKind::Order(JobOrder::Task(order)) => ApplicationUpdateKind::Order(order),
        UpdateKind::Order(JobOrder::Scale(order)) => ApplicationUpdateKind::Scale(order),
    );
    ApplicationUpdate {
        cursor: update.cursor,
        what,
    }
}

/// Converts orders to a message for a node.
pub fn desired(
    epoch: Epoch,
    full: bool,
    wants: Vec<(ContainerId, core::ContainerCommand)>,
) -> DesiredStateLine {
    let containers = wants
        .into_iter()
        .map(|(container, wanted)| DesiredContainer {
            container,
            want: want(wanted),
        });
    DesiredStateLine {
        epoch,
        full,
        containers: containers.collect(),
    }
}

fn want(want: core::ContainerCommand) -> ContainerDesiredState {
    match want {
        core::ContainerCommand::Run(order) => ContainerDesiredState::Run(Box::new(RunOrder {
            app: order.app,
            request: order.request,
            attempt: order.attempt,
            resource: order.resource,
            version: order.version,
            launch: LaunchSpec::clone(&order.launch),
            user: Some(order.user.to_string()),
            granted: order.granted,
            token: None,
        })),
        core::ContainerCommand::Stop { cause } => ContainerDesiredState::Stop { cause },
        core::ContainerCommand::Forget => ContainerDesiredState::Forget,
    }
}

/// Converts a request.
pub(crate) fn ask(ask: &core::request::ContainerRequest) -> PlacementRequest {
    PlacementRequest {
        request: ask.request.clone(),
        resource: ask.resource.clone(),
        count: ask.count,
        ended: ask.ended,
        priority: ask.priority,
        avoid_nodes: ask.place.avoid_nodes.clone(),
        nodes: ask.place.nodes.clone(),
        placement: Box::new(placement(&ask.place)),
        deadline_ms: ask.deadline.map(millis),
        waited_ms: millis(ask.waited),
        launch: Box::new(LaunchSpec::clone(&ask.launch)),
    }
}

fn placement(place: &core::placement::PlacementRules) -> application_master::Placement {
    move_fields!(
        place.clone(), core::placement::PlacementRules => application_master::Placement,
        {
            racks, avoid_racks, prefer_nodes, prefer_racks, relax, labels, attributes, tolerate,
            apart, spread,
        }
        without { nodes, avoid_nodes }
    )
}

/// Converts the traits of a node.
pub fn traits(traits: &core::NodeProperties) -> NodeTraits {
    move_fields!(
        traits.clone(), core::NodeProperties => NodeTraits,
        { rack, labels, attributes, taints }
        without { exclusive }
        with { exclusive: traits.exclusive == core::Exclusive::Yes }
    )
}

/// Converts an operator's settings of a node.
pub(crate) fn tags(tags: &core::NodeTags) -> OperatorTags {
    move_fields!(
        tags.clone(), core::NodeTags => OperatorTags,
        { cordon, labels, attributes, taints }
    )
}

/// Converts the drain mark of a node.
pub(crate) fn mark(mark: &core::SavedDrainMark) -> NodeDrainMark {
    NodeDrainMark {
        reason: mark.reason.clone(),
        until: mark.until,
        decommission: mark.then == core::AfterDrain::Decommission,
        drained: mark.drained,
    }
}

/// Converts the reason why a request waits.
pub(crate) fn why(
    why: core::WaitExplanation,
    reserved: Option<NodeReservation>,
) -> PendingExplanation {
    let nodes = why.nodes.into_iter().map(|n| NodeFitExplanation {
        node: n.node,
        free: n.free,
        offers: n.offers,
        verdict: n.verdict,
        out: n.out,
    });
    PendingExplanation {
        request: why.request,
        asks: why.asks,
        missing: why.missing,
        waiting_ms: millis(why.waiting),
        ahead: u32::try_from(why.ahead).unwrap_or(u32::MAX),
        sentence: why.sentence,
        reserved,
        nodes: nodes.collect(),
    }
}

/// Converts a live container.
pub(crate) fn container(c: &core::container::Container) -> ContainerView {
    ContainerView {
        id: c.id.clone(),
        node: c.node.clone(),
        request: c.request.clone(),
        resource: c.resource.clone(),
        state: c.state.as_str().to_owned(),
        used: c.used.filter(|_| c.state.is_alive()),
        granted: c.granted,
        reason: c.state.report().map(|r| r.reason),
        version: c.version,
        attempt: c.attempt,
        ended: c.state.report().map(|r| r.ended),
        exit_code: c.state.report().and_then(|r| r.evidence.exit_code),
        peak: c.state.report().and_then(|r| r.evidence.own.peak),
        wanted: c.sizing.order().map(|o| DesiredSize {
            resource: o.resource.clone(),
            version: o.version,
        }),
    }
}

/// Converts an ended container.
pub(crate) fn finished(c: &core::EndedContainer) -> ContainerView {
    ContainerView {
        id: c.container.clone(),
        node: c.node.clone(),
        request: c.request.clone(),
        resource: c.resource.clone(),
        state: "exited".to_owned(),
        used: None,
        granted: c.granted,
        reason: Some(c.reason),
        version: 1,
        attempt: c.attempt,
        ended: Some(c.ended),
        exit_code: c.exit_code,
        peak: c.peak,
        wanted: None,
    }
}

fn run(run: &core::attempt::AttemptState) -> String {
    use core::attempt::AttemptState;
    let word = match run {
        AttemptState::Scheduled => "scheduled",
        AttemptState::Launched { .. } => "launched",
        AttemptState::Awaited => "awaited",
        AttemptState::Registered { .. } => "registered",
        AttemptState::Recovering { .. } => "recovering",
        AttemptState::Over => "over",
    };
    word.to_owned()
}

/// Converts the application attempts that are kept.
pub(crate) fn attempts(app: &core::app::ClusterApplication) -> Vec<AttemptView> {
    app.runs.iter().map(|run| attempt(app, run)).collect()
}

fn attempt(app: &core::app::ClusterApplication, run: &core::runs::AttemptRecord) -> AttemptView {
    let state = match run.outcome {
        Some(core::ApplicationOutcome::Succeeded) => "succeeded".to_owned(),
        Some(core::ApplicationOutcome::Failed) => "failed".to_owned(),
        Some(core::ApplicationOutcome::Killed) => "killed".to_owned(),
        None if run.number == app.attempt => self::run(&app.run),
        None => "over".to_owned(),
    };
    AttemptView {
        id: AttemptId {
            app: app.id.clone(),
            attempt: run.number,
        },
        state,
        container: run.container.clone(),
        node: run.node.clone(),
        resource: run.resource.clone(),
        started: run.started,
        ended: run.ended,
        reason: run.reason,
        charged: run.charged,
        diagnostics: run.why.clone(),
    }
}

/// Converts the level of an event.
pub(crate) fn level(level: core::LogSeverity) -> EventLevel {
    use core::LogSeverity;
    match_variants!(level, LogSeverity => EventLevel, { Normal, Warning })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus, Resource};

    #[test]
    fn stale_callers_receive_the_code_for_a_new_registration() {
        let stale = CallRefusal::StaleEpoch {
            given: Epoch(1),
            current: Epoch(2),
        };
        let unknown = CallRefusal::NodeNotRegistered("n1".parse().expect("id"));
        for refusal in [stale, unknown] {
            assert_eq!(problem(&refusal).code, ErrorCode::HR0410);
        }
    }

    #[test]
    fn named_containers_are_confirmed_by_size_and_state_and_others_are_listed() {
        let granted = |seq: u64, mib, running| core::GrantedContainer {
            container: format!("job.1.e1.c{seq}").parse().expect("an id"),
            request: "main".parse().expect("an id"),
            node: "n1".parse().expect("an id"),
            resource: Resource::new(Bytes::from_mib(mib), Cpus::from_cores(1)),
            attempt: 1,
            running,
        };
        let mut named = ContainerNumbers::default();
        let live = vec![
            granted(1, 64, true),
            granted(2, 64, false),
            granted(3, 64, true),
            granted(4, 128, true),
            granted(5, 64, true),
        ];
        for container in &live[..4] {
            named.insert(&container.container);
        }
        let (listed, confirmed) = live_containers(live, &named);
        let seqs: Vec<u64> = listed.iter().map(|grant| grant.container.seq).collect();
        assert_eq!(seqs, [5], "the master does not know it");
        let groups: Vec<(u64, bool, Vec<u64>)> = confirmed
            .iter()
            .map(|group| {
                let seqs = group.containers.iter().map(|(_, seq)| seq).collect();
                (group.resource.memory.get() >> 20, group.running, seqs)
            })
            .collect();
        assert_eq!(
            groups,
            [
                (64, true, vec![1, 3]),
                (64, false, vec![2]),
                (128, true, vec![4])
            ]
        );

        let sizes = 1..=100;
        let live: Vec<_> = sizes.map(|mib| granted(mib, mib, true)).collect();
        live.iter().for_each(|one| named.insert(&one.container));
        let (listed, confirmed) = live_containers(live, &named);
        assert_eq!(confirmed.len(), MAX_CONFIRMED_GROUPS);
        assert_eq!(
            listed.len(),
            100 - MAX_CONFIRMED_GROUPS,
            "nothing is left out"
        );
    }

    #[test]
    fn a_decommissioned_node_receives_a_reason_for_programs() {
        let refusal = CallRefusal::Decommissioned("n1".parse().expect("id"));
        let refused = problem(&refusal);
        assert_eq!(
            (refused.code, refused.reason),
            (ErrorCode::HR0409, Some(ProblemReason::NodeDecommissioned))
        );
        let overtaken = CallRefusal::NotReserved(3);
        assert_eq!(problem(&overtaken).reason, None);
    }
}
