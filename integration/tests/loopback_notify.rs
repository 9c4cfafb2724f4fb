//! Notifications of both daemons to systemd: ready when they answer, watchdog messages from their
//! loops, and stopping before their end.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::cluster::{SOON, until};
use integration::programs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Killed at the end of the test.
struct Daemon(Child);
impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Receives notifications until `word` occurred `times` times, and returns them.
fn heard(ear: &UnixDatagram, word: &str, times: usize) -> Result<Vec<String>> {
    let mut said: Vec<String> = Vec::new();
    while said.iter().filter(|line| *line == word).count() < times {
        let mut bytes = [0; 4096];
        let length = ear
            .recv(&mut bytes)
            .with_context(|| format!("{word} was not sent {times} times, but {said:?}"))?;
        said.extend(
            String::from_utf8(bytes[..length].to_vec())?
                .lines()
                .map(str::to_owned),
        );
    }
    Ok(said)
}

fn speaks(program: &str, arguments: &[&str]) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (place, log) = (dir.path().join("notify"), dir.path().join("log"));
    let ear = UnixDatagram::bind(&place)?;
    ear.set_read_timeout(Some(SOON))?;
    let mut command = Command::new(programs::path(program)?);
    command
        .args(arguments)
        .args(["--listen", "127.0.0.1:0", "--state"])
        .arg(dir.path().join("state"));
    // The daemon notifies three times per interval, but at most once per turn of its loop.
    command.env("NOTIFY_SOCKET", &place).env(
        "WATCHDOG_USEC",
        Duration::from_millis(600).as_micros().to_string(),
    );
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log)?);
    let mut daemon = Daemon(command.spawn()?);
    let text_of = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    heard(&ear, "READY=1", 1).with_context(|| text_of(&log))?;
    heard(&ear, "WATCHDOG=1", 3).with_context(|| text_of(&log))?;
    kill(
        Pid::from_raw(i32::try_from(daemon.0.id())?),
        Signal::SIGTERM,
    )?;
    heard(&ear, "STOPPING=1", 1).with_context(|| text_of(&log))?;
    let ended = until("its end", SOON, || Ok(daemon.0.try_wait()?))?;
    ensure!(ended.success(), "{ended}: {}", text_of(&log));
    Ok(())
}

#[test]
fn a_resource_manager_notifies_systemd() -> Result<()> {
    speaks("resourcemanager", &[])
}

#[test]
fn a_node_agent_notifies_systemd() -> Result<()> {
    speaks(
        "nodeagent",
        &[
            "--rm",
            "http://127.0.0.1:9",
            "--name",
            "n1",
            "--enforcer",
            "poll",
            "--run-as",
            "agent",
            "--allow-root",
        ],
    )
}
