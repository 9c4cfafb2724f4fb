//! A submission channel to the master of a live job: a session with a connection that is opened
//! again after each loss.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use futures_util::StreamExt as _;
use headroom_types::{AppId, Name};
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::submission::{
    FromSubmitter, MAX_LINE_BYTES, SubmissionChannelAccess, SubmittedTask, ToSubmitter, UPGRADE,
};
use headroom_wire::v1::task::LineError;
use reqwest::Upgraded;
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::codec::{FramedRead, LinesCodec};

use crate::error::AnswerDefect;
use crate::retry::ExponentialBackoff;
use crate::submission_session::{SubmissionEvent, SubmissionInputError, SubmissionSession};
use crate::{Client, ClientError, ClientResult, TaskRowScope};

/// Timeout of the call that opens a channel. The resource manager waits up to 30 s for a master.
const OPEN_TIMEOUT: Duration = Duration::from_secs(45);
/// Longest time without a message of the master, which sends one in 5 s.
const MASTER_SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of acknowledgements and heartbeats.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Size of the output from which no more messages are encoded. Bytes.
const MAX_OUTPUT_BYTES: usize = 256 << 10;

/// A submission channel through the resource manager.
///
/// [`next`](Self::next) drives the connection. The caller calls it again within a few seconds;
/// otherwise the master closes the connection, and the next call opens another one.
#[derive(Debug)]
pub struct SubmissionChannel {
    client: Client,
    app: AppId,
    session: SubmissionSession,
    connection: Option<ChannelConnection>,
    backoff: ExponentialBackoff,
    /// Longest time without a welcome, after which the channel gives up.
    give_up_after: Duration,
    unreached_since: Option<Instant>,
    events: VecDeque<SubmissionEvent>,
    is_over: bool,
}

/// Settings of a channel.
#[derive(Clone, Debug)]
pub struct SubmissionOptions {
    /// Name of the client, the same after a restart of the client. At most 64 characters.
    pub client: String,
    /// Cursor of the last result that the client has processed; 0 at first.
    pub after: u64,
    /// Longest time without a connection to the master, after which the channel gives up.
    pub give_up_after: Duration,
}

/// An open connection.
#[derive(Debug)]
struct ChannelConnection {
    lines: FramedRead<ReadHalf<Upgraded>, LinesCodec>,
    write: WriteHalf<Upgraded>,
    output: BytesMut,
    is_flushed: bool,
    tick: Interval,
    heard: Instant,
}

impl SubmissionChannel {
    /// A channel to the job `app`, which connects at the first call of [`next`](Self::next).
    ///
    /// # Errors
    /// The host has no random numbers.
    pub fn new(client: Client, app: AppId, options: &SubmissionOptions) -> ClientResult<Self> {
        let random: [u8; 8] =
            headroom_identity::token::random().map_err(|error| ClientError::Trust {
                why: error.to_string(),
            })?;
        let prefix = format!("{:016x}", u64::from_be_bytes(random));
        Ok(SubmissionChannel {
            client,
            app,
            session: SubmissionSession::new(&options.client, &prefix, options.after),
            connection: None,
            backoff: ExponentialBackoff::usual(),
            give_up_after: options.give_up_after,
            unreached_since: None,
            events: VecDeque::new(),
            is_over: false,
        })
    }

    /// Declares a stage. `spec` has the keys of a `[[stage]]` table of a job file, without `name`.
    ///
    /// # Errors
    /// The job is closed, or the stage was declared with other keys.
    pub fn declare_stage(
        &mut self,
        stage: Name,
        spec: serde_json::Value,
    ) -> Result<(), SubmissionInputError> {
        self.session.declare_stage(stage, spec)
    }

    /// Adds a task. It is sent when the job accepts it.
    ///
    /// # Errors
    /// The task is too large, too many wait, or the job is closed.
    pub fn add_task(
        &mut self,
        stage: Name,
        task: SubmittedTask,
    ) -> Result<(), SubmissionInputError> {
        self.session.add_task(stage, task)
    }

    /// Cancels tasks by their keys. Returns those that were not sent yet; they have no result.
    ///
    /// # Errors
    /// Too many cancellations wait.
    pub fn cancel(
        &mut self,
        keys: impl IntoIterator<Item = String>,
    ) -> Result<Vec<String>, SubmissionInputError> {
        self.session.cancel(keys)
    }

    /// Cancels all tasks of the job. Returns those that were not sent yet; they have no result.
    pub fn cancel_all(&mut self) -> Vec<String> {
        self.session.cancel_all()
    }

    /// Closes the job after the tasks that were added so far. It ends when all tasks have ended.
    pub fn close(&mut self) {
        self.session.close();
    }

    /// The results up to this cursor are processed; the master forgets them. A client that stores
    /// the cursor receives each result once, also over its own restart.
    pub fn acknowledge(&mut self, cursor: u64) {
        self.session.acknowledge(cursor);
    }

    /// The bookkeeping of the channel.
    pub fn session(&self) -> &SubmissionSession {
        &self.session
    }

    /// Returns the next event; `None` after the end of the job. Cancel-safe.
    ///
    /// # Errors
    /// The master cannot be reached for too long, or the resource manager or the master refuses the
    /// channel.
    pub async fn next(&mut self) -> ClientResult<Option<SubmissionEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            let Some(connection) = &mut self.connection else {
                self.connect().await?;
                continue;
            };
            match connection.turn(&mut self.session).await {
                Ok(None) => {}
                Ok(Some(SubmissionEvent::Refused { error })) if error.retryable => {
                    self.pause(ClientError::Problem(error)).await?;
                }
                Ok(Some(SubmissionEvent::Refused { error })) => {
                    self.disconnect();
                    return Err(ClientError::Problem(error));
                }
                Ok(Some(event)) => self.take(event),
                Err(defect) => {
                    let url = format!("{}/v1/apps/{}/channel", self.client.base(), self.app);
                    self.pause(ClientError::Answer { url, defect }).await?;
                }
            }
        }
    }

    /// Sends everything that can be sent at present, and closes the connection. The job continues,
    /// and the next call of [`next`](Self::next) connects again.
    pub async fn flush_and_disconnect(&mut self) {
        self.session.tick();
        if let Some(connection) = &mut self.connection {
            let sent = async {
                while let Some(message) = self.session.next_message() {
                    connection.encode(&message);
                }
                connection
                    .write
                    .write_all_buf(&mut connection.output)
                    .await?;
                connection.write.shutdown().await
            };
            // Results that are not acknowledged are sent again; the client knows its cursor.
            let _ = tokio::time::timeout(TICK_INTERVAL, sent).await;
        }
        self.disconnect();
    }

    /// Closes the channel of a client that needs no more results. The job continues.
    pub async fn leave(mut self) {
        self.session.leave();
        self.flush_and_disconnect().await;
    }

    fn take(&mut self, event: SubmissionEvent) {
        if let SubmissionEvent::Connected { .. } = event {
            self.unreached_since = None;
            self.backoff.reset();
        }
        if let SubmissionEvent::Over { .. } = event {
            self.is_over = true;
            self.disconnect();
        }
        self.events.push_back(event);
    }

    async fn connect(&mut self) -> ClientResult<()> {
        match self.client.open_channel(&self.app).await {
            Ok(upgraded) => {
                let mut connection = ChannelConnection::new(upgraded);
                connection.encode(&self.session.connected());
                self.connection = Some(connection);
                Ok(())
            }
            // The last messages of the master are lost, because it has ended.
            Err(error) if error.code() == Some(ErrorCode::HR0419) => {
                let app = self.client.app_with(&self.app, TaskRowScope::None).await?;
                self.take(SubmissionEvent::Over {
                    succeeded: app.state == AppState::Finished,
                    diagnostics: app.diagnostics,
                });
                Ok(())
            }
            Err(error) if error.retryable() => self.pause(error).await,
            Err(error) => Err(error),
        }
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.session.disconnected();
    }

    async fn pause(&mut self, error: ClientError) -> ClientResult<()> {
        self.disconnect();
        let since = *self.unreached_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.give_up_after {
            return Err(error);
        }
        tracing::debug!(app = %self.app, %error, "the submission channel is lost; connecting again");
        sleep(self.backoff.wait()).await;
        Ok(())
    }
}

impl ChannelConnection {
    fn new(upgraded: Upgraded) -> Self {
        let (read, write) = split(upgraded);
        let mut tick = interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ChannelConnection {
            lines: FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES)),
            write,
            output: BytesMut::new(),
            is_flushed: true,
            tick,
            heard: Instant::now(),
        }
    }

    fn encode(&mut self, message: &FromSubmitter) {
        // A message consists of texts, numbers and JSON values, so it is always valid JSON.
        if let Ok(line) = serde_json::to_vec(message) {
            self.output.put_slice(&line);
            self.output.put_u8(b'\n');
            self.is_flushed = false;
        }
    }

    /// Sends and receives until something has happened. Cancel-safe.
    async fn turn(
        &mut self,
        session: &mut SubmissionSession,
    ) -> Result<Option<SubmissionEvent>, AnswerDefect> {
        while self.output.len() < MAX_OUTPUT_BYTES
            && let Some(message) = session.next_message()
        {
            self.encode(&message);
        }
        let lost = |what: &dyn std::fmt::Display| {
            AnswerDefect::Malformed(format!("the connection is lost: {what}"))
        };
        let silence = sleep_until(self.heard + MASTER_SILENCE_TIMEOUT);
        tokio::select! {
            line = self.lines.next() => match line {
                Some(Ok(line)) => {
                    self.heard = Instant::now();
                    return read(&line).map(|message| session.received(message?));
                }
                Some(Err(error)) => return Err(lost(&error)),
                None => return Err(lost(&"the master closed it")),
            },
            written = write_some(&mut self.write, &mut self.output), if !self.is_flushed => {
                self.is_flushed = written.map_err(|error| lost(&error))?;
            }
            _ = self.tick.tick() => session.tick(),
            () = silence => return Err(AnswerDefect::Silent(MASTER_SILENCE_TIMEOUT)),
        }
        Ok(None)
    }
}

/// Writes a part of the output, or flushes it if all of it is written. Returns true after the flush.
/// Cancel-safe.
async fn write_some(
    write: &mut WriteHalf<Upgraded>,
    output: &mut BytesMut,
) -> std::io::Result<bool> {
    if output.is_empty() {
        write.flush().await?;
        return Ok(true);
    }
    write.write_buf(output).await?;
    Ok(false)
}

/// Parses a line of the master; `None` for a kind of a later version.
fn read(line: &str) -> Result<Option<ToSubmitter>, AnswerDefect> {
    match ToSubmitter::read(line) {
        Ok(message) => Ok(Some(message)),
        Err(LineError::Unknown(_)) => Ok(None),
        Err(error @ (LineError::Wrong { .. } | LineError::NoMessage(_))) => {
            Err(AnswerDefect::Malformed(error.to_string()))
        }
    }
}

impl Client {
    /// Opens the submission channel of a live job: a connection to its master. The caller sends the
    /// first line, without the secret.
    ///
    /// # Errors
    /// No answer, or a refusal: the job is not live, or it has ended.
    pub async fn open_channel(&self, app: &AppId) -> ClientResult<Upgraded> {
        self.upgrade(&format!("/v1/apps/{app}/channel"), UPGRADE, OPEN_TIMEOUT)
            .await
    }

    /// Returns the address and the secret of a live job's submission channel, for a client that can
    /// reach the master itself.
    ///
    /// # Errors
    /// No answer, or a refusal: the job is not live, or it has ended.
    pub async fn channel_token(&self, app: &AppId) -> ClientResult<SubmissionChannelAccess> {
        self.clone()
            .with_timeout(OPEN_TIMEOUT)
            .post(
                &format!("/v1/apps/{app}/channel-token"),
                &serde_json::json!({}),
            )
            .await
    }
}
