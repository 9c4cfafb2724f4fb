//! The task channel over a real socket, with an executor simulated by the test.

use std::time::Duration;

use headroom_appmaster::executor_link::{ChannelCredentials, ExecutorLinkEvent, serve};
use headroom_wire::v1::task::{
    FromExecutor, MAX_LINE_BYTES, MAX_UNAUTHENTICATED_BYTES, OLDEST_VERSION, ToExecutor, VERSION,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

async fn server() -> (String, mpsc::Receiver<ExecutorLinkEvent>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address").to_string();
    let (events, heard) = mpsc::channel(16);
    let gate = ChannelCredentials {
        token: "secret".into(),
        app: "job.1".parse().expect("id"),
        submissions: None,
    };
    tokio::spawn(serve(listener, None, gate, events));
    (address, heard)
}

fn hello(version: u32, token: &str, container: &str) -> FromExecutor {
    FromExecutor::Hello {
        version,
        container: container.parse().expect("id"),
        token: token.into(),
        slots: 4,
        task_groups: true,
        running: vec!["map/1@1".parse().expect("id")],
        unacked: Vec::new(),
    }
}

async fn say(stream: &mut TcpStream, message: &FromExecutor) {
    let mut line = serde_json::to_vec(message).expect("writes");
    line.push(b'\n');
    stream.write_all(&line).await.expect("sends");
}

async fn heard(events: &mut mpsc::Receiver<ExecutorLinkEvent>) -> ExecutorLinkEvent {
    timeout(SOON, events.recv())
        .await
        .expect("in time")
        .expect("an event")
}

/// True when the other side closes without sending a message.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    matches!(
        timeout(SOON, stream.read_to_end(&mut rest)).await,
        Ok(Ok(0) | Err(_))
    )
}

#[tokio::test]
async fn messages_arrive_in_order_in_both_directions() {
    let (address, mut events) = server().await;
    let mut stream = TcpStream::connect(&address).await.expect("connects");
    say(&mut stream, &hello(VERSION, "secret", "job.1.e1.c1")).await;
    let ExecutorLinkEvent::Up {
        connection,
        hello,
        sender,
        ..
    } = heard(&mut events).await
    else {
        panic!("no hello")
    };
    assert_eq!((hello.slots, hello.running.len()), (4, 1));
    say(&mut stream, &FromExecutor::Alive).await;
    say(&mut stream, &FromExecutor::Usage { tasks: Vec::new() }).await;
    let ExecutorLinkEvent::Heard {
        connection: same,
        message,
        ..
    } = heard(&mut events).await
    else {
        panic!("no words")
    };
    assert_eq!(
        (same, *message),
        (connection, FromExecutor::Usage { tasks: Vec::new() })
    );
    for attempt in ["map/1@1", "map/2@1"] {
        sender
            .send(ToExecutor::Ack {
                attempt: attempt.parse().expect("id"),
            })
            .await
            .expect("sends");
    }
    let mut lines = BufReader::new(stream).lines();
    for attempt in ["map/1@1", "map/2@1"] {
        let line = timeout(SOON, lines.next_line())
            .await
            .expect("in time")
            .expect("reads")
            .expect("a line");
        let message: ToExecutor = serde_json::from_str(&line).expect("parses");
        assert_eq!(
            message,
            ToExecutor::Ack {
                attempt: attempt.parse().expect("id")
            }
        );
    }
    drop(lines);
    assert!(
        matches!(heard(&mut events).await, ExecutorLinkEvent::Down { connection: gone, .. } if gone == connection)
    );
}

#[tokio::test]
async fn queued_messages_are_sent_before_the_connection_is_closed() {
    let (address, mut events) = server().await;
    let mut stream = TcpStream::connect(&address).await.expect("connects");
    say(&mut stream, &hello(VERSION, "secret", "job.1.e1.c1")).await;
    let ExecutorLinkEvent::Up { sender, writer, .. } = heard(&mut events).await else {
        panic!("no hello")
    };
    sender.send(ToExecutor::Shutdown).await.expect("sends");
    drop(sender);
    timeout(SOON, writer).await.expect("in time").expect("ends");
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .await
        .expect("reads to the end");
    assert!(text.contains("shutdown"), "{text}");
}

#[tokio::test]
async fn unauthenticated_peers_are_refused_without_an_answer() {
    let strangers = [
        hello(VERSION + 1, "guess", "job.1.e1.c1"),
        hello(VERSION, "guess", "job.1.e1.c1"),
        hello(VERSION, "secre", "job.1.e1.c1"),
        FromExecutor::Usage { tasks: Vec::new() },
    ];
    let (address, mut events) = server().await;
    for stranger in strangers {
        let mut stream = TcpStream::connect(&address).await.expect("connects");
        say(&mut stream, &stranger).await;
        assert!(is_closed(&mut stream).await, "{stranger:?}");
    }
    let mut stream = TcpStream::connect(&address).await.expect("connects");
    stream
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("sends");
    assert!(is_closed(&mut stream).await);
    assert!(
        events.try_recv().is_err(),
        "no refused peer reaches the event loop"
    );
}

/// The last message before the master closes the connection, after all of `bytes` was sent.
async fn refusal(address: &str, bytes: &[u8]) -> (String, u32, u32) {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(bytes).await.expect("sends");
    let mut text = String::new();
    timeout(SOON, stream.read_to_string(&mut text))
        .await
        .expect("in time")
        .expect("reads to the end");
    match ToExecutor::read(text.lines().last().unwrap_or_default()) {
        Ok(ToExecutor::Refused {
            why,
            oldest,
            newest,
        }) => (why, oldest, newest),
        other => panic!("{other:?} in {text:?}"),
    }
}

#[tokio::test]
async fn an_authenticated_executor_receives_the_refusal_reason() {
    let (address, mut events) = server().await;
    let line = |message: &FromExecutor| serde_json::to_string(message).expect("writes") + "\n";
    let later = format!(
        "{{\"kind\":\"hello\",\"version\":{},\"token\":\"secret\",\"slots\":\"all\"}}\n",
        VERSION + 1
    );
    let (why, oldest, newest) = refusal(&address, later.as_bytes()).await;
    assert!(
        why.contains("protocol version is 2") && (oldest, newest) == (OLDEST_VERSION, VERSION),
        "{why}"
    );
    let (why, ..) = refusal(
        &address,
        line(&hello(VERSION, "secret", "other.2.e1.c1")).as_bytes(),
    )
    .await;
    assert!(why.contains("other.2.e1.c1"), "{why}");
    let (why, ..) = refusal(
        &address,
        b"{\"kind\":\"hello\",\"version\":1,\"token\":\"secret\"}\n",
    )
    .await;
    assert!(
        why.contains("kind `hello`") && why.contains("container"),
        "{why}"
    );
    assert!(
        events.try_recv().is_err(),
        "no refused peer reaches the event loop"
    );
    let known =
        line(&hello(VERSION, "secret", "job.1.e1.c1")) + "{\"kind\":\"ended\",\"report\":{}}\n";
    let refused = tokio::spawn(async move { refusal(&address, known.as_bytes()).await });
    let ExecutorLinkEvent::Up { sender, .. } = heard(&mut events).await else {
        panic!("no hello")
    };
    assert!(matches!(
        heard(&mut events).await,
        ExecutorLinkEvent::Down { .. }
    ));
    drop(sender);
    let (why, ..) = timeout(SOON, refused)
        .await
        .expect("in time")
        .expect("refused");
    assert!(
        why.contains("kind `ended`") && why.contains("attempt"),
        "{why}"
    );
}

#[tokio::test]
async fn unknown_messages_of_a_later_version_are_ignored() {
    let (address, mut events) = server().await;
    let mut stream = TcpStream::connect(&address).await.expect("connects");
    say(&mut stream, &hello(VERSION, "secret", "job.1.e1.c1")).await;
    let ExecutorLinkEvent::Up { sender: _open, .. } = heard(&mut events).await else {
        panic!("no hello")
    };
    stream
        .write_all(
            b"{\"kind\":\"checkpointed\",\"at\":7}\n{\"kind\":\"usage\",\"tasks\":[],\"io\":3}\n",
        )
        .await
        .expect("sends");
    let ExecutorLinkEvent::Heard { message, .. } = heard(&mut events).await else {
        panic!("the connection is closed")
    };
    assert_eq!(*message, FromExecutor::Usage { tasks: Vec::new() });
}

#[tokio::test]
async fn an_endless_line_ends_the_connection() {
    let (address, mut events) = server().await;
    let mut stream = TcpStream::connect(&address).await.expect("connects");
    say(&mut stream, &hello(VERSION, "secret", "job.1.e1.c1")).await;
    assert!(matches!(
        heard(&mut events).await,
        ExecutorLinkEvent::Up { .. }
    ));
    let flood = vec![b'x'; MAX_LINE_BYTES + 64 * 1024];
    let _ = timeout(SOON, stream.write_all(&flood))
        .await
        .expect("does not hang"); // refused in the middle of it
    assert!(matches!(
        heard(&mut events).await,
        ExecutorLinkEvent::Down { .. }
    ));
}

/// The maximum number of unauthenticated connections.
const STRANGERS: usize = 256;

/// Connects and sends nothing.
fn silent(address: &str) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(address).expect("connects");
    stream.set_nonblocking(true).expect("becomes non-blocking");
    stream
}

fn is_open(stream: &std::net::TcpStream) -> bool {
    stream
        .peek(&mut [0])
        .is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_are_limited_and_time_out() {
    let (address, mut events) = server().await;
    let strangers: Vec<_> = (0..STRANGERS).map(|_| silent(&address)).collect();
    let mut stream = TcpStream::connect(&address).await.expect("connects");
    say(&mut stream, &hello(VERSION, "secret", "job.1.e1.c1")).await;
    assert!(
        matches!(heard(&mut events).await, ExecutorLinkEvent::Up { .. }),
        "the executor waits and is not refused"
    );
    assert!(
        !strangers.iter().all(is_open),
        "not all unauthenticated connections fit beside it"
    );
}

/// A restarted master, whose port has received unauthenticated connections that leave one place.
#[tokio::test(flavor = "multi_thread")]
async fn executors_that_connect_at_once_are_accepted_in_turn() {
    const EXECUTORS: usize = 600;
    let (address, mut events) = server().await;
    let _strangers: Vec<_> = (1..STRANGERS).map(|_| silent(&address)).collect();
    let executors: Vec<_> = (0..EXECUTORS)
        .map(|n| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(&address).await.expect("connects");
                say(
                    &mut stream,
                    &hello(VERSION, "secret", &format!("job.1.e1.c{n}")),
                )
                .await;
                stream
            })
        })
        .collect();
    let mut up = std::collections::BTreeMap::new();
    while up.len() < EXECUTORS {
        let ExecutorLinkEvent::Up { hello, sender, .. } = heard(&mut events).await else {
            panic!("an executor was refused")
        };
        up.insert(hello.container, sender);
    }
    for executor in executors {
        timeout(SOON, executor)
            .await
            .expect("in time")
            .expect("connects");
    }
}

/// A hello with fillers, as long as that of an executor that was disconnected for a long time.
fn long_hello(before: usize, token: &str, behind: usize) -> String {
    let (before, behind) = ("b".repeat(before), "a".repeat(behind));
    format!(
        r#"{{"kind":"hello","version":1,"before":"{before}","container":"job.1.e1.c1","token":"{token}","slots":4,"task_groups":true,"running":[],"unacked":[],"behind":"{behind}"}}"#
    ) + "\n"
}

#[tokio::test]
async fn few_bytes_are_read_before_the_token() {
    let (address, mut events) = server().await;
    let much = MAX_LINE_BYTES - 1024;
    for line in [
        long_hello(MAX_UNAUTHENTICATED_BYTES, "secret", 0),
        long_hello(0, "guess", much),
        "x".repeat(MAX_UNAUTHENTICATED_BYTES + 1),
    ] {
        let mut stream = TcpStream::connect(&address).await.expect("connects");
        let _ = timeout(SOON, stream.write_all(line.as_bytes()))
            .await
            .expect("does not hang"); // refused in the middle of it
        assert!(is_closed(&mut stream).await, "{line:.60}");
        assert!(events.try_recv().is_err(), "{line:.60}");
    }
    // Bytes that arrive together with a hello are not lost either.
    let alike = [
        long_hello(0, "secret", much),
        long_hello(0, "secret", MAX_UNAUTHENTICATED_BYTES),
        long_hello(MAX_UNAUTHENTICATED_BYTES / 2, "secret", 0),
    ];
    for line in alike {
        let mut stream = TcpStream::connect(&address).await.expect("connects");
        let both = line + "{\"kind\":\"usage\",\"tasks\":[]}\n";
        timeout(SOON, stream.write_all(both.as_bytes()))
            .await
            .expect("does not hang")
            .expect("sends");
        let ExecutorLinkEvent::Up { sender: _open, .. } = heard(&mut events).await else {
            panic!("no hello")
        };
        assert!(matches!(
            heard(&mut events).await,
            ExecutorLinkEvent::Heard { .. }
        ));
        drop(stream);
        assert!(matches!(
            heard(&mut events).await,
            ExecutorLinkEvent::Down { .. }
        ));
    }
}
