//! State of a fake resource manager: desired state of the node, faults, and received messages.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headroom_types::{ContainerId, Epoch, ExitReport, Sha256};
use headroom_wire::v1::nodes::{ContainerDesiredState, DesiredContainer, DesiredStateLine};
use tokio::sync::{Notify, mpsc};

use crate::received::ReceivedReports;

/// Content of the lines of the desired-state stream after the first one, which is always complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredStateStream {
    /// All containers, to show that repeated orders change nothing.
    FullState,
    /// The changes, as the real resource manager sends them.
    Changes,
}

/// Reaction to a reported end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndHandling {
    /// Ends in reports are acknowledged. The test orders the node to forget the container.
    Keep,
    /// Ends in reports and registrations are acknowledged, and the node is ordered to forget the
    /// container at once.
    Forget,
}

/// Settings of a fake resource manager.
#[derive(Clone, Copy, Debug)]
pub struct FakeManagerSettings {
    /// Content of the stream.
    pub stream: DesiredStateStream,
    /// Reaction to a reported end.
    pub ends: EndHandling,
}

/// Faults that a test injects. None are set at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Every call is refused with `HR0503`, and open streams end.
    pub unavailable: bool,
    /// Ends are neither recorded nor acknowledged.
    pub ignore_ends: bool,
    /// Registrations are refused: the node is decommissioned.
    pub decommissioned: bool,
}

/// State behind the lock.
#[derive(Debug)]
pub(crate) struct ManagerState {
    settings: FakeManagerSettings,
    pub(crate) epoch: Epoch,
    /// Registrations need a larger serial number.
    pub(crate) highest_serial: u64,
    pub(crate) faults: Faults,
    pub(crate) received: ReceivedReports,
    desired: BTreeMap<ContainerId, ContainerDesiredState>,
    /// Uploaded files, with the number of requests for them.
    pub(crate) uploads: BTreeMap<Sha256, (Vec<u8>, u32)>,
    /// Changes for each open stream.
    streams: Vec<mpsc::UnboundedSender<Vec<DesiredContainer>>>,
}

impl ManagerState {
    pub(crate) fn new(settings: FakeManagerSettings) -> Self {
        ManagerState {
            settings,
            epoch: Epoch(1),
            highest_serial: 0,
            faults: Faults::default(),
            received: ReceivedReports::default(),
            desired: BTreeMap::new(),
            uploads: BTreeMap::new(),
            streams: Vec::new(),
        }
    }

    /// Starts another incarnation, which keeps the desired state.
    pub(crate) fn restart(&mut self) {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.received.clear_containers();
        self.close_streams();
    }

    /// Ends the open streams.
    pub(crate) fn close_streams(&mut self) {
        self.streams.clear();
    }

    pub(crate) fn desired(&self, id: &ContainerId) -> Option<&ContainerDesiredState> {
        self.desired.get(id)
    }

    /// Removes a container from the desired state, without a message to the node.
    pub(crate) fn remove_desired(&mut self, id: &ContainerId) {
        self.desired.remove(id);
    }

    /// Changes the desired state, in one line of each open stream.
    pub(crate) fn order(&mut self, changes: Vec<DesiredContainer>) {
        for change in &changes {
            self.desired
                .insert(change.container.clone(), change.want.clone());
        }
        // A stream whose connection is closed has no receiver.
        self.streams
            .retain(|stream| stream.send(changes.clone()).is_ok());
    }

    /// Opens a stream: its first line, and the changes for its later lines.
    pub(crate) fn open_stream(
        &mut self,
    ) -> (
        DesiredStateLine,
        mpsc::UnboundedReceiver<Vec<DesiredContainer>>,
    ) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.streams.push(sender);
        (self.full_line(), receiver)
    }

    /// The next line of a stream that was opened in `epoch`; `None` if the stream has ended.
    pub(crate) fn next_line(
        &self,
        epoch: Epoch,
        changes: Vec<DesiredContainer>,
    ) -> Option<DesiredStateLine> {
        // A restarted resource manager has lost its connections.
        if self.epoch != epoch || self.faults.unavailable {
            return None;
        }
        Some(match self.settings.stream {
            DesiredStateStream::FullState => self.full_line(),
            DesiredStateStream::Changes => DesiredStateLine {
                epoch,
                full: false,
                containers: changes,
            },
        })
    }

    fn full_line(&self) -> DesiredStateLine {
        let containers = self.desired.iter().map(|(id, want)| DesiredContainer {
            container: id.clone(),
            want: want.clone(),
        });
        DesiredStateLine {
            epoch: self.epoch,
            full: true,
            containers: containers.collect(),
        }
    }

    /// Records the ends of a report and returns those that it acknowledges.
    pub(crate) fn add_ends(&mut self, exits: Vec<ExitReport>, now: Instant) -> Vec<ContainerId> {
        if self.faults.ignore_ends {
            return Vec::new();
        }
        let ids: Vec<ContainerId> = exits.iter().map(|r| r.container.clone()).collect();
        for report in exits {
            self.received.add_end(report, now);
        }
        match self.settings.ends {
            EndHandling::Keep => {}
            EndHandling::Forget => self.forget_ended(&ids),
        }
        ids
    }

    /// The ends that the reply to a registration acknowledges.
    pub(crate) fn acknowledged_at_registration(&self, ends: Vec<ContainerId>) -> Vec<ContainerId> {
        match self.settings.ends {
            EndHandling::Keep => Vec::new(),
            EndHandling::Forget => ends,
        }
    }

    fn forget_ended(&mut self, ids: &[ContainerId]) {
        let changes = ids.iter().map(|id| DesiredContainer {
            container: id.clone(),
            want: ContainerDesiredState::Forget,
        });
        if !ids.is_empty() {
            self.order(changes.collect());
        }
        for id in ids {
            self.remove_desired(id);
        }
    }
}

/// State that the server and its owner share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<ManagerState>,
    /// Wakes blocking waits after each message.
    pub(crate) changed: Condvar,
    /// Wakes asynchronous waits after each message.
    pub(crate) changed_async: Notify,
}

impl Shared {
    pub(crate) fn new(settings: FakeManagerSettings) -> Self {
        Shared {
            state: Mutex::new(ManagerState::new(settings)),
            changed: Condvar::new(),
            changed_async: Notify::new(),
        }
    }

    /// Locks the state, also after a test failed while it held the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all waits.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        self.changed_async.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use headroom_types::{EnforcerKind, Evidence, ExitReason, StopCause, UnixMillis};

    use super::*;

    fn state(stream: DesiredStateStream, ends: EndHandling) -> ManagerState {
        ManagerState::new(FakeManagerSettings { stream, ends })
    }

    fn id(n: u64) -> ContainerId {
        format!("test.1.e1.c{n}").parse().expect("an id")
    }

    fn stop(n: u64) -> Vec<DesiredContainer> {
        vec![DesiredContainer {
            container: id(n),
            want: ContainerDesiredState::Stop {
                cause: StopCause::Asked,
            },
        }]
    }

    fn report(n: u64, reason: ExitReason) -> ExitReport {
        ExitReport {
            container: id(n),
            node: "n1".parse().expect("a node"),
            reason,
            evidence: Evidence::empty(EnforcerKind::Poll),
            diagnosis: Vec::new(),
            started: None,
            ended: UnixMillis(1),
            timeline: Vec::new(),
            log_tail: String::new(),
            tasks: Vec::new(),
        }
    }

    #[test]
    fn a_stream_has_changes_or_all_containers_until_the_restart() {
        for (stream, containers) in [
            (DesiredStateStream::Changes, 1),
            (DesiredStateStream::FullState, 2),
        ] {
            let mut state = state(stream, EndHandling::Keep);
            state.order(stop(1));
            let (first, mut changes) = state.open_stream();
            assert!(first.full && first.containers.len() == 1);
            state.order(stop(2));
            let orders = changes.try_recv().expect("a change");
            let line = state.next_line(Epoch(1), orders).expect("a line");
            assert_eq!(line.containers.len(), containers);
            state.restart();
            assert!(changes.try_recv().is_err(), "the stream has ended");
            assert_eq!(state.next_line(Epoch(1), Vec::new()), None);
            assert_eq!(state.open_stream().0.containers.len(), 2);
        }
    }

    #[test]
    fn an_end_is_acknowledged_and_its_container_forgotten() {
        let mut state = state(DesiredStateStream::Changes, EndHandling::Forget);
        state.order(stop(1));
        let (_, mut changes) = state.open_stream();
        let end = |reason| vec![report(1, reason)];
        let now = Instant::now();
        state.faults.ignore_ends = true;
        assert!(state.add_ends(end(ExitReason::Stopped), now).is_empty());
        state.faults.ignore_ends = false;
        assert_eq!(state.add_ends(end(ExitReason::Stopped), now), [id(1)]);
        let forget = changes.try_recv().expect("a change");
        assert_eq!(forget[0].want, ContainerDesiredState::Forget);
        assert!(state.desired(&id(1)).is_none());
        assert!(state.received.contradicted.is_empty());
        let first = state.received.take_end(&id(1)).expect("an end");
        assert_eq!(
            (first.reports, first.report.reason),
            (1, ExitReason::Stopped)
        );
        state.add_ends(end(ExitReason::Timeout), now);
        assert!(state.received.contradicted.contains(&id(1)));
    }
}
