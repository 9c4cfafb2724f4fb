//! The fake resource manager of the matrix: it numbers the containers and hands out their exit
//! reports.
//!
//! It acknowledges reports at once and orders the agent to forget the container. The agent under
//! test is the shipped one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_test_fakes::{
    DesiredStateStream, EndHandling, FakeManagerSettings, FakeResourceManager, ReportedEnd,
    run_order,
};
use headroom_types::{Bytes, ContainerId, Cpus, LaunchSpec, Resource, StopCause};
use headroom_wire::v1::nodes::NodeHealthState;

/// A fake resource manager.
#[derive(Debug)]
pub(super) struct MatrixManager {
    manager: FakeResourceManager,
    /// Number of containers so far.
    containers: AtomicU64,
}

impl MatrixManager {
    /// Starts one on a free port.
    pub(super) fn start() -> Result<MatrixManager> {
        let manager = FakeResourceManager::start(FakeManagerSettings {
            stream: DesiredStateStream::Changes,
            ends: EndHandling::Forget,
        })?;
        Ok(MatrixManager {
            manager,
            containers: AtomicU64::new(0),
        })
    }

    /// Its base URL.
    pub(super) fn url(&self) -> &str {
        self.manager.url()
    }

    /// Orders a container to run.
    pub(super) fn run(&self, memory: Bytes, launch: LaunchSpec) -> Result<ContainerId> {
        let number = self.containers.fetch_add(1, Ordering::Relaxed) + 1;
        let id: ContainerId = format!("matrix.1.e1.c{number}")
            .parse()
            .context("a container's id")?;
        let request = "case".parse().context("a request's id")?;
        let resource = Resource::new(memory, Cpus::from_milli(500));
        let order = run_order(&id, Some(request), resource, launch);
        self.manager.run([(id.clone(), order)]);
        Ok(id)
    }

    /// Waits for the report on the end of a container, and takes it out of the record. `None` if it
    /// does not arrive in time.
    pub(super) async fn end(&self, id: &ContainerId, timeout: Duration) -> Option<ReportedEnd> {
        let end = self
            .manager
            .until_async("an exit report", timeout, |received| received.take_end(id));
        end.await.ok()
    }

    /// Orders a container to stop, unless it has ended and is forgotten.
    pub(super) fn stop(&self, id: &ContainerId) {
        self.manager.stop_if_desired(id, StopCause::Asked);
    }

    /// The order for a container; `None` if the agent is to forget it.
    pub(super) fn desired(&self, id: &ContainerId) -> String {
        format!("{:?}", self.manager.desired(id))
    }

    /// The health that the agent reported; `None` before its registration.
    pub(super) fn health(&self) -> Option<NodeHealthState> {
        self.manager.with(|received| received.health.clone())
    }

    /// Containers whose end was reported a second time with another reason.
    pub(super) fn contradicted(&self) -> Vec<ContainerId> {
        self.manager
            .with(|received| received.contradicted.iter().cloned().collect())
    }
}
