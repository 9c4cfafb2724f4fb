//! Three resource managers on three hosts, installed from packages as docs/high-availability.md
//! describes, with an etcd on the first host and a node agent on the last. Jobs are submitted all
//! the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::setup::PLAIN_HOST;
use super::{COMMAND, Fleet, PACKAGES, PERSON, TranscriptOutput};
use crate::test_packages;

/// Host names.
pub const MANAGERS: [&str; 3] = ["rm-1", "rm-2", "rm-3"];
/// Indexes of all hosts.
pub const ALL: [usize; 3] = [0, 1, 2];
/// Index of the host with etcd.
const ETCD: usize = 0;
/// Index of the host with the node agent and the user.
const WORKER: usize = 2;
/// Lease of the leader: so long that a test notices when a standby had to wait for it.
pub const LEASE: Duration = Duration::from_secs(20);
/// Addresses of all resource managers.
const ADDRESSES: &str =
    "https://rm-1.example:7070,https://rm-2.example:7070,https://rm-3.example:7070";
/// Unit of a resource manager.
pub const UNIT: &str = "headroom-resourcemanager";
/// Sets the credentials of the administrator.
const ADMINISTRATOR: &str = "HEADROOM_TOKEN_FILE=/root/admin.token";

const ETCD_CONFIGURATION: &str = "cat >> /etc/default/etcd <<'END'
ETCD_LISTEN_CLIENT_URLS=\"http://0.0.0.0:2379\"
ETCD_ADVERTISE_CLIENT_URLS=\"http://rm-1.example:2379\"
END
systemctl enable --now etcd
etcdctl endpoint health";

/// Certificates of all hosts. The operator copies them to the other hosts.
const CERTIFICATES: &str = "rmctl ca init --dir /etc/headroom/authority --name prod
for n in 1 2 3; do
    rmctl ca issue manager --dir /etc/headroom/authority --at rm-$n.example --tls /root/rm-$n
done
rmctl ca issue node/rm-3 --dir /etc/headroom/authority --at rm-3.example --tls /root/node";

/// The shipped configuration, with its commented keys in use.
const CONFIGURATION: &str = r#"sed -i -e 's|^listen = .*|listen = "0.0.0.0:7070"|' -e 's|^anonymous = .*|anonymous = "nothing"|' \
    -e 's|^# tls = "/etc/headroom/tls"|tls = "/etc/headroom/tls"|' \
    -e "s|^# advertise = .*|advertise = \"https://$(hostname).example:7070\"|" \
    -e 's|^# endpoints = .*|endpoints = ["http://rm-1.example:2379"]|' -e 's|^lease = .*|lease = "LEASEs"|' \
    /etc/headroom/resourcemanager.toml
grep -E '^(listen|advertise|tls|anonymous|endpoints|lease)' /etc/headroom/resourcemanager.toml
mkdir -p /etc/systemd/system/headroom-resourcemanager.socket.d
cat > /etc/systemd/system/headroom-resourcemanager.socket.d/override.conf <<'END'
[Socket]
ListenStream=
ListenStream=0.0.0.0:7070
ListenStream=/run/headroom/resourcemanager.sock
END
cat > /etc/headroom/client.toml <<'END'
addr = "ADDRESSES"
ca = "/etc/headroom/ca.pem"
END
install -m 644 /etc/headroom/tls/ca.pem /etc/headroom/ca.pem
systemctl daemon-reload
resourcemanager --config /etc/headroom/resourcemanager.toml --check-config
systemctl enable --now headroom-resourcemanager"#;

const NODE: &str = r#"cat > /etc/headroom/nodeagent.toml <<'END'
rm = "ADDRESSES"
listen = "0.0.0.0:7072"
tls = "/etc/headroom/node"
advertise = "rm-3.example"
reserve = "768MiB"
END
nodeagent --config /etc/headroom/nodeagent.toml --check-config
systemctl enable --now headroom-containers headroom-nodeagent"#;

/// A job of two tasks. Each finished task writes one line.
const JOB: &str = r#"version = 1
name = "short"
[profiles.exec]
memory = "96MiB"
cpus = 0.1
[executors.main]
profile = "exec"
slots = 2
reserve = "64MiB"
[[stage]]
name = "short"
count = 2
command = ["sh", "-c", "sleep 1; echo $HEADROOM_APP/{index} >> /srv/ada/effects"]
"#;

/// Submits one job after the other until the file `stop` exists. Records what was accepted.
const LOAD: &str = "while [ ! -e stop ]; do
    if app=$(rmctl submit short.toml -o name 2>> refused); then echo $app >> accepted; fi
    sleep 4
done";

/// A resource manager in the output of `rmctl operator leader`.
#[derive(Clone, Debug, Deserialize)]
pub struct ManagerState {
    /// Its address.
    pub address: String,
    /// Its role.
    pub state: String,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
}

/// The results of the load.
#[derive(Debug)]
pub struct LoadResult {
    /// Accepted applications.
    pub accepted: usize,
    /// Accepted applications that have not finished, with their states.
    pub lost: Vec<String>,
    /// Lines of tasks that are missing or were written more than once.
    pub wrong: Vec<String>,
}

impl Fleet {
    /// Boots three hosts, and installs and starts a resource manager on each.
    pub fn boot_managers(voice: TranscriptOutput, longest: Duration) -> Result<Self> {
        let mut fleet = Fleet::boot_hosts(MANAGERS, voice, longest)?;
        test_packages::upgrade(fleet.packages.path())?;
        fleet.step("install, three hosts at once", |fleet| {
            fleet.on_all(&ALL, &format!(
                "{PLAIN_HOST}\nonly=$([ $(hostname) = rm-3 ] && echo {PACKAGES}/now/headroom-node_*.deb)\n\
                 dpkg --force-unsafe-io --install {PACKAGES}/now/headroom-manager_*.deb {PACKAGES}/now/headroom-client_*.deb $only"
            ))
        })?;
        fleet.step("etcd, certificates", |fleet| {
            fleet.on(ETCD, ETCD_CONFIGURATION)?;
            fleet.on(ETCD, CERTIFICATES)?;
            for host in ALL {
                fleet.carry(
                    &format!("/root/{}", MANAGERS[host]),
                    host,
                    "/etc/headroom/tls",
                )?;
            }
            fleet.carry("/root/node", WORKER, "/etc/headroom/node")
        })?;
        fleet.step("three resource managers, a node agent", |fleet| {
            let seconds = LEASE.as_secs().to_string();
            let configure = CONFIGURATION
                .replace("LEASEs", &format!("{seconds}s"))
                .replace("ADDRESSES", ADDRESSES);
            fleet.on_all(&ALL, &configure)?;
            let leader = fleet.leader()?;
            fleet.on(
                leader,
                "umask 077; rmctl --addr unix:/run/headroom/resourcemanager.sock acl bootstrap -o name > /root/admin.token",
            )?;
            fleet.on(WORKER, &NODE.replace("ADDRESSES", ADDRESSES))?;
            fleet.admit(leader)
        })?;
        Ok(fleet)
    }

    /// Copies the certificate files in a directory of the host with etcd to another host.
    fn carry(&self, from: &str, host: usize, to: &str) -> Result<()> {
        let mut put = format!("mkdir -p {to}\n");
        for file in ["ca.pem", "cert.pem", "key.pem"] {
            let text = self.tried(ETCD, &format!("cat {from}/{file}"))?;
            ensure!(text.code == 0, "{from}/{file}: {}", text.stderr);
            put += &format!("cat > {to}/{file} <<'END'\n{}\nEND\n", text.stdout.trim());
        }
        put += &format!("chgrp headroom {to}/*; chmod 640 {to}/key.pem");
        let ran = self.tried(host, &put)?;
        ensure!(ran.code == 0, "{to}: {}", ran.stderr);
        Ok(())
    }

    /// Gives the user an account and a token, and waits until the node is ready.
    fn admit(&self, leader: usize) -> Result<()> {
        self.on_all(
            &ALL,
            &format!("useradd --uid 1500 --create-home --home-dir /srv/{PERSON} {PERSON}"),
        )?;
        let rights = "cluster:read,job:read,job:submit,job:kill";
        self.on(leader, &format!(
            "export {ADMINISTRATOR}\nrmctl acl policy set {PERSON} --right {rights}\n\
             rmctl acl token create --user {PERSON} --right {rights} --lifetime 90d --out /root/{PERSON}.token"
        ))?;
        for file in [format!("{PERSON}.token"), "admin.token".to_owned()] {
            let token = self.tried(leader, &format!("cat /root/{file}"))?.stdout;
            let token = token.trim();
            let put = format!("umask 077; printf %s '{token}' > /root/{file}");
            for host in ALL {
                self.tried(host, &put)?;
            }
        }
        let user = format!(
            "install -o {PERSON} -m 600 /root/{PERSON}.token /srv/{PERSON}/token\n\
             cat > /srv/{PERSON}/short.toml <<'END'\n{JOB}END"
        );
        self.on(WORKER, &user)?;
        self.until("the node to be ready", COMMAND, |fleet| {
            let nodes = fleet.administrator(WORKER, "rmctl node list -o jsonl")?;
            Ok(nodes.contains("\"state\":\"ready\"").then_some(()))
        })
        .with_context(|| self.witness())
    }

    /// Output of a command of the administrator, also if it failed. Not shown.
    pub fn administrator(&self, host: usize, command: &str) -> Result<String> {
        let ran = self.tried(host, &format!("export {ADMINISTRATOR}\n{command}"))?;
        Ok(ran.stdout)
    }

    /// All resource managers, as `rmctl operator leader` lists them.
    pub fn managers(&self) -> Result<Vec<ManagerState>> {
        let listed = self.tried(WORKER, "rmctl operator leader -o json")?.stdout;
        Ok(serde_json::from_str(&listed).unwrap_or_default())
    }

    /// Waits for a leader, and returns its host.
    pub fn leader(&self) -> Result<usize> {
        self.leader_other_than(None)
    }

    /// Waits until a host other than `before` leads.
    pub fn leader_other_than(&self, before: Option<usize>) -> Result<usize> {
        self.until("a leader", COMMAND, |fleet| {
            let leads = |manager: &&ManagerState| manager.state == "leader";
            let managers = fleet.managers()?;
            let leader = managers.iter().find(leads);
            let host = leader.and_then(|leader| {
                MANAGERS
                    .iter()
                    .position(|name| leader.address.contains(&format!("//{name}.")))
            });
            Ok(host.filter(|host| Some(*host) != before))
        })
        .with_context(|| self.witness())
    }

    /// Starts to submit jobs.
    pub fn start_load(&self) -> Result<()> {
        let load = format!(
            "cat > /srv/{PERSON}/load <<'END'\n{LOAD}\nEND\n\
             systemd-run --quiet --unit load --uid {PERSON} --working-directory /srv/{PERSON} \
             --setenv HEADROOM_TOKEN_FILE=/srv/{PERSON}/token sh load"
        );
        self.on(WORKER, &load).map(drop)
    }

    /// Waits until `more` further jobs were accepted.
    pub fn until_accepted(&self, more: usize) -> Result<()> {
        let count = |fleet: &Fleet| -> Result<usize> {
            let text = fleet.tried(WORKER, &format!("cat /srv/{PERSON}/accepted"))?;
            Ok(text.stdout.lines().count())
        };
        let wanted = count(self)? + more;
        self.until("more accepted jobs", COMMAND, |fleet| {
            Ok((count(fleet)? >= wanted).then_some(()))
        })
        .with_context(|| {
            let refused = self.tried(WORKER, &format!("tail -n 20 /srv/{PERSON}/refused"));
            let refused = refused.map(|ran| ran.stdout).unwrap_or_default();
            format!("{refused}\n{}", self.witness())
        })
    }

    /// Ends the load, waits for its jobs and judges them.
    pub fn end_load(&self) -> Result<LoadResult> {
        self.tried(WORKER, &format!("touch /srv/{PERSON}/stop"))?;
        self.until("the load to end", COMMAND, |fleet| {
            let ended = fleet.tried(WORKER, "systemctl is-active --quiet load")?;
            Ok((ended.code != 0).then_some(()))
        })?;
        let accepted = self.tried(WORKER, &format!("cat /srv/{PERSON}/accepted"))?;
        let accepted: Vec<String> = accepted.stdout.lines().map(str::to_owned).collect();
        let mut states = BTreeMap::new();
        let done = self.until("all jobs to end", COMMAND, |fleet| {
            states = fleet.states()?;
            let waits = |app: &&String| {
                let state = states.get(*app).map_or("missing", String::as_str);
                !["finished", "failed", "killed"].contains(&state)
            };
            Ok((!accepted.iter().any(|app| waits(&app))).then_some(()))
        });
        let lost = accepted.iter().filter_map(|app| {
            let state = states.get(app).map_or("missing", String::as_str);
            (state != "finished").then(|| format!("{app}: {state}"))
        });
        let lost: Vec<String> = lost.collect();
        done.with_context(|| format!("lost: {lost:?}\n{}", self.witness()))?;
        let effects = self.tried(WORKER, &format!("sort /srv/{PERSON}/effects | uniq -c"))?;
        let mut wrong: Vec<String> = accepted
            .iter()
            .flat_map(|app| [format!("{app}/0"), format!("{app}/1")])
            .collect();
        for line in effects.stdout.lines() {
            let (count, task) = line.trim().split_once(' ').context("a count")?;
            wrong.retain(|missing| missing != task);
            if count != "1" {
                wrong.push(line.to_owned());
            }
        }
        Ok(LoadResult {
            accepted: accepted.len(),
            lost,
            wrong,
        })
    }

    /// The state of every application.
    fn states(&self) -> Result<BTreeMap<String, String>> {
        let listed = self.administrator(WORKER, "rmctl ps -o jsonl")?;
        let state = |line: &str| {
            let view: Value = serde_json::from_str(line).ok()?;
            let text = |key: &str| view[key].as_str().map(str::to_owned);
            Some((text("id")?, text("state")?))
        };
        Ok(listed.lines().filter_map(state).collect())
    }

    /// Installs a package of the resource manager from this directory, and waits until its host has
    /// a new process that another manager or itself reports with `version`.
    pub fn install_manager(&self, host: usize, from: &str, version: &str) -> Result<()> {
        self.on(host, &format!(
            "before=$(systemctl show --value -p MainPID {UNIT})\n\
             dpkg --force-unsafe-io --install {PACKAGES}/{from}/headroom-manager_*.deb\n\
             for _ in $(seq 300); do\n\
             now=$(systemctl show --value -p MainPID {UNIT})\n\
             [ \"$now\" != 0 ] && [ \"$now\" != \"$before\" ] && systemctl --quiet is-active {UNIT} && exit 0\n\
             sleep 0.1\ndone\nexit 1"
        ))?;
        let name = format!("//{}.", MANAGERS[host]);
        self.until("the manager to report its version", COMMAND, |fleet| {
            let reported = |manager: &ManagerState| {
                manager.address.contains(&name) && manager.version.as_deref() == Some(version)
            };
            Ok(fleet.managers()?.iter().any(reported).then_some(()))
        })
        .with_context(|| self.witness())
    }

    /// Runs a command on the host of the leader that ends its leadership. Returns the next leader,
    /// and the time until the others report it.
    pub fn depose(&self, leader: usize, command: &str) -> Result<(usize, Duration)> {
        let began = Instant::now();
        let sent = self.host(leader).send(command)?;
        let next = self.leader_other_than(Some(leader))?;
        let took = began.elapsed();
        self.host(leader).wait(&sent, COMMAND)?;
        Ok((next, took))
    }

    /// Status and code of the answer of a resource manager to a call without credentials.
    pub fn answer_of(&self, host: usize) -> Result<String> {
        let name = MANAGERS[host];
        let call = format!(
            "curl --silent --cacert /etc/headroom/tls/ca.pem -w ' %{{http_code}}' https://{name}.example:7070/v1/status"
        );
        Ok(self.tried(WORKER, &call)?.stdout)
    }

    /// Units of all hosts that have failed.
    pub fn failed_units(&self) -> Result<String> {
        let mut all = String::new();
        for host in ALL {
            let listed =
                "systemctl list-units --failed --no-legend --plain 'headroom*' 'etcd*' 'load*'";
            all += &self.tried(host, listed)?.stdout;
        }
        Ok(all)
    }
}
