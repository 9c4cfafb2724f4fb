//! Process 1 of a guest: it mounts the file systems, runs one program, reaps orphans, leaves the
//! result on the host, and powers off.
//!
//! Only the guest's kernel starts it. A failure here ends the guest without a result file, which
//! the host reports as an error. The reason is on the guest's console.

#![forbid(unsafe_code)]

mod errands;
mod mounts;
mod systemd;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use integration::guest::job::{self, GuestJob, Init};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some(systemd::UNIT_ARGUMENT) {
        leave_result(run(&read_job()?)?)?;
        return off();
    }
    if arguments.get(1).map(String::as_str) == Some(job::ERRANDS_ARGUMENT) {
        return errands::run();
    }
    ensure!(
        std::process::id() == 1,
        "guest-init is process 1 of a test guest and does nothing elsewhere"
    );
    let dir = std::env::var(job::DIR_VARIABLE)
        .context("no job directory on the kernel's command line")?;
    if let Err(error) = serve(Path::new(&dir)) {
        complain(&format!("guest-init: {error:#}"));
    }
    off()
}

fn serve(dir: &Path) -> Result<()> {
    mounts::make(dir)?;
    let task = read_job()?;
    mounts::keep(&task.keep)?;
    if task.disk.is_some() {
        mounts::disk()?;
    }
    mounts::loopback_up()?;
    if let Some(place) = &task.place {
        mounts::network_up(place)?;
    }
    match &task.init {
        Init::Plain => leave_result(run(&task)?),
        Init::Systemd { files, windows } => systemd::become_systemd(dir, &task, files, windows),
    }
}

fn read_job() -> Result<GuestJob> {
    let text = fs::read(Path::new(job::MOUNT).join(job::JOB)).context("reading the job")?;
    serde_json::from_slice(&text).context("parsing the job")
}

/// Runs the program and reaps all orphans meanwhile. Returns its exit code; 128 + n for signal n.
fn run(task: &GuestJob) -> Result<i32> {
    let append = |name| {
        OpenOptions::new()
            .append(true)
            .open(Path::new(job::MOUNT).join(name))
    };
    let (program, arguments) = task
        .argv
        .split_first()
        .context("the job names no program")?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .envs([("HOME", "/tmp"), ("LANG", "C.UTF-8"), ("TMPDIR", "/tmp")])
        .envs(&task.env)
        .current_dir(&task.cwd)
        .stdin(Stdio::null())
        .stdout(append(job::STDOUT)?)
        .stderr(append(job::STDERR)?)
        .spawn();
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            writeln!(
                append(job::STDERR)?,
                "{program} could not be started in the guest: {error}"
            )?;
            return Ok(127);
        }
    };
    let main = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == main => return Ok(code),
            Ok(WaitStatus::Signaled(pid, signal, _core)) if pid == main => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for the program"),
        }
    }
}

/// Writes the result file by rename, so that it appears complete. This is the last action.
fn leave_result(code: i32) -> Result<()> {
    let unfinished = Path::new(job::MOUNT).join("rc.unfinished");
    let mut file = File::create(&unfinished)?;
    write!(file, "{code}")?;
    file.sync_all()?;
    fs::rename(&unfinished, Path::new(job::MOUNT).join(job::RC)).context("writing the result")
}

fn complain(text: &str) {
    if let Ok(mut console) = OpenOptions::new().write(true).open("/dev/console") {
        // A failure has no other output.
        let _ = writeln!(console, "{text}");
    }
}

fn off() -> Result<()> {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    let never = reboot(RebootMode::RB_POWER_OFF).context("powering off")?;
    match never {}
}
