//! One call per method. No state but the connection pool.

use std::sync::Arc;
use std::time::Duration;

use headroom_types::{AppId, ContainerId, Name, NodeId, QueuePath, RequestId, TaskId};
use headroom_wire::v1::{am, apps, audit, error::Problem, events, families, job, nodes, profiles, queues, reach, suggestions};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::SILENT;
use crate::log::{self, LogStream};
use crate::tap::{Request, Sending, Tap};
use crate::trust::{Trust, Wire};
use crate::{AuditWanted, ClientError, EventsWanted, Lines, TaskRows};

/// Begins the address of a socket of this host.
pub const UNIX: &str = "unix:";
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

/// Whether a call changes anything, or only says what it would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It counts.
    Really,
    /// It is only answered.
    DryRun,
}

impl How {
    fn dry_run(self) -> bool {
        self == How::DryRun
    }
}

/// The tag of a generation; of any when there is none.
fn tag(generation: Option<u64>) -> String {
    generation.map_or_else(|| "*".to_owned(), |g| format!("\"{g}\""))
}

/// Where a profile of the cluster is changed, or is said to be.
fn profile_path(name: &Name, how: How) -> String {
    let only = if how.dry_run() { "?dry_run=true" } else { "" };
    format!("/v1/profiles/{name}{only}")
}

/// A client of one resource manager (or, for logs, of one node agent).
#[derive(Clone, Debug)]
pub struct Client {
    /// As it was given.
    base: String,
    /// What every address begins with.
    root: String,
    wire: Arc<Wire>,
    call: Duration,
    tap: Option<Tap>,
}

impl Client {
    /// A client of the resource manager at `base`, such as `http://127.0.0.1:7070`, or `unix:/run/headroom/resourcemanager.sock`.
    pub fn new(base: &str) -> Result<Self, ClientError> {
        Client::with(base, Trust::default())
    }

    /// The same, which proves who it is and believes whom it is told to: for `https://rm.example:7070`, and with a token anywhere.
    pub fn with(base: &str, trust: Trust) -> Result<Self, ClientError> {
        let wrong = || ClientError::Address { address: base.to_owned() };
        let address = base.trim_end_matches('/').to_owned();
        let root = match address.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') => "http://localhost".to_owned(),
            Some(_) => return Err(wrong()),
            None => {
                let url = reqwest::Url::parse(&address).map_err(|_| wrong())?;
                if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
                    return Err(wrong());
                }
                address.clone()
            }
        };
        let wire = Wire::open(&address, trust)?;
        Ok(Client { base: address, root, wire, call: CALL, tap: None })
    }

    /// What was called, as whoever gave the address knows it.
    fn shown(&self, url: &str) -> String {
        match url.strip_prefix(&self.root) {
            Some(path) if self.base.starts_with(UNIX) => format!("{} {path}", self.base),
            Some(_) | None => url.to_owned(),
        }
    }

    /// The same with another longest time for one call; what waits on purpose gets that time on top.
    #[must_use]
    pub fn within(self, call: Duration) -> Self {
        Client { call, ..self }
    }

    /// The same with somebody who is told of each request before it is sent, and says whether it is.
    #[must_use]
    pub fn told(self, who: Arc<dyn Fn(&Request<'_>) -> Sending + Send + Sync>) -> Self {
        Client { tap: Some(Tap(who)), ..self }
    }

    /// Whether its token or its certificate says who calls.
    pub fn names_somebody(&self) -> bool {
        self.wire.trust().names_somebody()
    }

    /// The address it speaks to.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// `GET path`, JSON answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.root);
        let response = self.send(&url, self.wire.http().get(&url).timeout(self.call)).await?;
        parse(url, response).await
    }

    /// `GET path`, text answer.
    pub async fn get_text(&self, path: &str) -> Result<String, ClientError> {
        let url = format!("{}{path}", self.root);
        let response = self.send(&url, self.wire.http().get(&url).timeout(self.call)).await?;
        response.text().await.map_err(|source| ClientError::Unreachable { url, source })
    }

    /// `POST path` with a JSON body, JSON answer.
    pub async fn post<B: Serialize + Sync, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.root);
        let response = self.send(&url, self.wire.http().post(&url).timeout(self.call).json(body)).await?;
        parse(url, response).await
    }

    /// `DELETE path`, JSON answer.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.root);
        let response = self.send(&url, self.wire.http().delete(&url).timeout(self.call)).await?;
        parse(url, response).await
    }

    /// `GET path`, one JSON object a line for as long as it is read.
    pub async fn lines<T: DeserializeOwned>(&self, path: &str) -> Result<Lines<T>, ClientError> {
        let url = format!("{}{path}", self.root);
        let response = self.send(&url, self.wire.http().get(&url)).await?;
        Ok(Lines::new(url, response, SILENCE))
    }

    /// `METHOD path` with a JSON body and, where it matters, the tag that was read; JSON answer.
    pub(crate) async fn change<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        matched: Option<&str>,
        body: &B,
    ) -> Result<T, ClientError> {
        let url = format!("{}{path}", self.root);
        let mut request = self.wire.http().request(method, &url).timeout(self.call).json(body);
        if let Some(tag) = matched {
            request = request.header("if-match", tag);
        }
        let response = self.send(&url, request).await?;
        parse(url, response).await
    }

    /// `GET path` as soon as it is another one than `index` tells of, or the time is over. With the index it has now.
    pub async fn get_after<T: DeserializeOwned>(&self, path: &str, index: u64, wait: Duration) -> Result<(T, u64), ClientError> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let url = format!("{}{path}{sign}wait={}ms&index={index}", self.root, wait.as_millis().max(1));
        let request = self.wire.http().get(&url).timeout(self.call + wait);
        let response = self.send_within(&url, request, self.call + wait).await?;
        let now = response.headers().get("x-headroom-index").and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
        Ok((parse(url, response).await?, now.unwrap_or(index)))
    }

    async fn send(&self, url: &str, request: reqwest::RequestBuilder) -> Result<reqwest::Response, ClientError> {
        self.send_within(url, request, self.call).await
    }

    async fn send_within(
        &self,
        url: &str,
        request: reqwest::RequestBuilder,
        most: Duration,
    ) -> Result<reqwest::Response, ClientError> {
        success(url, self.answer(url, request, most).await?).await
    }

    /// The answer as it is, also one that tells of a problem.
    async fn answer(
        &self,
        url: &str,
        request: reqwest::RequestBuilder,
        most: Duration,
    ) -> Result<reqwest::Response, ClientError> {
        let lost = |source| ClientError::Unreachable { url: self.shown(url), source };
        let mut request = request.build().map_err(lost)?;
        if self.tap.as_ref().is_some_and(|tap| tap.tell(&request) == Sending::No) {
            return Err(ClientError::NotSent);
        }
        // After it was shown: a token is shown to nobody.
        self.wire.sign(&mut request);
        match tokio::time::timeout(most, self.wire.http().execute(request)).await {
            Ok(answer) => answer.map_err(lost),
            Err(_) => Err(ClientError::Answer { url: self.shown(url), what: format!("{SILENT} {} s", most.as_secs()) }),
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
        self.app_with(app, TaskRows::All).await
    }
    /// One application with some of the rows of its job.
    pub async fn app_with(&self, app: &AppId, rows: TaskRows) -> Result<apps::AppView, ClientError> {
        self.get(&rows.path(app)).await
    }
    /// Ends an application.
    pub async fn kill(&self, app: &AppId, reason: Option<String>) -> Result<apps::AppView, ClientError> {
        self.post(&format!("/v1/apps/{app}/kill"), &apps::KillApp { reason }).await
    }
    /// Families of jobs that are remembered: of one user, or of all.
    pub async fn families(&self, user: Option<&str>) -> Result<Vec<families::FamilyRow>, ClientError> {
        self.get(&with("/v1/families", user)).await
    }
    /// What earlier jobs of that name have needed.
    pub async fn family(&self, name: &Name, user: Option<&str>) -> Result<families::Family, ClientError> {
        self.get(&with(&format!("/v1/families/{name}"), user)).await
    }
    /// What tasks should begin with: of one user and name, or of all.
    pub async fn suggestions(&self, user: Option<&str>, job: Option<&Name>) -> Result<Vec<suggestions::Suggestion>, ClientError> {
        let job = job.map(|job| format!("job={job}"));
        let path = with("/v1/suggestions", user);
        let sign = if user.is_some() { '&' } else { '?' };
        self.get(&job.map_or(path.clone(), |job| format!("{path}{sign}{job}"))).await
    }
    /// The cluster's profiles.
    pub async fn profiles(&self) -> Result<Vec<profiles::ClusterProfile>, ClientError> {
        self.get("/v1/profiles").await
    }
    /// One of the cluster's profiles.
    pub async fn profile(&self, name: &Name) -> Result<profiles::ClusterProfile, ClientError> {
        self.get(&format!("/v1/profiles/{name}")).await
    }
    /// Gives a profile of the cluster a size, when it still has `revision`; whatever it has when left out.
    pub async fn set_profile(
        &self,
        name: &Name,
        spec: &profiles::ProfileSpec,
        revision: Option<u64>,
        how: How,
    ) -> Result<profiles::ClusterProfile, ClientError> {
        self.change(Method::PUT, &profile_path(name, how), revision.map(|r| format!("\"{r}\"")).as_deref(), spec).await
    }
    /// Takes a profile of the cluster away; it comes back as it was.
    pub async fn unset_profile(
        &self,
        name: &Name,
        revision: Option<u64>,
        how: How,
    ) -> Result<profiles::ClusterProfile, ClientError> {
        self.change(Method::DELETE, &profile_path(name, how), revision.map(|r| format!("\"{r}\"")).as_deref(), &()).await
    }
    /// Calls that were to change something, from after `after`.
    pub async fn audit(&self, wanted: &AuditWanted, after: u64) -> Result<Vec<audit::AuditLine>, ClientError> {
        self.get(&format!("/v1/audit?after={after}{}", wanted.query())).await
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
    /// The end of a log, and the position behind its last byte.
    pub async fn log_end(&self, container: &ContainerId, file: &str, tail_bytes: u64) -> Result<(String, u64), ClientError> {
        let url = format!("{}/v1/containers/{container}/logs/{file}?tail={tail_bytes}", self.root);
        let response = self.send(&url, self.wire.http().get(&url).timeout(self.call)).await?;
        let end = log::number(&response, "headroom-log-end");
        let text = response.text().await.map_err(|source| ClientError::Unreachable { url, source })?;
        let end = end.unwrap_or(text.len() as u64);
        Ok((text, end))
    }
    /// A log from position `from` on, until its container has ended.
    pub async fn follow_log(&self, container: &ContainerId, file: &str, from: u64) -> Result<LogStream, ClientError> {
        let url = format!("{}/v1/containers/{container}/logs/{file}?follow=true", self.root);
        let request = self.wire.http().get(&url).header("range", format!("bytes={from}-"));
        let response = self.send(&url, request).await?;
        Ok(LogStream::new(url, response, from))
    }
    /// What a log has from position `from` on; nothing when that is its end.
    pub async fn log_after(&self, container: &ContainerId, file: &str, from: u64) -> Result<Vec<u8>, ClientError> {
        let url = format!("{}/v1/containers/{container}/logs/{file}", self.root);
        let request = self.wire.http().get(&url).timeout(self.call).header("range", format!("bytes={from}-"));
        let lost = |source| ClientError::Unreachable { url: url.clone(), source };
        let answer = self.answer(&url, request, self.call).await?;
        if answer.status() == reqwest::StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(Vec::new());
        }
        Ok(success(&url, answer).await?.bytes().await.map_err(lost)?.to_vec())
    }
    /// Memory of a container over time.
    pub async fn timeline(&self, container: &ContainerId) -> Result<apps::ContainerTimeline, ClientError> {
        self.get(&format!("/v1/containers/{container}/timeline")).await
    }
    /// The event log from after `cursor`.
    pub async fn events(&self, cursor: u64) -> Result<Lines<events::Event>, ClientError> {
        self.lines(&format!("/v1/events?cursor={cursor}&follow=true")).await
    }
    /// The event log from after `cursor`, of one application or all; ends with the last event when `follow` is `No`.
    pub async fn events_of(&self, app: Option<&AppId>, cursor: u64, follow: Follow) -> Result<Lines<events::Event>, ClientError> {
        self.events_wanted(&EventsWanted::of(app.cloned()), cursor, follow).await
    }
    /// Those events from after `cursor`; ends with the last one when `follow` is `No`.
    pub async fn events_wanted(
        &self,
        wanted: &EventsWanted,
        cursor: u64,
        follow: Follow,
    ) -> Result<Lines<events::Event>, ClientError> {
        let follow = match follow {
            Follow::Yes => "true",
            Follow::No => "false",
        };
        self.lines(&format!("/v1/events?cursor={cursor}&follow={follow}{}", wanted.query())).await
    }
    /// One container.
    pub async fn container(&self, container: &ContainerId) -> Result<apps::ContainerView, ClientError> {
        self.get(&format!("/v1/containers/{container}")).await
    }
    /// One node.
    pub async fn node(&self, node: &NodeId) -> Result<nodes::NodeView, ClientError> {
        self.get(&format!("/v1/nodes/{node}")).await
    }

    /// No new work for a node; what is on it may end by itself until the deadline.
    pub async fn drain(&self, node: &NodeId, body: &nodes::DrainNode) -> Result<nodes::NodeView, ClientError> {
        self.post(&format!("/v1/nodes/{node}/drain"), body).await
    }
    /// A node takes work again.
    pub async fn undrain(&self, node: &NodeId) -> Result<nodes::NodeView, ClientError> {
        self.post(&format!("/v1/nodes/{node}/undrain"), &()).await
    }
    /// What operators say of a node, or what would be said.
    pub async fn tag_node(&self, node: &NodeId, how: How, body: &nodes::TagNode) -> Result<nodes::NodeView, ClientError> {
        self.change(Method::PATCH, &format!("/v1/nodes/{node}?dry_run={}", how.dry_run()), None, body).await
    }
    /// Another queue, another priority, another end of its time for an application. `matched` is the tag that was read.
    pub async fn change_app(
        &self,
        app: &AppId,
        matched: Option<&str>,
        body: &apps::ChangeApp,
    ) -> Result<apps::AppView, ClientError> {
        self.change(Method::PATCH, &format!("/v1/apps/{app}"), matched, body).await
    }
    /// Another number of executors at most; the application as it is comes back, once its master is told.
    pub async fn scale(&self, app: &AppId, body: &apps::ScaleApp) -> Result<apps::AppView, ClientError> {
        self.post(&format!("/v1/apps/{app}/scale"), body).await
    }
    /// An application that has ended is forgotten, or would be; as it was comes back.
    pub async fn purge(&self, app: &AppId, how: How) -> Result<apps::AppView, ClientError> {
        self.delete(&format!("/v1/apps/{app}?dry_run={}", how.dry_run())).await
    }
    /// One task with every attempt at it.
    pub async fn task(&self, app: &AppId, task: &TaskId) -> Result<job::TaskRow, ClientError> {
        self.get(&format!("/v1/apps/{app}/tasks/{task}")).await
    }
    /// A task ends for good; its row as it was comes back.
    pub async fn kill_task(&self, app: &AppId, task: &TaskId, reason: Option<String>) -> Result<job::TaskRow, ClientError> {
        self.post(&format!("/v1/apps/{app}/tasks/{task}/kill"), &apps::OrderTask { reason }).await
    }
    /// Another attempt at a task in the place of the one that runs; its row as it was comes back.
    pub async fn retry_task(&self, app: &AppId, task: &TaskId, reason: Option<String>) -> Result<job::TaskRow, ClientError> {
        self.post(&format!("/v1/apps/{app}/tasks/{task}/retry"), &apps::OrderTask { reason }).await
    }
    /// Another size for the next attempt at a task that waits; its row as it was comes back.
    pub async fn resize_task(&self, app: &AppId, task: &TaskId, body: &apps::ResizeTask) -> Result<job::TaskRow, ClientError> {
        self.post(&format!("/v1/apps/{app}/tasks/{task}/resize"), body).await
    }
    /// Another place among the tasks of its job; its row as it was comes back.
    pub async fn rank_task(&self, app: &AppId, task: &TaskId, body: &apps::RankTask) -> Result<job::TaskRow, ClientError> {
        self.post(&format!("/v1/apps/{app}/tasks/{task}/priority"), body).await
    }
    /// Another size for a container that runs.
    pub async fn resize(
        &self,
        container: &ContainerId,
        how: How,
        body: &apps::ResizeContainer,
    ) -> Result<apps::Resizing, ClientError> {
        self.post(&format!("/v1/containers/{container}/resize?dry_run={}", how.dry_run()), body).await
    }
    /// A signal for the program of a container, or for all of its processes.
    pub async fn signal(&self, container: &ContainerId, body: &reach::SignalContainer) -> Result<reach::Signalled, ClientError> {
        self.post(&format!("/v1/containers/{container}/signal"), body).await
    }
    /// What is in a directory of a container; in its own when `path` is empty.
    pub async fn files(&self, container: &ContainerId, path: &str) -> Result<Vec<reach::FileRow>, ClientError> {
        self.get(&format!("/v1/containers/{container}/files?{}", encoded("path", path))).await
    }
    /// A file of a container as it comes: the bytes of `range`, such as `bytes=0-99`, or all.
    pub async fn file(&self, container: &ContainerId, path: &str, range: Option<&str>) -> Result<LogStream, ClientError> {
        let url = format!("{}/v1/containers/{container}/files/content?{}", self.root, encoded("path", path));
        let mut request = self.wire.http().get(&url);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let response = self.send(&url, request).await?;
        Ok(LogStream::new(url, response, 0))
    }
    /// Runs a program beside that of a container: what it prints, and how it ends.
    pub async fn exec(&self, container: &ContainerId, body: &reach::ExecIn) -> Result<Lines<reach::ExecLine>, ClientError> {
        let url = format!("{}/v1/containers/{container}/exec", self.root);
        let response = self.send(&url, self.wire.http().post(&url).json(body)).await?;
        Ok(Lines::new(url, response, SILENCE))
    }
    /// A container is to end.
    pub async fn stop(&self, container: &ContainerId) -> Result<apps::ContainerView, ClientError> {
        self.post(&format!("/v1/containers/{container}/stop"), &()).await
    }
    /// The whole tree of queues.
    pub async fn queues(&self) -> Result<queues::QueuesView, ClientError> {
        self.get("/v1/queues").await
    }
    /// One queue with those in it.
    pub async fn queue(&self, path: &QueuePath) -> Result<queues::QueueView, ClientError> {
        self.get(&format!("/v1/queues/{path}")).await
    }
    /// Another tree in the place of the one of `generation`; of whatever there is when that is left out. The tree is sent as it
    /// was written, so that the other side can tell all that is wrong with it.
    pub async fn set_queues(&self, tree: &serde_json::Value, generation: Option<u64>) -> Result<queues::QueuesView, ClientError> {
        self.change(Method::PUT, "/v1/queues", Some(&tag(generation)), tree).await
    }
    /// Whether that tree would be taken.
    pub async fn check_queues(
        &self,
        tree: &serde_json::Value,
        generation: Option<u64>,
    ) -> Result<queues::QueuesChecked, ClientError> {
        self.change(Method::PUT, "/v1/queues?dry_run=true", Some(&tag(generation)), tree).await
    }
    /// Some keys of one queue, laid over it; null takes a key away.
    pub async fn patch_queue(&self, path: &QueuePath, keys: &serde_json::Value) -> Result<queues::QueuesView, ClientError> {
        self.change(Method::PATCH, &format!("/v1/queues/{path}"), None, keys).await
    }
    /// What one queue takes in and gives out from now on.
    pub async fn set_gate(&self, path: &QueuePath, gate: queues::Gate) -> Result<queues::QueueView, ClientError> {
        self.post(&format!("/v1/queues/{path}/gate"), &queues::SetGate { gate }).await
    }
    /// One container request: what becomes of it, or would.
    pub async fn ask(&self, app: &AppId, how: How, ask: &am::Ask) -> Result<am::AskAnswer, ClientError> {
        let body = serde_json::json!({ "ask": ask });
        self.post(&format!("/v1/apps/{app}/requests?dry_run={}", how.dry_run()), &body).await
    }

    /// Its container requests, as they were asked.
    pub async fn requests(&self, app: &AppId) -> Result<Vec<am::Ask>, ClientError> {
        self.get(&format!("/v1/apps/{app}/requests")).await
    }
    /// A container request is worth nothing any more.
    pub async fn withdraw(&self, app: &AppId, request: &RequestId) -> Result<apps::AppView, ClientError> {
        self.delete(&format!("/v1/apps/{app}/requests/{request}")).await
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

/// The answer, unless it is an error.
async fn success(url: &str, response: reqwest::Response) -> Result<reqwest::Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    match serde_json::from_str::<Problem>(&text) {
        Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
        Err(_) => Err(ClientError::Answer { url: url.to_owned(), what: format!("status {status}") }),
    }
}

async fn parse<T: DeserializeOwned>(url: String, response: reqwest::Response) -> Result<T, ClientError> {
    let body = response.bytes().await.map_err(|source| ClientError::Unreachable { url: url.clone(), source })?;
    serde_json::from_slice(&body).map_err(|e| ClientError::Answer { url, what: e.to_string() })
}

/// The path with the parameter `user`, whatever characters that has.
fn with(path: &str, user: Option<&str>) -> String {
    let Some(user) = user else { return path.to_owned() };
    format!("{path}?{}", encoded("user", user))
}

/// One parameter of an address, whatever characters its value has.
fn encoded(name: &str, value: &str) -> String {
    url::form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish()
}
