//! The web page with a large cluster: ten thousand simulated nodes with ten containers each, and a
//! headless browser that opens the overview.
//!
//! It measures:
//!
//! - the time from the navigation to the first nodes on the screen;
//! - the bytes received for them;
//! - the regularity of frames while the cluster changes;
//! - the additional load on the resource manager.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::{Bytes, Cpus, Resource};
use integration::browser::{Browser, PageAppearance};
use integration::load::agents::{self, AgentFleet};
use integration::load::daemon::Daemon;
use integration::load::limits;
use integration::load::master::{self, MasterPool, RequestPace};
use serde::Serialize;
use serde_json::Value;

use crate::load_runtime::load_runtime;
use crate::progress::{print_line, until, wait};

/// Number of masters that hold the containers.
const MASTERS: usize = 16;
/// Containers per node.
const ON_A_NODE: usize = 10;
/// Containers of each master that come and go while the page is open.
const WINDOW: u32 = 2;
/// Run time of one of those.
const LIFE: Duration = Duration::from_secs(2);
/// Timeout for all agents and containers to start.
const ARRIVAL: Duration = Duration::from_secs(300);
/// Length of one measurement. Seconds.
const WATCHED: u64 = 10;
/// Timeout of the first view.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Records when the first node was painted. Milliseconds after the navigation.
const FIRST_VIEW: &str = "
    const look = new MutationObserver(() => {
        if (window.firstView || !document.querySelector('[data-node]')) return;
        look.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => (window.firstView = performance.now())));
    });
    look.observe(document, { childList: true, subtree: true });";

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct PageResults {
    nodes: usize,
    containers: usize,
    first_view_ms: f64,
    bytes: u64,
    bytes_per_s: f64,
    frame_p95_ms: f64,
    rm_cpu_percent: f64,
    rm_cpu_percent_without: f64,
    list_view_ms: f64,
}

/// Runs the whole measurement.
pub(crate) fn measure(agents: usize) -> Result<PageResults> {
    limits::raise()?;
    let runtime = load_runtime()?;
    let daemon = Daemon::start()?;
    let rm = daemon.address();
    let all = agents * ON_A_NODE / MASTERS * MASTERS;
    let (fleet, crowd) = start_load(&runtime, rm, agents)?;
    let without = busy(&daemon, || {
        runtime.block_on(async { wait("without the page", Duration::from_secs(WATCHED)).await })
    })?;
    let mut browser = open_overview(&format!("http://{rm}/ui/#/overview"))?;
    let first_view_ms = number(&browser.until("window.firstView", TIMEOUT)?)?;
    let bytes = browser.received;
    let mut frames = Value::Null;
    let with = busy(&daemon, || {
        frames = browser.eval(&frames_for(WATCHED)).unwrap_or_default()
    })?;
    let later = browser.received - bytes;
    ensure!(
        browser.eval("document.querySelector('[data-chip=nodes] b').innerText")? == grouped(agents),
        "the page does not count all nodes"
    );
    let list_view_ms = list(&mut browser)?;
    ensure!(
        browser.complaints.is_empty(),
        "the page reported errors: {:?}",
        browser.complaints
    );
    print_line(&format!("frames: {frames}"));
    let figures = PageResults {
        nodes: agents,
        containers: all,
        first_view_ms,
        bytes,
        bytes_per_s: as_f64(later) / as_f64(WATCHED),
        frame_p95_ms: number(&frames["p95"])?,
        rm_cpu_percent: with * 100.0,
        rm_cpu_percent_without: without * 100.0,
        list_view_ms,
    };
    let faults = daemon.faults()?;
    ensure!(faults.is_empty(), "the daemon logged errors: {faults:?}");
    drop((crowd, fleet));
    runtime.shutdown_background();
    Ok(figures)
}

/// Starts the simulated agents, and the masters whose containers stay or come and go.
fn start_load(
    runtime: &tokio::runtime::Runtime,
    rm: SocketAddr,
    agents: usize,
) -> Result<(AgentFleet, MasterPool)> {
    let room = u32::try_from(ON_A_NODE + 2)?;
    let offers = Resource::new(
        Bytes::from_mib(1024 * u64::from(room)),
        Cpus::from_cores(room),
    );
    let size = Resource::new(Bytes::from_mib(1024), Cpus::from_milli(500));
    let staying = u32::try_from(agents * ON_A_NODE / MASTERS)?;
    let all = staying as usize * MASTERS;
    runtime.block_on(async {
        let fleet = AgentFleet::start(&agents::AgentFleetPlan {
            rm: rm.into(),
            agents,
            offers,
            protocol: agents::AgentProtocol::Channel,
        })?;
        until("agents listening", agents, ARRIVAL, || {
            fleet.totals.listening.load(Ordering::Relaxed)
        })
        .await?;
        let crowd = MasterPool::start(&master::MasterPoolPlan {
            rm: rm.into(),
            masters: MASTERS,
            staying,
            size,
            life: LIFE,
        })
        .await?;
        until("containers", all, ARRIVAL, || {
            usize::try_from(crowd.seen.staying.load(Ordering::Relaxed)).unwrap_or(0)
        })
        .await?;
        crowd.pace(RequestPace::Window(WINDOW));
        wait("settling", Duration::from_secs(5)).await;
        Ok((fleet, crowd))
    })
}

/// Opens the overview in a browser without a cache, which records the time of the first view.
fn open_overview(url: &str) -> Result<Browser> {
    let mut browser = Browser::start()?;
    browser.look(PageAppearance::LIGHT)?;
    browser.call(
        "Network.setCacheDisabled",
        serde_json::json!({"cacheDisabled": true}),
    )?;
    browser.call(
        "Page.addScriptToEvaluateOnNewDocument",
        serde_json::json!({"source": FIRST_VIEW}),
    )?;
    browser.open(url)?;
    Ok(browser)
}

/// Time from the overview to the last rows of the list of nodes. Milliseconds.
fn list(browser: &mut Browser) -> Result<f64> {
    let go = "new Promise(done => {
        const start = performance.now();
        const look = new MutationObserver(() => {
            if (document.querySelectorAll('[data-card=nodes] tbody tr').length < 50) return;
            look.disconnect();
            requestAnimationFrame(() => done(performance.now() - start));
        });
        look.observe(document.body, { childList: true, subtree: true });
        location.hash = '#/nodes?sort=used&from=50';
    })";
    number(&browser.eval(go)?)
}

/// A script that measures the times between frames. Milliseconds.
fn frames_for(seconds: u64) -> String {
    format!(
        "new Promise(done => {{
            const times = []; let last = performance.now(); const end = last + {seconds}000;
            const frame = (now) => {{
                times.push(now - last); last = now;
                if (now < end) return requestAnimationFrame(frame);
                times.sort((a, b) => a - b);
                const at = (part) => times[Math.min(times.length - 1, Math.floor(times.length * part))];
                done({{ p50: at(0.5), p95: at(0.95), max: at(1), frames: times.length }});
            }};
            requestAnimationFrame(frame);
        }})"
    )
}

/// Average number of processors that the daemon uses during `meanwhile`.
fn busy(daemon: &Daemon, meanwhile: impl FnOnce()) -> Result<f64> {
    let before = daemon.usage()?;
    meanwhile();
    Ok(daemon.usage()?.cpus_since(&before))
}

fn number(value: &Value) -> Result<f64> {
    value
        .as_f64()
        .with_context(|| format!("{value} is not a number"))
}

/// A number in the format of the page.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let places = digits.len();
    let comma = |at: usize| at > 0 && (places - at).is_multiple_of(3);
    digits
        .chars()
        .enumerate()
        .flat_map(|(at, c)| comma(at).then_some(',').into_iter().chain([c]))
        .collect()
}

#[allow(clippy::cast_precision_loss)] // counts of one run are small
fn as_f64(n: u64) -> f64 {
    n as f64
}
