//! The way of a call to the leader among the resource managers.
//!
//! [`AddressChoice`](crate::addresses::AddressChoice) decides where a call is sent. This file sends
//! it, and reports the outcome.

use std::sync::PoisonError;
use std::time::Duration;

use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use reqwest::{Method, Request, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{Client, parse, success};
use crate::addresses::{CallRoute, CallStep, ManagerAddress, Repetition, SendOutcome};
use crate::error::{AnswerDefect, FailedAttempt};
use crate::request_hook::SendDecision;
use crate::{ClientError, ClientResult};

/// Response header of a standby with the address of the leader.
const LEADER_HEADER: &str = "headroom-leader";
/// Response header of a standby that knows no leader.
const STANDBY_HEADER: &str = "headroom-standby";
/// Pause before all addresses are called again, while a leader is elected.
const ELECTION: Duration = Duration::from_millis(100);
/// Address of a request whose target is not chosen yet.
const NO_TARGET: &str = "http://localhost";

/// A request to the leader.
#[derive(Debug)]
pub(crate) struct ManagerCall {
    /// Path and query.
    path: String,
    repetition: Repetition,
    request: RequestBuilder,
    /// Timeout until the head of the response.
    most: Duration,
    /// Whether the timeout includes the body of the response.
    includes_body: bool,
}

impl ManagerCall {
    /// Adds headers or a body.
    pub(crate) fn with(self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        ManagerCall {
            request: change(self.request),
            ..self
        }
    }

    /// Asks for another protocol of the connection.
    pub(crate) fn upgrading(self, protocol: &str) -> Self {
        self.with(|request| {
            request
                .header(reqwest::header::CONNECTION, "upgrade")
                .header(reqwest::header::UPGRADE, protocol)
        })
    }

    /// Sets the timeout.
    pub(crate) fn within(self, most: Duration) -> Self {
        ManagerCall { most, ..self }
    }
}

/// The end of a call at one address.
enum AttemptEnd<T> {
    /// A server answered that is not a standby.
    Done(ClientResult<T>),
    /// No whole answer, or that of a standby.
    Failed(SendOutcome, ClientError),
}

impl Client {
    /// A request for `path`, whose response arrives within the timeout of a call.
    pub(super) fn request(&self, method: Method, path: &str) -> ManagerCall {
        ManagerCall {
            includes_body: true,
            ..self.stream(method, path)
        }
    }

    /// A request for `path`, whose response begins within the timeout of a call and then has any
    /// length.
    pub(super) fn stream(&self, method: Method, path: &str) -> ManagerCall {
        let url = format!("{NO_TARGET}{path}");
        let repetition = if method.is_safe() {
            Repetition::Allowed
        } else {
            Repetition::Forbidden
        };
        ManagerCall {
            path: path.to_owned(),
            repetition,
            request: self.wire.http().request(method, url),
            most: self.call,
            includes_body: false,
        }
    }

    /// Sends a request for another protocol of the connection. Returns the connection, or, from a
    /// server without that protocol, the response itself.
    pub(super) async fn change_protocol(
        &self,
        call: ManagerCall,
    ) -> ClientResult<(String, Result<reqwest::Upgraded, Response>)> {
        self.exchange(call, async |url, response| {
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let response = success(&url, response).await?;
                return Ok((url, Err(response)));
            }
            match response.upgrade().await {
                Ok(upgraded) => Ok((url, Ok(upgraded))),
                Err(source) => Err(ClientError::Unreachable { url, source }),
            }
        })
        .await
    }

    /// Sends a request with a JSON response.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: ManagerCall) -> ClientResult<T> {
        self.exchange(call, async |url, response| {
            let response = success(&url, response).await?;
            parse(url, response).await
        })
        .await
    }

    /// Sends a request, and returns its URL and the head of a successful response.
    pub(super) async fn send(&self, call: ManagerCall) -> ClientResult<(String, Response)> {
        self.exchange(call, async |url, response| {
            let response = success(&url, response).await?;
            Ok((url, response))
        })
        .await
    }

    /// Sends a request to the leader, and waits for its election within the timeout. `read` reads
    /// the answer, also one with an error status, and is part of the call: a call that may be
    /// repeated is sent again if its answer breaks off.
    pub(super) async fn exchange<T>(
        &self,
        call: ManagerCall,
        read: impl AsyncFn(String, Response) -> ClientResult<T>,
    ) -> ClientResult<T> {
        let deadline = Instant::now() + call.most;
        let mut route = self.begin(call.repetition);
        let (mut attempts, mut electing) = (Vec::new(), false);
        // The attempts of the last round in which each address was called.
        let mut whole_round = Vec::new();
        let mut request = Some(call.request.build().map_err(|source| {
            let url = route.target().shown(&call.path);
            ClientError::Unreachable { url, source }
        })?);
        loop {
            let copy = request.as_ref().and_then(Request::try_clone);
            // A body that is streamed can be sent once.
            let Some(mut copy) = copy.or_else(|| request.take()) else {
                return Err(summary(attempts));
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && (attempts.len() + whole_round.len() > 0) {
                return Err(summary(longer(attempts, whole_round)));
            }
            *copy.timeout_mut() = call.includes_body.then_some(left);
            let target = route.target().clone();
            let url = target.shown(&call.path);
            set_target(&mut copy, &target, &call.path)?;
            let most = (left, call.most);
            let end = tokio::select! {
                end = self.attempt(copy, url.clone(), most, &read) => end,
                leader = self.leader_change(&target) => replaced(url, leader),
            };
            let (outcome, error) = match end {
                AttemptEnd::Done(result) => {
                    self.record(&mut route, SendOutcome::Answered);
                    return result;
                }
                AttemptEnd::Failed(outcome, error) => (outcome, error),
            };
            electing |= matches!(outcome, SendOutcome::Standby { .. });
            let step = self.record(&mut route, outcome);
            if matches!(step, CallStep::Done | CallStep::Fail) {
                return Err(error);
            }
            attempts.push(FailedAttempt {
                address: target.to_string(),
                error,
            });
            if step == CallStep::Exhausted {
                let left = deadline.saturating_duration_since(Instant::now());
                // Nothing was executed: no address listened, or a standby answered.
                if !electing || request.is_none() || left <= ELECTION {
                    return Err(summary(attempts));
                }
                tokio::time::sleep(ELECTION).await;
                route = self.begin(call.repetition);
                whole_round = std::mem::take(&mut attempts);
                electing = false;
            }
        }
    }

    /// Sends a request once. `most` are the time that is left, and the timeout of the whole call.
    async fn attempt<T>(
        &self,
        mut request: Request,
        url: String,
        most: (Duration, Duration),
        read: &impl AsyncFn(String, Response) -> ClientResult<T>,
    ) -> AttemptEnd<T> {
        if self
            .tap
            .as_ref()
            .is_some_and(|tap| tap.decide(&request) == SendDecision::No)
        {
            return AttemptEnd::Done(Err(ClientError::NotSent));
        }
        // The hook sees the request without its token.
        self.wire.sign(&mut request);
        let sent = tokio::time::timeout(most.0, self.wire.http().execute(request));
        let response = match sent.await {
            Ok(Ok(response)) => response,
            Ok(Err(source)) => {
                let outcome = if source.is_connect() {
                    SendOutcome::NotConnected
                } else {
                    SendOutcome::Interrupted
                };
                return AttemptEnd::Failed(outcome, ClientError::Unreachable { url, source });
            }
            Err(_) => {
                let defect = AnswerDefect::Silent(most.1);
                let error = ClientError::Answer { url, defect };
                return AttemptEnd::Failed(SendOutcome::Interrupted, error);
            }
        };
        if let Some(outcome) = standby(&response) {
            return AttemptEnd::Failed(outcome, standby_error(&url, response, most.0).await);
        }
        match read(url, response).await {
            Err(error) if error.unreachable() => {
                AttemptEnd::Failed(SendOutcome::Interrupted, error)
            }
            result => AttemptEnd::Done(result),
        }
    }

    fn begin(&self, repetition: Repetition) -> CallRoute {
        let choice = self.choice.lock().unwrap_or_else(PoisonError::into_inner);
        choice.begin(repetition)
    }

    fn record(&self, route: &mut CallRoute, outcome: SendOutcome) -> CallStep {
        let from = route.target().clone();
        let mut choice = self.choice.lock().unwrap_or_else(PoisonError::into_inner);
        let step = choice.record(route, outcome);
        if step == CallStep::SendAgain {
            tracing::debug!(%from, to = %route.target(), "the call goes to another resource manager");
        }
        step
    }
}

/// The end of an attempt at a manager that did not answer before another one led.
fn replaced<T>(url: String, leader: ManagerAddress) -> AttemptEnd<T> {
    let defect = AnswerDefect::Replaced(leader.to_string());
    let outcome = SendOutcome::Replaced { leader };
    AttemptEnd::Failed(outcome, ClientError::Answer { url, defect })
}

/// The error of a call that was sent to each address without success.
fn summary(mut attempts: Vec<FailedAttempt>) -> ClientError {
    match (attempts.pop(), attempts.is_empty()) {
        (Some(only), true) => only.error,
        (last, _) => {
            attempts.extend(last);
            ClientError::NoLeader { attempts }
        }
    }
}

/// The attempts that say more: a round that the deadline cut off may have none.
fn longer(last: Vec<FailedAttempt>, before: Vec<FailedAttempt>) -> Vec<FailedAttempt> {
    if last.len() < before.len() {
        before
    } else {
        last
    }
}

/// Addresses a request.
fn set_target(request: &mut Request, target: &ManagerAddress, path: &str) -> ClientResult<()> {
    let url = format!("{}{path}", target.root());
    *request.url_mut() = Url::parse(&url).map_err(|error| ClientError::Answer {
        url,
        defect: AnswerDefect::Malformed(error.to_string()),
    })?;
    Ok(())
}

/// The outcome of a standby's response.
fn standby(response: &Response) -> Option<SendOutcome> {
    let headers = response.headers();
    let leader = headers
        .get(LEADER_HEADER)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    match response.status() {
        StatusCode::MISDIRECTED_REQUEST => Some(SendOutcome::Standby { leader }),
        StatusCode::SERVICE_UNAVAILABLE if headers.contains_key(STANDBY_HEADER) => {
            Some(SendOutcome::Standby { leader })
        }
        _ => None,
    }
}

/// The error that a standby's response contains. Its problem document may be missing, for example
/// after `HEAD`.
async fn standby_error(url: &str, response: Response, most: Duration) -> ClientError {
    let code = if response.status() == StatusCode::MISDIRECTED_REQUEST {
        ErrorCode::HR0421
    } else {
        ErrorCode::HR0503
    };
    match tokio::time::timeout(most, success(url, response)).await {
        Ok(Err(error @ ClientError::Problem(_))) => error,
        Ok(_) | Err(_) => {
            let detail = "the resource manager is a standby";
            ClientError::Problem(Box::new(ProblemDetails::new(code, detail)))
        }
    }
}
