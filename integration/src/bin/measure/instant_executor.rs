//! An executor that reports the success of every task at once, without a process. With it, a
//! measurement loads the master and the resource manager with more tasks than this host can run.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use headroom_types::exit::{Evidence, ExitReason, TaskReport};
use headroom_types::{ContainerId, EnforcerKind, TaskAttemptId, UnixMillis};
use headroom_wire::v1::task::{FromExecutor, ToExecutor, VERSION};
use integration::clock;

/// First argument with which this program is the executor.
pub(crate) const INSTANT_EXECUTOR: &str = "--instant-executor";
/// Interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Serves the master in the environment until it orders the end or the connection is lost.
pub(crate) fn run() -> Result<()> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    let url = variable("HEADROOM_MASTER_URL")?;
    let address = url.trim_start_matches("tcp://");
    let container: ContainerId = variable("HEADROOM_CONTAINER")?.parse()?;
    let stream = TcpStream::connect(address).context(url.clone())?;
    stream.set_nodelay(true)?;
    let writer = Arc::new(Mutex::new(stream.try_clone()?));
    send(
        &writer,
        &[FromExecutor::Hello {
            version: VERSION,
            container: container.clone(),
            token: variable("HEADROOM_APP_TOKEN")?,
            slots: variable("HEADROOM_SLOTS")?.parse()?,
            task_groups: false,
            inputs: true,
            fork_servers: false,
            running: Vec::new(),
            unacked: Vec::new(),
        }],
    )?;
    let heart = Arc::clone(&writer);
    std::thread::spawn(move || {
        loop {
            clock::pause(HEARTBEAT_INTERVAL);
            if send(&heart, &[FromExecutor::Alive]).is_err() {
                return;
            }
        }
    });
    for line in BufReader::new(stream).lines() {
        match ToExecutor::read(&line?) {
            Ok(ToExecutor::Start(start)) => send(&writer, &ended(start.attempt, &container))?,
            Ok(ToExecutor::Shutdown | ToExecutor::Refused { .. }) => return Ok(()),
            Ok(
                ToExecutor::Stop { .. }
                | ToExecutor::Resize { .. }
                | ToExecutor::Unfreeze { .. }
                | ToExecutor::Ack { .. }
                | ToExecutor::Alive,
            )
            | Err(_) => {}
        }
    }
    Ok(())
}

/// The messages of a task that started and succeeded.
fn ended(attempt: TaskAttemptId, container: &ContainerId) -> [FromExecutor; 2] {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let now = UnixMillis(u64::try_from(now).unwrap_or(u64::MAX));
    let started = FromExecutor::Started {
        attempt: attempt.clone(),
        at: now,
    };
    let report = TaskReport {
        attempt,
        container: container.clone(),
        reason: ExitReason::Exit { code: 0 },
        dimension: None,
        evidence: Evidence {
            exit_code: Some(0),
            ..Evidence::empty(EnforcerKind::Poll)
        },
        diagnosis: Vec::new(),
        started: Some(now),
        ended: now,
        timeline: Vec::new(),
        log_tail: String::new(),
        read: None,
        value: None,
        value_too_large: None,
        silent: false,
    };
    let report = Box::new(report);
    [started, FromExecutor::Ended { report }]
}

fn send(writer: &Mutex<TcpStream>, messages: &[FromExecutor]) -> Result<()> {
    let mut lines = Vec::new();
    for message in messages {
        serde_json::to_writer(&mut lines, message)?;
        lines.push(b'\n');
    }
    let mut stream = writer
        .lock()
        .map_err(|_| anyhow::anyhow!("a thread of this program has panicked"))?;
    stream.write_all(&lines)?;
    Ok(())
}
