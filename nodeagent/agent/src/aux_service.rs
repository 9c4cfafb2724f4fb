//! The process of an auxiliary service: directory, cgroup, shim, readiness, end.
//!
//! A shim starts the program from a specification, as for a container, so the service outlives the
//! agent. Its cgroup is beside those of the containers. Its directory holds the records of the
//! latest start and the logs of all of them. This module decides nothing:
//! `headroom_node_core::aux_services` does.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use headroom_config::AuxServiceConfig;
use headroom_container_shim::record::{
    self, ExitRecord, Privileges, ProgramEnd, ProgramSpec, ProgramUser as ShimUser, StartResult,
};
use headroom_node_cgroup::{EnforcedGroup, GroupLimits, OomGroup};
use headroom_node_exec::{ChildProcess, ProcessUser};
use headroom_types::{Cpus, EnforcerKind, Name};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{info, warn};

use crate::agent_input::{AgentInput, AuxServiceReport};
use crate::cpu_share;
use crate::disk::{self, file};
use crate::environment;
use crate::isolation;
use crate::launch;
use crate::launch_failure;
use crate::logs;
use crate::node_context::NodeContext;
use crate::process_wait;
use crate::recorded_process;
use crate::shim_process::{self, ShimLineResult};

/// Prefix of the names of their cgroups. A container id contains a dot; these names do not.
const GROUP_PREFIX: &str = "aux-";
/// Maximum number of processes and threads of a service.
const PROCESSES: u32 = 4096;
/// Maximum time until a cgroup is empty and removed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time of one connection attempt to its port.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between connection attempts until a service is ready.
const READY_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the memory check, where the kernel does not end a service as a whole.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);
/// Number of lines of the log in the cause of an end.
const LOG_LINES: usize = 6;
/// Maximum length of those lines together, in characters.
const LOG_CHARS: usize = 800;
/// SIGTERM.
const TERM: i32 = 15;
/// SIGKILL.
const KILL: i32 = 9;

/// One start of a service.
#[derive(Clone, Debug)]
pub(crate) struct AuxServiceRun {
    /// The node.
    pub(crate) site: Arc<NodeContext>,
    /// The service.
    pub(crate) service: Name,
    /// Its configuration.
    pub(crate) config: AuxServiceConfig,
    /// Number of the start.
    pub(crate) run: u32,
    /// Receives its reports.
    pub(crate) inputs: mpsc::Sender<AgentInput>,
}

/// The name of the cgroup of a service.
pub(crate) fn group_name(service: &Name) -> String {
    format!("{GROUP_PREFIX}{service}")
}

impl AuxServiceRun {
    /// Starts the service, and follows it to its end.
    pub(crate) async fn start(self) {
        let run = self.clone();
        let started = spawn_blocking(move || launch_service(&run.site, &run.service, &run.config));
        let (shim, line) = match started.await {
            Ok(Ok((shim, line))) => (Arc::new(shim), line),
            Ok(Err(error)) => return self.fail(format!("{error:#}")).await,
            Err(_) => {
                let why = "its start failed inside the agent; see its log".to_owned();
                return self.fail(why).await;
            }
        };
        let watched = Arc::clone(&shim);
        let ended = watch(watched, |shim: &Arc<ChildProcess>| shim.wait().map(drop));
        let start = match shim_process::listen(line).await {
            ShimLineResult::Line(StartResult::Started { pid }) => {
                info!(service = %self.service, pid, "the auxiliary service was started");
                ProgramStart::Runs
            }
            // The end of the shim follows, with a record.
            ShimLineResult::Line(StartResult::Failed { .. }) | ShimLineResult::Nothing => {
                ProgramStart::Failed
            }
            ShimLineResult::Silence => {
                shim.signal(KILL).ok();
                ProgramStart::Failed
            }
        };
        self.follow(start, ended).await;
    }

    /// Follows a service that an earlier agent started.
    pub(crate) async fn resume(self) {
        let shim = recorded_process::shim(&self.site.layout.aux_service(&self.service));
        let (start, ended) = match shim {
            Some(shim) => (ProgramStart::Runs, watch(shim, |_| Ok(()))),
            None => (ProgramStart::Failed, tokio::spawn(async { Ok(()) })),
        };
        self.follow(start, ended).await;
    }

    async fn fail(self, why: String) {
        let run = self.clone();
        // Removes a partly created group.
        spawn_blocking(move || end_remains(&run.site, &run.service))
            .await
            .ok();
        self.report(AuxServiceReport::Ended(why)).await;
    }

    async fn report(&self, report: AuxServiceReport) {
        // A closed queue means that the agent is ending; the next agent adopts the service.
        let input = AgentInput::AuxService(self.service.clone(), self.run, report);
        self.inputs.send(input).await.ok();
    }

    /// Reports when the service is ready, and its end.
    async fn follow(self, start: ProgramStart, mut ended: JoinHandle<io::Result<()>>) {
        let port = self.config.port;
        let mut ready = pin!(async {
            if let Some(port) = port {
                accepts_connections(port).await;
            }
        });
        let mut awaits_ready = start == ProgramStart::Runs;
        let mut killed = false;
        let mut memory = tokio::time::interval(MEMORY_INTERVAL);
        loop {
            tokio::select! {
                _ = &mut ended => break,
                () = &mut ready, if awaits_ready => {
                    awaits_ready = false;
                    self.report(AuxServiceReport::Ready).await;
                }
                _ = memory.tick(), if self.site.kind() != EnforcerKind::Cgroup2 => {
                    let run = self.clone();
                    let over = spawn_blocking(move || kill_over_limit(&run));
                    killed |= over.await.unwrap_or(false);
                }
            }
        }
        let run = self.clone();
        let why = spawn_blocking(move || collect_end(&run, killed)).await;
        let why = why.unwrap_or_else(|_| "its end could not be read".to_owned());
        self.report(AuxServiceReport::Ended(why)).await;
    }
}

/// Whether the program of a service was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramStart {
    /// It runs.
    Runs,
    /// It was not executed, or its shim is gone. The end of the shim follows.
    Failed,
}

/// Waits for the end of a shim, and reaps it.
fn watch<F: AsRawFd + Send + Sync + 'static>(
    shim: F,
    reap: fn(&F) -> io::Result<()>,
) -> JoinHandle<io::Result<()>> {
    tokio::spawn(process_wait::ended(shim, reap))
}

/// Returns when the port of a service accepts a connection.
async fn accepts_connections(port: u16) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    loop {
        let attempt = tokio::net::TcpStream::connect(address);
        if let Ok(Ok(_)) = tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
            return;
        }
        tokio::time::sleep(READY_INTERVAL).await;
    }
}

/// Finds the services of an earlier agent. Ends those that are not configured any more, and the
/// remains of those whose shim is gone.
pub(crate) fn adopt(site: &NodeContext) -> Vec<Name> {
    let entries = fs::read_dir(site.layout.aux_services());
    let mut alive = Vec::new();
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(service) = name.to_str().and_then(|name| name.parse::<Name>().ok()) else {
            continue;
        };
        let configured = site.aux_services.contains_key(&service);
        if configured && recorded_process::shim(&entry.path()).is_some() {
            info!(%service, "the agent adopted an auxiliary service");
            alive.push(service);
        } else {
            end_remains(site, &service);
            if !configured && let Err(error) = fs::remove_dir_all(entry.path()) {
                warn!(%service, %error, "the directory of a service that is not configured any more cannot be removed, ignoring");
            }
        }
    }
    alive
}

/// Sends SIGTERM to the program of a service.
pub(crate) fn terminate(site: &NodeContext, service: &Name) {
    let dir = site.layout.aux_service(service);
    if let Some(program) = recorded_process::process(&dir, record::file::PID)
        && let Err(error) = program.signal(TERM)
    {
        warn!(%service, %error, "the auxiliary service cannot be signalled");
    }
}

/// Sends SIGKILL to all processes of a service. Its shim then ends by itself.
pub(crate) fn kill(site: &NodeContext, service: &Name) {
    if let Some(group) = open_group(site, service)
        && let Err(error) = group.kill()
    {
        warn!(%service, %error, "some processes of the auxiliary service may still run");
    }
    if let Some(program) =
        recorded_process::process(&site.layout.aux_service(service), record::file::PID)
    {
        program.signal(KILL).ok();
    }
}

fn launch_service(
    site: &NodeContext,
    service: &Name,
    config: &AuxServiceConfig,
) -> anyhow::Result<(ChildProcess, OwnedFd)> {
    // Of an earlier start.
    end_remains(site, service);
    if let Some(port) = config.port {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok() {
            bail!("another program listens at its port, {address}");
        }
    }
    let user = site.aux_service_user(config)?;
    let dir = site.layout.aux_service(service);
    make_directory(&dir, user.as_ref())?;
    let limits = GroupLimits {
        memory: Some(config.memory),
        processes: Some(PROCESSES),
        cpu_weight: Some(cpu_share::weight(Cpus::from_cores(1))),
        oom_group: OomGroup::Yes,
        low: None,
    };
    let group = site
        .enforcer
        .create(&group_name(service), &limits)
        .context("cannot create its cgroup")?;
    let spec = specification(site, service, config, user, &group);
    disk::private(&dir.join(record::file::SPEC))
        .and_then(|mut file| file.write_all(&spec.encode()))
        .context("cannot write its launch specification")?;
    let words = File::create(dir.join("shim.err")).context("cannot create shim.err")?;
    launch::as_program(site, &dir, &words)
}

/// Creates the directory of a service, and removes the records of an earlier start. The logs stay.
fn make_directory(dir: &Path, user: Option<&ProcessUser>) -> anyhow::Result<()> {
    let about = || format!("cannot make {}", dir.display());
    fs::create_dir_all(dir).with_context(about)?;
    let work = dir.join(file::WORK);
    match fs::DirBuilder::new().mode(0o750).create(&work) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(about);
        }
        Ok(()) | Err(_) => {}
    }
    if let Some(user) = user {
        chown(&work, Some(user.uid), Some(user.gid)).with_context(about)?;
    }
    clear_records(dir).with_context(about)
}

fn clear_records(dir: &Path) -> io::Result<()> {
    let records = [
        record::file::SPEC,
        record::file::SHIM_PID,
        record::file::PID,
        record::file::EXIT,
    ];
    for name in records {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn specification(
    site: &NodeContext,
    service: &Name,
    config: &AuxServiceConfig,
    user: Option<ProcessUser>,
    group: &EnforcedGroup,
) -> ProgramSpec {
    let dir = site.layout.aux_service(service);
    let work = dir.join(file::WORK);
    let fill = |text: &str| {
        text.replace("{memory}", &config.memory.get().to_string())
            .replace("{node}", site.node.as_str())
    };
    let command = config
        .command
        .iter()
        .map(|word| fill(word).into())
        .collect();
    let mut spec = ProgramSpec {
        argv: launch::arguments(site, command, &work),
        env: variables(site, service, config, &work, fill),
        cwd: work,
        stdout: dir.join(file::STDOUT),
        stderr: dir.join(file::STDERR),
        procs_files: group.procs_files(),
        counters: group.counter_files(),
        // As a master: the kernel kills other containers first.
        oom_score_adj: Some(launch::oom_score(None, launch::own_oom_score())),
        user: user.map(|user| ShimUser {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
        }),
        umask: Some(site.isolation.umask),
        privileges: Privileges::Drop,
        rlimits: isolation::rlimits(site),
        ..ProgramSpec::default()
    };
    environment::name_user(&mut spec, config.user.clone().filter(|_| site.is_root()));
    spec
}

/// The environment of a service. Variables of the agent override those of the configuration.
fn variables(
    site: &NodeContext,
    service: &Name,
    config: &AuxServiceConfig,
    work: &Path,
    fill: impl Fn(&str) -> String,
) -> Vec<(OsString, OsString)> {
    let inherited = std::env::var_os("PATH").unwrap_or_else(|| environment::USUAL_PATH.into());
    let mut path = site.bin_dir.clone().into_os_string();
    path.push(":");
    path.push(inherited);
    let mut env = vec![
        ("PATH".into(), path),
        ("HOME".into(), work.into()),
        ("LANG".into(), "C.UTF-8".into()),
    ];
    for (name, value) in &config.env {
        environment::set(&mut env, name, fill(value).into());
    }
    let memory = config.memory.get().to_string();
    for (name, value) in [
        ("HEADROOM_AUX_SERVICE", service.as_str().into()),
        ("HEADROOM_NODE", site.node.as_str().into()),
        ("HEADROOM_MEMORY_BYTES", memory.into()),
        ("HEADROOM_APPS_DIR", site.layout.apps().into_os_string()),
    ] {
        environment::set(&mut env, name, value);
    }
    env
}

/// The group of a service, with its program as the root of the process tree.
fn open_group(site: &NodeContext, service: &Name) -> Option<EnforcedGroup> {
    let group = match site.enforcer.open(&group_name(service)) {
        Ok(group) => group?,
        Err(error) => {
            warn!(%service, %error, "the cgroup of the auxiliary service cannot be opened");
            return None;
        }
    };
    let dir = site.layout.aux_service(service);
    if let Some(program) = recorded_process::process(&dir, record::file::PID) {
        group.set_root_pid(program.pid());
    }
    Some(group)
}

/// Kills a service above its limit, and the rest of one of which the kernel killed a part.
fn kill_over_limit(run: &AuxServiceRun) -> bool {
    let Some(group) = open_group(&run.site, &run.service) else {
        return false;
    };
    let over = match group.kind() {
        EnforcerKind::Poll => group
            .sample()
            .is_ok_and(|(current, _)| current > run.config.memory),
        EnforcerKind::Cgroup1 => has_kills(&group),
        EnforcerKind::Cgroup2 => false,
    };
    if over {
        kill(&run.site, &run.service);
    }
    over
}

fn has_kills(group: &EnforcedGroup) -> bool {
    group
        .facts()
        .is_ok_and(|facts| facts.events.oom_kill + facts.events.oom_group_kill > 0)
}

/// Ends the remaining processes of a service and removes its cgroup.
fn end_remains(site: &NodeContext, service: &Name) {
    kill(site, service);
    if let Some(group) = open_group(site, service)
        && let Err(error) = group.remove(REMOVAL_TIMEOUT)
    {
        warn!(%service, %error, "the cgroup of the auxiliary service cannot be removed, ignoring");
    }
}

/// Reads how a service ended, and removes the rest of it. Returns the cause in one sentence, with
/// the end of its log.
fn collect_end(run: &AuxServiceRun, killed: bool) -> String {
    let dir = run.site.layout.aux_service(&run.service);
    let at_limit = killed
        || open_group(&run.site, &run.service)
            .as_ref()
            .is_some_and(has_kills);
    let how = fs::read(dir.join(record::file::EXIT))
        .ok()
        .and_then(|bytes| ExitRecord::decode(&bytes).ok())
        .map(|record| record.how);
    let cause = match how {
        Some(ProgramEnd::Failed { step, errno, what }) => {
            launch_failure::from_step(step, errno, &what).why
        }
        Some(ProgramEnd::Code(_) | ProgramEnd::Signal { .. }) | None if at_limit => {
            format!("it exceeded its memory limit of {}", run.config.memory)
        }
        Some(ProgramEnd::Code(code)) => format!("it exited with code {code}"),
        Some(ProgramEnd::Signal { signal, .. }) => format!("signal {signal} killed it"),
        None => "its shim was lost".to_owned(),
    };
    end_remains(&run.site, &run.service);
    let text = |name: &str| logs::tail(&dir, name, logs::REPORTED).unwrap_or_default();
    let tail = [file::STDERR, file::STDOUT]
        .into_iter()
        .map(|name| last_lines(&text(name)))
        .find(|lines| !lines.is_empty());
    match tail {
        Some(lines) => format!("{cause}; the end of its log: {lines}"),
        None => format!("{cause}; its log is empty"),
    }
}

/// The last lines of a log, in one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES)..);
    let line = last.unwrap_or_default().join(" | ");
    let beyond = line.chars().count().saturating_sub(LOG_CHARS);
    line.chars().skip(beyond).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_one_line() {
        assert_eq!(last_lines("\n\n"), "");
        assert_eq!(last_lines("one\n\n  two\n"), "one | two");
        let many: String = (0..20).map(|n| format!("{n}\n")).collect();
        assert_eq!(last_lines(&many), "14 | 15 | 16 | 17 | 18 | 19");
        assert_eq!(last_lines(&"ä".repeat(2000)), "ä".repeat(LOG_CHARS));
    }

    #[test]
    fn the_group_of_a_service_is_no_group_of_a_container() {
        let name = group_name(&"spark-shuffle".parse().expect("a name"));
        assert_eq!(name, "aux-spark-shuffle");
        assert!(name.parse::<headroom_types::ContainerId>().is_err());
    }

    #[test]
    fn records_of_an_earlier_start_are_removed_and_logs_stay() {
        let dir = tempfile::tempdir().expect("dir");
        let names = [
            record::file::PID,
            record::file::SHIM_PID,
            record::file::EXIT,
            file::STDOUT,
        ];
        for name in names {
            fs::write(dir.path().join(name), "x").expect("writes");
        }
        make_directory(dir.path(), None).expect("makes");
        let left = names.map(|name| dir.path().join(name).exists());
        assert_eq!(left, [false, false, false, true]);
        assert!(dir.path().join(file::WORK).is_dir());
    }
}
