//! When a node that hears nothing of its resource manager ends its own containers.
//!
//! Owned by [`crate::agent::Agent`]. A resource manager that gives a node up starts its work elsewhere; a node that is merely cut off
//! would go on with the same work for ever. The fence bounds that. It is a deadline and nothing else: no clock, no connection.

use std::time::Duration;

use headroom_types::Tick;

/// How long a node goes on alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// For ever.
    #[default]
    Endless,
    /// So long.
    For(Duration),
}

/// The fence of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    patience: Patience,
    heard: Tick,
    closed: bool,
}

impl Fence {
    /// Patience begins now.
    pub fn new(patience: Patience, now: Tick) -> Self {
        Fence { patience, heard: now, closed: false }
    }

    /// The resource manager was heard.
    pub fn heard(&mut self, now: Tick) {
        self.heard = self.heard.max(now);
        self.closed = false;
    }

    /// When patience ends; `None` when it never does, or has ended already.
    pub fn deadline(&self) -> Option<Tick> {
        match self.patience {
            Patience::For(patience) if !self.closed => Some(self.heard.plus(patience)),
            Patience::For(_) | Patience::Endless => None,
        }
    }

    /// Whether patience ends now: the silence, once.
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
    fn patience_ends_once_and_begins_again_with_a_word() {
        let mut f = Fence::new(Patience::For(Duration::from_millis(100)), Tick(50));
        assert_eq!((f.deadline(), f.close(Tick(149))), (Some(Tick(150)), None));
        f.heard(Tick(100));
        f.heard(Tick(90));
        assert_eq!(f.close(Tick(150)), None);
        assert_eq!(f.close(Tick(201)), Some(Duration::from_millis(101)));
        assert_eq!((f.deadline(), f.close(Tick(999))), (None, None));
        f.heard(Tick(1000));
        assert_eq!(f.deadline(), Some(Tick(1100)));
        assert_eq!(Fence::new(Patience::Endless, Tick(0)).deadline(), None);
    }
}
