//! A network that joins only guests: `uml_switch` carries their frames over Unix sockets of the
//! host.
//!
//! It includes no interface of the host and needs no privilege. Dropping the value ends it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::job::GuestAddress;
use crate::cluster::until;

/// Timeout for the switch to listen.
const READY: Duration = Duration::from_secs(20);

/// A virtual switch.
#[derive(Debug)]
pub struct Network {
    dir: TempDir,
    switch: Child,
}

impl Network {
    /// Starts a switch without guests.
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("headroom-switch-")
            .tempdir()
            .context("a directory for a network")?;
        let socket = dir.path().join("socket");
        // The switch ends at the end of its standard input, at the latest when this process ends.
        let mut command = Command::new("uml_switch");
        command
            .arg("-unix")
            .arg(&socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let switch = command
            .spawn()
            .context("uml_switch: `apt-get install -y uml-utilities`")?;
        let network = Network { dir, switch };
        until("the switch to listen", READY, || {
            Ok(socket.exists().then_some(()))
        })?;
        Ok(network)
    }

    /// A place on the network. Each guest needs its own number.
    pub fn place(&self, number: u8) -> GuestAddress {
        GuestAddress {
            switch: self.dir.path().join("socket"),
            number,
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The switch may have ended already.
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}
