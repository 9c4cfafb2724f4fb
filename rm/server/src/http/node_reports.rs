//! Reports of node agents, as calls and on the channels of their nodes.

use headroom_types::NodeId;
use headroom_wire::v1::error::ProblemResult;
use headroom_wire::v1::nodes::{NodeReport, NodeReportReply};

use super::web::WebHandlerState;
use crate::call_reply::Received;
use crate::{from_wire, limit_warnings};

/// Processes a report of a node agent.
pub(super) async fn accept(
    web: &WebHandlerState,
    node: &NodeId,
    mut body: NodeReport,
) -> ProblemResult<NodeReportReply> {
    let reload = body.reload.take();
    let near = limit_warnings::those_in(&body.containers);
    web.peaks
        .note(node, &body.containers, web.reader.clock.unix_now());
    let Received { received } = web
        .reader
        .handle
        .report(node.clone(), from_wire::report(node, body)?)
        .await?;
    web.reader
        .shared
        .events
        .push(web.near.events(node, web.reader.clock.unix_now(), near));
    web.reader.shared.events.push(
        reload.and_then(|reload| web.keys.reloaded(node, reload, web.reader.clock.unix_now())),
    );
    Ok(NodeReportReply {
        received,
        heartbeat_ms: web.reader.shared.heartbeat_ms(),
    })
}
