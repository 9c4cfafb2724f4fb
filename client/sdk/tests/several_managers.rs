//! Calls to several resource managers: each server of these tests plays one of them.

#![allow(missing_docs)] // tests are read, not imported

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headroom_client::{
    CallFailureKind, Client, ClientCredentials, ClientError, EventFollower, TokenSource,
};
use headroom_types::Sha256;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// The reaction of a server to one request.
#[derive(Clone, Debug)]
enum Reaction {
    /// Answers with these bytes.
    Answer(String),
    /// Closes the connection without an answer.
    Break,
    /// Keeps the connection without an answer, as a paused process does.
    Silence,
}

fn answer(status: &str, headers: &str, body: &str) -> Reaction {
    Reaction::Answer(format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    ))
}

fn leader() -> Reaction {
    answer("200 OK", "", "{\"it\": \"leads\"}")
}

fn standby_of(leader: &str) -> Reaction {
    let problem = ProblemDetails::new(ErrorCode::HR0421, "a standby");
    let body = serde_json::to_string(&problem).expect("JSON");
    answer(
        "421 Misdirected Request",
        &format!("headroom-leader: {leader}\r\nlocation: {leader}/x\r\n"),
        &body,
    )
}

fn standby_without_leader() -> Reaction {
    let problem = ProblemDetails::new(ErrorCode::HR0503, "a standby, which knows no leader");
    let body = serde_json::to_string(&problem).expect("JSON");
    answer(
        "503 Service Unavailable",
        "headroom-standby: true\r\nretry-after: 1\r\n",
        &body,
    )
}

/// A resource manager.
struct TestManager {
    address: SocketAddr,
    reaction: Arc<Mutex<Reaction>>,
    requests: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

/// The answer to the question who leads.
fn knows_leader(url: &str) -> Reaction {
    let body = json!({"self": "http://standby", "state": "standby", "leader": url});
    answer("200 OK", "", &body.to_string())
}

impl TestManager {
    async fn start(reaction: Reaction) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (reaction, requests) = (Arc::new(Mutex::new(reaction)), Arc::default());
        let serving = tokio::spawn(serve(
            listener,
            Arc::clone(&reaction),
            Arc::clone(&requests),
        ));
        TestManager {
            address,
            reaction,
            requests,
            serving,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn set(&self, reaction: Reaction) {
        *self.reaction.lock().expect("a lock") = reaction;
    }

    /// Heads of the requests so far.
    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("a lock").clone()
    }

    /// Closes the listener.
    async fn stop(self) {
        self.serving.abort();
        assert!(self.serving.await.is_err(), "the server has ended");
    }
}

async fn serve(
    listener: TcpListener,
    reaction: Arc<Mutex<Reaction>>,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut silent = Vec::new();
    loop {
        let (mut peer, _) = listener.accept().await.expect("a connection");
        let Some(request) = read_request(&mut peer).await else {
            continue;
        };
        requests.lock().expect("a lock").push(request);
        let reaction = reaction.lock().expect("a lock").clone();
        match reaction {
            Reaction::Answer(bytes) => peer.write_all(bytes.as_bytes()).await.expect("answers"),
            Reaction::Break => {}
            Reaction::Silence => silent.push(peer),
        }
    }
}

/// Reads a request with its body, and returns its head.
async fn read_request(peer: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= head + 4 + length.unwrap_or(0) {
                return Some(String::from_utf8_lossy(&bytes[..head]).into_owned());
            }
        }
        let mut piece = [0; 4096];
        match peer.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// The address of a port without a listener.
async fn dead() -> String {
    let manager = TestManager::start(Reaction::Break).await;
    let url = manager.url();
    manager.stop().await;
    url
}

fn client(urls: &[&str]) -> Client {
    Client::new(&urls.join(", ")).expect("a client")
}

async fn post(client: &Client) -> Result<Value, ClientError> {
    client.post("/v1/x", &json!({})).await
}

#[tokio::test]
async fn a_call_passes_a_dead_address_and_later_calls_begin_at_the_leader() {
    let (gone, b) = (dead().await, TestManager::start(leader()).await);
    let client = client(&[&gone, &b.url()]);
    let other = client.clone();
    assert_eq!(client.current_address(), gone);
    assert_eq!(post(&client).await.expect("an answer")["it"], "leads");
    assert_eq!(
        other.current_address(),
        b.url(),
        "clones share the current address"
    );
    assert_eq!(b.requests().len(), 1);
}

#[tokio::test]
async fn a_host_that_does_not_respond_costs_one_second() {
    // The queue of connections of this listener is full, so that the kernel ignores more of them.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("binds");
    let full = socket.listen(1).expect("listens");
    let address = full.local_addr().expect("an address");
    let mut open = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
    {
        open.push(connected.expect("connects"));
        assert!(open.len() < 64, "the queue is never full");
    }
    let b = TestManager::start(leader()).await;
    let client = client(&[&format!("http://{address}"), &b.url()]);
    let start = Instant::now();
    post(&client).await.expect("an answer");
    let first = start.elapsed();
    assert!(first < Duration::from_secs(3), "{first:?}");
    post(&client).await.expect("an answer");
    assert!(start.elapsed() - first < Duration::from_millis(900));
}

#[tokio::test]
async fn a_standby_leads_to_the_leader_in_the_list_or_beside_it() {
    let (b, c) = (
        TestManager::start(leader()).await,
        TestManager::start(leader()).await,
    );
    let a = TestManager::start(standby_of(&c.url())).await;
    post(&client(&[&a.url(), &b.url(), &c.url()]))
        .await
        .expect("an answer");
    post(&client(&[&a.url()])).await.expect("an answer");
    assert_eq!((b.requests().len(), c.requests().len()), (0, 2));
}

/// A timeout below the pause before all addresses are called again.
const ONE_ROUND: Duration = Duration::from_millis(90);

#[tokio::test]
async fn standbys_that_name_each_other_end_the_call() {
    let (a, b) = (
        TestManager::start(Reaction::Break).await,
        TestManager::start(Reaction::Break).await,
    );
    a.set(standby_of(&b.url()));
    b.set(standby_of(&a.url()));
    let error = post(&client(&[&a.url(), &b.url()]).with_timeout(ONE_ROUND))
        .await
        .expect_err("no leader");
    assert_eq!((a.requests().len(), b.requests().len()), (1, 1));
    assert_eq!(error.code(), Some(ErrorCode::HR0421));
    assert_eq!(error.failure_kind(), CallFailureKind::Silent);
    let error = post(&client(&[&a.url()]).with_timeout(ONE_ROUND))
        .await
        .expect_err("no leader");
    assert_eq!((a.requests().len(), b.requests().len()), (2, 2));
    assert!(error.retryable(), "{error}");
}

#[tokio::test]
async fn a_standby_is_known_without_a_problem_document() {
    let a = TestManager::start(answer("421 Misdirected Request", "", "")).await;
    let client = client(&[&a.url()]);
    for error in [
        post(&client).await.expect_err("a standby"),
        client
            .has_upload(Sha256::new([1; 32]))
            .await
            .expect_err("a standby"),
    ] {
        assert_eq!(error.code(), Some(ErrorCode::HR0421), "{error:?}");
        assert!(error.retryable() && error.lacks_leader());
    }
}

#[tokio::test]
async fn a_leader_that_appears_is_found_by_the_next_call() {
    let (a, b) = (
        TestManager::start(standby_without_leader()).await,
        TestManager::start(standby_without_leader()).await,
    );
    let client = client(&[&a.url(), &b.url()]);
    let hasty = client.clone().with_timeout(Duration::from_millis(350));
    let error = post(&hasty).await.expect_err("no leader");
    assert!(error.unreachable() && error.retryable());
    assert_eq!(
        error.to_string(),
        format!(
            "no resource manager answers as leader: {}: a standby, which knows no leader; \
             {}: a standby, which knows no leader",
            a.url(),
            b.url()
        )
    );
    b.set(leader());
    post(&client).await.expect("an answer");
    assert_eq!(client.current_address(), b.url());
}

#[tokio::test]
async fn an_overloaded_leader_is_not_left() {
    let problem = ProblemDetails::new(ErrorCode::HR0503, "too many calls wait");
    let body = serde_json::to_string(&problem).expect("JSON");
    let busy = answer("503 Service Unavailable", "", &body);
    let (a, b) = (
        TestManager::start(busy).await,
        TestManager::start(leader()).await,
    );
    let client = client(&[&a.url(), &b.url()]);
    let error = post(&client).await.expect_err("an error");
    assert!(
        matches!(&error, ClientError::Problem(p) if p.detail == problem.detail),
        "{error:?}"
    );
    assert_eq!((client.current_address(), b.requests()), (a.url(), vec![]));
}

#[tokio::test]
async fn a_change_that_may_have_been_made_is_not_sent_again() {
    let (a, b) = (
        TestManager::start(Reaction::Break).await,
        TestManager::start(leader()).await,
    );
    let client = client(&[&a.url(), &b.url()]);
    let error = post(&client).await.expect_err("the connection broke");
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    assert_eq!((a.requests().len(), b.requests().len()), (1, 0));
    post(&client).await.expect("the next call begins elsewhere");
    assert_eq!((a.requests().len(), b.requests().len()), (1, 1));
}

#[tokio::test]
async fn a_read_goes_on_elsewhere_also_in_the_middle_of_its_answer() {
    let half = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{\"it\":";
    for reaction in [Reaction::Break, Reaction::Answer(half.to_owned())] {
        let (a, b) = (
            TestManager::start(reaction).await,
            TestManager::start(leader()).await,
        );
        let client = client(&[&a.url(), &b.url()]);
        let read: Value = client.get("/v1/x").await.expect("an answer");
        assert_eq!(read["it"], "leads");
        assert_eq!((a.requests().len(), b.requests().len()), (1, 1));
    }
}

#[tokio::test]
async fn a_call_leaves_a_paused_leader_when_another_one_leads() {
    let (paused, standby, next) = (
        TestManager::start(Reaction::Silence).await,
        TestManager::start(Reaction::Break).await,
        TestManager::start(leader()).await,
    );
    standby.set(knows_leader(&next.url()));
    let all = [&*paused.url(), &standby.url(), &next.url()];
    let read: Value = client(&all).get("/v1/x").await.expect("an answer");
    assert_eq!(read["it"], "leads");
    let asked = standby.requests();
    assert!(asked[0].starts_with("GET /v1/leader HTTP"), "{asked:?}");
    // A change may have been made, so the caller decides.
    let client = client(&all);
    let error = post(&client).await.expect_err("it may have been made");
    let words = format!("no answer yet, and {} leads now", next.url());
    assert!(error.to_string().ends_with(&words), "{error}");
    assert!(error.retryable() && error.unreachable());
    assert_eq!(client.current_address(), next.url());
    post(&client).await.expect("the next call begins there");
}

#[tokio::test]
async fn a_slow_leader_is_not_left() {
    let (slow, standby) = (
        TestManager::start(Reaction::Silence).await,
        TestManager::start(Reaction::Break).await,
    );
    standby.set(knows_leader(&slow.url()));
    let client = client(&[&slow.url(), &standby.url()]);
    let error = post(&client.clone().with_timeout(Duration::from_secs(2)))
        .await
        .expect_err("no answer");
    let words = error.to_string();
    assert!(
        error.unreachable() && !words.contains("leads now"),
        "{error}"
    );
    let asked = standby.requests();
    let named = format!(
        "GET /v1/leader?other_than=http%3A%2F%2F{}&wait=10000ms HTTP",
        slow.address.to_string().replace(':', "%3A")
    );
    assert!(
        asked.len() >= 2 && asked[1].starts_with(&named),
        "{asked:?}"
    );
}

#[tokio::test]
async fn an_error_names_all_addresses() {
    let (a, b) = (dead().await, dead().await);
    let error = post(&client(&[&a, &b])).await.expect_err("all are dead");
    assert!(error.connection_refused() && error.unreachable());
    let text = error.to_string();
    assert!(
        text.contains(&format!("{a}: Connection refused"))
            && text.contains(&format!("{b}: Connection refused")),
        "{text}"
    );
    let alone = post(&client(&[&a])).await.expect_err("it is dead");
    assert!(
        matches!(alone, ClientError::Unreachable { .. }),
        "{alone:?}"
    );
}

#[tokio::test]
async fn the_event_log_goes_on_at_the_next_leader() {
    let line = |index: u64| {
        let event = json!({"index": index, "time": 1, "level": "normal", "reason": "NodeReady", "object": "n1", "message": ""});
        answer("200 OK", "", &format!("{event}\n"))
    };
    let (a, b) = (
        TestManager::start(line(5)).await,
        TestManager::start(line(6)).await,
    );
    let client = client(&[&a.url(), &b.url()]);
    let mut events = EventFollower::new(client, None, 0, Duration::from_secs(20));
    assert_eq!(events.next().await.expect("an event").index, 5);
    a.stop().await;
    assert_eq!(events.next().await.expect("an event").index, 6);
    let asked = b.requests().concat();
    assert!(asked.contains("cursor=5"), "{asked}");
}

#[tokio::test]
async fn a_submission_channel_is_opened_at_the_leader() {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: headroom-submission/1\r\n\r\nhello\n";
    let b = TestManager::start(Reaction::Answer(switching.to_owned())).await;
    let a = TestManager::start(standby_of(&b.url())).await;
    let app = "calls.7".parse().expect("an id");
    let mut channel = client(&[&a.url(), &b.url()])
        .open_channel(&app)
        .await
        .expect("opens");
    let mut text = String::new();
    channel.read_to_string(&mut text).await.expect("reads");
    assert_eq!(text, "hello\n");
    let asked = b.requests().concat().to_lowercase();
    assert!(asked.contains("upgrade: "), "{asked}");
}

#[tokio::test]
async fn a_token_follows_to_a_leader_on_this_host_and_never_unencrypted_to_another_one() {
    let b = TestManager::start(leader()).await;
    let a = TestManager::start(standby_of(&b.url())).await;
    let trust = ClientCredentials {
        token: TokenSource::Text("hru_1_2".to_owned()),
        ..ClientCredentials::default()
    };
    let client = Client::with_credentials(&a.url(), trust).expect("a client");
    post(&client).await.expect("an answer");
    let sent = b.requests().concat();
    assert!(sent.contains("Bearer hru_1_2"), "{sent}");

    a.set(standby_of("http://192.0.2.7:7070"));
    b.stop().await;
    let error = post(&client).await.expect_err("is not followed");
    assert!(!error.to_string().contains("192.0.2.7"), "{error}");
}
