//! Turns an order into a running shim: files, cgroup, specification, process. Blocking; called as a
//! job of the loop.
//!
//! The order is written first, so that a later agent knows the container of every other file. A
//! directory in which a shim has run belongs to a container that was already started; it is not
//! launched again. A directory without a shim was left by an agent that was killed during the
//! preparation; it is prepared again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use headroom_container_shim::record::{self, ProgramSpec, UserNamespace};
use headroom_node_cgroup::{EnforcedGroup, GroupLimits, OomGroup};
use headroom_node_core::LaunchFailureKind;
use headroom_node_exec::{ChildProcess, ExecArguments, SpawnCommand, spawn};
use headroom_types::{ContainerId, RequestId};
use headroom_wire::v1::nodes::RunOrder;
use headroom_wire::v1::validation::check_launch;

use crate::container_user;
use crate::cpu_share;
use crate::crash;
use crate::descriptors;
use crate::disk::{self, Baselines, OrderRecord, file};
use crate::environment::{self, PlaceholderValues};
use crate::isolation;
use crate::launch_failure::LaunchError;
use crate::node_context::NodeContext;
use crate::outer_counters::OuterCounters;

/// Default limit of processes and threads of a container.
const PROCESSES: u32 = 4096;
/// `oom_score_adj` of a container: the kernel kills it before daemons.
const OOM_SCORE: i32 = 200;
/// `oom_score_adj` of a container with an application master: the kernel kills it after all other
/// containers.
const OOM_SCORE_MASTER: i32 = 50;
/// Permissions of a container's directory: its user opens entries of it, and lists none.
const AROUND: u32 = 0o711;
/// Permissions of the directories with the files of a program: they are open for its user only.
const OWN: u32 = 0o700;
/// Maximum time to remove a group without processes.
const HALF_MADE: Duration = Duration::from_secs(2);

/// Creates all files and groups that the program needs. After an error they are removed with the
/// container. The caller has known the order since `known`.
pub(crate) fn prepare(
    site: &NodeContext,
    id: &ContainerId,
    order: &RunOrder,
    known: Instant,
) -> anyhow::Result<Arc<EnforcedGroup>> {
    check_launch(&order.launch).map_err(|problem| anyhow::anyhow!(problem.detail))?;
    if order.request.is_none() {
        check_journals(site)?;
    }
    let dir = site.layout.container(id);
    match fs::DirBuilder::new().mode(AROUND).create(&dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && site.layout.was_never_started(id) => {
            clear(site, id)?
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            bail!(LaunchError::new(
                LaunchFailureKind::AlreadyStarted,
                format!("container {id} was on this node before"),
            ))
        }
        Err(e) => return Err(e).with_context(|| format!("cannot make {}", dir.display())),
    }
    crash::at("directory-made");
    let record = OrderRecord::new(id.clone(), order.clone(), baselines(site, known));
    site.layout
        .write_first_order(&record)
        .with_context(|| format!("cannot write {}", file::ORDER))?;
    crash::at("order-written");
    let identity = site.container_user(order.user.as_deref())?;
    let work = files(site, order, &dir)?;
    site.localizer
        .bring(id, &order.launch.fetch, &work, &identity)?;
    crash::at("files-fetched");
    if let Some(keys) = &site.keys {
        // The node's own key files are readable by the agent only.
        let path = dir.join(file::TASKS).join(file::CA);
        container_user::write_new(&path, 0o644, keys.identity().0.ca.as_bytes())
            .context("cannot write the certificate of the cluster authority")?;
    }
    if let Some(token) = &order.token {
        let path = dir.join(file::TASKS).join(file::TOKEN);
        container_user::give_secret(&identity, &path, &token.0)
            .context("cannot write the token file")?;
    }
    let reader = site.aux_service_group(&order.launch.aux_services)?;
    container_user::hand_over(&identity, &dir, &site.layout.app(&order.app), reader)?;
    crash::at("files-made");
    let group = site
        .enforcer
        .create(&id.to_string(), &limits(order))
        .with_context(|| cgroup("cannot create the cgroup"))?;
    crash::at("group-made");
    if order.launch.task_groups {
        container_user::delegate(&identity, &group)?;
    }
    cpu_share::share(site, &group, order.resource.cpus);
    let mut spec = specification(site, id, order, &group, &work)?;
    isolation::restrain(
        site,
        &identity,
        order,
        &dir,
        &site.layout.app(&order.app),
        &mut spec,
    );
    environment::name_user(&mut spec, identity.name);
    let mut file = disk::private(&dir.join(record::file::SPEC))
        .context("cannot create the launch specification")?;
    file.write_all(&spec.encode())
        .context("cannot write the launch specification")?;
    crash::at("prepared");
    Ok(Arc::new(group))
}

/// Refuses a master on a node that cannot use the shared journals. It would end at once, or begin
/// its job from the start.
fn check_journals(site: &NodeContext) -> anyhow::Result<()> {
    let problem = site
        .journals
        .as_ref()
        .and_then(|journals| journals.problem());
    problem.map_or(Ok(()), |problem| {
        bail!(LaunchError::new(
            LaunchFailureKind::JournalsUnusable,
            problem.sentence(),
        ))
    })
}

/// The specification of a second program in a container: like the first one, with another command.
/// The caller sets output files and groups.
pub(crate) fn second_program_spec(
    site: &NodeContext,
    id: &ContainerId,
    order: &RunOrder,
    group: &EnforcedGroup,
    command: &[String],
) -> anyhow::Result<ProgramSpec> {
    let (dir, app) = (site.layout.container(id), site.layout.app(&order.app));
    let identity = site.container_user(order.user.as_deref())?;
    let work = dir.join(file::WORK);
    let mut spec = specification(site, id, order, group, &work)?;
    spec.argv = arguments(site, command.iter().map(OsString::from).collect(), &work);
    isolation::restrain(site, &identity, order, &dir, &app, &mut spec);
    if spec.user_namespace == UserNamespace::Delegated {
        // It creates no namespaces for tasks.
        spec.user_namespace = UserNamespace::Host;
    }
    environment::name_user(&mut spec, identity.name);
    // The marker and cache files belong to the container's program. A second program must not write
    // them.
    spec.env
        .retain(|(name, _)| name != "HEADROOM_OOM_MARKER" && name != "HEADROOM_CACHED_BYTES");
    Ok(spec)
}

fn cgroup(sentence: &str) -> LaunchError {
    LaunchError::new(LaunchFailureKind::Cgroup, sentence)
}

/// Limit of processes and threads of a container.
pub(crate) fn processes(order: &RunOrder) -> u32 {
    order.launch.max_processes.unwrap_or(PROCESSES)
}

/// Cleans up after an agent that was killed during the preparation: removes the incomplete group,
/// and all files for the program, which has never run. They are written again.
fn clear(site: &NodeContext, id: &ContainerId) -> anyhow::Result<()> {
    tracing::info!(container_id = %id, "an earlier agent left a partly prepared container; the preparation starts again");
    for made in [file::WORK, file::TASKS, file::TMP] {
        match fs::remove_dir_all(site.layout.container(id).join(made)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(e).context("partly prepared files cannot be removed");
            }
            Ok(()) | Err(_) => {}
        }
    }
    let left = site
        .enforcer
        .open(&id.to_string())
        .with_context(|| cgroup("the partly prepared cgroup cannot be opened"))?;
    left.map_or(Ok(()), |group| group.remove(HALF_MADE))
        .with_context(|| cgroup("the partly prepared cgroup cannot be removed"))
}

/// A started shim.
pub(crate) enum StartedShim {
    /// As a separate program. Its line arrives through the pipe.
    Own(ChildProcess, OwnedFd),
    /// By the launcher. All packets arrive through the socket.
    Asked(OwnedFd),
}

/// Starts the shim of a prepared container.
pub(crate) fn start_shim(site: &NodeContext, id: &ContainerId) -> anyhow::Result<StartedShim> {
    let dir = site.layout.container(id);
    let words = disk::private(&dir.join(file::SHIM_ERRORS)).context("cannot create shim.err")?;
    crash::at("shim-wanted");
    let start = match site.launcher.ask(&dir, &words)? {
        Some(conversation) => StartedShim::Asked(conversation),
        None => {
            let (child, line) = as_program(site, &dir, &words)?;
            StartedShim::Own(child, line)
        }
    };
    crash::at("shim-started");
    Ok(start)
}

/// Starts the shim for the specification in `dir` as a separate program. Returns it with the pipe
/// of its line.
pub(crate) fn as_program(
    site: &NodeContext,
    dir: &Path,
    words: &File,
) -> anyhow::Result<(ChildProcess, OwnedFd)> {
    let shim = site.bin_dir.join("container-shim");
    let (reader, writer) = io::pipe().context("cannot create a pipe")?;
    let procs = site.enforcer.shim_procs_files();
    let said = File::from(OwnedFd::from(writer));
    let limits: Vec<_> = descriptors::of_children().into_iter().collect();
    let arguments = ExecArguments::new([shim.as_path(), dir], &[])?;
    let command = SpawnCommand {
        stdout: Some(&said),
        stderr: Some(words),
        procs_files: &procs,
        limits: &limits,
        new_session: true,
        ..SpawnCommand::new(&arguments, Path::new("/"))
    };
    let child = spawn(&command).with_context(|| format!("cannot start {}", shim.display()))?;
    Ok((child, reader.into()))
}

/// Counters of the levels around the container, from a reading that began after `known`.
fn baselines(site: &NodeContext, known: Instant) -> Baselines {
    let counters = site
        .outer
        .read_since(known, || OuterCounters::read(&site.enforcer));
    Baselines {
        fence: counters.fence.ok().map(|(_, local)| local),
        host_oom_kills: counters.host_oom_kills,
        above: counters.above,
    }
}

fn limits(order: &RunOrder) -> GroupLimits {
    GroupLimits {
        memory: Some(order.resource.memory),
        processes: Some(processes(order)),
        cpu_weight: Some(cpu_share::weight(order.resource.cpus)),
        oom_group: OomGroup::Yes,
        // Memory of masters is reclaimed last.
        low: order.request.is_none().then_some(order.resource.memory),
    }
}

fn files(site: &NodeContext, order: &RunOrder, dir: &Path) -> anyhow::Result<PathBuf> {
    let work = dir.join(file::WORK);
    for made in [
        &work,
        &dir.join(file::TASKS),
        &dir.join(file::TMP),
        &site.layout.app(&order.app),
    ] {
        match fs::DirBuilder::new().mode(OWN).create(made) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(e).with_context(|| format!("cannot make {}", made.display()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    for (name, text) in &order.launch.files {
        let path = work.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        if text.starts_with("#!") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    for name in [file::STDOUT, file::STDERR] {
        disk::private(&dir.join(name)).with_context(|| format!("cannot make {name}"))?;
    }
    Ok(work)
}

fn specification(
    site: &NodeContext,
    id: &ContainerId,
    order: &RunOrder,
    group: &EnforcedGroup,
    work: &Path,
) -> anyhow::Result<ProgramSpec> {
    let dir = site.layout.container(id);
    let words = PlaceholderValues::new(site, id, order);
    let env = environment::program_environment(site, id, order, group, &words);
    Ok(ProgramSpec {
        argv: arguments(
            site,
            order
                .launch
                .command
                .iter()
                .map(|w| words.fill(w).into())
                .collect(),
            work,
        ),
        env,
        cwd: work.to_owned(),
        stdout: dir.join(file::STDOUT),
        stderr: dir.join(file::STDERR),
        procs_files: group.procs_files(),
        counters: group.counter_files(),
        oom_score_adj: Some(oom_score(order.request.as_ref(), own_oom_score())),
        ..ProgramSpec::default()
    })
}

/// `oom_score_adj` of a container; without a request, that of a master. A value below the agent's own would need `CAP_SYS_RESOURCE`.
pub(crate) fn oom_score(request: Option<&RequestId>, own: i32) -> i32 {
    let wanted = if request.is_none() {
        OOM_SCORE_MASTER
    } else {
        OOM_SCORE
    };
    wanted.max(own)
}

/// `oom_score_adj` of this agent.
pub(crate) fn own_oom_score() -> i32 {
    fs::read_to_string("/proc/self/oom_score_adj")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// The command with the resolved path of the program.
pub(crate) fn arguments(
    site: &NodeContext,
    mut words: Vec<OsString>,
    work: &Path,
) -> Vec<OsString> {
    if let Some(program) = words.first_mut()
        && let Some(path) = beside_or_on_path(site, Path::new(&program), work)
    {
        *program = path.into_os_string();
    }
    words
}

/// Resolves a program. A bare name is searched in the directory of the agent, then on the agent's
/// PATH. `None` leaves it unchanged, for the launch's own PATH.
fn beside_or_on_path(site: &NodeContext, program: &Path, work: &Path) -> Option<PathBuf> {
    if program.is_absolute() {
        return None;
    }
    if program.components().count() > 1 {
        return Some(work.join(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| environment::USUAL_PATH.into());
    let dirs = std::iter::once(site.bin_dir.clone()).chain(std::env::split_paths(&path));
    dirs.map(|dir| dir.join(program))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_is_killed_after_other_containers() {
        let request: RequestId = "set-main".parse().expect("an id");
        let table = [
            (None, 0, 50),
            (Some(&request), 0, 200),
            (None, 100, 100),
            (Some(&request), 100, 200),
            (None, -900, 50),
        ];
        for (request, own, wanted) in table {
            assert_eq!(
                oom_score(request, own),
                wanted,
                "{request:?}, the agent has {own}"
            );
        }
    }
}
