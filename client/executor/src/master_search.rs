//! The search for the master: its last known address, and the waits between attempts to connect:
//! pure.
//!
//! A restarted master has another address. Therefore the resource manager is queried for it after
//! each wait, before the next attempt.

use std::time::Duration;

use headroom_client::retry::ExponentialBackoff;
use headroom_transport::MasterAddress;
use headroom_wire::v1::apps::AppState;

/// Wait after the first failed attempt.
pub(crate) const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// Longest wait between two attempts.
pub(crate) const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Minimum duration of a good connection. A connection with any message of the master is good, too.
const MIN_GOOD_DURATION: Duration = Duration::from_secs(2);

/// The resource manager's information about the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterLocation {
    /// The master listens at this address.
    At(MasterAddress),
    /// The resource manager does not know the address, or does not answer.
    Unknown,
    /// The application has ended: no master will follow.
    Over,
}

impl MasterLocation {
    /// The location by the state of the application and the URL of its master.
    pub fn of(state: AppState, master_url: Option<&str>) -> Self {
        if state.is_final() {
            return MasterLocation::Over;
        }
        master_url
            .and_then(|url| url.parse().ok())
            .map_or(MasterLocation::Unknown, MasterLocation::At)
    }
}

/// Whether a connection shows that a master was there: `heard` is true after a message of the
/// master, `lasted` is the duration of the connection.
pub fn is_good_connection(heard: bool, lasted: Duration) -> bool {
    heard || lasted >= MIN_GOOD_DURATION
}

/// The search of one executor.
#[derive(Debug)]
pub struct MasterSearch {
    address: MasterAddress,
    backoff: ExponentialBackoff,
}

impl MasterSearch {
    /// A search that begins at this address.
    pub fn new(address: MasterAddress) -> Self {
        MasterSearch {
            address,
            backoff: ExponentialBackoff::new(FIRST_BACKOFF, MAX_BACKOFF),
        }
    }

    /// The address of the next attempt.
    pub fn address(&self) -> &MasterAddress {
        &self.address
    }

    /// Notes the end of a connection. `good` is true if a master was there.
    pub fn on_disconnected(&mut self, good: bool) {
        if good {
            self.backoff.reset();
        }
    }

    /// The wait after the end of a connection or a failed attempt.
    pub fn wait(&mut self) -> Duration {
        self.backoff.wait()
    }

    /// Notes the answer of the resource manager. Returns false if the search is over.
    pub fn on_location(&mut self, location: MasterLocation) -> bool {
        match location {
            MasterLocation::At(address) => self.address = address,
            MasterLocation::Unknown => {}
            MasterLocation::Over => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_address_is_used_and_only_a_good_connection_resets_the_wait() {
        let address = |text: &str| text.parse::<MasterAddress>().expect("an address");
        let mut search = MasterSearch::new(address("tcp://a:1"));
        assert_eq!(search.wait().as_millis(), 50);
        search.on_disconnected(is_good_connection(false, Duration::from_millis(1_999)));
        assert_eq!(search.wait().as_millis(), 100);
        search.on_disconnected(is_good_connection(true, Duration::ZERO));
        assert_eq!(search.wait().as_millis(), 50);
        let known = MasterLocation::of(AppState::Running, Some("tcp://b:2"));
        assert!(search.on_location(known));
        assert!(search.on_location(MasterLocation::of(AppState::Running, Some("no address"))));
        assert_eq!(*search.address(), address("tcp://b:2"));
        assert!(!search.on_location(MasterLocation::of(AppState::Failed, None)));
    }
}
