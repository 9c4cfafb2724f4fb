//! The stream of a node's desired state, and the way of its reports on the same connection.

use headroom_types::{Epoch, NodeId};
use headroom_wire::v1::node_channel::{NODE_CHANNEL_PROTOCOL, NodeChannelLine, NodeChannelReport};
use headroom_wire::v1::nodes::DesiredStateLine;
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

impl Client {
    /// Opens the stream of a node's desired state.
    pub async fn node_stream(&self, node: &NodeId, epoch: Epoch) -> ClientResult<NodeStream> {
        let path = format!("/v1/nodes/{node}/desired?epoch={epoch}");
        let (url, answer) = self.upgrade_or_stream(&path, NODE_CHANNEL_PROTOCOL).await?;
        Ok(match answer {
            Ok(upgraded) => {
                let (read, connection) = split(upgraded);
                NodeStream::Channel(
                    JsonLineStream::of_connection(url.clone(), read, SILENCE),
                    NodeReportSender { url, connection },
                )
            }
            Err(response) => NodeStream::Lines(JsonLineStream::new(url, response, SILENCE)),
        })
    }
}
