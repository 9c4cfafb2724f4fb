//! A cluster with several resource managers, of which one leads, and a real etcd.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_client::Client;
use headroom_test_fakes::EtcdCluster;
use headroom_wire::v1::operator::{LeaderView, ManagerRole};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::proxy::{CutProxy, ProxyState};
use super::{Cluster, NodeShape, SOON, TestContainerUser, free_port, named, until};

/// The etcd of several resource managers.
#[derive(Clone, Debug, Default)]
pub struct EtcdSetup {
    /// Whether it verifies the certificates of its clients, and requires logins.
    pub secured: bool,
    /// More arguments of its members.
    pub arguments: Vec<String>,
    /// More keys of `[etcd]` of each manager.
    pub keys: String,
}

impl EtcdSetup {
    fn start(&self, data: &Path, members: usize) -> Result<(EtcdCluster, String)> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        if !self.secured {
            let etcd = EtcdCluster::start_with(data, members, &arguments)?;
            return Ok((etcd, self.keys.clone()));
        }
        let etcd = EtcdCluster::start_secured(data, members, &arguments, "/headroom")?;
        let (tls, login) = (
            etcd.client_certificates()?,
            etcd.login("manager", "manager")?,
        );
        let keys = format!("tls = {tls:?}\nlogin = {login:?}\n{}", self.keys);
        Ok((etcd, keys))
    }
}

/// Several resource managers, and the etcd with their state.
#[derive(Debug)]
pub(super) struct ManagerReplicas {
    etcd: EtcdCluster,
    replicas: Vec<ManagerReplica>,
}

/// One resource manager, with a network of its own to etcd.
#[derive(Debug)]
struct ManagerReplica {
    port: u16,
    file: PathBuf,
    etcd: CutProxy,
}

impl ManagerReplicas {
    fn start(
        dir: &Path,
        (managers, members): (usize, usize),
        lease: Duration,
        setup: &EtcdSetup,
    ) -> Result<Self> {
        let data = dir.join("etcd");
        fs::create_dir(&data)?;
        let (etcd, keys) = setup.start(&data, members)?;
        let mut replicas = Vec::new();
        for n in 1..=managers {
            let etcd = CutProxy::start(&etcd.endpoints())?;
            let file = dir.join(format!("rm-{n}.toml"));
            let configuration = format!(
                "[etcd]\nendpoints = {:?}\nlease = \"{}ms\"\n{keys}",
                etcd.urls(),
                lease.as_millis()
            );
            fs::write(&file, configuration)?;
            let port = free_port()?;
            replicas.push(ManagerReplica { port, file, etcd });
        }
        Ok(ManagerReplicas { etcd, replicas })
    }

    /// The list of all addresses, as callers take it.
    pub(super) fn addresses(&self) -> String {
        self.urls().join(",")
    }

    fn urls(&self) -> Vec<String> {
        let url = |replica: &ManagerReplica| format!("http://127.0.0.1:{}", replica.port);
        self.replicas.iter().map(url).collect()
    }
}

impl Cluster {
    /// As [`Cluster::start`], with `managers` resource managers `rm-1`, `rm-2` … and their state in
    /// an etcd of `members` members. `lease` is the lease of the leader.
    pub fn start_replicated(
        shapes: &[NodeShape],
        counts: (usize, usize),
        lease: Duration,
    ) -> Result<Self> {
        Cluster::start_replicated_with(shapes, counts, lease, &EtcdSetup::default())
    }

    /// As [`Cluster::start_replicated`], with this etcd.
    pub fn start_replicated_with(
        shapes: &[NodeShape],
        (managers, members): (usize, usize),
        lease: Duration,
        setup: &EtcdSetup,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("headroom-cluster-")
            .tempdir()
            .context("a directory for the cluster")?;
        let replicas = ManagerReplicas::start(dir.path(), (managers, members), lease, setup)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = Client::new(&replicas.addresses())?;
        let mut cluster = Cluster {
            dir,
            port: replicas.replicas[0].port,
            nodes: named(shapes),
            daemons: BTreeMap::new(),
            people: TestContainerUser::Own,
            runtime,
            client,
            papers: None,
            manager: None,
            replicas: Some(replicas),
            skews: BTreeMap::new(),
            agent_keys: String::new(),
        };
        for n in 1..=managers {
            cluster.start_manager(n)?;
        }
        for name in cluster.nodes.keys().cloned().collect::<Vec<_>>() {
            cluster.start_node(&name)?;
        }
        cluster.until_ready()?;
        Ok(cluster)
    }

    /// Starts or restarts the resource manager `rm-N`.
    pub fn start_manager(&mut self, n: usize) -> Result<()> {
        let replica = self.replica(n)?;
        let (listen, file) = (
            format!("127.0.0.1:{}", replica.port),
            replica.file.display().to_string(),
        );
        let flags = ["--config", &file, "--listen", &listen];
        self.spawn(&format!("rm-{n}"), "resourcemanager", &flags)
    }

    /// Cuts the resource manager `rm-N` off from etcd, or connects it again.
    pub fn cut_from_etcd(&self, n: usize, cut: bool) -> Result<()> {
        self.replica(n)?.etcd.set(if cut {
            ProxyState::Silent
        } else {
            ProxyState::Open
        });
        Ok(())
    }

    /// Ends the connections of the resource manager `rm-N` to etcd, until
    /// [`Cluster::cut_from_etcd`] connects it again.
    pub fn end_connections_to_etcd(&self, n: usize) -> Result<()> {
        self.replica(n)?.etcd.set(ProxyState::Broken);
        Ok(())
    }

    /// Address of the resource manager `rm-N`.
    pub fn manager_url(&self, n: usize) -> Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.replica(n)?.port))
    }

    fn replica(&self, n: usize) -> Result<&ManagerReplica> {
        let replicas = self.replicas.as_ref().context("one resource manager")?;
        replicas.replicas.get(n - 1).context("no such manager")
    }

    /// The number N of the resource manager `rm-N` that leads, as each manager says of itself.
    pub fn leading_manager(&self) -> Result<usize> {
        let replicas = self.replicas.as_ref().context("one resource manager")?;
        until("a leader", SOON, || {
            let leads = |url: &String| -> Result<bool> {
                let client = Client::new(url)?.with_timeout(Duration::from_millis(500));
                let view = self.call(client.get::<LeaderView>("/v1/leader"));
                Ok(view.is_ok_and(|view| view.state == ManagerRole::Leader))
            };
            for (n, url) in (1..).zip(replicas.urls()) {
                if leads(&url)? {
                    return Ok(Some(n));
                }
            }
            Ok(None)
        })
    }

    /// The etcd of several resource managers.
    pub fn etcd(&mut self) -> Result<&mut EtcdCluster> {
        let replicas = self.replicas.as_mut().context("one resource manager")?;
        Ok(&mut replicas.etcd)
    }

    /// Sends a signal to a daemon.
    pub fn signal_daemon(&self, name: &str, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid(name)?), signal)?)
    }

    /// Whether the process of a daemon has ended.
    pub fn has_ended(&mut self, name: &str) -> Result<bool> {
        let daemon = self.daemons.get_mut(name);
        let child = daemon.with_context(|| format!("{name} does not run"))?;
        Ok(child.try_wait()?.is_some())
    }
}
