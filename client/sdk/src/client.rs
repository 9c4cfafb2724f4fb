//! One call per method. No state but the connection pool.

use std::time::Duration;

use headroom_types::{AppId, ContainerId, NodeId};
use headroom_wire::v1::{am, apps, error::Problem, events, nodes};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::SILENT;
use crate::{ClientError, Lines};

/// How long a call may take.
const CALL: Duration = Duration::from_secs(10);
/// How long a stream may be silent; the other side sends a sign of life every 5 s.
const SILENCE: Duration = Duration::from_secs(20);

/// Whether a stream goes on after what is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It waits for more.
    Yes,
    /// It ends.
    No,
}

/// A client of one resource manager (or, for logs, of one node agent).
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    http: reqwest::Client,
}

impl Client {
    /// A client of the resource manager at `base`, such as `http://127.0.0.1:7070`.
    pub fn new(base: &str) -> Result<Self, ClientError> {
        let wrong = || ClientError::Address { address: base.to_owned() };
        let trimmed = base.trim_end_matches('/');
        let url = reqwest::Url::parse(trimmed).map_err(|_| wrong())?;
        if url.scheme() != "http" || url.host_str().is_none() {
            return Err(wrong());
        }
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(3))
            .tcp_nodelay(true)
            .no_proxy()
            .build()
            .map_err(|source| ClientError::Unreachable { url: trimmed.to_owned(), source })?;
        Ok(Client { base: trimmed.to_owned(), http })
    }

    /// The address it speaks to.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// `GET path`, JSON answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.base);
        let response = self.send(&url, self.http.get(&url).timeout(CALL)).await?;
        parse(url, response).await
    }

    /// `GET path`, text answer.
    pub async fn get_text(&self, path: &str) -> Result<String, ClientError> {
        let url = format!("{}{path}", self.base);
        let response = self.send(&url, self.http.get(&url).timeout(CALL)).await?;
        response.text().await.map_err(|source| ClientError::Unreachable { url, source })
    }

    /// `POST path` with a JSON body, JSON answer.
    pub async fn post<B: Serialize + Sync, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.base);
        let response = self.send(&url, self.http.post(&url).timeout(CALL).json(body)).await?;
        parse(url, response).await
    }

    /// `DELETE path`, JSON answer.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.base);
        let response = self.send(&url, self.http.delete(&url).timeout(CALL)).await?;
        parse(url, response).await
    }

    /// `GET path`, one JSON object a line for as long as it is read.
    pub async fn lines<T: DeserializeOwned>(&self, path: &str) -> Result<Lines<T>, ClientError> {
        let url = format!("{}{path}", self.base);
        let response = self.send(&url, self.http.get(&url)).await?;
        Ok(Lines::new(url, response, SILENCE))
    }

    async fn send(&self, url: &str, request: reqwest::RequestBuilder) -> Result<reqwest::Response, ClientError> {
        let started = tokio::time::timeout(CALL, request.send()).await;
        let Ok(answer) = started else {
            return Err(ClientError::Answer { url: url.to_owned(), what: format!("{SILENT} {} s", CALL.as_secs()) });
        };
        let response = answer.map_err(|source| ClientError::Unreachable { url: url.to_owned(), source })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
            Err(_) => Err(ClientError::Answer { url: url.to_owned(), what: format!("status {status}") }),
        }
    }

    /// Submits an application.
    pub async fn submit(&self, app: &apps::SubmitApp) -> Result<apps::Submitted, ClientError> {
        self.post("/v1/apps", app).await
    }
    /// All applications kept.
    pub async fn apps(&self) -> Result<Vec<apps::AppView>, ClientError> {
        self.get("/v1/apps").await
    }
    /// One application with its job.
    pub async fn app(&self, app: &AppId) -> Result<apps::AppView, ClientError> {
        self.get(&format!("/v1/apps/{app}")).await
    }
    /// Ends an application.
    pub async fn kill(&self, app: &AppId, reason: Option<String>) -> Result<apps::AppView, ClientError> {
        self.post(&format!("/v1/apps/{app}/kill"), &apps::KillApp { reason }).await
    }
    /// Why its requests wait.
    pub async fn why(&self, app: &AppId) -> Result<Vec<apps::WhyPending>, ClientError> {
        self.get(&format!("/v1/apps/{app}/why")).await
    }
    /// The cluster on one screen.
    pub async fn status(&self) -> Result<apps::ClusterView, ClientError> {
        self.get("/v1/status").await
    }
    /// All nodes.
    pub async fn nodes(&self) -> Result<Vec<nodes::NodeView>, ClientError> {
        self.get("/v1/nodes").await
    }
    /// Containers, of one application or all.
    pub async fn containers(&self, app: Option<&AppId>) -> Result<Vec<apps::ContainerView>, ClientError> {
        let filter = app.map(|a| format!("?app={a}")).unwrap_or_default();
        self.get(&format!("/v1/containers{filter}")).await
    }
    /// The end of a log of a container: `stdout`, `stderr`, or `TASK-FILE.out|err`.
    pub async fn log(&self, container: &ContainerId, file: &str, tail_bytes: u64) -> Result<String, ClientError> {
        self.get_text(&format!("/v1/containers/{container}/logs/{file}?tail={tail_bytes}")).await
    }
    /// The event log from after `cursor`.
    pub async fn events(&self, cursor: u64) -> Result<Lines<events::Event>, ClientError> {
        self.lines(&format!("/v1/events?cursor={cursor}&follow=true")).await
    }
    /// The event log from after `cursor`, of one application or all; ends with the last event when `follow` is `No`.
    pub async fn events_of(&self, app: Option<&AppId>, cursor: u64, follow: Follow) -> Result<Lines<events::Event>, ClientError> {
        let filter = app.map(|a| format!("&app={a}")).unwrap_or_default();
        let follow = match follow {
            Follow::Yes => "true",
            Follow::No => "false",
        };
        self.lines(&format!("/v1/events?cursor={cursor}&follow={follow}{filter}")).await
    }
    /// One container.
    pub async fn container(&self, container: &ContainerId) -> Result<apps::ContainerView, ClientError> {
        self.get(&format!("/v1/containers/{container}")).await
    }
    /// One node.
    pub async fn node(&self, node: &NodeId) -> Result<nodes::NodeView, ClientError> {
        self.get(&format!("/v1/nodes/{node}")).await
    }

    /// A master is there.
    pub async fn register_master(&self, app: &AppId, body: &am::RegisterMaster) -> Result<am::Registered, ClientError> {
        self.post(&format!("/v1/apps/{app}/register"), body).await
    }
    /// Heartbeat, asks, releases, acknowledgement.
    pub async fn sync_master(&self, app: &AppId, body: &am::MasterSync) -> Result<am::MasterSyncReply, ClientError> {
        self.post(&format!("/v1/apps/{app}/sync"), body).await
    }
    /// The master is done.
    pub async fn finish(&self, app: &AppId, body: &am::FinishApp) -> Result<apps::AppView, ClientError> {
        self.post(&format!("/v1/apps/{app}/finish"), body).await
    }
    /// What happens to its containers, from after `cursor`.
    pub async fn updates(
        &self,
        app: &AppId,
        epoch: headroom_types::Epoch,
        cursor: u64,
    ) -> Result<Lines<am::Update>, ClientError> {
        self.lines(&format!("/v1/apps/{app}/updates?epoch={epoch}&cursor={cursor}")).await
    }

    /// A node is there.
    pub async fn register_node(&self, node: &NodeId, body: &nodes::RegisterNode) -> Result<nodes::NodeRegistered, ClientError> {
        self.post(&format!("/v1/nodes/{node}/register"), body).await
    }
    /// What a node has.
    pub async fn report(&self, node: &NodeId, body: &nodes::NodeReport) -> Result<nodes::NodeReportReply, ClientError> {
        self.post(&format!("/v1/nodes/{node}/report"), body).await
    }
    /// What a node should have.
    pub async fn desired(&self, node: &NodeId, epoch: headroom_types::Epoch) -> Result<Lines<nodes::Desired>, ClientError> {
        self.lines(&format!("/v1/nodes/{node}/desired?epoch={epoch}")).await
    }
}

async fn parse<T: DeserializeOwned>(url: String, response: reqwest::Response) -> Result<T, ClientError> {
    let body = response.bytes().await.map_err(|source| ClientError::Unreachable { url: url.clone(), source })?;
    serde_json::from_slice(&body).map_err(|e| ClientError::Answer { url, what: e.to_string() })
}
