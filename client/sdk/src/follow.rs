//! The event log as one endless sequence: reconnects and goes on from where it was.
//!
//! Never gives an event twice and never waits longer between two tries than the backoff allows; it gives up only when the
//! resource manager has not answered for a while, or answered that it will not.

use std::time::Duration;

use headroom_types::AppId;
use headroom_wire::v1::error::Code;
use headroom_wire::v1::events::Event;
use tokio::time::Instant;

use crate::client::Follow;
use crate::retry::Backoff;
use crate::{Client, ClientError, Lines};

/// Reads the event log and survives lost connections.
#[derive(Debug)]
pub struct EventFollower {
    client: Client,
    app: Option<AppId>,
    cursor: u64,
    lines: Option<Lines<Event>>,
    backoff: Backoff,
    patience: Duration,
    silent_since: Option<Instant>,
}

impl EventFollower {
    /// Follows the events of `app`, or all, from after `cursor`. Gives up after `patience` without an answer.
    pub fn new(client: Client, app: Option<AppId>, cursor: u64, patience: Duration) -> Self {
        EventFollower { client, app, cursor, lines: None, backoff: Backoff::usual(), patience, silent_since: None }
    }

    /// Where it stands: the index of the last event given.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The next event. Safe to drop and call again.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            if self.lines.is_none() {
                self.connect().await?;
            }
            let Some(lines) = self.lines.as_mut() else { continue };
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

    async fn connect(&mut self) -> Result<(), ClientError> {
        match self.client.events_of(self.app.as_ref(), self.cursor, Follow::Yes).await {
            Ok(lines) => {
                self.lines = Some(lines);
                Ok(())
            }
            // What was missed is gone for good: go on from what there is.
            Err(e) if e.code() == Some(Code::HR0411) && self.cursor != 0 => {
                self.cursor = 0;
                Ok(())
            }
            Err(e) if e.retryable() => self.pause(e).await,
            Err(e) => Err(e),
        }
    }

    async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.lines = None;
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.patience {
            return Err(error);
        }
        tokio::time::sleep(self.backoff.wait()).await;
        Ok(())
    }
}
