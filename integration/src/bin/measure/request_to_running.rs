//! The wait of a master for one container on an idle cluster.
//!
//! Real daemons run on loopback with one node. An unmanaged master requests one container, waits
//! for the report that it runs, releases it and waits for its end. Therefore each round finds the
//! cluster idle. The path from request to report contains two HTTP calls, two stream lines, the
//! decision, the new cgroup with verified limits, and a fork and exec.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use headroom_client::{Client, JsonLineStream};
use headroom_types::{AttemptId, Bytes, ContainerId, Cpus, Epoch, LaunchSpec, Resource};
use headroom_wire::v1::application_master::{
    ApplicationUpdate, ApplicationUpdateKind, MasterSync, PlacementRequest, RegisterMaster,
};
use integration::cluster::Cluster;
use integration::load::master::unmanaged;
use serde::Serialize;

use crate::quantiles::{millis, quantile};

/// Timeout of one step.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct RequestWaitResults {
    p50_ms: f64,
    p99_ms: f64,
    n: usize,
    enforcer: String,
}

/// Runs the rounds.
pub(crate) fn measure(rounds: u32) -> Result<RequestWaitResults> {
    let cluster = Cluster::of_one()?;
    let (times, enforcer) = cluster.call(async {
        let nodes = cluster.client().nodes().await?;
        let enforcer = nodes.first().context("no node")?.enforcer.to_string();
        let mut master = Master::start(cluster.client().clone()).await?;
        let mut times = Vec::new();
        for n in 1..=rounds {
            times.push(
                master
                    .round(n)
                    .await
                    .with_context(|| format!("round {n}"))?
                    .as_nanos(),
            );
        }
        anyhow::Ok((times, enforcer))
    })?;
    let at = |percent| {
        quantile(&times, percent)
            .map(millis)
            .context("nothing was measured")
    };
    Ok(RequestWaitResults {
        p50_ms: at(50)?,
        p99_ms: at(99)?,
        n: times.len(),
        enforcer,
    })
}

struct Master {
    client: Client,
    attempt: AttemptId,
    epoch: Epoch,
    cursor: u64,
    lines: JsonLineStream<ApplicationUpdate>,
}

impl Master {
    async fn start(client: Client) -> Result<Self> {
        let attempt = client.submit(&unmanaged("asker", None)?).await?.attempt;
        let body = RegisterMaster::new(attempt.clone());
        let registered = client.register_master(&attempt.app, &body).await?;
        let lines = client
            .updates(&attempt.app, registered.epoch, registered.cursor)
            .await?;
        Ok(Master {
            client,
            attempt,
            epoch: registered.epoch,
            cursor: registered.cursor,
            lines,
        })
    }

    /// Requests the `n`th container and returns the time from the request to the report that it
    /// runs.
    async fn round(&mut self, n: u32) -> Result<Duration> {
        let started = Instant::now();
        self.say(Some(self.ask(n)?), Vec::new()).await?;
        let container = loop {
            let update = self.update().await?;
            if let ApplicationUpdateKind::Exited { report, .. } = update {
                bail!(
                    "the container ended by itself: {}",
                    report.reason.sentence()
                );
            }
            if let ApplicationUpdateKind::Running { container } = update {
                break container;
            }
        };
        let time = started.elapsed();
        self.say(None, vec![container]).await?;
        while !matches!(self.update().await?, ApplicationUpdateKind::Exited { .. }) {}
        // Acknowledges the end, so that the next round starts without open updates.
        self.say(None, Vec::new()).await?;
        Ok(time)
    }

    async fn update(&mut self) -> Result<ApplicationUpdateKind> {
        let update = tokio::time::timeout(TIMEOUT, self.lines.next())
            .await
            .context("no update came")?;
        let update = update.context("the updates ended")??;
        self.cursor = self.cursor.max(update.cursor);
        Ok(update.what)
    }

    fn ask(&self, n: u32) -> Result<PlacementRequest> {
        let launch = LaunchSpec {
            command: vec!["/bin/sleep".into(), "60".into()],
            ..LaunchSpec::default()
        };
        let size = Resource::new(Bytes::from_mib(64), Cpus::from_milli(100));
        Ok(PlacementRequest {
            count: n,
            ended: n - 1,
            ..PlacementRequest::new("sleeper".parse()?, size, launch)
        })
    }

    async fn say(&self, ask: Option<PlacementRequest>, release: Vec<ContainerId>) -> Result<()> {
        let asks: Vec<PlacementRequest> = ask.into_iter().collect();
        let (attempt, epoch, ack, drop) =
            (self.attempt.clone(), self.epoch, self.cursor, Vec::new());
        let sync = MasterSync {
            attempt,
            epoch,
            ack,
            asks,
            drop,
            release,
            job: None,
        };
        let reply = self.client.sync_master(&self.attempt.app, &sync).await?;
        ensure!(!reply.stop, "the application was ended");
        Ok(())
    }
}
