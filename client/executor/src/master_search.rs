//! The search for the master: its last known address, and the waits between attempts to connect:
//! pure.
//!
//! A restarted master has another address. Therefore the resource manager is queried for it after
//! each wait, before the next attempt. An executor that starts along with its master knows no address
//! at first: the resource manager answers when the master has registered.

use std::time::Duration;

use headroom_client::retry::ExponentialBackoff;
use headroom_transport::MasterAddress;
use headroom_wire::v1::apps::AppState;

/// Wait after the first failed attempt.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// Longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Longest wait of the resource manager for a master that has not registered.
const REGISTRATION_WAIT: Duration = Duration::from_secs(10);
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
    address: Option<MasterAddress>,
    backoff: ExponentialBackoff,
}

impl MasterSearch {
    /// A search that begins at this address; `None` before the master has registered.
    pub fn new(address: Option<MasterAddress>) -> Self {
        MasterSearch {
            address,
            backoff: ExponentialBackoff::new(FIRST_BACKOFF, MAX_BACKOFF),
        }
    }

    /// The address of the next attempt; `None` before the master has registered.
    pub fn address(&self) -> Option<&MasterAddress> {
        self.address.as_ref()
    }

    /// The time for which the next query waits until the master has registered.
    pub fn registration_wait(&self) -> Duration {
        match self.address {
            Some(_) => Duration::ZERO,
            None => REGISTRATION_WAIT,
        }
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
            MasterLocation::At(address) => self.address = Some(address),
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
    fn only_a_search_without_an_address_waits_for_the_registration() {
        let mut search = MasterSearch::new(None);
        assert_eq!(search.registration_wait(), REGISTRATION_WAIT);
        assert!(search.on_location(MasterLocation::Unknown));
        assert_eq!(search.address(), None);
        assert!(search.on_location(MasterLocation::of(AppState::Running, Some("tcp://a:1"))));
        assert!(search.address().is_some());
        assert_eq!(search.registration_wait(), Duration::ZERO);
    }

    #[test]
    fn a_new_address_is_used_and_only_a_good_connection_resets_the_wait() {
        let address = |text: &str| text.parse::<MasterAddress>().expect("an address");
        let mut search = MasterSearch::new(Some(address("tcp://a:1")));
        assert_eq!(search.wait().as_millis(), 50);
        search.on_disconnected(is_good_connection(false, Duration::from_millis(1_999)));
        assert_eq!(search.wait().as_millis(), 100);
        search.on_disconnected(is_good_connection(true, Duration::ZERO));
        assert_eq!(search.wait().as_millis(), 50);
        let known = MasterLocation::of(AppState::Running, Some("tcp://b:2"));
        assert!(search.on_location(known));
        assert!(search.on_location(MasterLocation::of(AppState::Running, Some("no address"))));
        assert_eq!(search.address(), Some(&address("tcp://b:2")));
        assert!(!search.on_location(MasterLocation::of(AppState::Failed, None)));
    }
}
