//! The stream of a node's desired state, and the way of its reports on the same connection.

use headroom_types::{Epoch, NodeId};
use headroom_wire::v1::node_channel::{NODE_CHANNEL_PROTOCOL, NodeChannelLine, NodeChannelReport};
use headroom_wire::v1::nodes::{DesiredStateLine, NodeRegistered, RegisterNode};
use reqwest::Upgraded;
use tokio::io::{AsyncWriteExt as _, WriteHalf, split};

use crate::client::SILENCE;
use crate::error::AnswerDefect;
use crate::{Client, ClientError, ClientResult, JsonLineStream};

/// The open stream of a node.
#[derive(Debug)]
pub enum NodeStream {
    /// Desired state and replies, and the sender of reports.
    Channel(JsonLineStream<NodeChannelLine>, NodeReportSender),
    /// Desired state only, from a resource manager of an earlier version: reports are calls.
    Lines(JsonLineStream<DesiredStateLine>),
}

/// Sends reports on the connection of a node's stream.
#[derive(Debug)]
pub struct NodeReportSender {
    url: String,
    connection: WriteHalf<Upgraded>,
}

impl NodeReportSender {
    /// Sends a report. Its reply is a line of the stream. Read the stream meanwhile: the resource
    /// manager may wait for that. Not cancel-safe.
    pub async fn send(&mut self, report: &NodeChannelReport) -> ClientResult<()> {
        let failed = |what: String| ClientError::Answer {
            url: self.url.clone(),
            defect: AnswerDefect::Malformed(what),
        };
        let mut line = serde_json::to_vec(report).map_err(|error| failed(error.to_string()))?;
        line.push(b'\n');
        let lost = |error: std::io::Error| failed(format!("the connection is lost: {error}"));
        self.connection.write_all(&line).await.map_err(lost)?;
        self.connection.flush().await.map_err(lost)
    }
}

impl NodeStream {
    fn channel(
        url: String,
        upgraded: Upgraded,
    ) -> (JsonLineStream<NodeChannelLine>, NodeReportSender) {
        let (read, connection) = split(upgraded);
        (
            JsonLineStream::of_connection(url.clone(), read, SILENCE),
            NodeReportSender { url, connection },
        )
    }
}

impl Client {
    /// Registers a node agent, with all its containers. The connection of the call becomes the
    /// stream of the node, except with a resource manager of an earlier version.
    pub async fn register_node_with_stream(
        &self,
        node: &NodeId,
        body: &RegisterNode,
    ) -> ClientResult<(NodeRegistered, Option<NodeStream>)> {
        let path = format!("/v1/nodes/{node}/register");
        let answer = self.upgrade_or_post(&path, NODE_CHANNEL_PROTOCOL, body);
        let (url, upgraded) = match answer.await? {
            (_, Err(registered)) => return Ok((registered, None)),
            (url, Ok(upgraded)) => (url, upgraded),
        };
        let (mut lines, sender) = NodeStream::channel(url.clone(), upgraded);
        let missing = |what: &str| ClientError::Answer {
            url: url.clone(),
            defect: AnswerDefect::Malformed(format!("{what} instead of the answer")),
        };
        match lines.next().await {
            Some(Ok(NodeChannelLine::Registered(registered))) => {
                Ok((registered, Some(NodeStream::Channel(lines, sender))))
            }
            Some(Ok(NodeChannelLine::Desired(_) | NodeChannelLine::Reply { .. })) => {
                Err(missing("another line"))
            }
            Some(Err(error)) => Err(error),
            None => Err(missing("the end of the connection")),
        }
    }

    /// Opens the stream of a node's desired state.
    pub async fn node_stream(&self, node: &NodeId, epoch: Epoch) -> ClientResult<NodeStream> {
        let path = format!("/v1/nodes/{node}/desired?epoch={epoch}");
        let (url, answer) = self.upgrade_or_stream(&path, NODE_CHANNEL_PROTOCOL).await?;
        Ok(match answer {
            Ok(upgraded) => {
                let (lines, sender) = NodeStream::channel(url, upgraded);
                NodeStream::Channel(lines, sender)
            }
            Err(response) => NodeStream::Lines(JsonLineStream::new(url, response, SILENCE)),
        })
    }
}
