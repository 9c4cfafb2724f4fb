//! Starts the program of a specification: one fork, and the steps of the child before it executes
//! the program.
//!
//! The child reports a failed step through a pipe that the exec closes. An exit code such as 126 or
//! 127 would be ambiguous: the program can exit with it too.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use headroom_container_shim::LaunchStep;
use headroom_container_shim::record::{Privileges, ProgramSpec, UserNamespace};

use crate::step_failure::StepFailure;
use crate::sys::{self, write_existing};

/// Starts the program and waits until it is executed. Returns its pid.
pub(crate) fn launch(spec: &ProgramSpec) -> Result<i32, StepFailure> {
    let stdio = [input(&spec.stdin)?, log(&spec.stdout)?, log(&spec.stderr)?];
    let (mut from_child, to_parent) = sys::pipe()
        .map_err(|errno| StepFailure::new(LaunchStep::Pipe, errno, "the child's report"))?;
    let (made, cloned_into) = start(spec)?;
    let Some(pid) = made else {
        let failure = become_program(spec, &stdio, cloned_into);
        report(to_parent, &failure);
        sys::exit_now(127);
    };
    drop((to_parent, stdio));
    let mut text = String::new();
    // The pipe closed without a report: the program is executed, or the child was killed before.
    // The later wait distinguishes the two.
    match from_child.read_to_string(&mut text) {
        Ok(0) | Err(_) => Ok(pid),
        Ok(_) => {
            while sys::wait().is_some_and(|end| end.pid != pid) {}
            Err(parse_report(&text))
        }
    }
}

/// Forks the child: `None` in the child, with the group that it was cloned into. On cgroup v2 a
/// child in its group need not move. For a move the kernel waits until no thread of the host is
/// between two groups, which takes ten milliseconds on hosts with more than one processor.
fn start(spec: &ProgramSpec) -> Result<(Option<i32>, Option<&Path>), StepFailure> {
    let groups = spec
        .procs_files
        .iter()
        .filter(|path| path.file_name().is_some_and(|name| name == "cgroup.procs"));
    for path in groups {
        match path.parent().and_then(sys::fork_into) {
            Some(Ok(made)) => return Ok((made, Some(path))),
            // The group cannot hold processes: it has child groups with controllers, is threaded,
            // or is gone.
            Some(Err(errno @ (libc::EBUSY | libc::EOPNOTSUPP | libc::ENODEV | libc::ENOENT))) => {
                return Err(StepFailure::new(LaunchStep::Cgroup, errno, path.display()));
            }
            // Other causes: an older kernel, a seccomp filter, or a full group, which accepts a
            // move. `None`: the directory is not one of cgroup v2.
            Some(Err(_)) | None => {}
        }
    }
    let made =
        sys::fork().map_err(|errno| StepFailure::new(LaunchStep::Clone, errno, "a child"))?;
    Ok((made, None))
}

fn report(mut to_parent: File, failure: &StepFailure) {
    // If the parent is gone, no reader is left.
    let _ = write!(
        to_parent,
        "{} {} {}",
        failure.step, failure.errno, failure.what
    );
}

fn parse_report(text: &str) -> StepFailure {
    let mut parts = text.splitn(3, ' ');
    let step = parts
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(LaunchStep::Exec);
    let errno = parts
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(libc::EIO);
    StepFailure::new(step, errno, parts.next().unwrap_or_default())
}

/// Runs the child's steps. Returns only if a step failed.
fn become_program(
    spec: &ProgramSpec,
    stdio: &[File; 3],
    cloned_into: Option<&Path>,
) -> StepFailure {
    match prepare(spec, stdio, cloned_into).and_then(|()| exec(spec)) {
        Err(failure) => failure,
        Ok(errno) => {
            let program = spec.argv.first().map(|p| p.to_string_lossy());
            StepFailure::new(LaunchStep::Exec, errno, program.unwrap_or_default())
        }
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
    sys::reset_signals();
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

/// Returns a copy of `file` whose descriptor is never 0, 1 or 2. Otherwise placing one of the three
/// could overwrite another, if the agent had left one of them closed.
fn above_stdio(file: File) -> std::io::Result<File> {
    file.try_clone()
}

/// Executes the first executable candidate. Returns the most informative errno.
fn exec(spec: &ProgramSpec) -> Result<i32, StepFailure> {
    let text = |t: &OsStr| {
        CString::new(t.as_bytes())
            .map_err(|_| StepFailure::new(LaunchStep::Spec, libc::EINVAL, t.to_string_lossy()))
    };
    let argv: Vec<CString> = spec
        .argv
        .iter()
        .map(|a| text(a))
        .collect::<Result<_, _>>()?;
    let mut env = Vec::with_capacity(spec.env.len());
    for (name, value) in &spec.env {
        env.push(text(&[name.as_os_str(), value].join(OsStr::new("=")))?);
    }
    let list = |texts: &[CString]| {
        let pointers = texts.iter().map(|t| t.as_ptr());
        pointers.chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argv_list, env_list) = (list(&argv), list(&env));
    let mut answer = libc::ENOENT;
    for program in programs(spec) {
        match sys::exec(&text(program.as_ref())?, &argv_list, &env_list) {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => answer = libc::EACCES,
            errno => return Ok(errno),
        }
    }
    Ok(answer)
}

/// The program's own path, or its name in each directory of `PATH`.
fn programs(spec: &ProgramSpec) -> Vec<std::path::PathBuf> {
    let Some(name) = spec.argv.first() else {
        return Vec::new();
    };
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let path = spec
        .env
        .iter()
        .rev()
        .find(|(n, _)| n == "PATH")
        .map(|(_, v)| v.as_os_str());
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    path.as_bytes()
        .split(|b| *b == b':')
        .filter(|d| !d.is_empty())
        .map(|d| Path::new(OsStr::from_bytes(d)).join(name))
        .collect()
}
