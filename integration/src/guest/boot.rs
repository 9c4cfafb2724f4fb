//! Starts `linux.uml`, streams what its program writes, and takes its result.
//!
//! The exit status of the kernel's process says nothing (0 after any power-off), so the result file alone decides.

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

use super::{Outcome, job};

/// How often output is looked at while the guest runs.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The kernel to boot.
const KERNEL: &str = "linux.uml";

/// What is booted.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) memory: Bytes,
    pub(super) timeout: Duration,
    pub(super) init: PathBuf,
}

/// `guest-init`, which cargo builds beside the tests of this package.
pub(super) fn init_binary() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("where this program lies")?;
    exe.ancestors().skip(1).take(2).map(|dir| dir.join("guest-init")).find(|path| path.is_file()).with_context(|| {
        format!("guest-init is not beside {}; run `cargo build -p integration --bins` (same profile)", exe.display())
    })
}

/// Boots `machine` for `task` and waits for its result.
pub(super) fn run(machine: &Machine, task: &job::Job) -> Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("headroom-guest-").tempdir().context("a directory for the guest's job")?;
    // Inside, programs may run as other users; they must reach the directory too.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    fs::write(dir.path().join(job::JOB), serde_json::to_vec_pretty(task)?)?;
    for name in [job::STDOUT, job::STDERR] {
        File::create(dir.path().join(name))?;
    }
    let mut kernel = KernelProcess(spawn(machine, dir.path())?);
    let deadline = Instant::now() + machine.timeout;
    let mut out = Tail::open(&dir.path().join(job::STDOUT))?;
    let mut err = Tail::open(&dir.path().join(job::STDERR))?;
    let ended = watch(&mut kernel.0, deadline, || {
        out.forward(&mut io::stdout().lock())?;
        err.forward(&mut io::stderr().lock())
    })?;
    drop(kernel);
    out.forward(&mut io::stdout().lock())?;
    err.forward(&mut io::stderr().lock())?;
    let console = || last_lines(&fs::read_to_string(dir.path().join(job::CONSOLE)).unwrap_or_default(), 30);
    ensure!(ended, "the guest did not end within {} s and was killed; its console:\n{}", machine.timeout.as_secs(), console());
    let Ok(code) = fs::read_to_string(dir.path().join(job::RC)) else {
        bail!("the guest ended without a result; its console:\n{}", console());
    };
    let code = code.trim().parse().with_context(|| format!("the guest's result is {code:?}, not a number"))?;
    Ok(Outcome { code, stdout: out.text(), stderr: err.text() })
}

/// The guest's processes; none outlives it.
struct KernelProcess(Child);
impl Drop for KernelProcess {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            // Gone already is what is wanted.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

fn spawn(machine: &Machine, dir: &Path) -> Result<Child> {
    let console = File::create(dir.join(job::CONSOLE))?;
    let cpu = std::process::id() as usize % std::thread::available_parallelism().map_or(1, usize::from);
    // One processor: a guest is two to three times as fast when the scheduler does not move it about. The parent-death signal
    // is set by setpriv because setting it here would need unsafe code between fork and exec.
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "setpriv", "--pdeathsig", "KILL", KERNEL]).args(kernel_arguments(machine, dir));
    command.env("TMPDIR", memory_dir(machine.memory)).stdin(Stdio::null());
    command.stdout(console.try_clone()?).stderr(console).process_group(0);
    ensure!(on_path(KERNEL), "{KERNEL} is not installed: `apt-get install -y user-mode-linux`");
    command.spawn().context("taskset could not be started: `apt-get install -y util-linux`")
}

fn kernel_arguments(machine: &Machine, dir: &Path) -> Vec<String> {
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
        // Speed only: a checksum benchmark that nothing here needs, and the measuring of the delay loop.
        "initcall_blacklist=raid6_select_algo",
        "lpj=22171648",
    ];
    let mut arguments: Vec<String> = fixed.iter().map(|&a| a.to_owned()).collect();
    arguments.push(format!("mem={}M", machine.memory.whole_mib()));
    arguments.push(format!("init={}", machine.init.display()));
    arguments.push(format!("uml_dir={}", dir.join("uml").display()));
    arguments.push(format!("{}={}", job::DIR_VARIABLE, dir.display()));
    arguments
}

/// Where the guest's memory lies: a tmpfs when there is a large enough one, because a full one ends the guest with SIGBUS.
fn memory_dir(memory: Bytes) -> &'static str {
    let roomy = nix::sys::statvfs::statvfs("/dev/shm").is_ok_and(|fs| {
        let free = fs.blocks_available().saturating_mul(fs.fragment_size());
        free > memory.saturating_add(Bytes::from_mib(256)).get() && !fs.flags().contains(nix::sys::statvfs::FsFlags::ST_NOEXEC)
    });
    if roomy { "/dev/shm" } else { "/tmp" }
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Waits for the process, looking around every 20 ms. False when the deadline passed first.
fn watch(child: &mut Child, deadline: Instant, mut glance: impl FnMut() -> io::Result<()>) -> Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).context("process id")?;
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).context("pidfd of the guest")?;
    while Instant::now() < deadline {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&GLANCE)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => glance()?,
            Ok(_) => {
                child.wait()?;
                return Ok(true);
            }
            Err(e) => return Err(e).context("waiting for the guest"),
        }
    }
    Ok(false)
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A file that grows, passed on as it does.
struct Tail {
    file: File,
    seen: Vec<u8>,
}

impl Tail {
    fn open(path: &Path) -> Result<Self> {
        Ok(Tail { file: File::open(path)?, seen: Vec::new() })
    }
    fn forward(&mut self, to: &mut impl Write) -> io::Result<()> {
        let from = self.seen.len();
        if self.file.read_to_end(&mut self.seen)? > 0 {
            to.write_all(&self.seen[from..])?;
            to.flush()?;
        }
        Ok(())
    }
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}
