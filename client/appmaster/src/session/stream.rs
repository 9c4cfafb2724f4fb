//! The stream of updates: its position, and the time at which it is opened again after a loss.

use std::time::Duration;

use headroom_client::retry::ExponentialBackoff;
use headroom_client::{CallFailureKind, ClientError};
use headroom_types::{Epoch, Tick};

/// Wait before the first attempt to open a lost stream.
const FIRST_RETRY_BACKOFF: Duration = Duration::from_millis(50);
/// Longest wait between two attempts to open the stream.
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// The position from which the stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// Epoch of the resource manager.
    pub epoch: Epoch,
    /// Cursor of the last update that was read.
    pub cursor: u64,
}

/// Number of an attempt to read the stream. Each attempt has the next number, so events of an
/// earlier attempt are recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamNumber(u64);

#[derive(Debug)]
enum StreamPhase {
    /// The next registration returns a position.
    NoPosition,
    Closed {
        retry_at: Tick,
    },
    Open,
}

/// The stream of updates of one session.
#[derive(Debug)]
pub(super) struct UpdateStream {
    from: StreamPosition,
    number: StreamNumber,
    phase: StreamPhase,
    backoff: ExponentialBackoff,
}

impl UpdateStream {
    pub(super) fn new() -> Self {
        UpdateStream {
            from: StreamPosition {
                epoch: Epoch(0),
                cursor: 0,
            },
            number: StreamNumber::default(),
            phase: StreamPhase::NoPosition,
            backoff: ExponentialBackoff::new(FIRST_RETRY_BACKOFF, MAX_RETRY_BACKOFF),
        }
    }

    /// Time of the next attempt to open the stream.
    pub(super) fn next_timer(&self) -> Option<Tick> {
        match self.phase {
            StreamPhase::Closed { retry_at } => Some(retry_at),
            StreamPhase::NoPosition | StreamPhase::Open => None,
        }
    }

    /// Opens the stream at the position of a registration. It replaces an open one.
    pub(super) fn open_at(&mut self, from: StreamPosition) -> (StreamNumber, StreamPosition) {
        self.from = from;
        self.open()
    }

    /// Opens the lost stream at its last position, if that is due.
    pub(super) fn open_due(&mut self, now: Tick) -> Option<(StreamNumber, StreamPosition)> {
        let due = self.next_timer().is_some_and(|at| at <= now);
        due.then(|| self.open())
    }

    fn open(&mut self) -> (StreamNumber, StreamPosition) {
        self.number = StreamNumber(self.number.0 + 1);
        self.phase = StreamPhase::Open;
        (self.number, self.from)
    }

    /// Notes an update. Returns its epoch; `None` if the stream was replaced.
    pub(super) fn on_update(&mut self, number: StreamNumber, cursor: u64) -> Option<Epoch> {
        if number != self.number {
            return None;
        }
        self.backoff.reset();
        self.from.cursor = self.from.cursor.max(cursor);
        Some(self.from.epoch)
    }

    /// Notes the end of the stream. Returns its epoch if only a registration returns a position
    /// from which it can be read.
    pub(super) fn on_closed(
        &mut self,
        now: Tick,
        number: StreamNumber,
        error: Option<&ClientError>,
    ) -> Option<Epoch> {
        if number != self.number {
            return None;
        }
        match error.map(ClientError::failure_kind) {
            Some(CallFailureKind::Stale | CallFailureKind::TooOld) => {
                self.phase = StreamPhase::NoPosition;
                Some(self.from.epoch)
            }
            Some(CallFailureKind::Gone | CallFailureKind::Refused | CallFailureKind::Silent)
            | None => {
                if let Some(error) = error {
                    tracing::debug!(%error, "lost the update stream, reconnecting");
                }
                let retry_at = now.plus(self.backoff.wait());
                self.phase = StreamPhase::Closed { retry_at };
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_stream_is_opened_again_at_its_cursor_and_a_replaced_one_is_ignored() {
        let mut stream = UpdateStream::new();
        assert_eq!(stream.next_timer(), None);
        let from = StreamPosition {
            epoch: Epoch(3),
            cursor: 5,
        };
        let (first, _) = stream.open_at(from);
        assert_eq!(stream.on_update(first, 7), Some(Epoch(3)));
        assert_eq!(stream.on_closed(Tick(100), first, None), None);
        assert_eq!(stream.next_timer(), Some(Tick(150)));
        assert_eq!(stream.open_due(Tick(149)), None);
        let (second, again) = stream.open_due(Tick(150)).expect("the stream is due");
        assert_eq!(again.cursor, 7);
        assert_eq!(stream.on_update(first, 9), None);
        assert_eq!(stream.on_closed(Tick(160), first, None), None);
        assert_eq!(stream.next_timer(), None);
        assert_eq!(stream.on_closed(Tick(160), second, None), None);
        assert_eq!(stream.next_timer(), Some(Tick(260)));
    }
}
