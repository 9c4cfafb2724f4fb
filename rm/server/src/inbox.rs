//! The two queues of the main loop: heartbeats of nodes, and all other inputs.
//!
//! Ten thousand nodes report every second. With a single queue, a submission would wait behind all
//! their reports. A batch takes inputs from both queues, up to a maximum from each, so that neither
//! delays the other. Within a queue the order is that of arrival. The second queue contains only
//! reports. If a later registration of a node overtakes its report, the report contains nothing
//! new.

use std::time::Duration;

use headroom_types::Tick;
use tokio::sync::mpsc;

use crate::input::LoopInput;

/// Capacity of each queue, in inputs.
pub(crate) const LENGTH: usize = 4096;
/// Maximum number of inputs from each queue in one batch.
const BATCH: usize = 512;
/// A report that waited longer in its queue shows that the main loop is behind.
const LATE: Duration = Duration::from_secs(1);

/// Heartbeat of a node, with its time of arrival.
#[derive(Debug)]
pub(crate) struct QueuedHeartbeat {
    pub(crate) input: LoopInput,
    pub(crate) arrived: Tick,
}

/// Sending ends of the queues, for handlers.
#[derive(Clone, Debug)]
pub(crate) struct InputSenders {
    pub(crate) calls: mpsc::Sender<LoopInput>,
    pub(crate) signs: mpsc::Sender<QueuedHeartbeat>,
}

impl InputSenders {
    /// Number of inputs that wait, without heartbeats.
    pub(crate) fn calls_waiting(&self) -> usize {
        self.calls.max_capacity() - self.calls.capacity()
    }

    /// Number of inputs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.calls_waiting() + self.signs.max_capacity() - self.signs.capacity()
    }
}

/// Receiving ends of the queues, for the main loop.
#[derive(Debug)]
pub(crate) struct MainLoopInbox {
    calls: mpsc::Receiver<LoopInput>,
    signs: mpsc::Receiver<QueuedHeartbeat>,
    /// Delay for which deadlines were already moved.
    forgiven: Duration,
}

/// Inputs of one turn of the main loop.
#[derive(Debug, Default)]
pub(crate) struct InputBatch {
    pub(crate) inputs: Vec<LoopInput>,
    /// Additional delay of the main loop since the last batch: missing heartbeats in that time are
    /// no evidence of a lost node.
    pub(crate) behind: Option<Duration>,
}

/// Creates both ends of the queues.
pub(crate) fn lines() -> (InputSenders, MainLoopInbox) {
    let ((calls, from_calls), (signs, from_signs)) = (mpsc::channel(LENGTH), mpsc::channel(LENGTH));
    (
        InputSenders { calls, signs },
        MainLoopInbox {
            calls: from_calls,
            signs: from_signs,
            forgiven: Duration::ZERO,
        },
    )
}

impl MainLoopInbox {
    /// Waits for the first input, and takes further inputs that are queued. When all senders are
    /// dropped, the batch contains a stop. Cancel safe.
    pub(crate) async fn batch(&mut self, now: impl Fn() -> Tick) -> InputBatch {
        let mut batch = InputBatch::default();
        let mut oldest = None;
        tokio::select! {
            biased;
            call = self.calls.recv() => batch.inputs.push(call.unwrap_or(LoopInput::Stop)),
            sign = self.signs.recv() => match sign {
                Some(QueuedHeartbeat { input, arrived }) => {
                    batch.inputs.push(input);
                    oldest = Some(arrived);
                }
                None => batch.inputs.push(LoopInput::Stop),
            },
        }
        batch
            .inputs
            .extend(std::iter::from_fn(|| self.calls.try_recv().ok()).take(BATCH));
        for QueuedHeartbeat { input, arrived } in
            std::iter::from_fn(|| self.signs.try_recv().ok()).take(BATCH)
        {
            batch.inputs.push(input);
            oldest.get_or_insert(arrived);
        }
        batch.behind = oldest.and_then(|arrived| self.behind(now().since(arrived)));
        batch
    }

    /// Moves deadlines once for each second by which reports are later than before.
    fn behind(&mut self, late: Duration) -> Option<Duration> {
        if late < self.forgiven {
            self.forgiven = late;
        }
        let more = late.saturating_sub(self.forgiven);
        if more < LATE {
            return None;
        }
        self.forgiven = late;
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::ClusterQuery;

    fn now() -> Tick {
        Tick(10_000)
    }
    fn call() -> LoopInput {
        LoopInput::Query(ClusterQuery::Refresh)
    }

    #[tokio::test]
    async fn calls_precede_heartbeats_and_neither_queue_starves() {
        let (lines, mut inbox) = lines();
        for n in 0..2000 {
            lines
                .signs
                .try_send(QueuedHeartbeat {
                    input: call(),
                    arrived: Tick(10_000 + n),
                })
                .expect("the queue has room");
        }
        for _ in 0..1000 {
            lines
                .calls
                .try_send(LoopInput::Stop)
                .expect("the queue has room");
        }
        assert_eq!(lines.waiting(), 3000);
        let batch = inbox.batch(now).await;
        let calls = batch
            .inputs
            .iter()
            .take_while(|i| matches!(i, LoopInput::Stop))
            .count();
        assert_eq!((calls, batch.inputs.len() - calls), (BATCH + 1, BATCH));
        assert_eq!(batch.behind, None);
    }

    #[tokio::test]
    async fn a_delay_of_the_loop_moves_deadlines_once() {
        let (lines, mut inbox) = lines();
        let mut behind = Vec::new();
        for arrived in [9_500, 8_000, 8_000, 6_900, 10_000, 9_000] {
            lines
                .signs
                .try_send(QueuedHeartbeat {
                    input: call(),
                    arrived: Tick(arrived),
                })
                .expect("the queue has room");
            behind.push(inbox.batch(now).await.behind.map(|d| d.as_millis()));
        }
        assert_eq!(
            behind,
            [None, Some(2000), None, Some(1100), None, Some(1000)]
        );
    }

    #[tokio::test]
    async fn the_loop_stops_when_all_senders_are_gone() {
        let (lines, mut inbox) = lines();
        drop(lines);
        assert!(matches!(
            inbox.batch(now).await.inputs.as_slice(),
            [LoopInput::Stop, ..]
        ));
    }
}
