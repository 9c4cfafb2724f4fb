//! A fake resource manager for one node agent.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use headroom_types::{ContainerId, LaunchSpec, RequestId, Resource, Sha256, StopCause, UnixMillis};
use headroom_wire::v1::nodes::{ContainerDesiredState, DesiredContainer, RunOrder};

use crate::received::ReceivedReports;
use crate::server::ServerThread;
use crate::state::{FakeManagerSettings, Faults, Shared};

/// Interval of checks on conditions without notification, such as files.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A fake resource manager on a free port of this host. Dropping it closes its connections.
///
/// The desired state is level-triggered: the first line of a stream contains all containers, and a
/// reconnected node receives all of them again.
#[derive(Debug)]
pub struct FakeResourceManager {
    shared: Arc<Shared>,
    server: ServerThread,
}

impl FakeResourceManager {
    /// Starts it.
    ///
    /// # Errors
    /// If no port is free or no thread can be started.
    pub fn start(settings: FakeManagerSettings) -> Result<Self> {
        let shared = Arc::new(Shared::new(settings));
        let server = ServerThread::start(&shared)?;
        Ok(FakeResourceManager { shared, server })
    }

    /// Its base URL: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.server.url
    }

    /// Orders containers to run, all in one line.
    pub fn run(&self, orders: impl IntoIterator<Item = (ContainerId, RunOrder)>) {
        self.order(
            orders
                .into_iter()
                .map(|(id, order)| (id, ContainerDesiredState::Run(Box::new(order)))),
        );
    }

    /// Changes the order to run a container, for example its size. Returns false if there is none.
    pub fn change_order(&self, id: &ContainerId, change: impl FnOnce(&mut RunOrder)) -> bool {
        let mut state = self.shared.lock();
        let Some(ContainerDesiredState::Run(order)) = state.desired(id) else {
            return false;
        };
        let mut order = order.clone();
        change(&mut order);
        state.order(vec![DesiredContainer {
            container: id.clone(),
            want: ContainerDesiredState::Run(order),
        }]);
        true
    }

    /// Orders a container to stop.
    pub fn stop(&self, id: &ContainerId, cause: StopCause) {
        self.order([(id.clone(), ContainerDesiredState::Stop { cause })]);
    }

    /// Orders a container to stop if the desired state contains it.
    pub fn stop_if_desired(&self, id: &ContainerId, cause: StopCause) {
        let mut state = self.shared.lock();
        if state.desired(id).is_some() {
            state.order(vec![DesiredContainer {
                container: id.clone(),
                want: ContainerDesiredState::Stop { cause },
            }]);
        }
    }

    /// Offers an uploaded file. Its first request is refused, as by an overloaded resource manager.
    pub fn add_upload(&self, sha256: Sha256, content: &[u8]) {
        let file = (content.to_owned(), 0);
        self.shared.lock().uploads.insert(sha256, file);
    }

    /// Orders the node to forget containers, all in one line.
    pub fn forget(&self, ids: impl IntoIterator<Item = ContainerId>) {
        self.order(
            ids.into_iter()
                .map(|id| (id, ContainerDesiredState::Forget)),
        );
    }

    /// Removes containers from the desired state, without a message to the node.
    pub fn remove_desired(&self, ids: &[ContainerId]) {
        let mut state = self.shared.lock();
        for id in ids {
            state.remove_desired(id);
        }
    }

    /// The order for a container; `None` if the desired state does not contain it.
    pub fn desired(&self, id: &ContainerId) -> Option<ContainerDesiredState> {
        self.shared.lock().desired(id).cloned()
    }

    /// Whether the node was ordered to forget this container.
    pub fn is_forgotten(&self, id: &ContainerId) -> bool {
        matches!(
            self.shared.lock().desired(id),
            Some(ContainerDesiredState::Forget)
        )
    }

    fn order(&self, orders: impl IntoIterator<Item = (ContainerId, ContainerDesiredState)>) {
        let changes: Vec<DesiredContainer> = orders
            .into_iter()
            .map(|(container, want)| DesiredContainer { container, want })
            .collect();
        if !changes.is_empty() {
            self.shared.lock().order(changes);
        }
    }

    /// Starts another incarnation: streams end and the reports on containers are forgotten. The
    /// desired state and the registrations are kept.
    pub fn restart(&self) {
        self.shared.lock().restart();
    }

    /// Injects or removes faults.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.shared.lock();
        change(&mut state.faults);
        if state.faults.unavailable {
            state.close_streams();
        }
    }

    /// Refuses registrations whose serial number is not above `highest`, as if a later agent of the
    /// node had registered.
    pub fn fence_registrations(&self, highest: u64) {
        self.shared.lock().highest_serial = highest;
    }

    /// Reads the received reports.
    pub fn with<T>(&self, read: impl FnOnce(&ReceivedReports) -> T) -> T {
        read(&self.shared.lock().received)
    }

    /// Blocks until `condition` returns a value. It is checked after each message and at least
    /// every 20 ms.
    ///
    /// # Errors
    /// If there is no value within `timeout`; the error names the `event`.
    pub fn until<T>(
        &self,
        event: &str,
        timeout: Duration,
        mut condition: impl FnMut(&mut ReceivedReports) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        loop {
            if let Some(value) = condition(&mut state.received) {
                return Ok(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!(
                    "timed out after {} s waiting for {event}",
                    timeout.as_secs()
                );
            }
            (state, _) = self
                .shared
                .changed
                .wait_timeout(state, left.min(CHECK_INTERVAL))
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`FakeResourceManager::until`], for asynchronous callers.
    ///
    /// # Errors
    /// If there is no value within `timeout`; the error names the `event`.
    pub async fn until_async<T>(
        &self,
        event: &str,
        timeout: Duration,
        mut condition: impl FnMut(&mut ReceivedReports) -> Option<T>,
    ) -> Result<T> {
        let wait = async {
            loop {
                let changed = self.shared.changed_async.notified();
                let value = condition(&mut self.shared.lock().received);
                if let Some(value) = value {
                    return value;
                }
                // A check after the interval and one after a message are the same.
                let _ = tokio::time::timeout(CHECK_INTERVAL, changed).await;
            }
        };
        match tokio::time::timeout(timeout, wait).await {
            Ok(value) => Ok(value),
            Err(_) => bail!(
                "timed out after {} s waiting for {event}",
                timeout.as_secs()
            ),
        }
    }
}

/// An order to run a container of the first attempt, as the user of the agent.
pub fn run_order(
    container: &ContainerId,
    request: Option<RequestId>,
    resource: Resource,
    launch: LaunchSpec,
) -> RunOrder {
    RunOrder {
        app: container.app.clone(),
        request,
        attempt: 1,
        resource,
        version: 1,
        launch,
        user: None,
        granted: UnixMillis(1),
        token: None,
    }
}
