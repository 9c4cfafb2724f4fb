//! Hosts with networks of their own, which a bridge connects: a host that is cut off is silent, as
//! one without power or behind a partition is.
//!
//! The addresses belong to the loopback range, so the daemons need no certificates. Each host has
//! only its own one on `lo`, so packets to the others leave over the bridge.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, unshare};

/// Host part of the bridge's address.
const BRIDGE: usize = 254;
/// Directory of named network namespaces.
const NAMESPACES: &str = "/run/netns";

/// The hosts `1` to `N`. They are removed when this value is dropped.
#[derive(Debug)]
pub struct TestNetwork {
    /// Names of the network namespaces.
    namespaces: Vec<String>,
}

impl TestNetwork {
    /// Moves the calling thread, and the threads and processes that it will start, into a new
    /// network namespace with a bridge, and connects `hosts` hosts. Requires root.
    pub fn start(hosts: usize) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        unshare(CloneFlags::CLONE_NEWNET).context("a network namespace; run as root")?;
        own_loopback(&[])?;
        ip("link add br0 type bridge")?;
        ip("link set br0 up")?;
        ip(&format!(
            "addr add {}/24 dev br0 scope global",
            address(BRIDGE)
        ))?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut network = TestNetwork {
            namespaces: Vec::new(),
        };
        for n in 1..=hosts {
            network.connect(n, format!("headroom-{}-{count}-{n}", std::process::id()))?;
        }
        Ok(network)
    }

    fn connect(&mut self, n: usize, name: String) -> Result<()> {
        ip(&format!("netns add {name}"))?;
        self.namespaces.push(name.clone());
        ip(&format!(
            "link add host{n} type veth peer name eth0 netns {name}"
        ))?;
        ip(&format!("link set host{n} master br0 up"))?;
        let enter = self.enter(n)?;
        own_loopback(&enter)?;
        run(
            &enter,
            &format!("ip addr add {}/24 dev eth0 scope global", address(n)),
        )?;
        run(&enter, "ip link set eth0 up")
    }

    /// The program and its arguments that run a command on host `n`. The process keeps its id.
    pub fn enter(&self, n: usize) -> Result<Vec<String>> {
        let name = n.checked_sub(1).and_then(|n| self.namespaces.get(n));
        let name = name.with_context(|| format!("no host {n}"))?;
        let file = Path::new(NAMESPACES).join(name);
        Ok(vec!["nsenter".into(), format!("--net={}", file.display())])
    }

    /// Cuts host `n` off from all others, or connects it again. Its packets are lost.
    pub fn cut(&self, n: usize, cut: bool) -> Result<()> {
        let state = if cut { "down" } else { "up" };
        ip(&format!("link set host{n} {state}"))
    }
}

impl Drop for TestNetwork {
    fn drop(&mut self) {
        for name in &self.namespaces {
            // The kernel removes the interfaces with the namespace.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// The address of host `n`.
pub(super) fn address(n: usize) -> String {
    format!("127.77.0.{n}")
}

/// Leaves only 127.0.0.1 of the loopback range on `lo`, and lets other interfaces have the rest.
fn own_loopback(enter: &[String]) -> Result<()> {
    for command in [
        "sysctl -qw net.ipv4.conf.all.route_localnet=1",
        "ip link set lo up",
        "ip addr del 127.0.0.1/8 dev lo",
        "ip addr add 127.0.0.1/32 dev lo",
    ] {
        run(enter, command)?;
    }
    Ok(())
}

fn ip(arguments: &str) -> Result<()> {
    run(&[], &format!("ip {arguments}"))
}

/// Runs a command whose words are separated by spaces.
fn run(enter: &[String], command: &str) -> Result<()> {
    let mut words = enter.iter().map(String::as_str).chain(command.split(' '));
    let program = words.next().context("an empty command")?;
    let output = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("{command:?}; the package iproute2 has ip"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
