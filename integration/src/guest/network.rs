//! A network that joins guests and nothing else: `uml_switch` carries their frames over sockets of the host's file system.
//!
//! No interface of the host is part of it, and no right is needed to make one. It ends with this value.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::job::Place;
use crate::cluster::until;

/// Time for the switch to listen.
const READY: Duration = Duration::from_secs(20);

/// A switch.
#[derive(Debug)]
pub struct Network {
    dir: TempDir,
    switch: Child,
}

impl Network {
    /// One that nobody is on yet.
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("headroom-switch-").tempdir().context("a directory for a network")?;
        let socket = dir.path().join("socket");
        // It ends when its standard input does, and that is with this process at the latest.
        let mut command = Command::new("uml_switch");
        command.arg("-unix").arg(&socket).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let switch = command.spawn().context("uml_switch: `apt-get install -y uml-utilities`")?;
        let network = Network { dir, switch };
        until("the switch to listen", READY, || Ok(socket.exists().then_some(())))?;
        Ok(network)
    }

    /// A place on it; no two guests have the same number.
    pub fn place(&self, number: u8) -> Place {
        Place { switch: self.dir.path().join("socket"), number }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Gone already is what is wanted.
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}
