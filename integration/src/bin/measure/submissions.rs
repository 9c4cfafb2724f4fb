//! Durable submissions per second, compared with the maximum of the underlying library on this
//! machine. The same callers send the same bodies to the resource manager, which answers when they
//! are durable, and to a server that echoes them.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_wire::v1::apps::KillApplicationRequest;
use integration::load::daemon::Daemon;
use integration::load::http::HttpConnection;
use integration::load::limits;
use integration::load::master::unmanaged;

use crate::progress::print_line;
use crate::quantiles::quantile;

/// Number of parallel callers.
const CALLERS: u32 = 64;
/// Applications of one turn. The resource manager accepts at most 10,000 that have not ended.
const TURN: u32 = 6_400;
/// Number of turns, each with one of the echo server.
const TURNS: u32 = 3;
/// First argument with which this program is the echo server.
pub(crate) const ECHO: &str = "--echo-server";

/// Calls per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubmissionRates {
    pub(crate) durable_apps_per_s: f64,
    pub(crate) bare_axum_per_s: f64,
}

/// Runs all turns.
pub(crate) async fn measure() -> Result<SubmissionRates> {
    let daemon = Daemon::start()?;
    let echo = Echo::start()?;
    let (mut durable, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        durable.push(rate(daemon.address(), turn).await?);
        empty(daemon.address()).await?;
        bare.push(rate(echo.address, turn).await?);
        print_line(&format!(
            "applications {:?}/s, bare {:?}/s",
            durable.last(),
            bare.last()
        ));
    }
    let middle = |all: &[u128]| {
        quantile(all, 50)
            .and_then(|n| u32::try_from(n).ok())
            .map(f64::from)
            .context("no turn")
    };
    Ok(SubmissionRates {
        durable_apps_per_s: middle(&durable)?,
        bare_axum_per_s: middle(&bare)?,
    })
}

/// Runs all callers as fast as they get responses.
async fn rate(to: SocketAddr, turn: u32) -> Result<u128> {
    let mut wires = Vec::new();
    for n in 0..CALLERS {
        wires.push(HttpConnection::connect(to, limits::address(n as usize)).await?);
    }
    let started = Instant::now();
    let callers = wires.into_iter().zip(0_u32..).map(|(mut wire, caller)| {
        tokio::spawn(async move {
            for n in 0..TURN / CALLERS {
                let app = unmanaged("durable", Some(format!("{turn}-{caller}-{n}")))?;
                let answer = wire.post("/v1/apps", &serde_json::to_vec(&app)?).await?;
                ensure!(answer.status == 200, "status {}", answer.status);
            }
            Ok(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.context("a caller panicked")??;
    }
    Ok(u128::from(TURN) * 1_000_000_000 / started.elapsed().as_nanos().max(1))
}

/// Kills all applications to free the quota for the next turn. The list also proves that they
/// exist.
async fn empty(rm: SocketAddr) -> Result<()> {
    let client = headroom_client::Client::new(&format!("http://{rm}"))?;
    let live: Vec<_> = client
        .apps()
        .await?
        .into_iter()
        .filter(|a| !a.state.is_final())
        .map(|a| a.id)
        .collect();
    ensure!(
        live.len() == TURN as usize,
        "{TURN} applications were accepted, but {} are listed",
        live.len()
    );
    let mut wire = HttpConnection::connect(rm, limits::address(0)).await?;
    let body = serde_json::to_vec(&KillApplicationRequest { reason: None })?;
    for app in live {
        let answer = wire.post(&format!("/v1/apps/{app}/kill"), &body).await?;
        // An application that waited too long for its master has ended by itself and may be purged
        // already.
        ensure!(
            answer.status == 200 || answer.status == 404,
            "ending {app}: status {}",
            answer.status
        );
    }
    Ok(())
}

/// The echo server, as its own process.
struct Echo {
    child: Child,
    address: SocketAddr,
}

impl Echo {
    fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ECHO)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child
            .stdout
            .take()
            .context("the output of the bare server")?;
        BufReader::new(output).read_line(&mut line)?;
        let address = line
            .trim()
            .parse()
            .with_context(|| format!("the bare server printed {line:?}"))?;
        Ok(Echo { child, address })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // The server may have exited already; then the kill fails, without consequence.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints its address and serves until it is killed.
#[allow(clippy::print_stdout)] // read by the parent process
pub(crate) fn echo() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let router = axum::Router::new().route(
            "/v1/apps",
            axum::routing::post(|body: axum::body::Bytes| async { body }),
        );
        // The timeout ends the server if the measuring process is killed.
        let server = axum::serve(listener, router);
        tokio::time::timeout(Duration::from_secs(600), server.into_future())
            .await
            .ok();
        Ok(())
    })
}
