//! Conversions from the types of the core to wire messages and problems. No decisions are made
//! here.

use headroom_rm_core as core;
use headroom_rm_core::Refusal;
use headroom_types::{AttemptId, ContainerId, Epoch, JobOrder, RequestId};
use headroom_wire::v1::am::{self, Ask, AskAnswer, AskVerdict, Granted, LaunchSpec, Update, UpdateKind};
use headroom_wire::v1::apps::{AppState, AttemptView, ContainerView, Reserved, WantedSize, WhyNode, WhyPending};
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::nodes::{Desired, DesiredContainer, NodeMark, NodeTags, NodeTraits, RunOrder, Want};

use crate::queues;

/// Converts a refusal to a problem with its code.
pub(crate) fn problem(refusal: &Refusal) -> Problem {
    let says = |code| Problem::new(code, refusal.to_string());
    match refusal {
        Refusal::NoSuchApp(_) | Refusal::NoSuchContainer(_) | Refusal::NoSuchRequest { .. } | Refusal::NoSuchTask { .. } => {
            says(Code::HR0404)
        }
        Refusal::StaleEpoch { .. } | Refusal::NodeNotRegistered(_) | Refusal::MasterNotRegistered(_) => {
            says(Code::HR0410).hint("register again")
        }
        Refusal::Recovering(_) => says(Code::HR0503).hint("try again in a second"),
        Refusal::NotReserved(_) => says(Code::HR0409).hint("ask for a new number"),
        Refusal::Overtaken { latest, .. } => {
            let problem = says(Code::HR0409).hint(format!("register again with a serial above {latest}"));
            Problem { above: Some(*latest), ..problem }
        }
        Refusal::StaleAttempt { .. } => says(Code::HR0409).hint("this run has been replaced and must end"),
        Refusal::NotLaunched(_) | Refusal::AppEnding { .. } => says(Code::HR0409),
        Refusal::NotOver { app, .. } => says(Code::HR0409).hint(format!("rmctl kill {app} ends it first")),
        Refusal::NoSuchNode(_) | Refusal::NoSuchQueue(_) => says(Code::HR0404),
        Refusal::NotALeaf { .. } => says(Code::HR0400),
        Refusal::BadQueues(problems) => queues::problem(problems.iter().map(queues::found).collect()),
        Refusal::QueueClosed { .. } | Refusal::NotResizable { .. } | Refusal::Decommissioned(_) => says(Code::HR0409),
        Refusal::NoRoom { .. } => says(Code::HR0409).hint("try again when something has ended there"),
        Refusal::Conflict { .. } => says(Code::HR0409).hint("read it again, and send the version it has now"),
        Refusal::NeverFits { .. } => says(Code::HR0422).hint("ask for less, or add a node that is large enough"),
        Refusal::TooManyTags { node, .. } => says(Code::HR0413).hint(format!("rmctl node show {node} lists them")),
        Refusal::TooMany { .. } => says(Code::HR0429).hint("try again when some of them are done"),
    }
}

/// Converts the state of an application.
pub(crate) fn app_state(state: core::app::State) -> AppState {
    use core::app::State;
    match state {
        State::Accepted => AppState::Accepted,
        State::Running => AppState::Running,
        State::Finishing { .. } => AppState::Finishing,
        State::Ended { outcome: core::Outcome::Succeeded } => AppState::Finished,
        State::Ended { outcome: core::Outcome::Failed } => AppState::Failed,
        State::Ended { outcome: core::Outcome::Killed } => AppState::Killed,
    }
}

/// Converts the verdict about a request.
pub(crate) fn ask_answer(request: RequestId, verdict: core::Verdict) -> AskAnswer {
    let verdict = match verdict {
        core::Verdict::Fits => AskVerdict::Fits,
        core::Verdict::Waits { sentence } => AskVerdict::Waits { sentence: sentence.to_string() },
        core::Verdict::Never { sentence, largest } => AskVerdict::Never { sentence, largest },
    };
    AskAnswer { request, verdict }
}

/// Converts a grant.
pub(crate) fn granted(granted: core::Granted) -> Granted {
    let core::Granted { container, request, node, resource, attempt } = granted;
    Granted { container, request, node, resource, attempt }
}

/// Converts an update for a master.
pub(crate) fn update(update: core::Update) -> Update {
    let what = match update.what {
        core::UpdateKind::Allocated(grant) => UpdateKind::Allocated(granted(grant)),
        core::UpdateKind::Running { container } => UpdateKind::Running { container },
        core::UpdateKind::Exited { request, report } => UpdateKind::Exited { request, report: Box::new((*report).clone()) },
        core::UpdateKind::Resized { container, resource, version } => UpdateKind::Resized { container, resource, version },
        core::UpdateKind::ResizeFailed { container, resource, version, why } => {
            UpdateKind::ResizeFailed { container, resource, version, why }
        }
        core::UpdateKind::PreemptSoon { container, at, why } => UpdateKind::PreemptSoon { container, at, why },
        core::UpdateKind::NodeDraining { node, until } => UpdateKind::NodeDraining { node, until },
        core::UpdateKind::Expired { request, why } => UpdateKind::Expired { request, why },
        core::UpdateKind::Order(JobOrder::Task(order)) => UpdateKind::Order(order),
        core::UpdateKind::Order(JobOrder::Scale(order)) => UpdateKind::Scale(order),
    };
    Update { cursor: update.cursor, what }
}

/// Converts orders to a message for a node.
pub(crate) fn desired(epoch: Epoch, full: bool, wants: Vec<(ContainerId, core::Want)>) -> Desired {
    let containers = wants.into_iter().map(|(container, wanted)| DesiredContainer { container, want: want(wanted) });
    Desired { epoch, full, containers: containers.collect() }
}

fn want(want: core::Want) -> Want {
    match want {
        core::Want::Run(order) => Want::Run(Box::new(RunOrder {
            app: order.app,
            request: order.request,
            attempt: order.attempt,
            resource: order.resource,
            version: order.version,
            launch: launch(&order.launch),
            user: Some(order.user.to_string()),
            granted: order.granted,
            token: None,
        })),
        core::Want::Stop { cause } => Want::Stop { cause },
        core::Want::Forget => Want::Forget,
    }
}

fn launch(launch: &core::Launch) -> LaunchSpec {
    let core::Launch { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups } =
        launch.clone();
    LaunchSpec { command, env, files, fetch, heap, heap_exit_codes, stop_grace_ms, max_processes, task_groups }
}

/// Converts a request.
pub(crate) fn ask(ask: &core::ask::Ask) -> Ask {
    Ask {
        request: ask.request.clone(),
        resource: ask.resource.clone(),
        count: ask.count,
        settled: ask.settled,
        priority: ask.priority,
        avoid_nodes: ask.place.avoid_nodes.clone(),
        nodes: ask.place.nodes.clone(),
        placement: Box::new(placement(&ask.place)),
        deadline_ms: ask.deadline.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        waited_ms: u64::try_from(ask.waited.as_millis()).unwrap_or(u64::MAX),
        launch: Box::new(launch(&ask.launch)),
    }
}

fn placement(place: &core::ask::Placement) -> am::Placement {
    let place = place.clone();
    let relax = match place.relax {
        core::ask::Relax::AtOnce => am::Relax::AtOnce,
        core::ask::Relax::After(wait) => am::Relax::After { ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) },
        core::ask::Relax::Never => am::Relax::Never,
    };
    am::Placement {
        racks: place.racks,
        avoid_racks: place.avoid_racks,
        prefer_nodes: place.prefer_nodes,
        prefer_racks: place.prefer_racks,
        relax,
        labels: place.labels,
        attributes: place.attributes.into_iter().map(|(name, wanted)| (name, compare(wanted))).collect(),
        tolerate: place.tolerate,
        apart: place.apart.map(|a| am::Apart { from: a.from, level: same_place(a.level) }),
        spread: place.spread.map(same_place),
    }
}

fn compare(wanted: core::ask::Match) -> am::Match {
    match wanted {
        core::ask::Match::Exists => am::Match::Exists,
        core::ask::Match::Absent => am::Match::Absent,
        core::ask::Match::OneOf(values) => am::Match::OneOf(values),
        core::ask::Match::NoneOf(values) => am::Match::NoneOf(values),
    }
}

fn same_place(level: core::ask::Level) -> am::Level {
    match level {
        core::ask::Level::Node => am::Level::Node,
        core::ask::Level::Rack => am::Level::Rack,
    }
}

/// Converts the traits of a node.
pub(crate) fn traits(traits: &core::Traits) -> NodeTraits {
    let core::Traits { rack, labels, exclusive, attributes, taints } = traits.clone();
    NodeTraits { rack, labels, exclusive: exclusive == core::Exclusive::Yes, attributes, taints }
}

/// Converts an operator's settings of a node.
pub(crate) fn tags(tags: &core::NodeTags) -> NodeTags {
    let core::NodeTags { cordon, labels, attributes, taints } = tags.clone();
    NodeTags { cordon, labels, attributes, taints }
}

/// Converts the drain mark of a node.
pub(crate) fn mark(mark: &core::NodeMark) -> NodeMark {
    NodeMark {
        reason: mark.reason.clone(),
        until: mark.until,
        decommission: mark.then == core::AfterDrain::Decommission,
        drained: mark.drained,
    }
}

/// Converts the reason why a request waits.
pub(crate) fn why(why: core::Why, reserved: Option<Reserved>) -> WhyPending {
    let nodes =
        why.nodes.into_iter().map(|n| WhyNode { node: n.node, free: n.free, offers: n.offers, verdict: n.verdict, out: n.out });
    WhyPending {
        request: why.request,
        asks: why.asks,
        missing: why.missing,
        waiting_ms: u64::try_from(why.waiting.as_millis()).unwrap_or(u64::MAX),
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
        wanted: c.sizing.order().map(|o| WantedSize { resource: o.resource.clone(), version: o.version }),
    }
}

/// Converts an ended container.
pub(crate) fn finished(c: &core::Finished) -> ContainerView {
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

fn run(run: &core::attempt::State) -> String {
    use core::attempt::State;
    let word = match run {
        State::Scheduled => "scheduled",
        State::Launched { .. } => "launched",
        State::Awaited => "awaited",
        State::Registered { .. } => "registered",
        State::Recovering { .. } => "recovering",
        State::Over => "over",
    };
    word.to_owned()
}

/// Converts the application attempts that are kept.
pub(crate) fn attempts(app: &core::app::App) -> Vec<AttemptView> {
    app.runs.iter().map(|run| attempt(app, run)).collect()
}

fn attempt(app: &core::app::App, run: &core::runs::Run) -> AttemptView {
    let state = match run.outcome {
        Some(core::Outcome::Succeeded) => "succeeded".to_owned(),
        Some(core::Outcome::Failed) => "failed".to_owned(),
        Some(core::Outcome::Killed) => "killed".to_owned(),
        None if run.number == app.attempt => self::run(&app.run),
        None => "over".to_owned(),
    };
    AttemptView {
        id: AttemptId { app: app.id.clone(), attempt: run.number },
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
pub(crate) fn level(level: core::Level) -> EventLevel {
    match level {
        core::Level::Normal => EventLevel::Normal,
        core::Level::Warning => EventLevel::Warning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_must_register_again_is_told_so_by_the_code() {
        let stale = Refusal::StaleEpoch { given: Epoch(1), current: Epoch(2) };
        let unknown = Refusal::NodeNotRegistered("n1".parse().expect("id"));
        for refusal in [stale, unknown] {
            assert_eq!(problem(&refusal).code, Code::HR0410);
        }
    }
}
