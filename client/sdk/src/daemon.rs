//! Calls of the daemons: application masters and node agents register, report and listen.

use headroom_types::{AppId, Epoch, NodeId};
use headroom_wire::v1::{application_master, apps, nodes};

use crate::{Client, ClientError, JsonLineStream};

impl Client {
    /// Registers an application master.
    pub async fn register_master(
        &self,
        app: &AppId,
        body: &application_master::RegisterMaster,
    ) -> Result<application_master::MasterRegistered, ClientError> {
        self.post(&format!("/v1/apps/{app}/register"), body).await
    }
    /// Sends the heartbeat of a master, with requests, releases and acknowledgement.
    pub async fn sync_master(
        &self,
        app: &AppId,
        body: &application_master::MasterSync,
    ) -> Result<application_master::MasterSyncReply, ClientError> {
        self.post(&format!("/v1/apps/{app}/sync"), body).await
    }
    /// Reports that the master has finished.
    pub async fn finish(
        &self,
        app: &AppId,
        body: &application_master::FinishApplicationRequest,
    ) -> Result<apps::AppView, ClientError> {
        self.post(&format!("/v1/apps/{app}/finish"), body).await
    }
    /// Streams the updates about the containers of an application, after `cursor`.
    pub async fn updates(
        &self,
        app: &AppId,
        epoch: Epoch,
        cursor: u64,
    ) -> Result<JsonLineStream<application_master::ApplicationUpdate>, ClientError> {
        self.lines(&format!(
            "/v1/apps/{app}/updates?epoch={epoch}&cursor={cursor}"
        ))
        .await
    }

    /// Registers a node.
    pub async fn register_node(
        &self,
        node: &NodeId,
        body: &nodes::RegisterNode,
    ) -> Result<nodes::NodeRegistered, ClientError> {
        self.post(&format!("/v1/nodes/{node}/register"), body).await
    }
    /// Reports the observed state of a node.
    pub async fn report(
        &self,
        node: &NodeId,
        body: &nodes::NodeReport,
    ) -> Result<nodes::NodeReportReply, ClientError> {
        self.post(&format!("/v1/nodes/{node}/report"), body).await
    }
    /// Streams the desired state of a node.
    pub async fn desired(
        &self,
        node: &NodeId,
        epoch: Epoch,
    ) -> Result<JsonLineStream<nodes::DesiredStateLine>, ClientError> {
        self.lines(&format!("/v1/nodes/{node}/desired?epoch={epoch}"))
            .await
    }
}
