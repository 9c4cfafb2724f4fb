//! Boots `linux.uml`, streams the output of its program, and reads its result.
//!
//! The exit status of the kernel's process is 0 after any power-off. Therefore only the result file
//! counts.

use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::Bytes;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

use super::{GuestOutcome, job, xstate};

/// Interval of output polls while the guest runs.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// The program of the kernel.
const KERNEL: &str = "linux.uml";

/// The parameters of a guest's kernel.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) memory: Bytes,
    pub(super) timeout: Duration,
    pub(super) quiet: bool,
    pub(super) processor: usize,
    pub(super) init: PathBuf,
}

/// The path of `guest-init`, which cargo builds beside the tests of this package.
pub(super) fn init_binary() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("the path of this program")?;
    exe.ancestors().skip(1).take(2).map(|dir| dir.join("guest-init")).find(|path| path.is_file()).with_context(|| {
        format!("guest-init is not in the directory of {}; run `cargo build -p integration --bins` (same profile)", exe.display())
    })
}

/// Boots `machine` for `task` and waits for its result.
pub(super) fn run(machine: &Machine, task: &job::GuestJob) -> Result<GuestOutcome> {
    let mut booted = Booted::start(machine, task)?;
    let deadline = Instant::now() + machine.timeout;
    let ended = booted.watch(deadline, |booted| {
        booted.pass_on(machine.quiet)?;
        Ok(Glance::GoOn)
    })?;
    booted.kernel.end();
    booted.pass_on(machine.quiet)?;
    ensure!(
        ended == Watched::Ended,
        "the guest did not end within {} s and was killed; its console:\n{}",
        machine.timeout.as_secs(),
        booted.console()
    );
    booted.outcome()
}

/// A running guest and its output.
pub(super) struct Booted {
    kernel: KernelProcess,
    dir: TempDir,
    pub(super) out: Tail,
    pub(super) err: Tail,
}

/// Whether to continue to watch a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glance {
    GoOn,
    Enough,
}

/// The reason why the watch of a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// The guest powered off.
    Ended,
    /// The condition became true.
    Enough,
    /// The deadline has passed.
    Late,
}

impl Booted {
    pub(super) fn start(machine: &Machine, task: &job::GuestJob) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("headroom-guest-")
            .tempdir()
            .context("a directory for the guest's job")?;
        // Programs inside may run as other users, and they need access to the directory too.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        fs::write(dir.path().join(job::JOB), serde_json::to_vec_pretty(task)?)?;
        for name in [job::STDOUT, job::STDERR] {
            File::create(dir.path().join(name))?;
        }
        let kernel = KernelProcess {
            child: spawn(machine, task, dir.path())?,
            gone: false,
        };
        let (out, err) = (
            Tail::open(&dir.path().join(job::STDOUT))?,
            Tail::open(&dir.path().join(job::STDERR))?,
        );
        Ok(Booted {
            kernel,
            dir,
            out,
            err,
        })
    }

    /// Calls `glance` every 20 ms until the guest is off, the deadline has passed, or `glance`
    /// returns `Enough`.
    pub(super) fn watch(
        &mut self,
        deadline: Instant,
        mut glance: impl FnMut(&mut Self) -> Result<Glance>,
    ) -> Result<Watched> {
        let pid = i32::try_from(self.kernel.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .context("process id")?;
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            .context("pidfd of the guest")?;
        while Instant::now() < deadline {
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&GLANCE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {
                    if glance(self)? == Glance::Enough {
                        return Ok(Watched::Enough);
                    }
                }
                Ok(_) => {
                    self.kernel.child.wait()?;
                    return Ok(Watched::Ended);
                }
                Err(e) => return Err(e).context("waiting for the guest"),
            }
        }
        Ok(Watched::Late)
    }

    /// Forwards new output of the guest to this process's own output.
    fn pass_on(&mut self, quiet: bool) -> io::Result<()> {
        if quiet {
            self.out.forward(&mut io::sink())?;
        } else {
            self.out.forward(&mut io::stdout().lock())?;
        }
        self.err.forward(&mut io::stderr().lock())
    }

    /// Ends the guest like a power cut: no process in it runs any further.
    pub(super) fn kill(&mut self) {
        self.kernel.end();
    }

    /// The job directory, through which the guest and its owner exchange files.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn console(&self) -> String {
        last_lines(
            &fs::read_to_string(self.dir.path().join(job::CONSOLE)).unwrap_or_default(),
            30,
        )
    }

    /// The result of a guest that powered off.
    fn outcome(&self) -> Result<GuestOutcome> {
        let Ok(code) = fs::read_to_string(self.dir.path().join(job::RC)) else {
            bail!(
                "the guest ended without a result; its console:\n{}",
                self.console()
            );
        };
        let code = code
            .trim()
            .parse()
            .with_context(|| format!("the guest's result is {code:?}, not a number"))?;
        Ok(GuestOutcome {
            code,
            stdout: self.out.text(),
            stderr: self.err.text(),
        })
    }
}

/// The process group of the guest; dropping it kills all its processes.
struct KernelProcess {
    child: Child,
    gone: bool,
}
impl KernelProcess {
    fn end(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The process group may have ended already.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}
impl Drop for KernelProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(machine: &Machine, task: &job::GuestJob, dir: &Path) -> Result<Child> {
    let console = File::create(dir.join(job::CONSOLE))?;
    let cpu = machine.processor % std::thread::available_parallelism().map_or(1, usize::from);
    // The guest is pinned to one processor: it is two to three times as fast if the scheduler does
    // not migrate it. `setpriv` sets the parent-death signal, because setting it here would need
    // unsafe code between fork and exec.
    let mut command = Command::new("taskset");
    command
        .args([
            "-c",
            &cpu.to_string(),
            "setpriv",
            "--pdeathsig",
            "KILL",
            KERNEL,
        ])
        .args(kernel_arguments(machine, task, dir));
    command
        .env("TMPDIR", memory_dir(machine.memory))
        .stdin(Stdio::null());
    if let Some(library) = xstate::library(dir)? {
        command.env("LD_PRELOAD", library);
    }
    command
        .stdout(console.try_clone()?)
        .stderr(console)
        .process_group(0);
    ensure!(
        on_path(KERNEL),
        "{KERNEL} is not installed: `apt-get install -y user-mode-linux`"
    );
    command
        .spawn()
        .context("taskset could not be started: `apt-get install -y util-linux`")
}

fn kernel_arguments(machine: &Machine, task: &job::GuestJob, dir: &Path) -> Vec<String> {
    let fixed = [
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "umid=guest",
        "con=null",
        "con0=null,fd:1",
        "ssl=null",
        "quiet",
        "panic=-1",
        // These save boot time: the guest needs neither the RAID checksum benchmark nor the
        // calibration of the delay loop.
        "initcall_blacklist=raid6_select_algo",
        "lpj=22171648",
    ];
    let mut arguments: Vec<String> = fixed.iter().map(|&a| a.to_owned()).collect();
    arguments.push(format!("mem={}M", machine.memory.whole_mib()));
    arguments.push(format!("init={}", machine.init.display()));
    arguments.extend(
        task.disk
            .iter()
            .map(|image| format!("ubd0={}", image.display())),
    );
    let interface = |place: &job::GuestAddress| {
        format!(
            "eth0=daemon,{},unix,{}",
            place.hardware(),
            place.switch.display()
        )
    };
    arguments.extend(task.place.iter().map(interface));
    arguments.push(format!("uml_dir={}", dir.join("uml").display()));
    arguments.push(format!("{}={}", job::DIR_VARIABLE, dir.display()));
    arguments
}

/// The directory of the guest's memory file: a tmpfs if one is large enough, because a full one
/// ends the guest with SIGBUS.
fn memory_dir(memory: Bytes) -> &'static str {
    let roomy = nix::sys::statvfs::statvfs("/dev/shm").is_ok_and(|fs| {
        let free = fs.blocks_available().saturating_mul(fs.fragment_size());
        free > memory.saturating_add(Bytes::from_mib(256)).get()
            && !fs.flags().contains(nix::sys::statvfs::FsFlags::ST_NOEXEC)
    });
    if roomy { "/dev/shm" } else { "/tmp" }
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A growing file, forwarded as it grows.
pub(super) struct Tail {
    file: File,
    seen: Vec<u8>,
}

impl Tail {
    fn open(path: &Path) -> Result<Self> {
        Ok(Tail {
            file: File::open(path)?,
            seen: Vec::new(),
        })
    }
    fn forward(&mut self, to: &mut impl Write) -> io::Result<()> {
        let from = self.seen.len();
        if self.file.read_to_end(&mut self.seen)? > 0 {
            to.write_all(&self.seen[from..])?;
            to.flush()?;
        }
        Ok(())
    }
    /// Reads on without forwarding.
    pub(super) fn read(&mut self) -> io::Result<String> {
        self.file.read_to_end(&mut self.seen)?;
        Ok(self.text())
    }
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}
