//! Conversions from wire messages to the types of the core, with validation. No decisions are made
//! here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core as core;
use headroom_types::exit::{LeftoverOwner, Unattributed};
use headroom_types::unattributed::MAX_OWNERS;
use headroom_types::{AppId, Bytes, Name, NodeId, QueuePath};
use headroom_wire::v1::application_master::{
    self, AppendToJournal, FinishApplicationRequest, MasterSync, PlacementRequest, RegisterMaster,
};
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use headroom_wire::v1::job::JobViewPatch;
use headroom_wire::v1::known_containers::ContainerNumbers;
use headroom_wire::v1::nodes::{
    NodeContainerPhase, NodeHealthState, NodeReport, NodeTraits, ObservedContainer, RegisterNode,
    TagNodeRequest,
};
use headroom_wire::v1::validation::{check_launch, check_request, check_submit};

use crate::mirror::{match_variants, move_fields};

/// Maximum number of items of one kind in one message.
const MAX_ITEMS: usize = 10_000;

fn few(what: &str, n: usize) -> ProblemResult<()> {
    if n > MAX_ITEMS {
        return Err(ProblemDetails::too_large(format!(
            "{n} {what} in one message; at most {MAX_ITEMS}"
        )));
    }
    Ok(())
}

/// Converts a submission.
pub(crate) fn submit(app: SubmitApplicationRequest) -> ProblemResult<Box<core::AppSubmission>> {
    check_submit(&app)?;
    let queue = app.queue.unwrap_or_else(QueuePath::default_leaf);
    let master = match app.master {
        ApplicationMaster::Unmanaged => core::MasterKind::Unmanaged,
        ApplicationMaster::Managed {
            resource,
            launch,
            max_attempts,
            growth,
            start_timeout_ms,
            first_request,
        } => core::MasterKind::Managed {
            resource,
            launch: Arc::from(launch),
            max_attempts,
            growth,
            start_timeout: start_timeout_ms.map(Duration::from_millis),
            first_request: first_request
                .map(|request| ask(*request).map(Box::new))
                .transpose()?,
        },
    };
    let user = app.user.unwrap_or_else(|| "unknown".to_owned());
    let lifetime = app.lifetime_ms.map(Duration::from_millis);
    let new = core::AppSubmission {
        name: app.name,
        queue,
        priority: app.priority,
        user,
        lifetime,
        master,
        key: app.idempotency_key,
    };
    Ok(Box::new(new))
}

fn of_app(given: &AppId, path: &AppId) -> ProblemResult<()> {
    if given != path {
        return Err(ProblemDetails::bad_request(format!(
            "attempt belongs to application {given}, but the path names {path}"
        )));
    }
    Ok(())
}

/// Converts the registration of a master, and returns the containers that it names. Fails if the
/// attempt belongs to another application than `app`, or the URL is not valid.
pub fn register_master(
    app: &AppId,
    body: RegisterMaster,
) -> ProblemResult<(core::ClusterCall, ContainerNumbers)> {
    of_app(&body.attempt.app, app)?;
    let place =
        |url: &String| (url.starts_with("tcp://") || url.starts_with("tls://")) && url.len() <= 256;
    if body.master_url.as_ref().is_some_and(|url| !place(url)) {
        return Err(ProblemDetails::bad_request(
            "master_url must begin with tcp:// or tls:// and have at most 256 characters",
        ));
    }
    few("nodes", body.nodes.as_ref().map_or(0, BTreeSet::len))?;
    let call = core::ClusterCall::RegisterMaster {
        attempt: body.attempt,
        url: body.master_url,
        nodes: body.nodes,
    };
    Ok((call, body.containers))
}

/// Returns the records of a group for the journal of `app`. Fails if the attempt belongs to another
/// application, or the records are not whole lines or larger than `max` bytes.
pub fn journal_records<'b>(
    app: &AppId,
    body: &'b AppendToJournal,
    max: usize,
) -> ProblemResult<&'b [u8]> {
    of_app(&body.attempt.app, app)?;
    let records = body.records.as_bytes();
    if records.is_empty() != body.moved {
        return Err(ProblemDetails::bad_request(
            "a group has records, and the mark of a moved journal has none",
        ));
    }
    if !(body.moved || records.ends_with(b"\n")) {
        return Err(ProblemDetails::bad_request(
            "the last record of a group must end with a line feed",
        ));
    }
    if records.len() > max {
        return Err(ProblemDetails::too_large(format!(
            "a group has at most {}, and this one has {}",
            Bytes::new(u64::try_from(max).unwrap_or(u64::MAX)),
            Bytes::new(u64::try_from(records.len()).unwrap_or(u64::MAX))
        )));
    }
    Ok(records)
}

/// Converts a master's heartbeat, without the rows of the job. Fails if the attempt belongs to
/// another application than `app`, or a request is not valid.
pub fn sync(app: &AppId, body: MasterSync) -> ProblemResult<core::ClusterCall> {
    of_app(&body.attempt.app, app)?;
    few("asks", body.asks.len())?;
    few("requests to drop", body.drop.len())?;
    few("containers to release", body.release.len())?;
    let asks: ProblemResult<Vec<core::request::ContainerRequest>> =
        body.asks.into_iter().map(ask).collect();
    Ok(core::ClusterCall::Sync(Box::new(core::MasterHeartbeat {
        attempt: body.attempt,
        epoch: body.epoch,
        ack: body.ack,
        asks: asks?,
        withdraw: body.drop,
        release: body.release,
    })))
}

/// Converts one container request. Fails if it is not valid.
pub fn ask(ask: PlacementRequest) -> ProblemResult<core::request::ContainerRequest> {
    check_request(&ask)?;
    check_launch(&ask.launch)?;
    few(
        "nodes in one request",
        ask.avoid_nodes.len().max(ask.nodes.len()),
    )?;
    Ok(core::request::ContainerRequest {
        request: ask.request,
        resource: ask.resource,
        count: ask.count,
        ended: ask.ended,
        priority: ask.priority,
        place: placement(*ask.placement, ask.nodes, ask.avoid_nodes).into(),
        deadline: ask.deadline_ms.map(Duration::from_millis),
        waited: Duration::from_millis(ask.waited_ms),
        launch: Arc::from(ask.launch),
    })
}

fn placement(
    wire: application_master::Placement,
    named: Vec<NodeId>,
    avoided: Vec<NodeId>,
) -> core::placement::PlacementRules {
    move_fields!(
        wire, application_master::Placement => core::placement::PlacementRules,
        {
            racks, avoid_racks, prefer_nodes, prefer_racks, relax, labels, attributes, tolerate,
            apart, spread,
        }
        with { nodes: named, avoid_nodes: avoided }
    )
}

/// Converts the end of a master, and returns the rows of its job. Fails if the attempt belongs to
/// another application than `app`.
pub fn finish(
    app: &AppId,
    body: FinishApplicationRequest,
) -> ProblemResult<(core::ClusterCall, Option<JobViewPatch>)> {
    of_app(&body.attempt.app, app)?;
    let outcome = if body.succeeded {
        core::ApplicationOutcome::Succeeded
    } else {
        core::ApplicationOutcome::Failed
    };
    let rows = match &body.job {
        Some(patch) if !patch.full => core::FinalRows::Changed,
        Some(_) | None => core::FinalRows::All,
    };
    let call = core::ClusterCall::Finish {
        attempt: body.attempt,
        outcome,
        diagnostics: cut(body.diagnostics, 16 << 10),
        rows,
    };
    Ok((call, body.job))
}

/// Truncates a text to at most `most` bytes, between two characters.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most)
            .rev()
            .find(|i| text.is_char_boundary(*i))
            .unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Converts the registration of a node. Fails if the URL is not valid, a list is too long, or an
/// exit is of another node.
pub fn register_node(node: NodeId, body: RegisterNode) -> ProblemResult<core::ClusterCall> {
    few("containers", body.containers.len())?;
    few("exits", body.exits.len())?;
    if !(body.url.starts_with("http://") || body.url.starts_with("https://"))
        || body.url.len() > 256
    {
        return Err(ProblemDetails::bad_request(
            "url must begin with http:// or https:// and have at most 256 characters",
        ));
    }
    own(&node, &body.exits)?;
    let facts = core::NodeRegistration {
        offers: body.offers,
        enforcer: body.enforcer,
        url: body.url,
        version: cut(body.version, 64),
        traits: traits(body.traits),
        health: health(body.health),
        seen: body.containers.into_iter().map(seen).collect(),
        exits: body.exits.into_iter().map(Arc::new).collect(),
        serial: body.serial,
        unattributed: unattributed(body.unattributed, body.left_by),
    };
    Ok(core::ClusterCall::RegisterNode {
        node,
        facts: Box::new(facts),
    })
}

/// Converts the unattributed memory of a node. Names are bounded, because they are shown.
fn unattributed(memory: Bytes, left_by: Vec<LeftoverOwner>) -> Unattributed {
    let left_by = left_by
        .into_iter()
        .take(MAX_OWNERS)
        .map(|owner| LeftoverOwner {
            name: cut(owner.name, 256),
            ..owner
        });
    Unattributed {
        memory,
        left_by: left_by.collect(),
    }
}

fn traits(wire: NodeTraits) -> core::NodeProperties {
    let alone = if wire.exclusive {
        core::Exclusive::Yes
    } else {
        core::Exclusive::No
    };
    move_fields!(
        wire, NodeTraits => core::NodeProperties,
        { rack, labels, attributes, taints }
        without { exclusive }
        with { exclusive: alone }
    )
}

/// Converts an operator's settings of a node.
pub(crate) fn tag(body: TagNodeRequest) -> ProblemResult<core::TagChange> {
    let TagNodeRequest {
        cordon,
        reason,
        labels,
        attributes,
        taints,
    } = body;
    let cordon = match (cordon, reason) {
        (Some(true), reason) => Some(core::CordonState::On(cut(reason.unwrap_or_default(), 1024))),
        (Some(false), None) => Some(core::CordonState::Off),
        (None, None) => None,
        (Some(false) | None, Some(_)) => {
            return Err(ProblemDetails::bad_request(
                "reason is the reason of a cordon; send it with cordon: true",
            ));
        }
    };
    for (name, value) in attributes.iter().chain(&taints) {
        if value
            .as_ref()
            .is_some_and(|value| value.len() > 128 || value.chars().any(char::is_control))
        {
            return Err(ProblemDetails::bad_request(format!(
                "the value of {name} has at most 128 bytes and no control characters"
            )));
        }
    }
    let (put, dropped): (Vec<_>, Vec<_>) = labels.into_iter().partition(|(_, put)| *put);
    let names = |labels: Vec<(Name, bool)>| labels.into_iter().map(|(label, _)| label).collect();
    Ok(core::TagChange {
        cordon,
        labels: names(put),
        drop_labels: names(dropped),
        attributes,
        taints,
    })
}

/// Converts a node's heartbeat. Fails if a list is too long, or an exit is of another node.
pub fn report(node: &NodeId, body: NodeReport) -> ProblemResult<Box<core::NodeHeartbeat>> {
    few("containers", body.containers.len())?;
    few("exits", body.exits.len())?;
    own(node, &body.exits)?;
    Ok(Box::new(core::NodeHeartbeat {
        epoch: body.epoch,
        seen: body.containers.into_iter().map(seen).collect(),
        exits: body.exits.into_iter().map(Arc::new).collect(),
        host_used: body.host_used,
        unattributed: unattributed(body.unattributed, body.left_by),
        health: health(body.health),
    }))
}

fn own(node: &NodeId, exits: &[headroom_types::ExitReport]) -> ProblemResult<()> {
    match exits.iter().find(|exit| exit.node != *node) {
        Some(exit) => Err(ProblemDetails::bad_request(format!(
            "the exit of {} is of node {}, but the path names {node}",
            exit.container, exit.node
        ))),
        None => Ok(()),
    }
}

fn health(health: NodeHealthState) -> core::NodeHealth {
    match health {
        NodeHealthState::Healthy => core::NodeHealth::Healthy,
        NodeHealthState::Unhealthy { reason } => core::NodeHealth::Unhealthy {
            reason: cut(reason, 1024),
        },
    }
}

fn seen(observed: ObservedContainer) -> core::ReportedContainer {
    use core::ContainerPhase;
    let phase = match_variants!(
        observed.phase, NodeContainerPhase => ContainerPhase,
        { Preparing, Starting, Running, Stopping, Exited }
    );
    core::ReportedContainer {
        container: observed.container,
        request: observed.request,
        attempt: observed.attempt,
        resource: observed.resource,
        version: observed.version,
        refused: observed.refused.map(|r| core::RefusedResize {
            version: r.version,
            why: cut(r.why, 1024),
        }),
        phase,
        used: observed.used,
        granted: observed.granted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("äöü".into(), 3), "ä…");
        assert_eq!(cut("abc".into(), 3), "abc");
    }

    #[test]
    fn a_message_for_another_application_is_refused() {
        let body = RegisterMaster::new("job.1@1".parse().expect("id"));
        let refused = register_master(&"job.2".parse().expect("id"), body)
            .expect_err("the path names another application");
        assert!(
            refused.detail.contains("job.1") && refused.detail.contains("job.2"),
            "{}",
            refused.detail
        );
    }

    #[test]
    fn a_submission_without_a_queue_goes_to_the_default_queue() {
        let text = r#"{"name":"job","master":{"kind":"unmanaged"}}"#;
        let new = submit(serde_json::from_str(text).expect("reads")).expect("valid");
        assert_eq!(
            (new.queue.as_str(), new.user.as_str()),
            ("root.default", "unknown")
        );
    }
}
