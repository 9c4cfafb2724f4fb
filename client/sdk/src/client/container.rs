//! Calls about containers: views, logs, files, signals, sizes, and programs inside them.

use headroom_types::{AppId, ContainerId};
use headroom_wire::v1::{apps, container_access};
use reqwest::Method;

use super::{Client, DryRunMode, SILENCE, encoded, success, text};
use crate::log::{self, LogStream};
use crate::{ClientError, ClientResult, JsonLineStream};

impl Client {
    /// Lists the containers of one application or of all applications.
    pub async fn containers(&self, app: Option<&AppId>) -> ClientResult<Vec<apps::ContainerView>> {
        let filter = app.map(|a| format!("?app={a}")).unwrap_or_default();
        self.get(&format!("/v1/containers{filter}")).await
    }
    /// Returns one container.
    pub async fn container(&self, container: &ContainerId) -> ClientResult<apps::ContainerView> {
        self.get(&format!("/v1/containers/{container}")).await
    }
    /// Returns the memory of a container over time.
    pub async fn timeline(&self, container: &ContainerId) -> ClientResult<apps::ContainerTimeline> {
        self.get(&format!("/v1/containers/{container}/timeline"))
            .await
    }
    /// Returns the last `tail_bytes` of a container's log: `stdout`, `stderr`, or
    /// `TASK-FILE.out|err`.
    pub async fn log(
        &self,
        container: &ContainerId,
        file: &str,
        tail_bytes: u64,
    ) -> ClientResult<String> {
        self.get_text(&format!(
            "/v1/containers/{container}/logs/{file}?tail={tail_bytes}"
        ))
        .await
    }
    /// Returns the last `tail_bytes` of a log, and the position after its last byte.
    pub async fn log_end(
        &self,
        container: &ContainerId,
        file: &str,
        tail_bytes: u64,
    ) -> ClientResult<(String, u64)> {
        let path = format!("/v1/containers/{container}/logs/{file}?tail={tail_bytes}");
        let call = self.request(Method::GET, &path);
        self.exchange(call, async |url, response| {
            let response = success(&url, response).await?;
            let end = log::number(&response, "headroom-log-end");
            let text = text(url, response).await?;
            let end = end.unwrap_or(text.len() as u64);
            Ok((text, end))
        })
        .await
    }
    /// Streams a log from position `from` until its container ends.
    pub async fn follow_log(
        &self,
        container: &ContainerId,
        file: &str,
        from: u64,
    ) -> ClientResult<LogStream> {
        let path = format!("/v1/containers/{container}/logs/{file}?follow=true");
        let call = self
            .stream(Method::GET, &path)
            .with(|request| request.header("range", format!("bytes={from}-")));
        let (url, response) = self.send(call).await?;
        Ok(LogStream::new(url, response, from))
    }
    /// Returns bytes of a log from position `from`, as many as one response holds, and the position
    /// after them. There are none if `from` is the end of the log.
    pub async fn log_after(
        &self,
        container: &ContainerId,
        file: &str,
        from: u64,
    ) -> ClientResult<(Vec<u8>, u64)> {
        let path = format!("/v1/containers/{container}/logs/{file}");
        let call = self
            .request(Method::GET, &path)
            .with(|request| request.header("range", format!("bytes={from}-")));
        let answer = self.exchange(call, async |url, response| {
            if response.status() == reqwest::StatusCode::RANGE_NOT_SATISFIABLE {
                return Ok((Vec::new(), 0, true));
            }
            let response = success(&url, response).await?;
            let start = log::number(&response, "headroom-log-start").unwrap_or(0);
            let is_part = response.status() == reqwest::StatusCode::PARTIAL_CONTENT;
            let bytes = response.bytes().await;
            bytes
                .map(|bytes| (bytes.to_vec(), start, is_part))
                .map_err(|source| ClientError::Unreachable { url, source })
        });
        let (mut bytes, start, is_part) = answer.await?;
        if !is_part {
            // A server without ranges has sent the whole log.
            let known = usize::try_from(from.saturating_sub(start)).unwrap_or(usize::MAX);
            bytes.drain(..known.min(bytes.len()));
        }
        // Bytes that are no longer stored are skipped.
        let next = match bytes.len() as u64 {
            0 => from,
            length => start.max(from) + length,
        };
        Ok((bytes, next))
    }
    /// Changes the size of a running container.
    pub async fn resize(
        &self,
        container: &ContainerId,
        how: DryRunMode,
        body: &apps::ResizeContainer,
    ) -> ClientResult<apps::ResizeAccepted> {
        self.post(
            &format!(
                "/v1/containers/{container}/resize?dry_run={}",
                how.dry_run()
            ),
            body,
        )
        .await
    }
    /// Sends a signal to the main process of a container, or to all its processes.
    pub async fn signal(
        &self,
        container: &ContainerId,
        body: &container_access::SignalContainer,
    ) -> ClientResult<container_access::SignalDelivered> {
        self.post(&format!("/v1/containers/{container}/signal"), body)
            .await
    }
    /// Lists a directory of a container. An empty `path` is the container's own directory.
    pub async fn files(
        &self,
        container: &ContainerId,
        path: &str,
    ) -> ClientResult<Vec<container_access::ContainerFileEntry>> {
        self.get(&format!(
            "/v1/containers/{container}/files?{}",
            encoded("path", path)
        ))
        .await
    }
    /// Streams a file of a container: the bytes of `range`, such as `bytes=0-99`, or all.
    pub async fn file(
        &self,
        container: &ContainerId,
        path: &str,
        range: Option<&str>,
    ) -> ClientResult<LogStream> {
        let path = format!(
            "/v1/containers/{container}/files/content?{}",
            encoded("path", path)
        );
        let mut call = self.stream(Method::GET, &path);
        if let Some(range) = range {
            call = call.with(|request| request.header("range", range));
        }
        let (url, response) = self.send(call).await?;
        Ok(LogStream::new(url, response, 0))
    }
    /// Runs a program inside a container. The stream contains its output and its exit status.
    pub async fn exec(
        &self,
        container: &ContainerId,
        body: &container_access::ExecContainer,
    ) -> ClientResult<JsonLineStream<container_access::ExecOutputLine>> {
        let path = format!("/v1/containers/{container}/exec");
        let call = self
            .stream(Method::POST, &path)
            .with(|request| request.json(body));
        let (url, response) = self.send(call).await?;
        Ok(JsonLineStream::new(url, response, SILENCE))
    }
    /// Stops a container.
    pub async fn stop(&self, container: &ContainerId) -> ClientResult<apps::ContainerView> {
        self.post(&format!("/v1/containers/{container}/stop"), &())
            .await
    }
}
