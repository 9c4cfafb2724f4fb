//! A real etcd of one or more members on loopback, whose members can be killed, paused and started
//! again. It can verify the certificates of its clients, and require logins.

mod protection;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::protection::EtcdProtection;

/// Time that a member has to answer after its start.
const START: Duration = Duration::from_secs(30);

/// The members. They end when this value is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    dir: PathBuf,
    members: Vec<EtcdMember>,
    /// More arguments of every member.
    arguments: Vec<String>,
    protection: Option<EtcdProtection>,
}

#[derive(Debug)]
struct EtcdMember {
    name: String,
    client: String,
    peer: String,
    /// Program with arguments that starts the member on its host.
    enter: Vec<String>,
    process: Option<Child>,
}

/// A host of a member.
#[derive(Clone, Debug)]
pub struct EtcdHost {
    /// Its IP address.
    pub address: String,
    /// Program with arguments that runs a command on it.
    pub enter: Vec<String>,
}

impl EtcdCluster {
    /// Starts `members` members with their data in `dir`, and waits until they answer.
    pub fn start(dir: &Path, members: usize) -> Result<Self> {
        EtcdCluster::start_with(dir, members, &[])
    }

    /// Like [`EtcdCluster::start`], with more arguments for every member.
    pub fn start_with(dir: &Path, members: usize, arguments: &[&str]) -> Result<Self> {
        EtcdCluster::launch_all(dir, members, arguments, None)
    }

    /// Like [`EtcdCluster::start_with`], with TLS for clients, whose certificates are verified, and
    /// with users ([`EtcdCluster::login`]). `prefix` is the prefix of their keys.
    pub fn start_secured(
        dir: &Path,
        members: usize,
        arguments: &[&str],
        prefix: &str,
    ) -> Result<Self> {
        let protection = EtcdProtection::create(&dir.join("tls"))?;
        let mut cluster = EtcdCluster::launch_all(dir, members, arguments, Some(protection))?;
        for command in protection::commands(prefix) {
            cluster.etcdctl(0, &command.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        if let Some(protection) = &mut cluster.protection {
            protection.require_logins();
        }
        Ok(cluster)
    }

    fn launch_all(
        dir: &Path,
        members: usize,
        arguments: &[&str],
        protection: Option<EtcdProtection>,
    ) -> Result<Self> {
        let ports = free_ports(2 * members)?;
        let scheme = if protection.is_some() {
            "https"
        } else {
            "http"
        };
        let members = ports.chunks(2).enumerate().map(|(n, pair)| EtcdMember {
            name: format!("m{n}"),
            client: format!("{scheme}://127.0.0.1:{}", pair[0]),
            peer: format!("http://127.0.0.1:{}", pair[1]),
            enter: Vec::new(),
            process: None,
        });
        EtcdCluster {
            dir: dir.to_owned(),
            members: members.collect(),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            protection,
        }
        .launched()
    }

    /// Like [`EtcdCluster::start`], with one member on each host.
    pub fn start_on(dir: &Path, hosts: Vec<EtcdHost>) -> Result<Self> {
        let members = hosts.into_iter().enumerate().map(|(n, host)| EtcdMember {
            name: format!("m{n}"),
            client: format!("http://{}:2379", host.address),
            peer: format!("http://{}:2380", host.address),
            enter: host.enter,
            process: None,
        });
        EtcdCluster {
            dir: dir.to_owned(),
            members: members.collect(),
            arguments: Vec::new(),
            protection: None,
        }
        .launched()
    }

    /// Directory of a member's data, below that of all.
    pub fn data_dir(member: usize) -> String {
        format!("m{member}")
    }

    /// Starts all members.
    fn launched(mut self) -> Result<Self> {
        let cluster = &mut self;
        for n in 0..cluster.members.len() {
            cluster.launch(n)?;
        }
        for n in 0..cluster.members.len() {
            cluster.wait_for(n)?;
        }
        Ok(self)
    }

    /// Whether the process of a member has ended by itself.
    pub fn has_ended(&mut self, member: usize) -> Result<bool> {
        match &mut self.members[member].process {
            Some(process) => Ok(process.try_wait()?.is_some()),
            None => Ok(true),
        }
    }

    /// Directory of a client's certificate: `ca.pem`, `cert.pem`, `key.pem`.
    pub fn client_certificates(&self) -> Result<PathBuf> {
        Ok(self.protected()?.client())
    }

    /// A file with the login of a user: `manager` may read and write the keys with the prefix,
    /// `reader` may read them. The password of each is its name.
    pub fn login(&self, user: &str, password: &str) -> Result<PathBuf> {
        self.protected()?.login(user, password)
    }

    fn protected(&self) -> Result<&EtcdProtection> {
        self.protection.as_ref().context("this etcd is not secured")
    }

    /// The client URLs of all members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|m| m.client.clone()).collect()
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The member that leads now.
    pub fn leader(&self) -> Result<usize> {
        let until = Instant::now() + START;
        loop {
            for n in 0..self.members.len() {
                let status = self.etcdctl(n, &["endpoint", "status"]);
                if status.is_ok_and(|line| line.split(", ").nth(4) == Some("true")) {
                    return Ok(n);
                }
            }
            if Instant::now() > until {
                bail!("no member of etcd leads");
            }
        }
    }

    /// Runs `etcdctl` against one member, and returns what it printed.
    pub fn etcdctl(&self, member: usize, arguments: &[&str]) -> Result<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.members[member].client))
            .args(["--dial-timeout=1s", "--command-timeout=5s"])
            .args(
                self.protection
                    .iter()
                    .flat_map(EtcdProtection::client_arguments),
            )
            .args(arguments)
            .output()
            .context("etcdctl cannot be run; the package etcd-client has it")?;
        if !output.status.success() {
            bail!("etcdctl: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, member: usize) -> Result<()> {
        if let Some(mut process) = self.members[member].process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Starts a killed member again with its data.
    pub fn restart(&mut self, member: usize) -> Result<()> {
        self.launch(member)?;
        self.wait_for(member)
    }

    /// Stops a member with SIGSTOP, or continues it.
    pub fn pause(&self, member: usize, paused: bool) -> Result<()> {
        let signal = if paused {
            Signal::SIGSTOP
        } else {
            Signal::SIGCONT
        };
        if let Some(process) = &self.members[member].process {
            kill(Pid::from_raw(i32::try_from(process.id())?), signal)?;
        }
        Ok(())
    }

    fn launch(&mut self, n: usize) -> Result<()> {
        let all: Vec<String> = self
            .members
            .iter()
            .map(|m| format!("{}={}", m.name, m.peer))
            .collect();
        let (dir, arguments) = (self.dir.clone(), self.arguments.clone());
        let member = &mut self.members[n];
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join(format!("{}.log", member.name)))?;
        let mut words = member.enter.iter().map(String::as_str).chain(["etcd"]);
        let mut command = Command::new(words.next().unwrap_or("etcd"));
        let process = command
            .args(words)
            .args(["--name", &member.name, "--log-outputs", "stderr"])
            // The default of later versions: a member that returns causes no election.
            .arg("--pre-vote=true")
            .arg("--data-dir")
            .arg(dir.join(&member.name))
            .args(["--listen-client-urls", &member.client])
            .args(["--advertise-client-urls", &member.client])
            .args(["--listen-peer-urls", &member.peer])
            .args(["--initial-advertise-peer-urls", &member.peer])
            .args(["--initial-cluster", &all.join(",")])
            .args(
                self.protection
                    .iter()
                    .flat_map(EtcdProtection::member_arguments),
            )
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("etcd cannot be started; the package etcd-server has it")?;
        member.process = Some(process);
        Ok(())
    }

    fn wait_for(&self, n: usize) -> Result<()> {
        let until = Instant::now() + START;
        loop {
            match self.etcdctl(n, &["get", "x"]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > until => {
                    return Err(error.context(format!("member {n} of etcd does not answer")));
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for n in 0..self.members.len() {
            // A paused process ends by SIGKILL too.
            let _ = self.kill(n);
        }
    }
}

/// Different free ports of loopback.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()?;
    held.iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}
