//! A daemon that this process starts with `--attached`, so that it ends with this process.
//!
//! The daemon reports its start as one line on standard output. It ends when its standard input
//! ends, so also when this process is killed. It has a process group of its own: Ctrl-C in a
//! terminal reaches this process only, which ends its daemons in order.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use headroom_wire::v1::attached::StartReport;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::exit::{CommandFailure, CommandResult};

/// Timeout of a start: a daemon reads its whole state and checks the enforcer.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a stop; longer than a node agent waits for its containers.
const STOP_TIMEOUT: Duration = Duration::from_secs(700);
/// Environment variables of a service manager, which the daemon must not inherit.
const SERVICE_MANAGER: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// A running daemon.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    /// Name in messages, such as `the resource manager`.
    what: &'static str,
    child: Child,
    input: ChildStdin,
}

impl DaemonProcess {
    /// Starts the program and returns its report. Its log goes to standard error, at level `log`
    /// unless `HEADROOM_LOG` is set.
    pub(crate) async fn start<T: DeserializeOwned>(
        what: &'static str,
        program: &Path,
        arguments: &[String],
        log: &str,
    ) -> CommandResult<(DaemonProcess, T)> {
        let failed = |why: String| CommandFailure::failed(format!("{what} did not start: {why}"));
        let mut command = Command::new(program);
        command
            .arg("--attached")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        SERVICE_MANAGER.iter().for_each(|name| {
            command.env_remove(name);
        });
        if std::env::var_os("HEADROOM_LOG").is_none() {
            command.env("HEADROOM_LOG", log);
        }
        let mut child = command
            .spawn()
            .map_err(|e| failed(format!("{}: {e}", program.display())))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("its pipes are missing".to_owned()));
        };
        let mut lines = BufReader::new(output).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        let line = line.map_err(|_| {
            failed(format!(
                "no start report after {} s",
                START_TIMEOUT.as_secs()
            ))
        })?;
        match line.ok().flatten().map(|line| serde_json::from_str(&line)) {
            Some(Ok(StartReport::Ready(ready))) => {
                Ok((DaemonProcess { what, child, input }, ready))
            }
            Some(Ok(StartReport::Failed {
                error,
                address_in_use: false,
            })) => Err(failed(error)),
            Some(Ok(StartReport::Failed {
                error,
                address_in_use: true,
            })) => Err(failed(error)
                .help("another daemon may use this address; choose another one with --listen")),
            Some(Err(e)) => {
                let failure = failed(format!(
                    "the start report of {} is not valid: {e}",
                    program.display()
                ));
                Err(failure.help("use rmctl and daemons of the same version"))
            }
            None => {
                let status = child.wait().await;
                Err(
                    failed(status.map_or_else(|e| e.to_string(), |status| status.to_string()))
                        .help("see its last log lines above"),
                )
            }
        }
    }

    /// Returns when the daemon has ended by itself.
    pub(crate) async fn ended(&mut self) -> CommandFailure {
        let status = self.child.wait().await;
        let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        CommandFailure::failed(format!("{} ended: {status}", self.what))
            .help("see its last log lines above")
    }

    /// Ends the daemon and waits for its end; a node agent ends all its containers first. False if
    /// it was killed or failed before that.
    pub(crate) async fn stop(self) -> bool {
        let DaemonProcess {
            what,
            mut child,
            input,
        } = self;
        drop(input);
        match tokio::time::timeout(STOP_TIMEOUT, child.wait()).await {
            Ok(Ok(status)) if status.success() => return true,
            Ok(Ok(status)) => tracing::warn!("{what} ended: {status}"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot wait for the end of {what}"),
            Err(_) => tracing::warn!("{what} did not end in time"),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use headroom_wire::v1::attached::ManagerReady;

    use super::*;

    async fn start(script: &str) -> CommandResult<(DaemonProcess, ManagerReady)> {
        // `sh` takes `--attached` as the name of the script.
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("daemon");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("writes");
        std::fs::set_permissions(
            &program,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .expect("executable");
        DaemonProcess::start("the daemon", &program, &[], "warn").await
    }

    #[tokio::test]
    async fn a_daemon_runs_until_its_input_ends() {
        let (daemon, ready) = start("echo '{\"ready\":{\"url\":\"http://x\"}}'; cat")
            .await
            .expect("starts");
        assert_eq!(ready.url, "http://x");
        assert!(daemon.stop().await);
    }

    #[tokio::test]
    async fn a_failed_start_reports_its_reason() {
        let failed = |script: &'static str| async move {
            start(script).await.expect_err("fails").to_string()
        };
        let reported =
            failed("echo '{\"failed\":{\"error\":\"no space\",\"address_in_use\":false}}'").await;
        assert!(
            reported.contains("the daemon did not start: no space"),
            "{reported}"
        );
        let taken =
            failed("echo '{\"failed\":{\"error\":\"taken\",\"address_in_use\":true}}'").await;
        assert!(
            taken.contains("taken") && taken.contains("--listen"),
            "{taken}"
        );
        assert!(failed("exit 3").await.contains("exit status: 3"));
        assert!(failed("echo hello").await.contains("same version"));
    }

    #[tokio::test]
    async fn a_daemon_that_ends_by_itself_is_reported() {
        let (mut daemon, _) = start("echo '{\"ready\":{\"url\":\"http://x\"}}'; exit 4")
            .await
            .expect("starts");
        assert!(daemon.ended().await.to_string().contains("exit status: 4"));
        assert!(!daemon.stop().await);
    }
}
