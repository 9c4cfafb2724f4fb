//! The fake resource manager of these tests: containers have numbers, and a wait that times out
//! fails the test.

use std::ops::Deref;
use std::time::Duration;

use headroom_test_fakes::{
    DesiredStateStream, EndHandling, FakeManagerSettings, FakeResourceManager, ReceivedReports,
    run_order,
};
use headroom_types::{Bytes, ContainerId, Cpus, ExitReport, LaunchSpec, Resource};
use headroom_wire::v1::acl::SecretText;
use headroom_wire::v1::nodes::RunOrder;

/// Timeout of every wait in the tests.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The id of a container. It is known before the order.
pub(crate) fn container_id(n: u64) -> ContainerId {
    format!("test.1.e1.c{n}").parse().expect("id")
}

fn new_order(
    n: u64,
    memory_mib: u64,
    launch: LaunchSpec,
    request: Option<&str>,
) -> (ContainerId, RunOrder) {
    let id = container_id(n);
    let request = request.map(|name| name.parse().expect("request"));
    let resource = Resource::new(Bytes::from_mib(memory_mib), Cpus::from_cores(1));
    let order = run_order(&id, request, resource, launch);
    (id, order)
}

/// The resource manager of one test.
#[derive(Debug)]
pub(crate) struct FakeRm(FakeResourceManager);

impl Deref for FakeRm {
    type Target = FakeResourceManager;

    fn deref(&self) -> &FakeResourceManager {
        &self.0
    }
}

impl FakeRm {
    /// Starts it on a free port. Every message contains all containers, which a level-triggered
    /// node must accept.
    pub(crate) fn start() -> FakeRm {
        let settings = FakeManagerSettings {
            stream: DesiredStateStream::FullState,
            ends: EndHandling::Keep,
        };
        FakeRm(FakeResourceManager::start(settings).expect("starts"))
    }

    /// Orders a container.
    pub(crate) fn run(&self, n: u64, memory_mib: u64, launch: LaunchSpec) -> ContainerId {
        self.run_as(n, memory_mib, launch, None, Some("main"))
    }

    /// Orders the container of an application master.
    pub(crate) fn run_master(&self, n: u64, memory_mib: u64, launch: LaunchSpec) -> ContainerId {
        self.run_as(n, memory_mib, launch, None, None)
    }

    /// Orders a container of that user.
    pub(crate) fn run_by(&self, n: u64, user: Option<&str>, launch: LaunchSpec) -> ContainerId {
        self.run_as(n, 64, launch, user.map(str::to_owned), Some("main"))
    }

    /// Orders a container with the token of its application.
    pub(crate) fn run_with_token(&self, n: u64, token: &str, launch: LaunchSpec) -> ContainerId {
        let (id, mut order) = new_order(n, 64, launch, Some("main"));
        order.token = Some(SecretText(token.to_owned()));
        self.0.run([(id.clone(), order)]);
        id
    }

    fn run_as(
        &self,
        n: u64,
        memory_mib: u64,
        launch: LaunchSpec,
        user: Option<String>,
        request: Option<&str>,
    ) -> ContainerId {
        let (id, mut order) = new_order(n, memory_mib, launch, request);
        order.user = user;
        self.0.run([(id.clone(), order)]);
        id
    }

    /// Orders another size of a container.
    pub(crate) fn resize(&self, id: &ContainerId, version: u32, memory_mib: u64) {
        let changed = self.change_order(id, |order| {
            order.version = version;
            order.resource = Resource::new(Bytes::from_mib(memory_mib), Cpus::from_cores(2));
        });
        assert!(changed, "{id} was not ordered");
    }

    /// Orders the node to forget a container.
    pub(crate) fn forget(&self, id: &ContainerId) {
        self.0.forget([id.clone()]);
    }

    /// Waits until `condition` returns a value. It may also read files.
    pub(crate) async fn until<T>(
        &self,
        event: &str,
        condition: impl FnMut(&mut ReceivedReports) -> Option<T>,
    ) -> T {
        match self.until_async(event, WAIT_TIMEOUT, condition).await {
            Ok(value) => value,
            Err(error) => panic!("{error}: {:#?}", self.0),
        }
    }

    /// Waits for the report on a container.
    pub(crate) async fn exit(&self, id: &ContainerId) -> ExitReport {
        self.until(&format!("the end of {id}"), |received| {
            received.exit(id).cloned()
        })
        .await
    }

    /// Waits until a container runs.
    pub(crate) async fn running(&self, id: &ContainerId) {
        self.until(&format!("{id} to run"), |received| {
            received.running.contains_key(id).then_some(())
        })
        .await;
    }
}
