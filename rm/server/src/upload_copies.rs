//! Copies of uploaded files on the other resource managers.
//!
//! The leader sends each uploaded file to the standbys, and acknowledges it when a majority of the
//! running managers has it. It compares its files with theirs periodically, and gets a file that it
//! does not have from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use headroom_rm_etcd::ManagerRecord;
use headroom_types::{Sha256, Tick};
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::uploads::{UploadDifferences, UploadInventory};
use reqwest::{Method, Response, StatusCode, header};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::ManagerClock;
use crate::input::ClusterQuery;
use crate::manager_group::ManagerGroup;
use crate::peer_clients::PeerHttpClients;
use crate::reader::ClusterReader;
use crate::upload_transfer::{self, longest, receive};
use crate::uploads::UploadStore;

/// Path of the copies.
pub(crate) const PATH: &str = "/v1/upload-copies";
/// Interval between two comparisons with the other managers.
const COMPARE_INTERVAL: Duration = Duration::from_secs(30);
/// Wait before a failed comparison or transfer is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout for calls without a file.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after the election in which further managers may start that have a missing file.
const START_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of files that are sent to other managers at once.
const MAX_TRANSFERS: usize = 16;

/// A process of another resource manager: its URL and its start. A new process may have lost files.
type HolderKey = (String, u64);

/// The copies, as the leader manages them.
#[derive(Debug)]
pub(crate) struct UploadCopies {
    store: Arc<UploadStore>,
    group: ManagerGroup,
    clients: PeerHttpClients,
    /// Runs since this manager leads.
    clock: ManagerClock,
    transfers: Semaphore,
    /// Files that other managers have, as far as known.
    known: Mutex<BTreeMap<HolderKey, BTreeSet<Sha256>>>,
}

impl UploadCopies {
    /// Manages the copies of the files in `store`. `clock` began when this manager began to lead.
    pub(crate) fn new(
        store: Arc<UploadStore>,
        group: ManagerGroup,
        clients: PeerHttpClients,
        clock: ManagerClock,
    ) -> Self {
        UploadCopies {
            store,
            group,
            clients,
            clock,
            transfers: Semaphore::new(MAX_TRANSFERS),
            known: Mutex::default(),
        }
    }

    /// Sends a stored file to the other managers, until a majority of the running managers has it.
    /// The others receive it in the background.
    ///
    /// # Errors
    /// HR0503 if no majority could store it.
    pub(crate) async fn spread(self: &Arc<Self>, sum: Sha256) -> Result<(), ProblemDetails> {
        let mut election = self.group.subscribe();
        let mut sent = BTreeSet::new();
        let mut transfers = JoinSet::new();
        let mut failures = Vec::new();
        loop {
            election.mark_unchanged();
            let others = self.group.others();
            let holders = others.iter().filter(|one| self.has(one, sum)).count();
            if is_majority(1 + holders, 1 + others.len()) {
                transfers.detach_all();
                return Ok(());
            }
            for other in others.iter().filter(|one| sent.insert(key(one))) {
                let (copies, other) = (self.clone(), other.clone());
                if !self.has(&other, sum) {
                    transfers.spawn(async move { copies.send(&other, sum).await });
                }
            }
            tokio::select! {
                // Its view ends with the process.
                Ok(()) = election.changed() => {}
                ended = transfers.join_next() => match ended {
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(why))) => failures.push(why),
                    Some(Err(error)) => failures.push(error.to_string()),
                    None => return Err(too_few(1 + holders, 1 + others.len(), &failures)),
                },
            }
        }
    }

    /// Gets a file from another manager that has it. Returns whether one had it.
    ///
    /// # Errors
    /// The file could not be stored.
    pub(crate) async fn fetch(&self, sum: Sha256) -> Result<bool, ProblemDetails> {
        let others = self.group.others();
        let asked = others.iter().map(async |other| {
            let answer = self.call(Method::HEAD, other, Some(sum)).send().await;
            (other, answer)
        });
        for (other, answer) in join_all(asked).await {
            match answer {
                Ok(answer) if answer.status() == StatusCode::OK => {
                    if self.fetch_from(other, sum).await? {
                        return Ok(true);
                    }
                }
                Ok(_) => {}
                Err(error) => warn!(url = other.url, %error, "cannot ask for an uploaded file"),
            }
        }
        Ok(false)
    }

    /// True shortly after the election, when further managers may start that have a missing file.
    pub(crate) fn may_find_later(&self) -> bool {
        self.clock.now().since(Tick(0)) < START_WAIT
    }

    /// Compares the files with those of the other managers until `closing`.
    pub(crate) async fn keep_equal(
        self: Arc<Self>,
        reader: ClusterReader,
        closing: CancellationToken,
    ) {
        let mut election = self.group.subscribe();
        let mut reported = BTreeSet::new();
        loop {
            election.mark_unchanged();
            let others = self.group.others();
            let keys: BTreeSet<HolderKey> = others.iter().map(key).collect();
            self.known().retain(|holder, _| keys.contains(holder));
            let compared = others
                .iter()
                .map(async |other| (other, self.equalize(other, &reader).await));
            let mut wait = COMPARE_INTERVAL;
            for (other, result) in join_all(compared).await {
                match result {
                    Ok(()) => _ = reported.remove(&other.url),
                    Err(why) => {
                        wait = RETRY_INTERVAL;
                        // Once for each manager, until it succeeds.
                        if reported.insert(other.url.clone()) {
                            warn!(%why, "uploaded files are not on all resource managers");
                        }
                    }
                }
            }
            let changed = self.others_change(&mut election, &keys);
            tokio::select! {
                () = closing.cancelled() => return,
                () = changed => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Waits until other managers run than those with these keys.
    async fn others_change(
        &self,
        election: &mut tokio::sync::watch::Receiver<headroom_rm_etcd::ElectionView>,
        keys: &BTreeSet<HolderKey>,
    ) {
        while election.changed().await.is_ok() {
            let now: BTreeSet<HolderKey> = self.group.others().iter().map(key).collect();
            if now != *keys {
                return;
            }
        }
    }

    /// Makes the files of this manager and of another one equal, except files that no application
    /// needs.
    async fn equalize(&self, other: &ManagerRecord, reader: &ClusterReader) -> Result<(), String> {
        let own = self.store.names();
        let inventory = UploadInventory {
            files: own.iter().copied().collect(),
        };
        let call = self.call(Method::POST, other, None).json(&inventory);
        let answer = checked(other, call.send().await).await?;
        let differences: UploadDifferences = answer
            .json()
            .await
            .map_err(|error| format!("{}: {}", other.url, root_cause(&error)))?;
        let missing: BTreeSet<Sha256> = differences.missing.iter().copied().collect();
        let has = own.difference(&missing).copied().collect();
        self.known().insert(key(other), has);
        for sum in missing {
            self.send(other, sum).await?;
            info!(%sum, url = other.url, "copied an uploaded file to another resource manager");
        }
        if differences.extra.is_empty() {
            return Ok(());
        }
        let needed = reader
            .query(ClusterQuery::NeededUploads)
            .await
            .map_err(|problem| problem.detail)?;
        for sum in differences.extra {
            if needed.contains(&sum) {
                self.fetch_from(other, sum)
                    .await
                    .map_err(|problem| problem.detail)?;
            } else {
                // The other manager keeps it until it was not used for some time.
                let call = self.call(Method::DELETE, other, Some(sum));
                checked(other, call.send().await).await?;
            }
        }
        Ok(())
    }

    /// Sends a file to another manager, unless it has it.
    async fn send(&self, other: &ManagerRecord, sum: Sha256) -> Result<(), String> {
        let _slot = self.transfers.acquire().await;
        let asked = self.call(Method::HEAD, other, Some(sum)).send().await;
        let asked = asked.map_err(|error| format!("{}: {}", other.url, root_cause(&error)))?;
        if asked.status() != StatusCode::OK {
            let opened = upload_transfer::open(&self.store, sum).await;
            let Some((pieces, size)) = opened.map_err(|problem| problem.detail)? else {
                return Err(format!("the uploaded file {sum} was removed"));
            };
            let call = self
                .clients
                .patient()
                .put(address(other, Some(sum)))
                .timeout(longest(size))
                .header(header::CONTENT_LENGTH, size)
                .body(reqwest::Body::wrap_stream(pieces));
            checked(other, call.send().await).await?;
        }
        self.known().entry(key(other)).or_default().insert(sum);
        Ok(())
    }

    /// Gets a file from this manager. Returns `false` if that failed.
    async fn fetch_from(&self, other: &ManagerRecord, sum: Sha256) -> Result<bool, ProblemDetails> {
        let call = self.clients.usual().get(address(other, Some(sum)));
        let answer = match checked(other, call.send().await).await {
            Ok(answer) => answer,
            Err(why) => {
                warn!(%sum, %why, "cannot get an uploaded file");
                return Ok(false);
            }
        };
        let Some(size) = answer.content_length() else {
            warn!(%sum, url = other.url, "an uploaded file came without its size");
            return Ok(false);
        };
        let writer = upload_transfer::begin(&self.store, sum, size).await??;
        match receive(&mut answer.bytes_stream(), writer, size).await {
            Ok(_) => {
                info!(%sum, url = other.url, "got an uploaded file from another resource manager");
                self.known().entry(key(other)).or_default().insert(sum);
                Ok(true)
            }
            Err(problem) => {
                warn!(%sum, url = other.url, %problem, "cannot get an uploaded file");
                Ok(false)
            }
        }
    }

    fn call(
        &self,
        method: Method,
        other: &ManagerRecord,
        sum: Option<Sha256>,
    ) -> reqwest::RequestBuilder {
        let client = self.clients.usual();
        let call = client.request(method, address(other, sum));
        call.timeout(CALL_TIMEOUT)
    }

    fn has(&self, other: &ManagerRecord, sum: Sha256) -> bool {
        let known = self.known();
        known
            .get(&key(other))
            .is_some_and(|files| files.contains(&sum))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<HolderKey, BTreeSet<Sha256>>> {
        // Poisoning is harmless: no panic can leave it half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(manager: &ManagerRecord) -> HolderKey {
    (manager.url.clone(), manager.since)
}

fn address(manager: &ManagerRecord, sum: Option<Sha256>) -> String {
    let base = manager.url.trim_end_matches('/');
    match sum {
        Some(sum) => format!("{base}{PATH}/{sum}"),
        None => format!("{base}{PATH}"),
    }
}

/// True if `holders` are a majority of `running` managers.
fn is_majority(holders: usize, running: usize) -> bool {
    holders > running / 2
}

fn too_few(holders: usize, running: usize, failures: &[String]) -> ProblemDetails {
    let detail = format!(
        "{holders} of {running} running resource managers have the file, and a majority is \
         required: {}",
        failures.join("; ")
    );
    ProblemDetails::unavailable(detail)
        .hint("check the disks of the other resource managers and the network between them")
}

/// The answer, if its status is a success.
async fn checked(
    other: &ManagerRecord,
    answer: reqwest::Result<Response>,
) -> Result<Response, String> {
    let answer = answer.map_err(|error| format!("{}: {}", other.url, root_cause(&error)))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let problem = answer.json::<ProblemDetails>().await;
    let why = problem.map_or_else(|_| status.to_string(), |problem| problem.to_string());
    Err(format!("{}: {why}", other.url))
}

/// The innermost cause of a failed call.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half_of_the_running_managers() {
        let needed = |running| (1..=running).find(|holders| is_majority(*holders, running));
        let all: Vec<_> = (1..=5).map(needed).collect();
        assert_eq!(all, [Some(1), Some(2), Some(2), Some(3), Some(3)]);
    }

    #[test]
    fn a_refused_upload_names_the_causes() {
        let failures = [
            "http://rm2: disk full".to_owned(),
            "http://rm3: timeout".to_owned(),
        ];
        let problem = too_few(1, 3, &failures);
        assert_eq!(problem.code.to_string(), "HR0503");
        assert!(
            problem.detail.starts_with("1 of 3") && problem.detail.ends_with(&failures.join("; ")),
            "{}",
            problem.detail
        );
    }
}
