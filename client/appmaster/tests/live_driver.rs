//! The whole master of a live job over real sockets: with a fake resource manager, fake executors,
//! and a client of the submission channel.

mod fake;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use fake::Cluster;
use headroom_appmaster::run::{MasterOptions, MasterResult, StopRequest};
use headroom_wire::v1::submission::{
    FromSubmitter, SubmittedTask, SubmittedTaskOutcome, ToSubmitter, VERSION,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(120);

/// 200 slots in four executors.
const JOB: &str = r#"
version = 1
name = "fake"
live = true
[profiles.exec]
memory = "3360MiB"
cpus = 8
[executors.main]
profile = "exec"
count = 4
slots = 50
reserve = "160MiB"
"#;

fn options(cluster: &Cluster, dir: &Path) -> (MasterOptions, watch::Sender<StopRequest>) {
    fake::options(cluster, JOB, dir)
}

async fn finished(options: MasterOptions) -> MasterResult {
    timeout(SOON, fake::run_job(options))
        .await
        .expect("in time")
        .expect("runs")
}

/// A client: its processed results, and its present connection.
#[derive(Default)]
struct ChannelClient {
    processed: u64,
    keys: BTreeSet<String>,
    line: Option<(Lines<BufReader<OwnedReadHalf>>, OwnedWriteHalf)>,
}

impl ChannelClient {
    /// Connects to the present master, and returns the first answer.
    async fn connect(&mut self, cluster: &Cluster) -> ToSubmitter {
        let connected = async {
            loop {
                if let Some(welcome) = self.try_connect(cluster).await {
                    return welcome;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, connected).await.expect("connects in time")
    }

    async fn try_connect(&mut self, cluster: &Cluster) -> Option<ToSubmitter> {
        let (url, token) = cluster.submission_address()?;
        let stream = TcpStream::connect(url.trim_start_matches("tcp://"))
            .await
            .ok()?;
        let (read, write) = stream.into_split();
        self.line = Some((BufReader::new(read).lines(), write));
        let first = FromSubmitter::Submitter {
            version: VERSION,
            token,
            client: "test".into(),
            after: self.processed,
        };
        self.send(&first).await;
        let answer = self.next().await?;
        matches!(answer, ToSubmitter::Welcome { .. }).then_some(answer)
    }

    async fn send(&mut self, message: &FromSubmitter) {
        let mut line = serde_json::to_vec(message).expect("writes");
        line.push(b'\n');
        if let Some((_, write)) = &mut self.line {
            let _ = write.write_all(&line).await; // a lost message is sent again
        }
    }

    /// The next message; `None` after the connection has ended.
    async fn next(&mut self) -> Option<ToSubmitter> {
        let (lines, _) = self.line.as_mut()?;
        let line = timeout(SOON, lines.next_line()).await.expect("in time");
        let line = line.ok().flatten()?;
        let message = ToSubmitter::read(&line).expect("a message");
        if let ToSubmitter::Ended(result) = &message {
            assert_eq!(result.cursor, self.processed + 1, "results have no gap");
            self.processed = result.cursor;
            assert_eq!(
                result.outcome,
                SubmittedTaskOutcome::Succeeded,
                "{result:?}"
            );
            assert!(
                self.keys.insert(result.key.clone()),
                "{} has two results",
                result.key
            );
        }
        Some(message)
    }

    /// Sends a message and waits until the awaited answer arrives.
    async fn ask(&mut self, message: &FromSubmitter, is_answer: impl Fn(&ToSubmitter) -> bool) {
        self.send(message).await;
        loop {
            let answer = self.next().await.expect("an answer");
            assert!(!matches!(answer, ToSubmitter::Refused { .. }), "{answer:?}");
            if is_answer(&answer) {
                return;
            }
        }
    }

    /// Processes results until there are this many, and acknowledges each hundredth.
    async fn process(&mut self, count: usize) {
        while self.keys.len() < count {
            let before = self.processed;
            self.next().await.expect("a message");
            if self.processed > before && self.processed.is_multiple_of(100) {
                let cursor = self.processed;
                self.send(&FromSubmitter::Ack { cursor }).await;
            }
        }
    }
}

fn stage() -> FromSubmitter {
    FromSubmitter::Stage {
        name: "map".parse().expect("a name"),
        spec: json!({"command": ["prog", "--part={index}"]}),
    }
}

fn batch(n: usize) -> FromSubmitter {
    let item = |k: usize| SubmittedTask {
        key: format!("k{k}"),
        args: vec![k.to_string()],
        ..SubmittedTask::default()
    };
    FromSubmitter::Tasks {
        batch: format!("b{n}"),
        stage: "map".parse().expect("a name"),
        items: (n * 1000..(n + 1) * 1000).map(item).collect(),
    }
}

fn accepted(message: &ToSubmitter) -> bool {
    matches!(message, ToSubmitter::Accepted { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_result_arrives_once_over_lost_connections_and_a_restart() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (mut first, stop) = options(&cluster, dir.path());
    let app = fake::submit_job(&mut first).await.expect("submits");
    let running = tokio::spawn(finished(first));
    let mut client = ChannelClient::default();
    client.connect(&cluster).await;
    client
        .ask(&stage(), |m| matches!(m, ToSubmitter::StageAccepted { .. }))
        .await;
    client.ask(&batch(0), accepted).await;
    client.process(250).await;

    // A lost connection, and a repeated batch.
    client.connect(&cluster).await;
    client
        .ask(&stage(), |m| matches!(m, ToSubmitter::StageAccepted { .. }))
        .await;
    client.ask(&batch(0), accepted).await;
    client.ask(&batch(1), accepted).await;
    client.process(1200).await;

    // The next run of the master continues from its journal. The answer to the last batch is lost.
    client.send(&batch(2)).await;
    stop.send(StopRequest::Leave).expect("is heard");
    let left = running.await.expect("runs");
    assert!(left.outcome.is_none(), "the job is not over");
    cluster.forget_master();
    let (mut second, _keep) = options(&cluster, dir.path());
    (second.app, second.attempt) = (Some(app), 2);
    let running = tokio::spawn(finished(second));
    client.connect(&cluster).await;
    client.ask(&batch(2), accepted).await;
    client.process(2100).await;

    // A second lost connection.
    client.connect(&cluster).await;
    client.send(&FromSubmitter::Close).await;
    client.process(3000).await;
    let cursor = client.processed;
    client.send(&FromSubmitter::Ack { cursor }).await;
    let over = async {
        while let Some(message) = client.next().await {
            if let ToSubmitter::Over { succeeded, .. } = message {
                return Some(succeeded);
            }
        }
        None
    };
    assert_eq!(over.await, Some(true));
    let end = running.await.expect("runs");
    assert_eq!((end.exit_code(), client.keys.len()), (0, 3000));
    let seen = cluster.seen();
    assert_eq!((seen.finished, seen.totals.done), (Some(true), 3000));
    assert!(
        seen.rows.len() < 200,
        "{} rows are left of acknowledged tasks",
        seen.rows.len()
    );
}

/// Prints the rate of accepted tasks; a release build should reach 20,000 per second.
#[tokio::test(flavor = "multi_thread")]
async fn batches_are_accepted_while_tasks_run() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, stop) = options(&cluster, dir.path());
    let running = tokio::spawn(finished(options));
    let mut client = ChannelClient::default();
    client.connect(&cluster).await;
    client
        .ask(&stage(), |m| matches!(m, ToSubmitter::StageAccepted { .. }))
        .await;
    let begin = Instant::now();
    for n in 0..9 {
        client.send(&batch(n)).await;
    }
    let mut answers = 0;
    while answers < 9 {
        let message = client.next().await.expect("a message");
        assert!(
            !matches!(message, ToSubmitter::Refused { .. }),
            "{message:?}"
        );
        answers += usize::from(accepted(&message));
    }
    let rate = 9000.0 / begin.elapsed().as_secs_f64();
    println!("accepted {rate:.0} tasks per second");
    stop.send(StopRequest::Stop).expect("is heard");
    running.await.expect("runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_needs_the_secret_of_the_channel() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, stop) = options(&cluster, dir.path());
    let running = tokio::spawn(finished(options));
    let mut client = ChannelClient::default();
    client.connect(&cluster).await;
    let (url, _) = cluster.submission_address().expect("a master");
    let mut stream = TcpStream::connect(url.trim_start_matches("tcp://"))
        .await
        .expect("connects");
    let first = "{\"kind\":\"submitter\",\"version\":1,\"token\":\"wrong\",\"client\":\"x\"}\n";
    stream.write_all(first.as_bytes()).await.expect("sends");
    let mut answer = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer);
    let _ = timeout(SOON, read).await.expect("is disconnected"); // a reset is an end too
    assert!(answer.is_empty(), "an unknown peer gets no message");
    stop.send(StopRequest::Stop).expect("is heard");
    running.await.expect("runs");
}
