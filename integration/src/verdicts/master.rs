//! A fake master for one executor: it starts the tasks of a case, collects their reports, and ends
//! the executor.
//!
//! It uses the executor's own protocol over a real socket, so the executor under test is the
//! shipped one.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use headroom_types::TaskReport;
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::net::tcp::OwnedWriteHalf;

const TOKEN: &str = "a-secret-of-the-matrix";

/// A master without a connected executor.
#[derive(Debug)]
pub(super) struct Master {
    listener: TcpListener,
}

impl Master {
    /// Listens on a free port, within the caller's runtime.
    pub(super) async fn open() -> Result<Master> {
        Ok(Master {
            listener: TcpListener::bind("127.0.0.1:0")
                .await
                .context("a free port")?,
        })
    }

    /// The environment of its executor.
    pub(super) fn environment(&self, slots: usize) -> BTreeMap<String, String> {
        let port = self
            .listener
            .local_addr()
            .map(|address| address.port())
            .unwrap_or_default();
        [
            ("HEADROOM_MASTER_URL", format!("tcp://127.0.0.1:{port}")),
            ("HEADROOM_APP_TOKEN", TOKEN.to_owned()),
            ("HEADROOM_SLOTS", slots.to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// Runs all of `tasks` at once and returns the reports received until the executor disconnects.
    pub(super) async fn carry(self, tasks: &[TaskStart]) -> Result<Vec<TaskReport>> {
        let (stream, _) = self.listener.accept().await.context("its executor")?;
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut reports: Vec<TaskReport> = Vec::new();
        while let Some(line) = lines.next_line().await.context("its executor's line")? {
            match serde_json::from_str(&line).with_context(|| line.clone())? {
                FromExecutor::Hello { token, .. } => {
                    ensure!(token == TOKEN, "another executor sent a hello");
                    for task in tasks {
                        send(&mut write, &ToExecutor::Start(Box::new(task.clone()))).await?;
                    }
                }
                FromExecutor::Ended { report } => {
                    send(
                        &mut write,
                        &ToExecutor::Ack {
                            attempt: report.attempt.clone(),
                        },
                    )
                    .await?;
                    if reports.iter().all(|known| known.attempt != report.attempt) {
                        reports.push(*report);
                    }
                    if reports.len() == tasks.len() {
                        send(&mut write, &ToExecutor::Shutdown).await?;
                    }
                }
                FromExecutor::Started { .. }
                | FromExecutor::Usage { .. }
                | FromExecutor::Pressure { .. }
                | FromExecutor::Resized { .. }
                | FromExecutor::Leftover { .. }
                | FromExecutor::Alive => {}
            }
        }
        Ok(reports)
    }
}

async fn send(write: &mut OwnedWriteHalf, message: &ToExecutor) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    write.write_all(&line).await.context("to its executor")
}
