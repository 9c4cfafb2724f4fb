//! Submission channels of live jobs: the forwarding between a client and a fake master, its
//! refusals, and its end.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::time::Duration;

use fakes::*;
use headroom_client::{
    AuditQuery, Client, ClientCredentials, SubmissionChannel, SubmissionEvent, SubmissionOptions,
    TokenSource,
};
use headroom_config::AnonymousAccess;
use headroom_rm_server::{ManagerOptions, start};
use headroom_types::{AppId, AttemptId};
use headroom_wire::v1::acl::CreateTokenRequest;
use headroom_wire::v1::application_master::RegisterMaster;
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::submission::{
    FromSubmitter, SubmittedTask, SubmittedTaskOutcome, SubmittedTaskResult, ToSubmitter,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "0123456789abcdef";

/// A master of a live job: a listener, and its registration.
struct LiveMaster {
    listener: TcpListener,
    attempt: AttemptId,
}

impl LiveMaster {
    async fn submit(client: &Client, name: &str) -> LiveMaster {
        let submitted = client.submit(&unmanaged(name)).await.expect("submits");
        LiveMaster {
            listener: TcpListener::bind("127.0.0.1:0").await.expect("binds"),
            attempt: submitted.attempt,
        }
    }

    fn app(&self) -> &AppId {
        &self.attempt.app
    }

    async fn register(&self, client: &Client, token: Option<&str>) {
        let address = self.listener.local_addr().expect("an address");
        let body = RegisterMaster {
            master_url: Some(format!("tcp://{address}")),
            submission_token: token.map(str::to_owned),
            ..RegisterMaster::new(self.attempt.clone())
        };
        client
            .register_master(self.app(), &body)
            .await
            .expect("registers");
    }

    async fn accept(&self) -> BufReader<TcpStream> {
        let (stream, _) = soon("a connection", self.listener.accept())
            .await
            .expect("accepts");
        BufReader::new(stream)
    }

    async fn finish(&self, client: &Client) {
        let mut master = FakeMaster::of(client, self.attempt.clone());
        master.epoch = client.status().await.expect("answers").epoch;
        master.finish(None).await;
        app_state(client, self.app(), AppState::Finished).await;
    }
}

async fn read_line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    soon("a line", from.read_line(&mut line))
        .await
        .expect("reads");
    line
}

async fn read_message(from: &mut BufReader<TcpStream>) -> FromSubmitter {
    let line = read_line(from).await;
    FromSubmitter::read(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

async fn send(to: &mut BufReader<TcpStream>, message: ToSubmitter) {
    let line = serde_json::to_string(&message).expect("JSON") + "\n";
    to.write_all(line.as_bytes()).await.expect("sends");
}

fn welcome(credit: u32) -> ToSubmitter {
    ToSubmitter::Welcome {
        version: 1,
        credit,
        cursor: 0,
        closed: false,
    }
}

fn ended(cursor: u64, key: &str) -> ToSubmitter {
    ToSubmitter::Ended(Box::new(SubmittedTaskResult {
        cursor,
        key: key.to_owned(),
        task: id("map/0"),
        outcome: SubmittedTaskOutcome::Succeeded,
        value: None,
        value_too_large: None,
        reason: None,
        dimension: None,
        message: String::new(),
        log_tail: String::new(),
        attempts: Vec::new(),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_forwarded_and_the_secret_is_added() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = LiveMaster::submit(&client, "live").await;
    master.register(&client, Some(SECRET)).await;
    let mut channel = client.open_channel(master.app()).await.expect("opens");
    let first = r#"{"kind":"submitter","version":1,"client":"test","after":3,"later":true}"#;
    // The bytes after the first line belong to the channel, also if they arrive with it.
    channel
        .write_all(format!("{first}\nno line of").as_bytes())
        .await
        .expect("sends");
    let mut accepted = master.accept().await;
    let line = read_line(&mut accepted).await;
    assert!(
        line.starts_with(&format!("{{\"token\":\"{SECRET}\",")),
        "{line}"
    );
    assert!(
        line.contains("\"later\":true") && line.contains("\"after\":3"),
        "{line}"
    );
    channel.write_all(b" this protocol\n").await.expect("sends");
    assert_eq!(read_line(&mut accepted).await, "no line of this protocol\n");
    accepted.write_all(b"an answer").await.expect("sends");
    let mut answer = [0; 9];
    soon("an answer", channel.read_exact(&mut answer))
        .await
        .expect("reads");
    assert_eq!(&answer, b"an answer");
    drop(channel);
    let mut rest = Vec::new();
    soon("the end", accepted.read_to_end(&mut rest))
        .await
        .expect("ends");
    let audited = client
        .audit(&AuditQuery::default(), 0)
        .await
        .expect("answers");
    let line = audited.iter().find(|line| line.verb == "POST channel");
    let line = line.unwrap_or_else(|| panic!("{audited:?}"));
    assert_eq!((line.outcome, &*line.object), (101, "apps/live.1"));
    let token = client.channel_token(master.app()).await.expect("answers");
    assert_eq!(token.token, SECRET);
    assert!(token.url.starts_with("tcp://127.0.0.1:") && token.expires.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_waits_for_the_registration_of_the_master() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = LiveMaster::submit(&client, "live").await;
    let app = master.app().clone();
    let opens = tokio::spawn({
        let client = client.clone();
        async move { client.open_channel(&app).await }
    });
    until("the call to wait", || async {
        let metrics = client.get_text("/metrics").await.expect("answers");
        let inflight = |line: &str| {
            let count = line.strip_prefix("headroom_rm_http_inflight ")?;
            count.trim().parse::<f64>().ok()
        };
        let calls = metrics.lines().find_map(inflight).expect("the metric");
        // The call for the metrics is the other one.
        (calls >= 2.0).then_some(())
    })
    .await;
    master.register(&client, Some(SECRET)).await;
    soon("the channel", opens)
        .await
        .expect("runs")
        .expect("opens");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_codes_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let fixed = LiveMaster::submit(&client, "fixed").await;
    fixed.register(&client, None).await;
    let refused = |app: &AppId| {
        let (client, app) = (client.clone(), app.clone());
        async move {
            let channel = client.open_channel(&app).await.expect_err("is refused");
            let token = client.channel_token(&app).await.expect_err("is refused");
            assert_eq!(channel.code(), token.code());
            channel
        }
    };
    let not_live = refused(fixed.app()).await;
    assert_eq!(not_live.code(), Some(ErrorCode::HR0418));
    assert!(!not_live.retryable());
    let unknown = refused(&id("live.99")).await;
    assert_eq!(unknown.code(), Some(ErrorCode::HR0404));
    fixed.finish(&client).await;
    assert_eq!(refused(fixed.app()).await.code(), Some(ErrorCode::HR0419));

    let live = LiveMaster::submit(&client, "live").await;
    live.register(&client, Some(SECRET)).await;
    let answer = reqwest::Client::new()
        .post(format!("{}/v1/apps/{}/channel", client.base(), live.app()))
        .header("upgrade", "websocket")
        .header("connection", "upgrade")
        .send()
        .await
        .expect("answers");
    assert_eq!(answer.status().as_u16(), 426);
    assert_eq!(answer.headers()["upgrade"], "headroom-submission/1");
    let problem: ProblemDetails = answer.json().await.expect("a problem");
    assert_eq!(problem.code, ErrorCode::HR0426);
    drop(live.listener);
    let gone = client
        .open_channel(&live.attempt.app)
        .await
        .expect_err("nothing listens");
    assert!(
        gone.code() == Some(ErrorCode::HR0503) && gone.retryable(),
        "{gone}"
    );
    let body = RegisterMaster {
        submission_token: Some("two words".into()),
        ..RegisterMaster::new(live.attempt.clone())
    };
    let refused = client.register_master(&live.attempt.app, &body).await;
    let refused = refused.expect_err("the secret is not valid");
    assert_eq!(refused.code(), Some(ErrorCode::HR0400));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_first_line_is_refused_in_the_channel() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = LiveMaster::submit(&client, "live").await;
    master.register(&client, Some(SECRET)).await;
    let long = format!(
        "{{\"kind\":\"submitter\",\"client\":\"{}\"}}\n",
        "x".repeat(20_000)
    );
    for (line, code) in [
        ("{\"kind\":\"hello\"}\n", ErrorCode::HR0400),
        (&*long, ErrorCode::HR0413),
    ] {
        let mut channel = client.open_channel(master.app()).await.expect("opens");
        channel.write_all(line.as_bytes()).await.expect("sends");
        let mut text = String::new();
        // The rest of a long line is not read, so the connection may end with a reset.
        let _ = soon("the end", channel.read_to_string(&mut text)).await;
        let message = ToSubmitter::read(text.trim());
        assert!(
            matches!(&message, Ok(ToSubmitter::Refused { subject: None, error }) if error.code == code),
            "{message:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_ends_with_the_application_and_with_the_daemon() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let first = format!(
        "{}\n",
        r#"{"kind":"submitter","version":1,"client":"test"}"#
    );
    let mut open = Vec::new();
    for name in ["ends", "stays"] {
        let master = LiveMaster::submit(&client, name).await;
        master.register(&client, Some(SECRET)).await;
        let mut channel = client.open_channel(master.app()).await.expect("opens");
        channel.write_all(first.as_bytes()).await.expect("sends");
        let accepted = master.accept().await;
        open.push((master, channel, accepted));
    }
    let (stays, mut channel, _accepted) = open.pop().expect("two channels");
    let (ends, mut over, _held) = open.pop().expect("two channels");
    ends.finish(&client).await;
    let mut rest = Vec::new();
    soon("the end of the first channel", over.read_to_end(&mut rest))
        .await
        .expect("ends");
    let silent = tokio::time::timeout(Duration::from_millis(50), channel.read(&mut [0; 1])).await;
    assert!(silent.is_err(), "the channel of {} has ended", stays.app());
    soon("the shutdown", running.shutdown())
        .await
        .expect("ends");
    soon(
        "the end of the second channel",
        channel.read_to_end(&mut rest),
    )
    .await
    .expect("ends");
}

/// A manager on whose TCP listener only tokens count.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_needs_a_right_and_ends_when_the_token_is_revoked() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = ManagerOptions::new(
        "127.0.0.1:0".parse().expect("address"),
        dir.path().join("state"),
    );
    let socket = dir.path().join("rm.sock");
    options.config.socket = Some(socket.clone());
    options.config.anonymous = AnonymousAccess::Read;
    let running = start(options).await.expect("starts");
    let admin = Client::new(&format!("unix:{}", socket.display())).expect("address");
    let master = LiveMaster::submit(&admin, "live").await;
    master.register(&admin, Some(SECRET)).await;
    let anonymous = Client::new(&running.url).expect("address");
    let refused = anonymous
        .open_channel(master.app())
        .await
        .expect_err("lacks a right");
    assert!(refused.denied(), "{refused}");

    let minted = admin
        .mint(&CreateTokenRequest {
            user: Some("test".into()),
            rights: vec!["job:submit".into()],
            lifetime_s: None,
            about: String::new(),
        })
        .await
        .expect("mints");
    let credentials = ClientCredentials {
        token: TokenSource::Text(minted.token.0.clone()),
        ..ClientCredentials::default()
    };
    let owner = Client::with_credentials(&running.url, credentials).expect("a client");
    let mut channel = owner.open_channel(master.app()).await.expect("opens");
    channel
        .write_all(b"{\"kind\":\"submitter\",\"version\":1,\"client\":\"test\"}\n")
        .await
        .expect("sends");
    let mut accepted = master.accept().await;
    read_line(&mut accepted).await;
    admin.revoke(&minted.view.accessor).await.expect("revokes");
    let mut rest = Vec::new();
    soon("the end of the channel", channel.read_to_end(&mut rest))
        .await
        .expect("ends");
}

/// The client of the SDK over a lost connection.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_repeats_what_was_not_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = LiveMaster::submit(&client, "live").await;
    master.register(&client, Some(SECRET)).await;
    let options = SubmissionOptions {
        client: "test".into(),
        after: 0,
        give_up_after: SOON,
    };
    let mut channel =
        SubmissionChannel::new(client.clone(), master.app().clone(), &options).expect("a channel");
    for key in ["a", "b"] {
        let task = SubmittedTask {
            key: key.into(),
            ..SubmittedTask::default()
        };
        channel.add_task(id("map"), task).expect("fits");
    }
    let serving = tokio::spawn(serve_two_connections(master));
    let mut events = Vec::new();
    while let Some(event) = soon("an event", channel.next()).await.expect("connects") {
        if let SubmissionEvent::Ended(result) = &event {
            channel.acknowledge(result.cursor);
        }
        events.push(event);
    }
    let keys: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            SubmissionEvent::Ended(result) => Some(&*result.key),
            SubmissionEvent::Connected { .. }
            | SubmissionEvent::StageAccepted { .. }
            | SubmissionEvent::StageRefused { .. }
            | SubmissionEvent::TasksAccepted { .. }
            | SubmissionEvent::TasksRefused { .. }
            | SubmissionEvent::States { .. }
            | SubmissionEvent::Refused { .. }
            | SubmissionEvent::Over { .. } => None,
        })
        .collect();
    assert_eq!(keys, ["a", "b"], "each result arrives once: {events:?}");
    assert!(matches!(
        events.last(),
        Some(SubmissionEvent::Over {
            succeeded: true,
            ..
        })
    ));
    serving.await.expect("the master has checked its messages");
}

/// Reads a batch and loses the connection before its answer; answers it on the next connection.
async fn serve_two_connections(master: LiveMaster) {
    let mut first = master.accept().await;
    assert!(matches!(
        read_message(&mut first).await,
        FromSubmitter::Submitter { token, after: 0, .. } if token == SECRET
    ));
    send(&mut first, welcome(10)).await;
    let sent = read_message(&mut first).await;
    send(&mut first, ended(1, "a")).await;
    // The result must arrive before the connection is lost.
    assert_eq!(read_ack(&mut first).await, 1);
    drop(first);
    let mut second = master.accept().await;
    assert!(matches!(
        read_message(&mut second).await,
        FromSubmitter::Submitter { after: 1, .. }
    ));
    send(&mut second, welcome(8)).await;
    assert_eq!(
        read_message(&mut second).await,
        sent,
        "the same batch again"
    );
    let FromSubmitter::Tasks { batch, items, .. } = sent else {
        panic!("{sent:?}")
    };
    assert_eq!(items.len(), 2);
    let accepted = ToSubmitter::Accepted { batch, credit: 8 };
    send(&mut second, accepted).await;
    send(&mut second, ended(1, "a")).await;
    send(&mut second, ended(2, "b")).await;
    while read_ack(&mut second).await < 2 {}
    let over = ToSubmitter::Over {
        succeeded: true,
        diagnostics: String::new(),
    };
    send(&mut second, over).await;
}

async fn read_ack(from: &mut BufReader<TcpStream>) -> u64 {
    loop {
        if let FromSubmitter::Ack { cursor } = read_message(from).await {
            return cursor;
        }
    }
}
