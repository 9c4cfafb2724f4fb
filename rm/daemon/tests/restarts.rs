//! Restarts of the resource manager, with a shutdown and with a kill: nothing accepted is lost, and
//! nothing is granted twice.

#![allow(missing_docs)] // tests are read, not imported

#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use std::collections::BTreeSet;

use fakes::*;
use headroom_client::Client;
use headroom_types::{AppId, Bytes, ExitReason, StoreBackend};
use headroom_wire::v1::application_master::RegisterMaster;
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::job::{JobTotals, JobViewPatch, TaskRow};
use headroom_wire::v1::job_history::{TaskKindHistory, TaskMemoryNeed};
use headroom_wire::v1::nodes::NodeContainerPhase;

/// Runs each test with each store.
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        mod sled {
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(headroom_types::StoreBackend::Sled).await })+
        }
        mod redb {
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(headroom_types::StoreBackend::Redb).await })+
        }
    };
}

on_every_store!(
    a_restart_keeps_all_state_and_grants_no_container_twice,
    a_restart_keeps_the_usage_history,
    repeated_kills_lose_no_application_and_repeat_no_grant,
);

/// A task that has finished.
fn row(n: u32) -> TaskRow {
    let profile = serde_json::json!({"heap": 0, "overhead": 64 << 20, "cpus": 1000});
    let attempt = serde_json::json!({
        "attempt": format!("map/{n}@1"), "profile": profile, "slots": 1, "rung": 1, "container": "count.1.e1.c2", "node": "n1",
        "started": 1000, "ended": 3000, "peak": 9 << 20, "reason": {"kind": "exit", "code": 0},
    });
    let row = serde_json::json!({"task": format!("map/{n}"), "state": "done", "profile": profile, "rung": 1, "attempts": [attempt]});
    serde_json::from_value(row).expect("a row")
}

async fn a_restart_keeps_the_usage_history(store: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    for run in 1..=2 {
        let (running, client) = resource_manager_with(dir.path(), store).await;
        let master = FakeMaster::submit(&client, "count").await;
        let tasks = vec![row(0), row(1), row(2)];
        master
            .finish(Some(JobViewPatch {
                full: true,
                totals: JobTotals::default(),
                tasks,
                events: Vec::new(),
                ..JobViewPatch::default()
            }))
            .await;
        app_state(&client, master.app(), AppState::Finished).await;
        let listed = client.job_histories(Some("test")).await.expect("lists");
        assert_eq!(
            listed
                .iter()
                .map(|f| (f.name.as_str(), f.runs, f.tasks))
                .collect::<Vec<_>>(),
            [("count", run, 3 * run)]
        );
        running.shutdown().await.expect("ends");
    }
    let (_running, client) = resource_manager_with(dir.path(), store).await;
    let name = "count".parse().expect("a name");
    let family = client
        .job_history(&name, Some("test"))
        .await
        .expect("the usage history is kept");
    let need = TaskMemoryNeed {
        peak: Bytes::from_mib(9),
        first: Bytes::from_mib(64),
        last: Bytes::from_mib(64),
        kills: 0,
        runtime_ms: 2000,
    };
    assert_eq!(
        (family.runs, family.kinds),
        (
            2,
            vec![TaskKindHistory {
                name: "map".into(),
                tasks: vec![need; 6]
            }]
        )
    );
    let next = FakeMaster::submit(&client, "count").await;
    let body = RegisterMaster::new(next.attempt.clone());
    let known = client
        .register_master(next.app(), &body)
        .await
        .expect("registers")
        .known;
    assert_eq!(
        known.map(|known| known.runs),
        Some(2),
        "the next master receives the usage history"
    );
    let other = client
        .job_history(&name, Some("a/b & c"))
        .await
        .expect_err("the history is of another user");
    assert_eq!(other.code(), Some(ErrorCode::HR0404));
}

async fn a_restart_keeps_all_state_and_grants_no_container_twice(store: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager_with(dir.path(), store).await;
    let mut node = FakeNode::join(&client, "n1", 1024).await;
    let mut master = FakeMaster::submit(&client, "job").await;
    let waiting = client.submit(&unmanaged("waiting")).await.expect("submits");
    let ended = FakeMaster::submit(&client, "ended").await;
    ended.finish(None).await;
    app_state(&client, ended.app(), AppState::Finished).await;
    master
        .sync(vec![master.ask("main", mib(128), 3)])
        .await
        .expect("asks");
    node.until_orders(3).await;
    node.run_all().await;
    master
        .until("three running", |m| (m.running.len() == 3).then_some(()))
        .await;
    running.shutdown().await.expect("ends");

    let (_running, client) = resource_manager_with(dir.path(), store).await;
    (node.client, master.client) = (client.clone(), client.clone());
    let states: Vec<(AppId, AppState)> = client
        .apps()
        .await
        .expect("lists")
        .into_iter()
        .map(|a| (a.id, a.state))
        .collect();
    let expected = [
        (master.app(), AppState::Running),
        (&waiting.app, AppState::Accepted),
        (ended.app(), AppState::Finished),
    ];
    assert_eq!(states, expected.map(|(app, state)| (app.clone(), state)));
    assert_eq!(
        node.report().await.expect_err("stale").code(),
        Some(ErrorCode::HR0410)
    );
    let before = node.epoch;
    node.register().await;
    assert!(node.epoch > before);
    let known = master.granted.clone();
    master.register().await;
    assert_eq!(master.granted, known, "the same containers");
    master
        .sync(vec![master.ask("main", mib(128), 3)])
        .await
        .expect("requests again");
    assert_eq!(client.app(master.app()).await.expect("known").pending, 0);
    assert_eq!(node.orders.len(), 3, "nothing was granted twice");
    master
        .sync(vec![master.ask("main", mib(128), 4)])
        .await
        .expect("requests one more");
    let all = node.until_orders(4).await;
    assert!(
        all.iter().all(|c| c.app == *master.app())
            && all.iter().filter(|c| c.epoch == node.epoch).count() == 1
    );
    let next = client.submit(&unmanaged("next")).await.expect("submits");
    assert_eq!(next.app.seq(), 4, "application numbers continue");
}

/// A node and a master that continue after each restart.
struct RestartScenario {
    node: FakeNode,
    master: FakeMaster,
    count: u32,
}

impl RestartScenario {
    /// Runs and ends granted containers and requests the rest, until the master has received `n`
    /// ends.
    async fn until_ended(&mut self, n: usize) {
        while self.master.ended.len() < n {
            let alive = |n: &FakeNode| {
                n.has
                    .values()
                    .any(|c| c.phase != NodeContainerPhase::Exited)
                    .then_some(())
            };
            self.node.until("something to run", alive).await;
            self.node.run_all().await;
            let one = self
                .node
                .has
                .values()
                .find(|c| c.phase == NodeContainerPhase::Running)
                .map(|c| c.container.clone());
            if let Some(container) = one {
                self.node.end(&container, ExitReason::Exit { code: 0 });
                self.node.report().await.expect("reports");
                self.master
                    .until("the end", |m| {
                        m.ended.contains_key(&container).then_some(())
                    })
                    .await;
            }
            self.ask().await;
        }
    }

    async fn ask(&self) {
        self.master
            .sync(vec![self.master.ask("main", mib(256), self.count)])
            .await
            .expect("asks");
    }

    async fn reconnect(&mut self, client: &Client) {
        (self.node.client, self.master.client) = (client.clone(), client.clone());
        self.node.register().await;
        self.master.register().await;
        self.ask().await;
    }
}

async fn repeated_kills_lose_no_application_and_repeat_no_grant(store: StoreBackend) {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let mut daemon = Daemon::start_with(dir.path(), port, store).await;
    let node = FakeNode::join(&daemon.client, "n1", 1024).await;
    let master = FakeMaster::submit(&daemon.client, "job").await;
    let mut scenario = RestartScenario {
        node,
        master,
        count: 16,
    };
    scenario.ask().await;
    let mut accepted: BTreeSet<AppId> = BTreeSet::from([scenario.master.app().clone()]);
    let mut epoch = scenario.node.epoch;
    for round in 1..=4 {
        scenario.until_ended(3 * round).await;
        // At the kill there is one exit that was not reported, and there are submissions in
        // progress.
        let running = scenario
            .node
            .has
            .values()
            .find(|c| c.phase == NodeContainerPhase::Running)
            .map(|c| c.container.clone());
        if let Some(container) = running {
            scenario.node.end(&container, ExitReason::Exit { code: 0 });
        }
        let submitters: Vec<_> = (0..8)
            .map(|n| tokio::spawn(submit_until_refused(daemon.client.clone(), n)))
            .collect();
        until("some submissions", || async {
            daemon
                .client
                .apps()
                .await
                .ok()
                .filter(|all| all.len() > accepted.len() + 20)
                .map(|_| ())
        })
        .await;
        daemon.kill();
        for submitter in submitters {
            accepted.extend(
                soon("the end of the submitters", submitter)
                    .await
                    .expect("ends"),
            );
        }
        daemon = Daemon::start_with(dir.path(), port, store).await;
        let known = known_apps(&daemon.client).await;
        assert!(
            accepted.is_subset(&known),
            "lost: {:?}",
            accepted.difference(&known).collect::<Vec<_>>()
        );
        scenario.reconnect(&daemon.client).await;
        assert!(
            scenario.node.epoch > epoch,
            "each incarnation has its own epoch"
        );
        epoch = scenario.node.epoch;
    }
    scenario.until_ended(16).await;
    let view = daemon
        .client
        .app(scenario.master.app())
        .await
        .expect("known");
    assert_eq!((view.pending, view.state), (0, AppState::Running));
    scenario
        .node
        .until("all forgotten", |n| n.has.is_empty().then_some(()))
        .await;
    assert_eq!(
        scenario.node.orders.len(),
        16,
        "as many containers as were requested, over five incarnations"
    );
    assert_eq!(scenario.master.ended.len(), 16);
}

async fn known_apps(client: &Client) -> BTreeSet<AppId> {
    let apps = client.apps().await.expect("lists");
    apps.into_iter().map(|app| app.id).collect()
}

async fn submit_until_refused(client: Client, n: u32) -> Vec<AppId> {
    let mut accepted = Vec::new();
    while let Ok(submitted) = client.submit(&unmanaged(&format!("other-{n}"))).await {
        accepted.push(submitted.app);
    }
    accepted
}
