//! Starts the program of a specification: one clone, and the steps of the child before it executes
//! the program.
//!
//! The child leaves a failed step in the memory that it shares with this process. An exit code such
//! as 126 or 127 would be ambiguous: the program can exit with it too.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use headroom_container_shim::LaunchStep;
use headroom_container_shim::record::{Privileges, ProgramSpec, UserNamespace};
use headroom_node_process::clone_into_cgroup::{CloneRefusal, CloneTarget, find_clone_target};
use headroom_node_process::memory_sharing_child::{reset_signals, set_mask};
use headroom_node_process::program_texts::{InvalidText, ProgramTexts};

use crate::step_failure::StepFailure;
use crate::sys::{self, write_existing};

/// Starts the program and waits until it is executed. Returns its pid.
///
/// On cgroup v2 the child starts in its group. For a move the kernel waits until no thread of the
/// host is between two groups, which takes ten milliseconds on hosts with more than one processor.
pub(crate) fn launch(spec: &ProgramSpec) -> Result<i32, StepFailure> {
    let stdio = [input(&spec.stdin)?, log(&spec.stdout)?, log(&spec.stderr)?];
    let program =
        ProgramTexts::new(&spec.argv, &spec.env).map_err(|InvalidText { what, source }| {
            match source.raw_os_error() {
                Some(errno) => StepFailure::new(LaunchStep::Exec, errno, what),
                None => StepFailure::new(LaunchStep::Spec, libc::EINVAL, what),
            }
        })?;
    let start = |target: Option<&CloneTarget>| {
        let group = target.and_then(|target| spec.procs_files.get(target.index));
        let group = group.map(PathBuf::as_path);
        sys::run_child(target, &mut || {
            become_program(spec, &program, &stdio, group)
        })
    };
    let target = find_clone_target(&spec.procs_files);
    let started = match (start(target.as_ref()), target) {
        (Err(errno), Some(target)) => match CloneRefusal::of(errno) {
            CloneRefusal::Here => start(None),
            CloneRefusal::Group => {
                let group = spec.procs_files.get(target.index);
                let group = group.map(|path| path.display().to_string());
                return Err(StepFailure::new(
                    LaunchStep::Cgroup,
                    errno,
                    group.unwrap_or_default(),
                ));
            }
        },
        (started, _) => started,
    };
    started.map_err(|errno| StepFailure::new(LaunchStep::Clone, errno, "a child"))?
}

/// Runs the child's steps. Returns only if a step failed.
fn become_program(
    spec: &ProgramSpec,
    program: &ProgramTexts,
    stdio: &[File; 3],
    cloned_into: Option<&Path>,
) -> StepFailure {
    match prepare(spec, stdio, cloned_into) {
        Err(failure) => failure,
        Ok(()) => StepFailure::new(LaunchStep::Exec, program.execute(), program.name()),
    }
}

fn prepare(
    spec: &ProgramSpec,
    stdio: &[File; 3],
    cloned_into: Option<&Path>,
) -> Result<(), StepFailure> {
    sys::new_session().map_err(|errno| StepFailure::new(LaunchStep::Session, errno, "setsid"))?;
    for path in spec
        .procs_files
        .iter()
        .filter(|path| cloned_into != Some(path.as_path()))
    {
        write_existing(path, "0")
            .map_err(|errno| StepFailure::new(LaunchStep::Cgroup, errno, path.display()))?;
    }
    if let Some(n) = spec.oom_score_adj {
        let path = Path::new("/proc/self/oom_score_adj");
        write_existing(path, &n.to_string())
            .map_err(|errno| StepFailure::new(LaunchStep::OomScore, errno, n))?;
    }
    crate::view::enter(spec)?;
    for (place, file) in (0..).zip(stdio) {
        sys::place(file, place)
            .map_err(|errno| StepFailure::new(LaunchStep::Stdio, errno, place))?;
    }
    sys::close_rest_at_exec();
    for l in &spec.rlimits {
        sys::set_limit(l.resource, l.soft, l.hard)
            .map_err(|errno| StepFailure::new(LaunchStep::Limit, errno, format_args!("{l:?}")))?;
    }
    drop_privileges(spec)?;
    if let Some(mask) = spec.umask {
        sys::set_umask(mask);
    }
    std::env::set_current_dir(&spec.cwd)
        .map_err(|e| StepFailure::new(LaunchStep::Chdir, sys::errno_of(&e), spec.cwd.display()))?;
    reset_signals();
    set_mask(0);
    Ok(())
}

/// Drops privileges. The bounding set comes first, because only root can shrink it. `no_new_privs`
/// comes last: no later step grants a privilege.
fn drop_privileges(spec: &ProgramSpec) -> Result<(), StepFailure> {
    if spec.privileges == Privileges::Drop {
        sys::empty_bounding_set(&[]);
    }
    if let Some(user) = &spec.user {
        sys::become_user(user.uid, user.gid, &user.groups)
            .map_err(|errno| StepFailure::new(LaunchStep::User, errno, user.uid))?;
    }
    if spec.privileges == Privileges::Drop {
        let kept: &[u32] = match spec.user_namespace {
            UserNamespace::Host | UserNamespace::Own => &[],
            UserNamespace::Delegated => {
                crate::view::delegate_namespaces()?;
                &[sys::CAP_SYS_ADMIN]
            }
        };
        sys::drop_capabilities(kept)
            .map_err(|errno| StepFailure::new(LaunchStep::Privileges, errno, "capset"))?;
        sys::no_new_privileges()
            .map_err(|errno| StepFailure::new(LaunchStep::Privileges, errno, "no_new_privs"))?;
    }
    Ok(())
}

fn input(path: &Path) -> Result<File, StepFailure> {
    let path = if path.as_os_str().is_empty() {
        Path::new("/dev/null")
    } else {
        path
    };
    File::open(path)
        .and_then(above_stdio)
        .map_err(|e| StepFailure::new(LaunchStep::Stdio, sys::errno_of(&e), path.display()))
}

fn log(path: &Path) -> Result<File, StepFailure> {
    let opened = if path.as_os_str().is_empty() {
        OpenOptions::new().write(true).open("/dev/null")
    } else {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .open(path)
    };
    opened
        .and_then(above_stdio)
        .map_err(|e| StepFailure::new(LaunchStep::Stdio, sys::errno_of(&e), path.display()))
}

/// Returns a file whose descriptor is never 0, 1 or 2. Otherwise placing one of the three could
/// overwrite another, if the agent had left one of them closed.
fn above_stdio(file: File) -> std::io::Result<File> {
    if file.as_raw_fd() > 2 {
        return Ok(file);
    }
    file.try_clone()
}
