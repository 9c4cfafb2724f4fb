//! The client: one method per call of the interface. Its state is the connection pool, and the
//! address at which calls begin.

mod container;
mod leader_change;
mod manager_call;
mod uploads;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_types::{AppId, Name, NodeId, RequestId};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::node_groups::NodeGroup;
use headroom_wire::v1::{application_master, apps, audit, events, job_history, nodes, suggestions};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::addresses::{AddressChoice, ManagerAddresses};
use crate::credentials::{ClientCredentials, HttpConnector};
use crate::error::AnswerDefect;
use crate::log;
use crate::request_hook::{PreparedRequest, RequestHook, SendDecision};
use crate::{AuditQuery, ClientError, ClientResult, EventQuery, JsonLineStream, TaskRowScope};

/// Default timeout of a call.
const CALL: Duration = Duration::from_secs(10);
/// Longest time without data on a stream. The server sends a heartbeat every 5 s.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

/// Whether a stream continues after the present events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowMode {
    /// The stream waits for new events.
    Yes,
    /// The stream ends after the last present event.
    No,
}

/// Whether a call applies its change or only validates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunMode {
    /// The change is applied.
    Really,
    /// The change is only validated; the server returns the result that it would have.
    DryRun,
}

impl DryRunMode {
    /// The mode of a caller that may ask for a dry run.
    pub fn of(dry_run: bool) -> Self {
        if dry_run {
            DryRunMode::DryRun
        } else {
            DryRunMode::Really
        }
    }

    pub(crate) fn dry_run(self) -> bool {
        self == DryRunMode::DryRun
    }
}

/// A client of the resource managers of one cluster (or, for logs, of one node agent).
///
/// A call goes to the leader: it is sent to the next address when one does not listen or belongs to
/// a standby. Clones of a client share the address at which calls begin.
#[derive(Clone, Debug)]
pub struct Client {
    /// The addresses as the caller gave them, separated by commas.
    base: String,
    choice: Arc<Mutex<AddressChoice>>,
    wire: Arc<HttpConnector>,
    call: Duration,
    tap: Option<RequestHook>,
}

impl Client {
    /// A client of the resource manager at `base`, such as `http://127.0.0.1:7070`, or
    /// `unix:/run/headroom/resourcemanager.sock`; or of several, separated by commas.
    pub fn new(base: &str) -> ClientResult<Self> {
        Client::with_credentials(base, ClientCredentials::default())
    }

    /// A client with certificates or a token: needed for `https://rm.example:7070`, and for
    /// authentication at any address.
    pub fn with_credentials(base: &str, trust: ClientCredentials) -> ClientResult<Self> {
        let addresses = ManagerAddresses::parse(base).map_err(ClientError::Address)?;
        let wire = HttpConnector::open(&addresses, trust)?;
        Ok(Client {
            base: addresses.to_string(),
            choice: Arc::new(Mutex::new(AddressChoice::new(
                addresses,
                wire.unlisted_leader_policy(),
            ))),
            wire,
            call: CALL,
            tap: None,
        })
    }

    /// Sets the timeout of a call. A long poll adds its own waiting time to it.
    #[must_use]
    pub fn with_timeout(self, call: Duration) -> Self {
        Client { call, ..self }
    }

    /// Sets a hook that sees each request before it is sent and decides whether it is sent.
    #[must_use]
    pub fn with_request_hook(
        self,
        who: Arc<dyn Fn(&PreparedRequest<'_>) -> SendDecision + Send + Sync>,
    ) -> Self {
        Client {
            tap: Some(RequestHook(who)),
            ..self
        }
    }

    /// True if the client authenticates with a token or a certificate.
    pub fn is_authenticated(&self) -> bool {
        self.wire.trust().is_authenticated()
    }

    /// The address of the server, or the list of addresses, separated by commas.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// True for a list of several addresses.
    pub(crate) fn has_several(&self) -> bool {
        self.base.contains(',')
    }

    /// The address at which the next call begins: that of the leader, after a call was answered.
    pub fn current_address(&self) -> String {
        self.choice
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .current()
            .to_string()
    }

    /// `GET path` with a JSON response.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> ClientResult<T> {
        self.fetch(self.request(Method::GET, path)).await
    }

    /// `GET path` with a text response.
    pub async fn get_text(&self, path: &str) -> ClientResult<String> {
        let call = self.request(Method::GET, path);
        self.exchange(call, async |url, response| {
            let response = success(&url, response).await?;
            text(url, response).await
        })
        .await
    }

    /// `POST path` with a JSON body and a JSON response.
    pub async fn post<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> ClientResult<T> {
        self.change(Method::POST, path, None, body).await
    }

    /// `DELETE path` with a JSON response.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> ClientResult<T> {
        self.fetch(self.request(Method::DELETE, path)).await
    }

    /// `GET path` with a stream of JSON objects, one per line.
    pub async fn lines<T: DeserializeOwned>(&self, path: &str) -> ClientResult<JsonLineStream<T>> {
        let (url, response) = self.send(self.stream(Method::GET, path)).await?;
        Ok(JsonLineStream::new(url, response, SILENCE))
    }

    /// `METHOD path` with a JSON body and a JSON response. `matched` is the entity tag of the
    /// version that the caller read.
    pub(crate) async fn change<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        matched: Option<&str>,
        body: &B,
    ) -> ClientResult<T> {
        let mut call = self
            .request(method, path)
            .with(|request| request.json(body));
        if let Some(tag) = matched {
            call = call.with(|request| request.header("if-match", tag));
        }
        self.fetch(call).await
    }

    /// `GET path` as a long poll: returns when the index of the resource differs from `index`, or
    /// after `wait`. Returns the value with its present index.
    pub async fn get_after<T: DeserializeOwned>(
        &self,
        path: &str,
        index: u64,
        wait: Duration,
    ) -> ClientResult<(T, u64)> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let path = format!(
            "{path}{sign}wait={}ms&index={index}",
            wait.as_millis().max(1)
        );
        let call = self.request(Method::GET, &path).within(self.call + wait);
        self.exchange(call, async |url, response| {
            let response = success(&url, response).await?;
            let now = log::number(&response, "x-headroom-index");
            Ok((parse(url, response).await?, now.unwrap_or(index)))
        })
        .await
    }

    /// `GET path` that changes the protocol of the connection, or, from a server without that
    /// protocol, the response itself.
    pub(crate) async fn upgrade_or_stream(
        &self,
        path: &str,
        protocol: &str,
    ) -> ClientResult<(String, Result<reqwest::Upgraded, reqwest::Response>)> {
        let call = self.stream(Method::GET, path).upgrading(protocol);
        self.change_protocol(call).await
    }

    /// `POST path` with a JSON body that changes the protocol of the connection, or, from a server
    /// without that protocol, the JSON response.
    pub(crate) async fn upgrade_or_post<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &str,
        protocol: &str,
        body: &B,
    ) -> ClientResult<(String, Result<reqwest::Upgraded, T>)> {
        let call = self
            .stream(Method::POST, path)
            .with(|request| request.json(body))
            .upgrading(protocol);
        let (url, response) = match self.change_protocol(call).await? {
            (url, Ok(upgraded)) => return Ok((url, Ok(upgraded))),
            (url, Err(response)) => (url, response),
        };
        let body = tokio::time::timeout(self.call, parse(url.clone(), response)).await;
        let body = body.unwrap_or_else(|_| {
            let seconds = self.call.as_secs();
            Err(ClientError::Answer {
                url: url.clone(),
                defect: AnswerDefect::Malformed(format!("no whole response within {seconds} s")),
            })
        });
        Ok((url, Err(body?)))
    }

    /// `POST path` that changes the protocol of the connection. `most` is the timeout of the call.
    pub(crate) async fn upgrade(
        &self,
        path: &str,
        protocol: &str,
        most: Duration,
    ) -> ClientResult<reqwest::Upgraded> {
        let call = self
            .stream(Method::POST, path)
            .upgrading(protocol)
            .within(most);
        self.exchange(call, async |url, response| {
            if response.status() != reqwest::StatusCode::SWITCHING_PROTOCOLS {
                let status = success(&url, response).await?.status();
                let defect = AnswerDefect::Status(status);
                return Err(ClientError::Answer { url, defect });
            }
            let upgraded = response.upgrade().await;
            upgraded.map_err(|source| ClientError::Unreachable { url, source })
        })
        .await
    }

    /// Submits an application.
    pub async fn submit(
        &self,
        app: &apps::SubmitApplicationRequest,
    ) -> ClientResult<apps::SubmissionResult> {
        self.post("/v1/apps", app).await
    }
    /// Lists all stored applications.
    pub async fn apps(&self) -> ClientResult<Vec<apps::AppView>> {
        self.get("/v1/apps").await
    }
    /// Returns one application with its job.
    pub async fn app(&self, app: &AppId) -> ClientResult<apps::AppView> {
        self.app_with(app, TaskRowScope::All).await
    }
    /// Returns one application with a selection of its task rows.
    pub async fn app_with(&self, app: &AppId, rows: TaskRowScope) -> ClientResult<apps::AppView> {
        self.get(&rows.path(app)).await
    }
    /// Returns the address of the master of an application. Waits at most `wait` until the master has
    /// registered.
    pub async fn master_address(
        &self,
        app: &AppId,
        wait: Duration,
    ) -> ClientResult<apps::MasterAddressView> {
        let path = format!("/v1/apps/{app}/master?wait={}ms", wait.as_millis().max(1));
        let call = self.request(Method::GET, &path).within(self.call + wait);
        self.fetch(call).await
    }
    /// Ends an application.
    pub async fn kill(&self, app: &AppId, reason: Option<String>) -> ClientResult<apps::AppView> {
        self.post(
            &format!("/v1/apps/{app}/kill"),
            &apps::KillApplicationRequest { reason },
        )
        .await
    }
    /// Lists the job history, of one user or of all users.
    pub async fn job_histories(
        &self,
        user: Option<&str>,
    ) -> ClientResult<Vec<job_history::JobHistoryRow>> {
        self.get(&with("/v1/families", user)).await
    }
    /// Returns the history of one job name.
    pub async fn job_history(
        &self,
        name: &Name,
        user: Option<&str>,
    ) -> ClientResult<job_history::JobHistory> {
        self.get(&with(&format!("/v1/families/{name}"), user)).await
    }
    /// Returns the suggested first sizes of tasks. `user` and `job` restrict the list.
    pub async fn suggestions(
        &self,
        user: Option<&str>,
        job: Option<&Name>,
    ) -> ClientResult<Vec<suggestions::Suggestion>> {
        let job = job.map(|job| format!("job={job}"));
        let path = with("/v1/suggestions", user);
        let sign = if user.is_some() { '&' } else { '?' };
        self.get(&job.map_or(path.clone(), |job| format!("{path}{sign}{job}")))
            .await
    }
    /// Lists the entries of the audit log after index `after`.
    pub async fn audit(
        &self,
        wanted: &AuditQuery,
        after: u64,
    ) -> ClientResult<Vec<audit::AuditLine>> {
        self.get(&format!("/v1/audit?after={after}{}", wanted.query()))
            .await
    }
    /// Returns the reasons why the requests of an application are pending.
    pub async fn why(&self, app: &AppId) -> ClientResult<Vec<apps::PendingExplanation>> {
        self.get(&format!("/v1/apps/{app}/why")).await
    }
    /// Returns the summary of the cluster.
    pub async fn status(&self) -> ClientResult<apps::ClusterView> {
        self.get("/v1/status").await
    }
    /// Lists all nodes.
    pub async fn nodes(&self) -> ClientResult<Vec<nodes::NodeView>> {
        self.get("/v1/nodes").await
    }
    /// Lists the nodes that are not lost, grouped by what decides placement.
    pub async fn node_groups(&self) -> ClientResult<Vec<NodeGroup>> {
        match self.get("/v1/node-groups").await {
            // An earlier version lists single nodes only.
            Err(ClientError::Problem(problem)) if problem.code == ErrorCode::HR0404 => {
                Ok(NodeGroup::group(&self.nodes().await?))
            }
            groups => groups,
        }
    }
    /// Streams the event log after `cursor`.
    pub async fn events(&self, cursor: u64) -> ClientResult<JsonLineStream<events::LoggedEvent>> {
        self.lines(&format!("/v1/events?cursor={cursor}&follow=true"))
            .await
    }
    /// Streams the event log after `cursor`, of one application or all. The stream ends with the
    /// last event if `follow` is `No`.
    pub async fn events_of(
        &self,
        app: Option<&AppId>,
        cursor: u64,
        follow: FollowMode,
    ) -> ClientResult<JsonLineStream<events::LoggedEvent>> {
        self.events_wanted(&EventQuery::of(app.cloned()), cursor, follow)
            .await
    }
    /// Streams the events that match `wanted`, after `cursor`. The stream ends with the last one if
    /// `follow` is `No`.
    pub async fn events_wanted(
        &self,
        wanted: &EventQuery,
        cursor: u64,
        follow: FollowMode,
    ) -> ClientResult<JsonLineStream<events::LoggedEvent>> {
        let follow = match follow {
            FollowMode::Yes => "true",
            FollowMode::No => "false",
        };
        self.lines(&format!(
            "/v1/events?cursor={cursor}&follow={follow}{}",
            wanted.query()
        ))
        .await
    }
    /// Returns one node.
    pub async fn node(&self, node: &NodeId) -> ClientResult<nodes::NodeView> {
        self.get(&format!("/v1/nodes/{node}")).await
    }

    /// Drains a node: it gets no new containers, and its running containers may finish until the
    /// deadline.
    pub async fn drain(
        &self,
        node: &NodeId,
        body: &nodes::DrainNodeRequest,
    ) -> ClientResult<nodes::NodeView> {
        self.post(&format!("/v1/nodes/{node}/drain"), body).await
    }
    /// Ends the drain of a node.
    pub async fn undrain(&self, node: &NodeId) -> ClientResult<nodes::NodeView> {
        self.post(&format!("/v1/nodes/{node}/undrain"), &()).await
    }
    /// Changes the labels, attributes, taints and other marks of a node.
    pub async fn tag_node(
        &self,
        node: &NodeId,
        how: DryRunMode,
        body: &nodes::TagNodeRequest,
    ) -> ClientResult<nodes::NodeView> {
        self.change(
            Method::PATCH,
            &format!("/v1/nodes/{node}?dry_run={}", how.dry_run()),
            None,
            body,
        )
        .await
    }
    /// Changes the queue, the priority or the deadline of an application. `matched` is the entity
    /// tag of the version that the caller read.
    pub async fn change_app(
        &self,
        app: &AppId,
        matched: Option<&str>,
        body: &apps::ChangeApplicationRequest,
    ) -> ClientResult<apps::AppView> {
        self.change(Method::PATCH, &format!("/v1/apps/{app}"), matched, body)
            .await
    }
    /// Changes the maximum number of executors. Returns the application after its master has
    /// received the change.
    pub async fn scale(
        &self,
        app: &AppId,
        body: &apps::ScaleExecutorsRequest,
    ) -> ClientResult<apps::AppView> {
        self.post(&format!("/v1/apps/{app}/scale"), body).await
    }
    /// Deletes an ended application and returns it as it was before.
    pub async fn purge(&self, app: &AppId, how: DryRunMode) -> ClientResult<apps::AppView> {
        self.delete(&format!("/v1/apps/{app}?dry_run={}", how.dry_run()))
            .await
    }
    /// Adds or replaces one container request, or only validates it.
    pub async fn create_request(
        &self,
        app: &AppId,
        how: DryRunMode,
        ask: &application_master::PlacementRequest,
    ) -> ClientResult<application_master::PlacementResponse> {
        let body = serde_json::json!({ "ask": ask });
        self.post(
            &format!("/v1/apps/{app}/requests?dry_run={}", how.dry_run()),
            &body,
        )
        .await
    }

    /// Lists the container requests of an application, as its master sent them.
    pub async fn requests(
        &self,
        app: &AppId,
    ) -> ClientResult<Vec<application_master::PlacementRequest>> {
        self.get(&format!("/v1/apps/{app}/requests")).await
    }
    /// Withdraws a container request.
    pub async fn withdraw(&self, app: &AppId, request: &RequestId) -> ClientResult<apps::AppView> {
        self.delete(&format!("/v1/apps/{app}/requests/{request}"))
            .await
    }
}

/// Returns the response, or an error if its status is not a success.
async fn success(url: &str, response: reqwest::Response) -> ClientResult<reqwest::Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    match serde_json::from_str::<ProblemDetails>(&text) {
        Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
        Err(_) => Err(ClientError::Answer {
            url: url.to_owned(),
            defect: AnswerDefect::Status(status),
        }),
    }
}

async fn text(url: String, response: reqwest::Response) -> ClientResult<String> {
    let text = response.text().await;
    text.map_err(|source| ClientError::Unreachable { url, source })
}

async fn parse<T: DeserializeOwned>(url: String, response: reqwest::Response) -> ClientResult<T> {
    let body = response
        .bytes()
        .await
        .map_err(|source| ClientError::Unreachable {
            url: url.clone(),
            source,
        })?;
    serde_json::from_slice(&body).map_err(|e| ClientError::Answer {
        url,
        defect: AnswerDefect::Malformed(e.to_string()),
    })
}

/// Appends the parameter `user`, percent-encoded.
fn with(path: &str, user: Option<&str>) -> String {
    let Some(user) = user else {
        return path.to_owned();
    };
    format!("{path}?{}", encoded("user", user))
}

/// One query parameter, percent-encoded.
fn encoded(name: &str, value: &str) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .append_pair(name, value)
        .finish()
}
