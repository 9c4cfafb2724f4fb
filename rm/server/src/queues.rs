//! Conversions of queue trees between messages and the core. No decisions are made here.

use std::collections::BTreeMap;

use headroom_rm_core::queue::spec as core;
use headroom_rm_core::{Cluster, QueueSnapshot as Shown};
use headroom_types::{QueuePath, Resource};
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::queues::{
    ApplicationOrder, Preemptable, QueueProblem, QueueRunState, QueueSpec, QueueUser, QueueView,
    QueuesView,
};
use headroom_wire::v1::share::{Percent, ResourceShare, ShareAmount};

use crate::mirror::match_variants;

/// Converts a tree to the type of the core.
pub(crate) fn tree(spec: QueueSpec) -> core::QueueDefinition {
    core::QueueDefinition {
        guaranteed: share(spec.guaranteed),
        maximum: share(spec.maximum),
        weight: spec.weight,
        priority: spec.priority,
        order: match spec.order {
            ApplicationOrder::Fifo => core::LeafOrder::Fifo,
            ApplicationOrder::Fair => core::LeafOrder::Fair,
        },
        user_limit: spec.user_limit.map(Percent::thousandths),
        master_share: spec.master_share.map(Percent::thousandths),
        max_running: spec.max_running,
        max_apps: spec.max_apps,
        state: state_from_wire(spec.state),
        preemptable: match spec.preemptable {
            Preemptable::Yes => core::QueuePreemption::Yes,
            Preemptable::No => core::QueuePreemption::No,
        },
        max_lifetime_ms: spec.max_lifetime_ms,
        children: spec
            .queues
            .into_iter()
            .map(|(name, child)| (name, tree(child)))
            .collect(),
    }
}

/// Converts the state of a queue to the type of the core.
pub(crate) fn state_from_wire(state: QueueRunState) -> core::QueueState {
    use core::QueueState;
    match_variants!(state, QueueRunState => QueueState, { Running, Paused, Draining, Stopped })
}

fn share(share: ResourceShare) -> core::QueueShare {
    let extra = share
        .extra
        .into_iter()
        .map(|(name, a)| (name, amount(a)))
        .collect();
    core::QueueShare {
        memory: share.memory.map(amount),
        cpus: share.cpus.map(amount),
        extra,
    }
}

fn amount<T>(amount: ShareAmount<T>) -> core::ShareOrAmount<T> {
    match amount {
        ShareAmount::Part(percent) => core::ShareOrAmount::Part(percent.thousandths()),
        ShareAmount::Exactly(quantity) => core::ShareOrAmount::Exactly(quantity),
    }
}

/// Converts the specification of one queue from the core, without its children.
pub(crate) fn own(queue: &core::QueueDefinition) -> QueueSpec {
    QueueSpec {
        guaranteed: written(&queue.guaranteed),
        maximum: written(&queue.maximum),
        weight: queue.weight,
        priority: queue.priority,
        order: match queue.order {
            core::LeafOrder::Fifo => ApplicationOrder::Fifo,
            core::LeafOrder::Fair => ApplicationOrder::Fair,
        },
        user_limit: queue.user_limit.map(Percent::from_thousandths),
        master_share: queue.master_share.map(Percent::from_thousandths),
        max_running: queue.max_running,
        max_apps: queue.max_apps,
        state: state_to_wire(queue.state),
        preemptable: match queue.preemptable {
            core::QueuePreemption::Yes => Preemptable::Yes,
            core::QueuePreemption::No => Preemptable::No,
        },
        max_lifetime_ms: queue.max_lifetime_ms,
        queues: [].into(),
    }
}

/// Converts the state of a queue from the core.
pub(crate) fn state_to_wire(state: core::QueueState) -> QueueRunState {
    use core::QueueState;
    match_variants!(state, QueueState => QueueRunState, { Running, Paused, Draining, Stopped })
}

fn written(share: &core::QueueShare) -> ResourceShare {
    let extra = share
        .extra
        .iter()
        .map(|(name, a)| (name.clone(), write_amount(*a)))
        .collect();
    ResourceShare {
        memory: share.memory.map(write_amount),
        cpus: share.cpus.map(write_amount),
        extra,
    }
}

fn write_amount<T>(amount: core::ShareOrAmount<T>) -> ShareAmount<T> {
    match amount {
        core::ShareOrAmount::Part(thousandths) => {
            ShareAmount::Part(Percent::from_thousandths(thousandths))
        }
        core::ShareOrAmount::Exactly(quantity) => ShareAmount::Exactly(quantity),
    }
}

/// All problems of a tree, as one problem document.
pub(crate) fn problem(mut problems: Vec<QueueProblem>) -> ProblemDetails {
    problems.sort_by(|a, b| (&a.queue, &a.key).cmp(&(&b.queue, &b.key)));
    let first = problems
        .first()
        .map(|p| format!("; first, {} {}: {}", p.queue, p.key, p.what))
        .unwrap_or_default();
    let plural = if problems.len() == 1 {
        "problem"
    } else {
        "problems"
    };
    let detail = format!("{} {plural} in the tree of queues{first}", problems.len());
    let hint = problems.first().map(|p| p.fix.clone());
    let mut problem = ProblemDetails::bad_request(detail);
    problem.hints.extend(hint);
    problem.problems = problems;
    problem
}

/// Converts a problem from the core.
pub(crate) fn found(problem: &core::QueueDefinitionError) -> QueueProblem {
    QueueProblem {
        queue: problem.queue.to_string(),
        key: problem.key.to_owned(),
        what: problem.what.clone(),
        fix: problem.fix.clone(),
    }
}

/// Finds one queue in a tree.
pub(crate) fn place<'t>(root: &'t mut QueueSpec, path: &QueuePath) -> Option<&'t mut QueueSpec> {
    let words = path.as_str().split('.').skip(1);
    words.into_iter().try_fold(root, |queue, word| {
        queue.queues.get_mut(&word.parse().ok()?)
    })
}

/// View of the tree with the use of each queue.
pub(crate) fn view(cluster: &Cluster) -> QueuesView {
    let mut apps: ActiveApplicationCounts<'_> = BTreeMap::new();
    for app in cluster.apps().filter(|a| !a.state.is_over()) {
        *apps.entry((&app.queue, &app.spec.user)).or_default() += 1;
    }
    let all: BTreeMap<&QueuePath, Shown<'_>> =
        cluster.queues().into_iter().map(|q| (q.path, q)).collect();
    let root = QueuePath::root();
    let root = all.get(&root).map(|queue| shown(queue, &all, &apps));
    QueuesView {
        generation: cluster.queues_generation(),
        root: root.unwrap_or_else(nothing),
    }
}

/// Number of applications that have not ended, by queue and user.
type ActiveApplicationCounts<'a> = BTreeMap<(&'a QueuePath, &'a str), u32>;

fn shown(
    queue: &Shown<'_>,
    all: &BTreeMap<&QueuePath, Shown<'_>>,
    apps: &ActiveApplicationCounts<'_>,
) -> QueueView {
    let below = queue
        .children
        .iter()
        .filter_map(|path| all.get(path))
        .map(|child| shown(child, all, apps));
    let users = queue.users.iter().map(|(user, used)| QueueUser {
        user: (*user).to_owned(),
        apps: apps.get(&(queue.path, *user)).copied().unwrap_or(0),
        used: (*used).clone(),
    });
    QueueView {
        path: queue.path.clone(),
        spec: own(queue.spec),
        state: state_to_wire(queue.state),
        guaranteed: queue.guaranteed.clone(),
        maximum: queue.maximum.clone(),
        used: queue.used.clone(),
        masters: queue.masters.clone(),
        share: queue.dominant,
        below_guarantee: queue.below_guarantee,
        containers: queue.containers,
        pending: queue.pending_containers,
        waiting: queue.pending.clone(),
        apps: u32::try_from(queue.apps).unwrap_or(u32::MAX),
        running: queue.running,
        users: users.collect(),
        queues: below.collect(),
    }
}

/// Placeholder for a missing root. Not reached, because every tree has a root.
fn nothing() -> QueueView {
    QueueView {
        path: QueuePath::root(),
        spec: QueueSpec::default(),
        state: QueueRunState::Stopped,
        guaranteed: Resource::default(),
        maximum: Resource::default(),
        used: Resource::default(),
        masters: Resource::default(),
        share: 0,
        below_guarantee: false,
        containers: 0,
        pending: 0,
        waiting: Resource::default(),
        apps: 0,
        running: 0,
        users: Vec::new(),
        queues: Vec::new(),
    }
}
