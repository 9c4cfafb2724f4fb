//! The address of the resource manager that agents and masters call; a failover changes it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The current address. Clones share it.
#[derive(Clone, Debug)]
pub struct ManagerAddress(Arc<Mutex<SocketAddr>>);

impl From<SocketAddr> for ManagerAddress {
    fn from(address: SocketAddr) -> Self {
        ManagerAddress(Arc::new(Mutex::new(address)))
    }
}

impl ManagerAddress {
    /// The address for the next connection.
    pub fn now(&self) -> SocketAddr {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the address.
    pub fn set(&self, address: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}
