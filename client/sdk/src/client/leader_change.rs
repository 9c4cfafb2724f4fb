//! Detection of a new leader while a call has no answer.
//!
//! A leader that is paused, or whose host has ended, does not answer and refuses no connection. The
//! other managers know when another one leads, so a call that waits asks one of them. That answers
//! when the leader changes.

use std::future::pending;
use std::sync::PoisonError;
use std::time::Duration;

use headroom_wire::v1::operator::LeaderView;
use reqwest::Url;
use serde::de::DeserializeOwned;

use super::Client;
use crate::addresses::ManagerAddress;

/// Time without an answer after which another manager is asked.
const STALLED: Duration = Duration::from_millis(500);
/// Longest time for which the other manager is asked to wait for a change.
const WAIT: Duration = Duration::from_secs(10);
/// Time for the answer itself.
const ANSWER: Duration = Duration::from_secs(1);
/// Pause between two questions.
const AGAIN: Duration = Duration::from_millis(200);

impl Client {
    /// Returns the leader that replaced the one at `target`. Waits forever if there is none, and
    /// with a single address.
    pub(super) async fn leader_change(&self, target: &ManagerAddress) -> ManagerAddress {
        let others = {
            let choice = self.choice.lock().unwrap_or_else(PoisonError::into_inner);
            choice.others(target)
        };
        if others.is_empty() {
            return pending().await;
        }
        tokio::time::sleep(STALLED).await;
        let mut before: Option<String> = None;
        loop {
            for other in &others {
                // A manager that answers is asked until it fails; then the next one.
                while let Some(named) = self.leader_according_to(other, before.as_deref()).await {
                    let replacement = {
                        let choice = self.choice.lock().unwrap_or_else(PoisonError::into_inner);
                        choice.replacement(target, &named, before.as_deref())
                    };
                    if let Some(leader) = replacement {
                        return leader;
                    }
                    before = Some(named);
                    tokio::time::sleep(AGAIN).await;
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// The leader that the manager at `address` knows: after a change if it is `before`. `None` if
    /// it does not answer, or does not know.
    async fn leader_according_to(
        &self,
        address: &ManagerAddress,
        before: Option<&str>,
    ) -> Option<String> {
        let mut url = Url::parse(&format!("{}/v1/leader", address.root())).ok()?;
        let mut wait = Duration::ZERO;
        if let Some(before) = before {
            wait = WAIT;
            let within = format!("{}ms", WAIT.as_millis());
            let query = [("other_than", before), ("wait", &within)];
            url.query_pairs_mut().extend_pairs(query);
        }
        let view: LeaderView = self.ask(url, wait + ANSWER).await?;
        view.leader.filter(|_| view.problem.is_none())
    }

    async fn ask<T: DeserializeOwned>(&self, url: Url, most: Duration) -> Option<T> {
        let request = self.wire.http().get(url).timeout(most);
        let response = request.send().await.ok()?.error_for_status().ok()?;
        response.json().await.ok()
    }
}
