//! The addresses of the resource managers of one cluster, and which of them a call is sent to. Pure.
//!
//! ```text
//! A call begins at the current address, which all calls of a client share.
//!   answered                        ──► the current address, if the call came there on its way
//!   not connected, nothing was sent ──► the next address
//!   standby, which names the leader ──► the leader
//!   standby without a leader        ──► the next address
//!   interrupted after it was sent   ──► the next address for a call that may be repeated; the
//!                                       error for others
//!   no answer yet, another one leads ─► that leader for a call that may be repeated; the error for
//!                                       others
//! ```
//!
//! *Architecture Invariant*: a call is sent to no address twice, and to at most one address more
//! than the list has.

use std::fmt;

use headroom_types::{AddressListError, UNIX_SOCKET_PREFIX, split_address_list};
use reqwest::Url;

/// The reason why a text is not the address of a server, nor a list of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// An entry is not an address.
    #[error(
        "{address:?} is not an address; write for example http://127.0.0.1:7070 or https://rm.example:7070"
    )]
    Malformed {
        /// The entry as the caller gave it.
        address: String,
    },
    /// The list has a mistake.
    #[error(transparent)]
    List(#[from] AddressListError),
}

/// The address of a server: `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`.
#[derive(Clone, Debug)]
pub struct ManagerAddress {
    /// The address as the user gave it, without slashes at its end.
    text: String,
    /// The parsed address; `None` for a Unix socket.
    url: Option<Url>,
}

impl ManagerAddress {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches('/').to_owned();
        if let Some(path) = text.strip_prefix(UNIX_SOCKET_PREFIX) {
            return path
                .starts_with('/')
                .then_some(ManagerAddress { text, url: None });
        }
        let url = Url::parse(&text).ok()?;
        let is_usable = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
        is_usable.then_some(ManagerAddress {
            text,
            url: Some(url),
        })
    }

    /// The address as the user gave it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path of the Unix socket.
    pub(crate) fn socket_path(&self) -> Option<&str> {
        self.text.strip_prefix(UNIX_SOCKET_PREFIX)
    }

    /// The prefix of every URL at this address.
    pub(crate) fn root(&self) -> &str {
        match self.url {
            Some(_) => &self.text,
            None => "http://localhost",
        }
    }

    /// The URL of `path` in the form in which the user gave the address.
    pub(crate) fn shown(&self, path: &str) -> String {
        match self.url {
            Some(_) => format!("{}{path}", self.text),
            None => format!("{} {path}", self.text),
        }
    }

    /// True if connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.scheme() == Some("https")
    }

    /// True if requests leave this host unencrypted.
    pub(crate) fn is_heard(&self) -> bool {
        let host = self
            .url
            .as_ref()
            .filter(|url| url.scheme() == "http")
            .and_then(Url::host_str)
            .map(|host| host.trim_matches(['[', ']']));
        host.is_some_and(|host| {
            host != "localhost"
                && !host
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|ip| ip.is_loopback())
        })
    }

    fn scheme(&self) -> Option<&str> {
        self.url.as_ref().map(Url::scheme)
    }

    /// True for an address that contains only scheme, host and port.
    fn is_origin(&self) -> bool {
        self.url.as_ref().is_some_and(|url| {
            url.path() == "/"
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        })
    }
}

impl fmt::Display for ManagerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Addresses are equal if they lead to the same place: `http://RM/` and `http://rm:80`.
impl PartialEq for ManagerAddress {
    fn eq(&self, other: &Self) -> bool {
        match (&self.url, &other.url) {
            (Some(own), Some(other)) => own == other,
            (None, None) => self.text == other.text,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Eq for ManagerAddress {}

/// The addresses of all resource managers of one cluster, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerAddresses {
    first: ManagerAddress,
    others: Vec<ManagerAddress>,
}

impl ManagerAddresses {
    /// Parses one address or a list that is separated by commas.
    ///
    /// # Errors
    /// Names the entry that is not an address, is empty or occurs twice, and the entries that do
    /// not belong into one list.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let malformed = |address: &str| AddressError::Malformed {
            address: address.to_owned(),
        };
        if text.trim().is_empty() {
            return Err(malformed(text));
        }
        let mut list: Vec<ManagerAddress> = Vec::new();
        for entry in split_address_list(text)? {
            let address = ManagerAddress::parse(entry).ok_or_else(|| malformed(entry))?;
            if list.contains(&address) {
                let address = entry.to_owned();
                return Err(AddressListError::Duplicate { address }.into());
            }
            list.push(address);
        }
        let mut list = list.into_iter();
        let first = list.next().ok_or_else(|| malformed(text))?;
        Ok(ManagerAddresses {
            first,
            others: list.collect(),
        })
    }

    /// The addresses in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = &ManagerAddress> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The first address.
    pub fn first(&self) -> &ManagerAddress {
        &self.first
    }

    /// Number of addresses, at least 1.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The addresses of the list that follow `address`, and then those before it. All addresses of
    /// the list if it does not contain `address`.
    fn after(&self, address: &ManagerAddress) -> impl Iterator<Item = &ManagerAddress> {
        let begin = self.iter().position(|one| one == address);
        let begin = begin.map_or(0, |at| at + 1);
        self.iter()
            .chain(self.iter())
            .skip(begin)
            .take(self.count())
    }
}

impl fmt::Display for ManagerAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.iter().map(ManagerAddress::as_str).collect();
        f.write_str(&texts.join(","))
    }
}

/// Whether calls follow a standby to a leader that is not in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlistedLeaderPolicy {
    /// Calls follow to addresses with the scheme of the list.
    Follow,
    /// Calls follow to addresses with the scheme of the list that unencrypted requests reach
    /// without leaving this host. For calls with a token.
    FollowUnheard,
    /// Calls stay in the list.
    Ignore,
}

/// The result of sending a call to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// A server answered that is not a standby.
    Answered,
    /// No connection; nothing was sent.
    NotConnected,
    /// The request was sent, at least in part, and no whole answer came.
    Interrupted,
    /// The request was sent, at least in part, and another manager leads now.
    Replaced {
        /// The address of the new leader.
        leader: ManagerAddress,
    },
    /// A standby answered, and changed nothing.
    Standby {
        /// The address of the leader, if the standby named one.
        leader: Option<String>,
    },
}

/// Whether a call may be sent again after it may have been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// The call changes nothing.
    Allowed,
    /// The call changes something.
    Forbidden,
}

/// The next step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// The call ends with the answer.
    Done,
    /// The call is sent to another address, [`CallRoute::target`].
    SendAgain,
    /// The call ends with its last error, because it may have been executed.
    Fail,
    /// The call ends, because no other address is left.
    Exhausted,
}

/// The way of one call through the addresses.
#[derive(Clone, Debug)]
pub struct CallRoute {
    target: ManagerAddress,
    /// Earlier addresses.
    left: Vec<ManagerAddress>,
    repetition: Repetition,
}

impl CallRoute {
    /// The address to which the call is sent now.
    pub fn target(&self) -> &ManagerAddress {
        &self.target
    }

    fn has_tried(&self, address: &ManagerAddress) -> bool {
        self.target == *address || self.left.contains(address)
    }
}

/// The addresses with the current one, at which calls begin.
#[derive(Clone, Debug)]
pub struct AddressChoice {
    addresses: ManagerAddresses,
    current: ManagerAddress,
    unlisted: UnlistedLeaderPolicy,
}

impl AddressChoice {
    /// Calls begin at the first address.
    pub fn new(addresses: ManagerAddresses, unlisted: UnlistedLeaderPolicy) -> Self {
        AddressChoice {
            current: addresses.first().clone(),
            addresses,
            unlisted,
        }
    }

    /// The address at which calls begin.
    pub fn current(&self) -> &ManagerAddress {
        &self.current
    }

    /// Begins a call.
    pub fn begin(&self, repetition: Repetition) -> CallRoute {
        CallRoute {
            target: self.current.clone(),
            left: Vec::new(),
            repetition,
        }
    }

    /// Takes the outcome at the target of a call, and chooses its next target.
    pub fn record(&mut self, route: &mut CallRoute, outcome: SendOutcome) -> CallStep {
        match outcome {
            SendOutcome::Answered => {
                // A late answer at the former address does not move other calls back.
                if !route.left.is_empty() {
                    self.current = route.target.clone();
                }
                CallStep::Done
            }
            SendOutcome::NotConnected => {
                self.leave(&route.target);
                self.advance(route, None)
            }
            SendOutcome::Standby { leader } => {
                let leader = leader.and_then(|text| self.find_leader(&text));
                let leader = leader.filter(|leader| *leader != route.target);
                self.leave(&route.target);
                if let Some(leader) = &leader {
                    self.current = leader.clone();
                }
                self.advance(route, leader)
            }
            SendOutcome::Interrupted => {
                self.leave(&route.target);
                match route.repetition {
                    Repetition::Allowed => self.advance(route, None),
                    Repetition::Forbidden => CallStep::Fail,
                }
            }
            SendOutcome::Replaced { leader } => {
                if self.current == route.target {
                    self.current = leader.clone();
                }
                match route.repetition {
                    Repetition::Allowed => self.advance(route, Some(leader)),
                    Repetition::Forbidden => CallStep::Fail,
                }
            }
        }
    }

    /// The addresses of the list other than `target`, the one after it first.
    pub fn others(&self, target: &ManagerAddress) -> Vec<ManagerAddress> {
        let others = self.addresses.after(target).filter(|one| *one != target);
        others.cloned().collect()
    }

    /// The leader that replaced the one at `target`, if `named` says so: a leader by the word of
    /// another manager. `before` is what it said earlier. A listed address is another manager; one
    /// that is not listed may be another name of `target`, until it changes.
    pub fn replacement(
        &self,
        target: &ManagerAddress,
        named: &str,
        before: Option<&str>,
    ) -> Option<ManagerAddress> {
        let leader = self.find_leader(named).filter(|leader| leader != target)?;
        let is_listed = self.addresses.iter().any(|one| *one == leader);
        let has_changed = before.is_some_and(|before| before != named);
        (is_listed || has_changed).then_some(leader)
    }

    /// Calls begin elsewhere, unless they already do.
    fn leave(&mut self, failed: &ManagerAddress) {
        if self.current == *failed
            && let Some(next) = self.addresses.after(failed).next()
        {
            self.current = next.clone();
        }
    }

    fn advance(&self, route: &mut CallRoute, leader: Option<ManagerAddress>) -> CallStep {
        let sent = route.left.len() + 1;
        if sent > self.addresses.count() {
            return CallStep::Exhausted;
        }
        let next = leader
            .iter()
            .chain([&self.current])
            .chain(self.addresses.after(&route.target))
            .find(|address| !route.has_tried(address))
            .cloned();
        match next {
            Some(next) => {
                let left = std::mem::replace(&mut route.target, next);
                route.left.push(left);
                CallStep::SendAgain
            }
            None => CallStep::Exhausted,
        }
    }

    /// The leader that a standby named, if calls may follow there.
    fn find_leader(&self, text: &str) -> Option<ManagerAddress> {
        let leader = ManagerAddress::parse(text)?;
        if let Some(listed) = self.addresses.iter().find(|one| **one == leader) {
            return Some(listed.clone());
        }
        let is_allowed = match self.unlisted {
            UnlistedLeaderPolicy::Follow => true,
            UnlistedLeaderPolicy::FollowUnheard => !leader.is_heard(),
            UnlistedLeaderPolicy::Ignore => false,
        };
        let same_scheme = leader.scheme() == self.addresses.first().scheme();
        (is_allowed && same_scheme && leader.is_origin()).then_some(leader)
    }
}

#[cfg(test)]
mod tests;
