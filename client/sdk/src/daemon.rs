//! Calls of the daemons: application masters and node agents register, report and listen.

use headroom_types::{AppId, Epoch, NodeId};
use headroom_wire::v1::{application_master, apps, nodes};

use crate::{Client, ClientResult, JsonLineStream};

impl Client {
    /// Registers an application master.
    pub async fn register_master(
        &self,
        app: &AppId,
        body: &application_master::RegisterMaster,
    ) -> ClientResult<application_master::MasterRegistered> {
        self.post(&format!("/v1/apps/{app}/register"), body).await
    }
    /// Sends the heartbeat of a master, with requests, releases and acknowledgement.
    pub async fn sync_master(
        &self,
        app: &AppId,
        body: &application_master::MasterSync,
    ) -> ClientResult<application_master::MasterSyncReply> {
        self.post(&format!("/v1/apps/{app}/sync"), body).await
    }
    /// Reports that the master has finished.
    pub async fn finish(
        &self,
        app: &AppId,
        body: &application_master::FinishApplicationRequest,
    ) -> ClientResult<apps::AppView> {
        self.post(&format!("/v1/apps/{app}/finish"), body).await
    }
    /// Reads the journal that the resource manager keeps for an application, for its current
    /// attempt.
    pub async fn master_journal(
        &self,
        app: &AppId,
        attempt: u32,
    ) -> ClientResult<application_master::StoredJournal> {
        self.get(&format!("/v1/apps/{app}/journal?attempt={attempt}"))
            .await
    }
    /// Appends a group of records to that journal. Returns when it is durable.
    pub async fn append_to_journal(
        &self,
        app: &AppId,
        body: &application_master::AppendToJournal,
    ) -> ClientResult<application_master::JournalAppended> {
        self.post(&format!("/v1/apps/{app}/journal"), body).await
    }
    /// Streams the updates about the containers of an application, after `cursor`.
    pub async fn updates(
        &self,
        app: &AppId,
        epoch: Epoch,
        cursor: u64,
    ) -> ClientResult<JsonLineStream<application_master::ApplicationUpdate>> {
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
    ) -> ClientResult<nodes::NodeRegistered> {
        self.post(&format!("/v1/nodes/{node}/register"), body).await
    }
    /// Reports the observed state of a node.
    pub async fn report(
        &self,
        node: &NodeId,
        body: &nodes::NodeReport,
    ) -> ClientResult<nodes::NodeReportReply> {
        self.post(&format!("/v1/nodes/{node}/report"), body).await
    }
    /// Streams the desired state of a node in the form of earlier versions; agents open
    /// [`Client::node_stream`].
    pub async fn desired(
        &self,
        node: &NodeId,
        epoch: Epoch,
    ) -> ClientResult<JsonLineStream<nodes::DesiredStateLine>> {
        self.lines(&format!("/v1/nodes/{node}/desired?epoch={epoch}"))
            .await
    }
}
