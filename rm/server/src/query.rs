//! Queries about the cluster, processed between two batches. They change nothing.

use std::collections::BTreeSet;

use headroom_rm_core::app::ClusterApplication;
use headroom_rm_core::{CallRefusal, Cluster, MasterUpdate, MasterWait, WaitExplanation};
use headroom_types::{AppId, ContainerId, Epoch, NodeId, RequestId, Sha256, Tick, millis};
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{ContainerView, NodeReservation};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemResult};

use crate::input::{ClusterQuery, ContainerFilter, HELD, HeldContainer, WaitingRequest};
use crate::{reports, to_wire, uploads, view};

/// Processes one query. The caller may have dropped its receiver.
pub(crate) fn answer(cluster: &Cluster, now: Tick, query: ClusterQuery) {
    match query {
        ClusterQuery::Refresh => {}
        ClusterQuery::Turn(reply) => _ = reply.send(()),
        ClusterQuery::Node(id, reply) => {
            _ = reply.send(
                cluster
                    .node(&id)
                    .map(|node| (view::node_view(cluster, node), node.heard)),
            )
        }
        ClusterQuery::App(id, reply) => {
            _ = reply.send(
                cluster
                    .app(&id)
                    .map(|app| view::app_view(cluster, app, now)),
            )
        }
        ClusterQuery::Facts(question) => reports::answer(cluster, now, question),
        ClusterQuery::Why(app, reply) => {
            let kept = |why: WaitExplanation| {
                let reserved = reserved(cluster, &app, &why.request, now);
                to_wire::why(why, reserved)
            };
            let _ = reply
                .send(why(cluster, &app, now).map(|rows| rows.into_iter().map(kept).collect()));
        }
        ClusterQuery::Requests(app, reply) => _ = reply.send(requests(cluster, &app)),
        ClusterQuery::Containers(wanted, reply) => _ = reply.send(containers(cluster, &wanted)),
        ClusterQuery::Attempts(app, reply) => {
            let attempts = cluster.app(&app).map(to_wire::attempts);
            _ = reply.send(attempts.unwrap_or_default())
        }
        ClusterQuery::Container(id, reply) => _ = reply.send(one_container(cluster, &id)),
        ClusterQuery::Held(nodes, reply) => {
            _ = reply.send(
                nodes
                    .into_iter()
                    .map(|node| (node.clone(), held(cluster, &node)))
                    .collect(),
            )
        }
        ClusterQuery::Waits(app, most, reply) => {
            _ = reply.send(waits(cluster, app.as_ref(), most, now))
        }
        ClusterQuery::NeededUploads(reply) => _ = reply.send(needed_uploads(cluster)),
    }
}

/// Uploads that launches of applications name which have not ended.
fn needed_uploads(cluster: &Cluster) -> BTreeSet<Sha256> {
    let mut all = BTreeSet::new();
    for app in cluster.apps().filter(|app| !app.state.is_over()) {
        for launch in app.launches() {
            all.extend(uploads::named(launch));
        }
    }
    all
}

fn held(cluster: &Cluster, node: &NodeId) -> Vec<HeldContainer> {
    let alive = cluster.containers_on(node).filter(|c| c.state.is_alive());
    alive
        .take(HELD)
        .map(|c| HeldContainer {
            view: to_wire::container(c),
            heap: c.launch.heap,
        })
        .collect()
}

fn waits(cluster: &Cluster, of: Option<&AppId>, most: usize, now: Tick) -> Vec<WaitingRequest> {
    let since = |app: &ClusterApplication, request: &RequestId| {
        app.requests.get(request).map_or(now, |r| r.waiting)
    };
    let mut all: Vec<_> = cluster
        .waiting()
        .filter(|(app, _)| of.is_none_or(|of| *of == app.id))
        .collect();
    all.sort_by_key(|(app, request)| since(app, request));
    let row = |(app, request): (&ClusterApplication, &RequestId)| {
        Some(WaitingRequest {
            app: app.id.clone(),
            request: request.clone(),
            queue: app.queue.clone(),
            since: since(app, request),
            missing: app.missing(request),
            asks: app.requests.get(request)?.ask.resource.clone(),
            sentence: cluster.sentence(app, request, now)?,
        })
    };
    // A reason reads many nodes, so it is made only for rows that are returned.
    all.into_iter().filter_map(row).take(most).collect()
}

/// Reasons for waiting requests, and for the master if it waits.
fn why(cluster: &Cluster, id: &AppId, now: Tick) -> Option<Vec<WaitExplanation>> {
    let app = cluster.app(id)?;
    let mut rows = cluster.why(id, now)?;
    if let (Some(sentence), Some(size), Ok(request)) = (
        cluster.master_wait(app, now).map(MasterWait::into_sentence),
        &app.master,
        "master".parse::<RequestId>(),
    ) {
        let waiting = std::time::Duration::ZERO;
        let asks = size.resource.clone();
        rows.insert(
            0,
            WaitExplanation {
                request,
                asks,
                missing: 1,
                waiting,
                ahead: 0,
                sentence,
                nodes: Vec::new(),
            },
        );
    }
    Some(rows)
}

/// Reservation of a request.
fn reserved(
    cluster: &Cluster,
    app: &AppId,
    request: &RequestId,
    now: Tick,
) -> Option<NodeReservation> {
    let kept = cluster
        .reservations()
        .find(|r| r.app == *app && r.request == *request)?;
    let free = cluster
        .ledger()
        .node(&kept.node)
        .map(|account| account.free())
        .unwrap_or_default();
    let for_ms = millis(now.since(kept.since));
    Some(NodeReservation {
        node: kept.node.clone(),
        free,
        for_ms,
    })
}

fn requests(cluster: &Cluster, app: &AppId) -> Option<Vec<PlacementRequest>> {
    Some(
        cluster
            .app(app)?
            .requests
            .values()
            .map(|request| to_wire::ask(&request.ask))
            .collect(),
    )
}

/// Live and ended containers, by id.
fn containers(cluster: &Cluster, wanted: &ContainerFilter) -> Vec<ContainerView> {
    let place = |id: &ContainerId, node: &NodeId, state: &str| {
        wanted.app.as_ref().is_none_or(|app| *app == id.app)
            && wanted.node.as_ref().is_none_or(|n| n == node)
            && wanted.state.as_ref().is_none_or(|s| s == state)
            && wanted
                .apps
                .as_ref()
                .is_none_or(|apps| apps.contains(&id.app))
            && wanted.after.as_ref().is_none_or(|after| id > after)
    };
    let over = cluster
        .history()
        .iter()
        .filter(|c| place(&c.container, &c.node, "exited"));
    let live = cluster
        .containers()
        .filter(|c| place(&c.id, &c.node, c.state.as_str()));
    // Ids are selected first, so that views are made only of returned containers.
    let mut found: Vec<&ContainerId> = over
        .map(|c| &c.container)
        .chain(live.map(|c| &c.id))
        .collect();
    found.sort_unstable();
    found.truncate(wanted.most);
    found
        .into_iter()
        .filter_map(|id| one_container(cluster, id))
        .collect()
}

fn one_container(cluster: &Cluster, id: &ContainerId) -> Option<ContainerView> {
    let live = cluster.container(id).map(to_wire::container);
    live.or_else(|| cluster.history().get(id).map(to_wire::finished))
}

/// Checks that a node may open its stream.
pub(crate) fn may_watch_node(
    cluster: &Cluster,
    node: &NodeId,
    epoch: Epoch,
) -> Result<(), CallRefusal> {
    if epoch != cluster.epoch() {
        return Err(CallRefusal::StaleEpoch {
            given: epoch,
            current: cluster.epoch(),
        });
    }
    match cluster.node(node).filter(|n| n.state.is_member()) {
        Some(_) => Ok(()),
        None => Err(CallRefusal::NodeNotRegistered(node.clone())),
    }
}

/// Updates that a master does not have yet.
pub(crate) fn missed_updates(
    cluster: &Cluster,
    app: &AppId,
    epoch: Epoch,
    cursor: u64,
) -> ProblemResult<Vec<MasterUpdate>> {
    let refuse = |refusal: CallRefusal| Err(to_wire::problem(&refusal));
    let Some(found) = cluster.app(app) else {
        return refuse(CallRefusal::NoSuchApp(app.clone()));
    };
    if epoch != cluster.epoch() {
        return refuse(CallRefusal::StaleEpoch {
            given: epoch,
            current: cluster.epoch(),
        });
    }
    if found.state.is_over() {
        return refuse(CallRefusal::AppEnding {
            app: app.clone(),
            state: found.state.as_str(),
        });
    }
    cluster.updates(app, cursor).ok_or_else(|| {
        let acked = found.updates.acked();
        ProblemDetails::new(
            ErrorCode::HR0411,
            format!("updates of {app} up to {acked} were acknowledged and are no longer kept"),
        )
        .hint(format!("read from cursor {acked}, or register again"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headroom_rm_core::request::ContainerRequest;
    use headroom_rm_core::testkit::{ClusterScenario, ask, size};
    use headroom_rm_core::{ApplicationOutcome, MasterKind};
    use headroom_types::{FetchedFile, FetchedFileKind, LaunchSpec};

    use super::*;

    fn launch(n: u8) -> Arc<LaunchSpec> {
        let sum = Sha256::new([n; 32]);
        Arc::new(LaunchSpec {
            command: vec!["true".into()],
            fetch: vec![FetchedFile::uploaded("a", sum, FetchedFileKind::File)],
            ..LaunchSpec::default()
        })
    }

    fn request(n: u8) -> ContainerRequest {
        ContainerRequest {
            launch: launch(n),
            ..ask("main", 1, size(1, 1))
        }
    }

    #[test]
    fn uploads_are_needed_until_their_application_has_ended() {
        let mut scenario = ClusterScenario::new();
        let managed = MasterKind::Managed {
            resource: size(1, 1),
            launch: launch(1),
            max_attempts: 1,
            growth: None,
            start_timeout: None,
            first_request: Some(Box::new(request(3))),
        };
        scenario.submit("managed", 0, managed);
        let app = scenario.app("unmanaged");
        scenario.sync(&app, 0, vec![request(2)]).expect("requests");
        let sums = |numbers: &[u8]| numbers.iter().map(|n| Sha256::new([*n; 32])).collect();
        assert_eq!(needed_uploads(&scenario.cluster), sums(&[1, 2, 3]));
        let done = ApplicationOutcome::Succeeded;
        scenario.finish(&app, done).expect("finishes");
        assert_eq!(needed_uploads(&scenario.cluster), sums(&[1, 3]));
        scenario.check();
    }
}
