//! A cluster with several resource managers, of which one leads, and a real etcd.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_client::Client;
use headroom_test_fakes::{EtcdCluster, EtcdHost};
use headroom_wire::v1::operator::{LeaderView, ManagerRole};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::network::{self, TestNetwork};
use super::proxy::{CutProxy, ProxyState};
use super::{Cluster, NodeShape, SOON, TestContainerUser, cluster_dir, free_port, named, until};
use crate::sweep;

/// Port of the resource managers on hosts of their own.
const PORT: u16 = 7070;

/// The etcd of several resource managers.
#[derive(Clone, Debug, Default)]
pub struct EtcdSetup {
    /// Whether it verifies the certificates of its clients, and requires logins.
    pub secured: bool,
    /// More arguments of its members.
    pub arguments: Vec<String>,
    /// More keys of `[etcd]` of each manager.
    pub keys: String,
    /// Keys of each manager outside `[etcd]`.
    pub manager_keys: String,
    /// Keys of each node agent.
    pub agent_keys: String,
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
    /// `ADDRESS:PORT`
    listen: String,
    file: PathBuf,
    etcd: Option<CutProxy>,
}

/// Writes the configuration of the resource manager `rm-N`, with more keys of `[etcd]`.
fn configuration(
    dir: &Path,
    n: usize,
    (endpoints, lease): (&[String], Duration),
    (keys, manager_keys): (&str, &str),
) -> Result<PathBuf> {
    let file = dir.join(format!("rm-{n}.toml"));
    let lease = lease.as_millis();
    let text =
        format!("{manager_keys}[etcd]\nendpoints = {endpoints:?}\nlease = \"{lease}ms\"\n{keys}");
    fs::write(&file, text)?;
    Ok(file)
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
            let file = configuration(dir, n, (etcd.urls(), lease), (&keys, &setup.manager_keys))?;
            replicas.push(ManagerReplica {
                listen: format!("127.0.0.1:{}", free_port()?),
                file,
                etcd: Some(etcd),
            });
        }
        Ok(ManagerReplicas { etcd, replicas })
    }

    /// One manager and one member on each host.
    fn start_on(
        (dir, data): (&Path, &Path),
        network: &TestNetwork,
        hosts: usize,
        lease: Duration,
    ) -> Result<Self> {
        let host = |n: usize| -> Result<EtcdHost> {
            Ok(EtcdHost {
                address: network::address(n),
                enter: network.enter(n)?,
            })
        };
        let members = (1..=hosts).map(host).collect::<Result<_>>()?;
        let etcd = EtcdCluster::start_on(data, members)?;
        let mut replicas = Vec::new();
        for n in 1..=hosts {
            let file = configuration(dir, n, (&etcd.endpoints(), lease), ("", ""))?;
            replicas.push(ManagerReplica {
                listen: format!("{}:{PORT}", network::address(n)),
                file,
                etcd: None,
            });
        }
        Ok(ManagerReplicas { etcd, replicas })
    }

    /// The list of all addresses, as callers take it.
    pub(super) fn addresses(&self) -> String {
        self.urls().join(",")
    }

    fn urls(&self) -> Vec<String> {
        let url = |replica: &ManagerReplica| format!("http://{}", replica.listen);
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
        let dir = cluster_dir()?;
        let replicas = ManagerReplicas::start(dir.path(), (managers, members), lease, setup)?;
        Cluster::start_with_replicas(dir, shapes, (replicas, None), &setup.agent_keys)
    }

    /// One resource manager, one member of etcd and one node on each host of a network. Masters keep
    /// their journals in a directory that the nodes share. The members have their data below `data`.
    pub fn start_on_hosts(
        network: TestNetwork,
        data: &Path,
        shapes: &[NodeShape],
        lease: Duration,
    ) -> Result<Self> {
        let dir = cluster_dir()?;
        let replicas =
            ManagerReplicas::start_on((dir.path(), data), &network, shapes.len(), lease)?;
        let journals = dir.path().join("journals");
        fs::create_dir(&journals)?;
        let keys = format!(
            "[masters]\njournals = {:?}\n",
            journals.display().to_string()
        );
        Cluster::start_with_replicas(dir, shapes, (replicas, Some(network)), &keys)
    }

    fn start_with_replicas(
        dir: TempDir,
        shapes: &[NodeShape],
        (replicas, network): (ManagerReplicas, Option<TestNetwork>),
        agent_keys: &str,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = Client::new(&replicas.addresses())?;
        let managers = replicas.replicas.len();
        let mut cluster = Cluster {
            dir,
            port: free_port()?,
            nodes: named(shapes),
            daemons: BTreeMap::new(),
            people: TestContainerUser::Own,
            runtime,
            client,
            papers: None,
            manager: None,
            replicas: Some(replicas),
            network,
            skews: BTreeMap::new(),
            agent_keys: agent_keys.to_owned(),
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
        let (listen, file) = (replica.listen.clone(), replica.file.display().to_string());
        let flags = ["--config", &file, "--listen", &listen];
        self.spawn(&format!("rm-{n}"), "resourcemanager", &flags)
    }

    /// Cuts the resource manager `rm-N` off from etcd, or connects it again.
    pub fn cut_from_etcd(&self, n: usize, cut: bool) -> Result<()> {
        self.proxy(n)?.set(if cut {
            ProxyState::Silent
        } else {
            ProxyState::Open
        });
        Ok(())
    }

    /// Cuts a host off from all others, or connects it again.
    pub fn cut_host(&self, n: usize, cut: bool) -> Result<()> {
        let network = self.network.as_ref().context("no network of hosts")?;
        network.cut(n, cut)
    }

    /// Kills all processes of a host except its member of etcd, as its reset does: the resource
    /// manager, the node agent and the containers.
    pub fn reset_host(&mut self, n: usize) -> Result<()> {
        let (manager, node) = (format!("rm-{n}"), format!("node-{n}"));
        for daemon in [&manager, &node] {
            if !self.has_ended(daemon)? {
                self.kill_daemon(daemon)?;
            }
        }
        sweep::processes_of(&self.state(&node));
        Ok(())
    }

    /// Ends the connections of the resource manager `rm-N` to etcd, until
    /// [`Cluster::cut_from_etcd`] connects it again.
    pub fn end_connections_to_etcd(&self, n: usize) -> Result<()> {
        self.proxy(n)?.set(ProxyState::Broken);
        Ok(())
    }

    /// Address of the resource manager `rm-N`.
    pub fn manager_url(&self, n: usize) -> Result<String> {
        Ok(format!("http://{}", self.replica(n)?.listen))
    }

    fn proxy(&self, n: usize) -> Result<&CutProxy> {
        let proxy = self.replica(n)?.etcd.as_ref();
        proxy.context("no proxy; cut its host")
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

    /// Sends a signal to a daemon. SIGSTOP takes effect before this returns: otherwise threads of the
    /// daemon could go on until one of them handles it.
    pub fn signal_daemon(&self, name: &str, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid(name)?);
        kill(pid, signal)?;
        if signal != Signal::SIGSTOP {
            return Ok(());
        }
        let look = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        until("all threads of the daemon to stop", SOON, || {
            let status = waitid(Id::Pid(pid), look)?;
            Ok((status != WaitStatus::StillAlive).then_some(()))
        })
    }

    /// Whether the process of a daemon has ended, or was killed.
    pub fn has_ended(&mut self, name: &str) -> Result<bool> {
        match self.daemons.get_mut(name) {
            Some(child) => Ok(child.try_wait()?.is_some()),
            None => Ok(true),
        }
    }
}
