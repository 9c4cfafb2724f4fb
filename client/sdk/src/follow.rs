//! The event log as one endless sequence: the follower reconnects and continues after the last
//! event.
//!
//! It returns no event twice. Waits between attempts are bounded by the backoff. It gives up when
//! the resource manager has not answered for a while, or when it answered with an error that is not
//! retryable.

use std::time::Duration;

use headroom_types::AppId;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::events::LoggedEvent;
use tokio::time::Instant;

use crate::client::FollowMode;
use crate::retry::ExponentialBackoff;
use crate::{Client, ClientError, ClientResult, EventQuery, JsonLineStream};

/// Reads the event log and survives lost connections.
#[derive(Debug)]
pub struct EventFollower {
    client: Client,
    wanted: EventQuery,
    cursor: u64,
    lines: Option<JsonLineStream<LoggedEvent>>,
    backoff: ExponentialBackoff,
    timeout: Duration,
    silent_since: Option<Instant>,
}

impl EventFollower {
    /// Follows the events of `app`, or of all applications, after `cursor`. Gives up after
    /// `timeout` without an answer.
    pub fn new(client: Client, app: Option<AppId>, cursor: u64, timeout: Duration) -> Self {
        EventFollower::of(client, EventQuery::of(app), cursor, timeout)
    }

    /// Follows the events that match `wanted`, after `cursor`. Gives up after `timeout` without an
    /// answer.
    pub fn of(client: Client, wanted: EventQuery, cursor: u64, timeout: Duration) -> Self {
        EventFollower {
            client,
            wanted,
            cursor,
            lines: None,
            backoff: ExponentialBackoff::usual(),
            timeout,
            silent_since: None,
        }
    }

    /// The index of the last event that was returned.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the next event. Cancel-safe.
    pub async fn next(&mut self) -> ClientResult<LoggedEvent> {
        loop {
            if self.lines.is_none() {
                self.connect().await?;
            }
            let Some(lines) = self.lines.as_mut() else {
                continue;
            };
            match lines.next().await {
                Some(Ok(event)) => {
                    self.silent_since = None;
                    self.backoff.reset();
                    if event.index > self.cursor {
                        self.cursor = event.index;
                        return Ok(event);
                    }
                }
                Some(Err(e)) if e.unreachable() => self.pause(e).await?,
                Some(Err(e)) => return Err(e),
                None => {
                    self.lines = None;
                    tokio::time::sleep(self.backoff.wait()).await;
                }
            }
        }
    }

    async fn connect(&mut self) -> ClientResult<()> {
        match self
            .client
            .events_wanted(&self.wanted, self.cursor, FollowMode::Yes)
            .await
        {
            Ok(lines) => {
                self.lines = Some(lines);
                Ok(())
            }
            // The events after the cursor are no longer stored: continue with the oldest stored
            // event.
            Err(e) if e.code() == Some(ErrorCode::HR0411) && self.cursor != 0 => {
                self.cursor = 0;
                Ok(())
            }
            Err(e) if e.retryable() => self.pause(e).await,
            Err(e) => Err(e),
        }
    }

    async fn pause(&mut self, error: ClientError) -> ClientResult<()> {
        self.lines = None;
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.timeout {
            return Err(error);
        }
        tokio::time::sleep(self.backoff.wait()).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    fn line(index: u64) -> String {
        format!(
            r#"{{"index":{index},"time":1,"level":"normal","reason":"NodeReady","object":"n1","message":""}}"#
        ) + "\n"
    }

    /// Answers one connection for each body and returns the requested paths.
    async fn serve(listener: TcpListener, bodies: Vec<String>) -> Vec<String> {
        let mut asked = Vec::new();
        for body in bodies {
            let (mut peer, _) = listener.accept().await.expect("a connection");
            let mut request = vec![0; 2048];
            let n = peer.read(&mut request).await.expect("a request");
            asked.push(
                String::from_utf8_lossy(&request[..n])
                    .split_whitespace()
                    .nth(1)
                    .unwrap_or_default()
                    .to_owned(),
            );
            let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
            peer.write_all(answer.as_bytes()).await.expect("answers");
        }
        asked
    }

    #[tokio::test]
    async fn a_lost_connection_loses_and_repeats_no_entry() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(serve(listener, vec![line(5), line(5) + &line(6)]));
        let app = "word-count.7".parse().expect("id");
        let mut events = EventFollower::new(
            Client::new(&url).expect("a client"),
            Some(app),
            0,
            Duration::from_secs(5),
        );
        let seen = [
            events.next().await.expect("one").index,
            events.next().await.expect("two").index,
        ];
        assert_eq!((seen, events.cursor()), ([5, 6], 6));
        let asked = server.await.expect("served");
        assert!(
            asked[0].contains("cursor=0")
                && asked[1].contains("cursor=5")
                && asked[1].contains("app=word-count.7"),
            "{asked:?}"
        );
    }

    #[tokio::test]
    async fn an_unreachable_server_is_an_error_after_the_timeout() {
        let port = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port")
            .local_addr()
            .expect("an address")
            .port();
        let client = Client::new(&format!("http://127.0.0.1:{port}")).expect("a client");
        let mut events = EventFollower::new(client, None, 0, Duration::from_millis(200));
        let gave_up = tokio::time::timeout(Duration::from_secs(10), events.next())
            .await
            .expect("gives up");
        assert!(
            gave_up
                .expect_err("the server does not listen")
                .unreachable()
        );
    }
}
