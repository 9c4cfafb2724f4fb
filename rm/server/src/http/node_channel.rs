//! The connection of a node agent after its protocol has changed: desired state down, reports up.
//!
//! One task per node owns the connection. It reads and writes small pieces, and keeps no buffers
//! while the node is silent: with ten thousand nodes, those of an HTTP connection would take most of
//! the daemon's memory.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::response::Response;
use headroom_types::NodeId;
use headroom_wire::v1::node_channel::{
    MAX_REPORT_LINE_BYTES, NODE_CHANNEL_PROTOCOL, NodeChannelLine, NodeChannelReport,
    NodeReportOutcome,
};
use headroom_wire::v1::nodes::NodeRegistered;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tracing::debug;

use super::limits::ConnectionSlot;
use super::stream::{self, DesiredStateSource};
use super::stream_authorization::CallerAuthorization;
use super::web::WebHandlerState;
use super::{node_reports, upgrade};

/// Timeout for the change of the protocol, and for each write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Room for one read. Bytes.
const READ_BYTES: usize = 1024;

/// The channel of a node.
pub(super) struct NodeChannel {
    /// Answer to the registration that opens the channel.
    pub(super) registered: Option<NodeRegistered>,
    pub(super) web: WebHandlerState,
    pub(super) node: NodeId,
    pub(super) desired: DesiredStateSource,
    pub(super) caller: CallerAuthorization,
    /// Slot of the connection, which the HTTP server gives up with the change of the protocol.
    pub(super) slot: Option<ConnectionSlot>,
}

impl NodeChannel {
    /// The response that changes the protocol. Afterwards a task serves the channel.
    pub(super) fn open(self, upgrade: OnUpgrade) -> Response {
        let node = self.node.clone();
        if let (Some(_), Some(slot)) = (&self.registered, &self.slot) {
            slot.join_head();
        }
        tokio::spawn(async move {
            if let Err(error) = self.serve(upgrade).await {
                debug!(%node, %error, "the channel of a node has closed");
            }
        });
        upgrade::switching_to(NODE_CHANNEL_PROTOCOL)
    }

    /// Serves until one side closes the connection, the authorization of the node ends, another
    /// stream of the node opens, or the daemon ends.
    async fn serve(mut self, upgrade: OnUpgrade) -> io::Result<()> {
        let upgraded = timeout(WRITE_TIMEOUT, upgrade).await?;
        let mut connection = TokioIo::new(upgraded.map_err(io::Error::other)?);
        let mut ended = pin!(self.caller.clone().ended());
        let closing = self.web.closing.clone();
        let mut closed = pin!(closing.cancelled());
        let (mut input, mut output) = (Vec::new(), Vec::new());
        if let Some(registered) = self.registered.take() {
            encode(&mut output, &NodeChannelLine::Registered(registered));
            self.flush(&mut connection, &mut output).await?;
        }
        loop {
            input.reserve(READ_BYTES);
            tokio::select! {
                biased;
                () = &mut closed => return Ok(()),
                () = &mut ended => return Ok(()),
                desired = self.desired.next() => match desired {
                    None => return Ok(()),
                    Some(desired) => encode(&mut output, &NodeChannelLine::Desired(desired)),
                },
                read = connection.read_buf(&mut input) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.take_in(&mut input, &mut output).await?;
                }
            }
            self.flush(&mut connection, &mut output).await?;
            if input.is_empty() {
                input = Vec::new();
            }
        }
    }

    /// Writes the output. Desired state that is ready joins the same write.
    async fn flush(
        &mut self,
        connection: &mut TokioIo<Upgraded>,
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        while let Some(desired) = self.desired.ready() {
            encode(output, &NodeChannelLine::Desired(desired));
        }
        write(connection, &std::mem::take(output)).await
    }

    /// Processes the whole lines of the input.
    async fn take_in(&self, input: &mut Vec<u8>, output: &mut Vec<u8>) -> io::Result<()> {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..)
            && let Some(end) = rest.iter().position(|byte| *byte == b'\n')
        {
            let line: NodeChannelReport = serde_json::from_slice(&rest[..end])?;
            taken += end + 1;
            let NodeChannelReport { number, report } = line;
            let accepted = node_reports::accept(&self.web, &self.node, report).await;
            let outcome = match accepted {
                Ok(reply) => NodeReportOutcome::Received(reply),
                Err(problem) => NodeReportOutcome::Refused(problem),
            };
            encode(output, &NodeChannelLine::Reply { number, outcome });
        }
        input.drain(..taken);
        if input.len() > MAX_REPORT_LINE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a line is longer than {MAX_REPORT_LINE_BYTES} bytes"),
            ));
        }
        Ok(())
    }
}

fn encode(output: &mut Vec<u8>, line: &NodeChannelLine) {
    stream::line(output, line);
}

async fn write(connection: &mut TokioIo<Upgraded>, output: &[u8]) -> io::Result<()> {
    if output.is_empty() {
        return Ok(());
    }
    timeout(WRITE_TIMEOUT, async {
        connection.write_all(output).await?;
        connection.flush().await
    })
    .await?
}
