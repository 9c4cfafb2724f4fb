//! Socket activation of the resource manager: it accepts connections on the sockets that its socket
//! unit passes.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use integration::cluster::{SOON, free_port, ran, rmctl, until};
use integration::programs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A program of systemd that listens on the sockets and executes the daemon on the first
/// connection.
const HOLDER: &str = "systemd-socket-activate";

fn held(port: u16, socket: &Path, listen: u16, state: &Path, log: &Path) -> Result<Command> {
    let mut command = Command::new(HOLDER);
    command
        .args(["-l", &format!("127.0.0.1:{port}"), "-l"])
        .arg(socket)
        .arg(programs::path("resourcemanager")?);
    command
        .args(["--listen", &format!("127.0.0.1:{listen}"), "--state"])
        .arg(state);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(log)?);
    Ok(command)
}

/// Killed at the end of the test.
struct Daemon(Child);
impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn callers_wait_at_the_socket_of_the_service_manager() -> Result<()> {
    let (dir, port) = (tempfile::tempdir()?, free_port()?);
    let (socket, state, log) = (
        dir.path().join("rm.sock"),
        dir.path().join("state"),
        dir.path().join("log"),
    );
    let mut daemon = Daemon(
        held(port, &socket, port, &state, &log)?
            .spawn()
            .context(HOLDER)?,
    );
    until("the socket", SOON, || Ok(socket.exists().then_some(())))?;
    ensure!(!state.exists(), "the daemon starts at the first connection");
    for addr in [
        format!("http://127.0.0.1:{port}"),
        format!("unix:{}", socket.display()),
    ] {
        let output = rmctl(&addr, &["status"])?;
        ensure!(
            output.code == 0,
            "{addr}: {}{}{}",
            output.stdout,
            output.stderr,
            fs::read_to_string(&log)?
        );
    }
    ensure!(state.exists());
    kill(
        Pid::from_raw(i32::try_from(daemon.0.id())?),
        Signal::SIGTERM,
    )?;
    let ended = until("its end", SOON, || Ok(daemon.0.try_wait()?))?;
    ensure!(ended.success(), "{ended}: {}", fs::read_to_string(&log)?);
    ensure!(socket.exists(), "the daemon must not remove the socket");
    Ok(())
}

#[test]
fn a_socket_with_another_port_is_refused() -> Result<()> {
    let (dir, port, other) = (tempfile::tempdir()?, free_port()?, free_port()?);
    let (socket, log) = (dir.path().join("rm.sock"), dir.path().join("log"));
    let mut daemon = Daemon(
        held(port, &socket, other, &dir.path().join("state"), &log)?
            .spawn()
            .context(HOLDER)?,
    );
    until("the socket", SOON, || Ok(socket.exists().then_some(())))?;
    // The caller gets no response.
    let mut knock = Command::new(programs::path("rmctl")?);
    knock.args([
        "--addr",
        &format!("unix:{}", socket.display()),
        "--call-timeout",
        "2s",
        "version",
    ]);
    ran(knock)?;
    let ended = until("its end", SOON, || Ok(daemon.0.try_wait()?))?;
    let said = fs::read_to_string(&log)?;
    ensure!(ended.code() == Some(1), "{ended}: {said}");
    ensure!(
        said.contains(&format!("listens on 127.0.0.1:{port}")) && said.contains("systemctl edit"),
        "{said}"
    );
    Ok(())
}
