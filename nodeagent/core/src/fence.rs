//! Self-fence: a node without contact to the resource manager ends its own containers.
//!
//! [`crate::agent::AgentCore`] owns it. A resource manager that declares a node lost starts its
//! work elsewhere; a disconnected node would run the same work for ever. The fence bounds that
//! time. It is a deadline only, without a clock or connection.

use std::time::Duration;

use headroom_types::Tick;

/// Time for which a node keeps its containers without contact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FenceTimeout {
    /// No limit.
    #[default]
    Endless,
    /// This duration.
    For(Duration),
}

/// The fence of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFence {
    timeout: FenceTimeout,
    heard: Tick,
    closed: bool,
}

impl NodeFence {
    /// A fence whose time begins now.
    pub fn new(timeout: FenceTimeout, now: Tick) -> Self {
        NodeFence {
            timeout,
            heard: now,
            closed: false,
        }
    }

    /// Records a message of the resource manager.
    pub fn on_manager_message(&mut self, now: Tick) {
        self.heard = self.heard.max(now);
        self.closed = false;
    }

    /// The time at which the fence closes; `None` without a limit, or after it has closed.
    pub fn deadline(&self) -> Option<Tick> {
        match self.timeout {
            FenceTimeout::For(timeout) if !self.closed => Some(self.heard.plus(timeout)),
            FenceTimeout::For(_) | FenceTimeout::Endless => None,
        }
    }

    /// Closes the fence if it is due. Returns the time since the last message, once.
    pub fn close(&mut self, now: Tick) -> Option<Duration> {
        self.deadline().filter(|at| *at <= now)?;
        self.closed = true;
        Some(now.since(self.heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_closes_once_and_a_message_restarts_its_timeout() {
        let mut f = NodeFence::new(FenceTimeout::For(Duration::from_millis(100)), Tick(50));
        assert_eq!((f.deadline(), f.close(Tick(149))), (Some(Tick(150)), None));
        f.on_manager_message(Tick(100));
        f.on_manager_message(Tick(90));
        assert_eq!(f.close(Tick(150)), None);
        assert_eq!(f.close(Tick(201)), Some(Duration::from_millis(101)));
        assert_eq!((f.deadline(), f.close(Tick(999))), (None, None));
        f.on_manager_message(Tick(1000));
        assert_eq!(f.deadline(), Some(Tick(1100)));
        assert_eq!(
            NodeFence::new(FenceTimeout::Endless, Tick(0)).deadline(),
            None
        );
    }
}
