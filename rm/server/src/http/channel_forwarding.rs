//! Forwarding of one submission channel: bytes between a client and the master of a live job.
//!
//! The resource manager reads only the client's first line, to which it adds the secret of the
//! channel. Heartbeats and their timeouts belong to the two ends. The channel closes when one end
//! closes it, when the authorization of the caller ends, when the application has ended, or when
//! the daemon ends.

use std::io;
use std::pin::pin;
use std::time::Duration;

use headroom_transport::{MasterConnection, halves};
use headroom_types::AppId;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemResult};
use headroom_wire::v1::submission::ToSubmitter;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
    copy, split,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::stream_authorization::CallerAuthorization;
use crate::reader::ClusterReader;

/// Maximum length of the client's first line. Bytes. The master reads as much before it has checked
/// the secret.
const MAX_FIRST_LINE_BYTES: u64 = 16 << 10;
/// Timeout for the change of the protocol, and for the client's first line.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the other direction after the end of one.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which the state of the application is read.
const APPLICATION_INTERVAL: Duration = Duration::from_secs(5);

/// The connection of the client, after its protocol has changed.
type ClientConnection = BufReader<TokioIo<Upgraded>>;

/// A channel between a caller and a master.
pub(super) struct ForwardedChannel {
    pub(super) app: AppId,
    /// Becomes the connection of the client when the response 101 is written.
    pub(super) upgrade: OnUpgrade,
    pub(super) master: MasterConnection,
    /// Secret of the channel.
    pub(super) token: String,
    pub(super) caller: CallerAuthorization,
    pub(super) reader: ClusterReader,
    pub(super) closing: CancellationToken,
    /// Slot of an open stream.
    pub(super) _place: OwnedSemaphorePermit,
}

impl ForwardedChannel {
    /// Forwards until the channel closes.
    pub(super) async fn forward(self) {
        let app = self.app.clone();
        let why = match self.opened().await {
            Ok(why) => why.to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::info!(%app, why, "a submission channel has closed");
    }

    /// Returns the reason of a regular end.
    async fn opened(mut self) -> io::Result<&'static str> {
        let upgraded = timeout(FIRST_LINE_TIMEOUT, self.upgrade).await;
        let upgraded = upgraded.map_err(|_| late())?.map_err(io::Error::other)?;
        let mut client = BufReader::new(TokioIo::new(upgraded));
        let line = match timeout(FIRST_LINE_TIMEOUT, first_line(&mut client, &self.token)).await {
            Ok(Ok(Ok(line))) => line,
            Ok(Ok(Err(problem))) => {
                refuse(&mut client, problem).await?;
                return Ok("the first line of the client is not valid");
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(late()),
        };
        self.master.write_all(&line).await?;
        let over = application_over(&self.reader, &self.app);
        tokio::select! {
            why = exchange(client, self.master) => Ok(why),
            () = over => Ok("the application has ended"),
            () = self.caller.ended() => Ok("the token or the rights of the caller have changed"),
            () = self.closing.cancelled() => Ok("the resource manager is shutting down"),
        }
    }
}

fn late() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the client sent no first line in time",
    )
}

/// Reads the first line and adds the secret to it.
async fn first_line(
    client: &mut ClientConnection,
    token: &str,
) -> io::Result<ProblemResult<Vec<u8>>> {
    let mut line = Vec::new();
    client
        .take(MAX_FIRST_LINE_BYTES)
        .read_until(b'\n', &mut line)
        .await?;
    if line.last() == Some(&b'\n') {
        return Ok(with_token(&line, token));
    }
    if line.len() as u64 == MAX_FIRST_LINE_BYTES {
        return Ok(Err(ProblemDetails::too_large(format!(
            "the first line is longer than {MAX_FIRST_LINE_BYTES} bytes"
        ))));
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// The first line with the secret as its first field, so that the master reads it early. Unknown
/// fields of a later version stay.
fn with_token(line: &[u8], token: &str) -> ProblemResult<Vec<u8>> {
    let wrong = |why: String| {
        let problem = ProblemDetails::bad_request(format!("the first line of the channel: {why}"));
        problem.hint(r#"send {"kind":"submitter","version":1,"client":"NAME","after":0}"#)
    };
    let mut fields: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
    if fields.get("kind").and_then(Value::as_str) != Some("submitter") {
        return Err(wrong("its kind is not submitter".to_owned()));
    }
    fields.remove("token");
    let (token, rest) = (Value::from(token), Value::from(fields).to_string());
    let rest = rest.get(1..).unwrap_or_default();
    Ok(format!("{{\"token\":{token},{rest}\n").into_bytes())
}

/// Sends the reason of a refusal to the client, before the connection closes.
async fn refuse(client: &mut ClientConnection, problem: ProblemDetails) -> io::Result<()> {
    let refused = ToSubmitter::Refused {
        subject: None,
        error: Box::new(problem),
    };
    let mut line = serde_json::to_vec(&refused)?;
    line.push(b'\n');
    let sent = async {
        client.write_all(&line).await?;
        client.shutdown().await
    };
    timeout(FIRST_LINE_TIMEOUT, sent)
        .await
        .map_err(|_| late())?
}

/// Copies bytes in both directions until one end closes its side, and then for a moment in the
/// other direction.
async fn exchange(client: ClientConnection, master: MasterConnection) -> &'static str {
    let (from_client, to_client) = split(client);
    let (from_master, to_master) = halves(master);
    let mut up = pin!(one_way(from_client, to_master));
    let mut down = pin!(one_way(from_master, to_client));
    tokio::select! {
        () = up.as_mut() => {
            // The connection closes in any case.
            let _ = timeout(LINGER_TIMEOUT, down).await;
            "the client closed the connection"
        }
        () = down.as_mut() => {
            let _ = timeout(LINGER_TIMEOUT, up).await;
            "the master closed the connection"
        }
    }
}

/// Copies bytes until the end of the input or a failure, then closes the output.
async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    // A failure means that one of the ends is gone, as at the end of the input.
    let _ = copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}

/// Returns when the application has been over for one interval, or is unknown. In that interval the
/// client reads the last lines of its master.
async fn application_over(reader: &ClusterReader, app: &AppId) {
    let mut look = interval(APPLICATION_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut over_before = false;
    loop {
        look.tick().await;
        let over = match reader.app(app).await {
            Ok(view) => view.state.is_final(),
            Err(problem) if problem.code == ErrorCode::HR0404 => return,
            Err(_) => false, // the main loop is slow or ending; the next look decides
        };
        if over && over_before {
            return;
        }
        over_before = over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_replaces_that_of_the_client_and_other_fields_stay() {
        let sent = br#"{"kind":"submitter","version":1,"token":"mine","client":"a","after":7,"later":[1]}"#;
        let line = with_token(sent, "se\"cret").expect("a first line");
        assert!(line.starts_with(br#"{"token":"se\"cret","#) && line.ends_with(b"}\n"));
        let fields: Value = serde_json::from_slice(&line).expect("JSON");
        let wanted = serde_json::json!({
            "kind": "submitter", "version": 1, "token": "se\"cret", "client": "a", "after": 7, "later": [1]
        });
        assert_eq!(fields, wanted);
    }

    #[test]
    fn another_first_line_is_refused_with_the_remedy() {
        for line in [
            &b"GET / HTTP/1.1"[..],
            br#"{"kind":"hello"}"#,
            br#"[{"kind":"submitter"}]"#,
            br#"{"kind":1}"#,
            b"\xff",
        ] {
            let problem = with_token(line, "secret").expect_err("is refused");
            assert_eq!(problem.code, ErrorCode::HR0400);
            assert!(problem.hints[0].contains("submitter"), "{problem:?}");
        }
    }
}
