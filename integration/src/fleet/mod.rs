//! A cluster of three hosts on one network, each with its own kernel and systemd. It is installed
//! from packages and configured as the operator guides describe.
//!
//! The script runs on this machine and types commands on the hosts, as an operator with three
//! terminals does. One test or measurement owns the fleet; the hosts end with it.

pub mod fault_rounds;
pub mod managers;
mod setup;
mod transcript;
pub mod work;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::Bytes;

use crate::clock;
use crate::cluster::ProgramOutput;
use crate::guest::{Disk, Guest, Network, ScriptGuest};
use crate::test_packages;

pub use transcript::{FleetTranscript, TranscriptOutput};

/// Index of the resource manager's host.
pub const MANAGER: usize = 0;
/// Indexes of the hosts with node agents.
pub const WORKERS: [usize; 2] = [1, 2];
/// Host names.
pub const NAMES: [&str; 3] = ["rm", "worker-1", "worker-2"];
/// An unprivileged user with an account on every host.
pub const PERSON: &str = "ada";
/// Mount point of the packages on each host.
pub const PACKAGES: &str = "/opt/packages";
/// Timeout of one command.
pub const COMMAND: Duration = Duration::from_secs(120);

/// Interval between two polls of a condition.
const LOOK: Duration = Duration::from_millis(300);
/// Memory of one host.
const MEMORY: Bytes = Bytes::from_mib(1536);
/// Disk of one host. MiB.
const DISK: u32 = 3072;

/// Three hosts.
#[derive(Debug)]
pub struct Fleet {
    names: [&'static str; 3],
    /// The transcript.
    pub book: FleetTranscript,
    stations: Vec<ScriptGuest>,
    disks: Vec<Disk>,
    network: Network,
    packages: tempfile::TempDir,
}

impl Fleet {
    /// Boots three hosts with the packages of this build available and nothing installed.
    pub fn boot(voice: TranscriptOutput, longest: Duration) -> Result<Self> {
        Fleet::boot_hosts(NAMES, voice, longest)
    }

    /// As [`Fleet::boot`], with these host names.
    pub fn boot_hosts(
        names: [&'static str; 3],
        voice: TranscriptOutput,
        longest: Duration,
    ) -> Result<Self> {
        let mut book = FleetTranscript::new(voice);
        let packages = tempfile::tempdir()?;
        book.step("packages are built", |_| {
            test_packages::packages(packages.path())
        })?;
        let network = Network::new()?;
        let mut fleet = Fleet {
            names,
            book,
            stations: Vec::new(),
            disks: Vec::new(),
            network,
            packages,
        };
        for number in 0..names.len() {
            let disk = Disk::new(DISK)?;
            let guest = fleet.guest(number, &disk, longest)?;
            fleet.stations.push(ScriptGuest::start(guest)?);
            fleet.disks.push(disk);
        }
        fleet.step("three kernels, systemd in each", |fleet| {
            (0..names.len()).try_for_each(|host| {
                fleet
                    .on(host, "uname -nr; systemctl --version | head -n 1")
                    .map(drop)
            })
        })?;
        Ok(fleet)
    }

    fn guest(&self, number: usize, disk: &Disk, longest: Duration) -> Result<Guest> {
        let hosts: Vec<(u8, &str)> = (1..).zip(self.names).collect();
        let known: String = hosts
            .iter()
            .map(|(n, name)| format!("10.77.0.{n} {name}.example {name}\n"))
            .collect();
        let files = BTreeMap::from([
            ("/etc/hostname".into(), format!("{}\n", self.names[number])),
            ("/etc/hosts".into(), format!("127.0.0.1 localhost\n{known}")),
        ]);
        let windows = BTreeMap::from([(PACKAGES.into(), self.packages.path().to_owned())]);
        let guest = Guest::new()
            .memory(MEMORY)
            .timeout(longest)
            .processor(number)
            .disk(disk);
        Ok(guest
            .place(self.network.place(hosts[number].0))
            .directory(Path::new("/"))
            .systemd(files, windows))
    }

    /// Runs a step and records its duration.
    pub fn step<T>(&mut self, what: &str, done: impl FnOnce(&mut Fleet) -> Result<T>) -> Result<T> {
        let mut book = std::mem::replace(
            &mut self.book,
            FleetTranscript::new(TranscriptOutput::Silent),
        );
        let voice = book.voice();
        let result = book.step(what, |_| {
            self.book = FleetTranscript::new(voice);
            done(self).with_context(|| what.to_owned())
        });
        self.book = book;
        result
    }

    /// A host.
    pub fn host(&self, host: usize) -> &ScriptGuest {
        &self.stations[host]
    }

    /// Runs a command as root and returns its result even if it fails. Not shown.
    pub fn tried(&self, host: usize, command: &str) -> Result<ProgramOutput> {
        self.host(host)
            .run(command, COMMAND)
            .with_context(|| format!("{}# {command}", self.names[host]))
    }

    /// Runs a command as root that must succeed, and returns its output.
    pub fn on(&self, host: usize, command: &str) -> Result<String> {
        let ran = self.tried(host, command)?;
        self.book.command(
            self.names[host],
            '#',
            command,
            &format!("{}{}", ran.stdout, ran.stderr),
        );
        well(self.names[host], command, ran)
    }

    /// As [`Fleet::on`], on several hosts at once.
    pub fn on_all(&self, hosts: &[usize], command: &str) -> Result<()> {
        let scripts: Vec<_> = hosts
            .iter()
            .map(|&host| self.host(host).send(command))
            .collect::<Result<_>>()?;
        for (&host, script) in hosts.iter().zip(&scripts) {
            let ran = self
                .host(host)
                .wait(script, COMMAND)
                .with_context(|| format!("{}# {command}", self.names[host]))?;
            self.book.command(
                self.names[host],
                '#',
                command,
                &format!("{}{}", ran.stdout, ran.stderr),
            );
            well(self.names[host], command, ran)?;
        }
        Ok(())
    }

    /// Runs a command as the user and returns its result even if it fails. Not shown.
    pub fn person_tried(&self, host: usize, command: &str) -> Result<ProgramOutput> {
        self.tried(host, &as_person(command))
    }

    /// Runs a command as the user that must succeed, and returns its output.
    pub fn person(&self, host: usize, command: &str) -> Result<String> {
        let ran = self.person_tried(host, command)?;
        self.book.command(
            &format!("{PERSON}@{}", self.names[host]),
            '$',
            command,
            &format!("{}{}", ran.stdout, ran.stderr),
        );
        well(self.names[host], command, ran)
    }

    /// Polls `see` until it returns a value.
    pub fn until<T>(
        &self,
        what: &str,
        within: Duration,
        mut see: impl FnMut(&Fleet) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = std::time::Instant::now() + within;
        loop {
            if let Some(seen) = see(self)? {
                return Ok(seen);
            }
            if std::time::Instant::now() > deadline {
                bail!("timed out after {} s waiting for {what}", within.as_secs());
            }
            clock::pause(LOOK);
        }
    }

    /// Waits until the resource manager reports all workers as ready.
    pub fn until_ready(&self) -> Result<()> {
        self.until("both workers to be ready", COMMAND, |fleet| {
            let ran = fleet.tried(MANAGER, "rmctl node list -o jsonl")?;
            Ok((ran.stdout.matches("\"state\":\"ready\"").count() == WORKERS.len()).then_some(()))
        })
        .with_context(|| self.witness())
    }

    /// The last log lines of the daemons of all hosts, for the message of a failure.
    pub fn witness(&self) -> String {
        let journal = "journalctl --no-pager -o short-monotonic -n 40 -u 'headroom-*'";
        let log_of = |host: usize| match self.tried(host, journal) {
            Ok(ran) => format!("--- {}\n{}", self.names[host], ran.stdout),
            Err(error) => format!(
                "--- {}: {error:#}\n{}\n",
                self.names[host],
                self.host(host).console()
            ),
        };
        (0..self.names.len()).map(log_of).collect()
    }
}

/// A command line for `sh` that runs `command` as the user, in the user's directory.
fn as_person(command: &str) -> String {
    let quoted = command.replace('\'', r"'\''");
    format!("cd /srv/{PERSON} && HOME=/srv/{PERSON} exec runuser -u {PERSON} -- sh -c '{quoted}'")
}

fn well(host: &str, command: &str, ran: ProgramOutput) -> Result<String> {
    ensure!(
        ran.code == 0,
        "{host}: `{command}` ended with {}: {}{}",
        ran.code,
        ran.stdout,
        ran.stderr
    );
    Ok(ran.stdout)
}
