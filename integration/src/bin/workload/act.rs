//! A program as a list of steps, one word each. The verdict matrix uses it.
//!
//! It runs in a container and does exactly its steps, so the command line alone explains a wrong
//! verdict. All waits and amounts are bounded: if it is not killed, it exits with [`UNHARMED`].

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use integration::clock;
use nix::sys::signal::{SigSet, Signal};

/// Exit code of a program that was not killed as expected.
const UNHARMED: u8 = 98;
/// Timeout of all waits.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of file polls.
const GLANCE: Duration = Duration::from_millis(2);
const MIB: usize = 1 << 20;

/// Resources that are kept until the end.
#[derive(Default)]
struct Held {
    memory: Vec<Vec<u8>>,
    files: Vec<File>,
    sockets: Vec<UnixStream>,
    children: Vec<Child>,
}

impl Drop for Held {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The child may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the steps in order and returns the exit code.
pub(crate) fn act(steps: &[String]) -> Result<u8> {
    let mut held = Held::default();
    for step in steps {
        let (word, value) = step.split_once(':').unwrap_or((step, ""));
        if let Some(code) = one(&mut held, word, value).with_context(|| format!("step {step}"))? {
            return Ok(code);
        }
    }
    Ok(0)
}

/// Runs one step. Returns an exit code if it was the last.
fn one(held: &mut Held, word: &str, value: &str) -> Result<Option<u8>> {
    match word {
        "ready" => say("ready")?,
        "await-go" => until("the file `go`", || Path::new("go").exists())?,
        "sleep" => clock::pause(Duration::from_millis(value.parse()?)),
        "take" => take(held, value.parse()?),
        "hog" => return hog(held, value.parse()?).map(Some),
        "tmpfs" => held
            .files
            .push(fill(unlinked(Path::new("/dev/shm"))?, value.parse()?)?),
        "cache" => cache(value)?,
        "sockets" => sockets(held, value.parse()?)?,
        "sleepers" => sleepers(held, value.parse()?)?,
        "bomb" => return bomb(held, value.parse()?).map(Some),
        "child" => return child(value).map(Some),
        "outlive" => {
            child(value)?;
        }

        "alone" => {
            fs::write(group()?.join("main/memory.oom.group"), "0").context("memory.oom.group")?
        }
        "task" => return task(value).map(Some),
        "hold-term" => hold_term().thread_block()?,
        "await-term" => {
            hold_term().wait()?;
        }
        "marker" => fs::write(variable("HEADROOM_OOM_MARKER")?, value.replace('_', " "))?,
        "err" => writeln!(std::io::stderr(), "{}", value.replace('_', " "))?,
        "exit" => return Ok(Some(value.parse()?)),
        "raise" => nix::sys::signal::raise(Signal::try_from(value.parse::<i32>()?)?)?,
        _ => bail!("unknown step"),
    }
    Ok(None)
}

fn variable(name: &str) -> Result<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .with_context(|| format!("{name} is not set"))
}

/// The cgroup of this container.
fn group() -> Result<PathBuf> {
    variable("HEADROOM_CGROUP")
}

fn say(what: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}")?;
    out.flush().context("standard output")
}

fn until(what: &str, mut see: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !see() {
        if Instant::now() > deadline {
            bail!("timed out waiting for {what}");
        }
        clock::pause(GLANCE);
    }
    Ok(())
}

/// Allocates and touches anonymous memory, and keeps it.
fn take(held: &mut Held, mib: usize) {
    for _ in 0..mib {
        held.memory.push(std::hint::black_box(vec![1; MIB]));
    }
}

/// Allocates memory and then waits to be killed.
fn hog(held: &mut Held, mib: usize) -> Result<u8> {
    take(held, mib);
    clock::pause(TIMEOUT);
    Ok(UNHARMED)
}

/// An unlinked file, which is removed when its owner closes it.
fn unlinked(dir: &Path) -> Result<File> {
    let path = dir.join(format!("headroom-workload-{}", std::process::id()));
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .context("a file")?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn fill(mut file: File, mib: usize) -> Result<File> {
    let block = vec![7; MIB];
    for _ in 0..mib {
        file.write_all(&block)?;
    }
    Ok(file)
}

/// `DIR,MIB,TIMES`: writes a file there and reads it repeatedly. This uses almost only page cache.
fn cache(value: &str) -> Result<()> {
    let mut words = value.split(',');
    let mut word = || words.next().context("DIR,MIB,TIMES");
    let (dir, mib, times) = (
        PathBuf::from(word()?),
        word()?.parse()?,
        word()?.parse::<u32>()?,
    );
    let mut file = fill(unlinked(&dir)?, mib)?;
    let mut block = vec![0; 64 << 10];
    for _ in 0..times {
        file.seek(SeekFrom::Start(0))?;
        while file.read(&mut block)? > 0 {}
    }
    Ok(())
}

/// Fills socket buffers that are never read.
fn sockets(held: &mut Held, mib: usize) -> Result<()> {
    let (block, mut filled) = (vec![5; 64 << 10], 0);
    while filled < mib * MIB {
        let (mut near, far) = UnixStream::pair().context("a pair of sockets")?;
        near.set_nonblocking(true)?;
        while let Ok(n) = near.write(&block) {
            filled += n;
        }
        held.sockets.extend([near, far]);
    }
    clock::pause(TIMEOUT);
    Ok(())
}

fn sleeper() -> std::io::Result<Child> {
    Command::new("/bin/sleep")
        .arg("60")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn sleepers(held: &mut Held, count: usize) -> Result<()> {
    for _ in 0..count {
        held.children.push(sleeper().context("a sleeper")?);
    }
    Ok(())
}

/// Starts up to `most` processes. Returns 11 (EAGAIN) if one is refused.
fn bomb(held: &mut Held, most: usize) -> Result<u8> {
    for _ in 0..most {
        match sleeper() {
            Ok(child) => held.children.push(child),
            Err(error) => {
                return Ok(error
                    .raw_os_error()
                    .and_then(|n| u8::try_from(n).ok())
                    .unwrap_or(UNHARMED));
            }
        }
    }
    Ok(UNHARMED)
}

/// Runs a child with these steps. Returns its exit code, or 128 + n for signal n, as a shell does.
fn child(steps: &str) -> Result<u8> {
    let status = Command::new(std::env::current_exe()?)
        .arg("act")
        .args(steps.split(','))
        .status()
        .context("a child")?;
    let code = status
        .code()
        .or(status.signal().map(|n| 128 + n))
        .unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

/// `MIB,STEP,…`: creates a cgroup beside `main` with its own limit, and runs a child in it with
/// these steps, as an executor does with a task. Returns 0 if the child was killed and this program
/// was not.
fn task(value: &str) -> Result<u8> {
    let (mib, steps) = value.split_once(',').context("MIB,STEP")?;
    let dir = group()?.join("task-one-0-1");
    fs::create_dir(&dir)?;
    let limit = (mib.parse::<usize>()? * MIB).to_string();
    let known = ["memory.max", "memory.limit_in_bytes"]
        .into_iter()
        .find(|name| dir.join(name).exists());
    fs::write(dir.join(known.context("a memory limit")?), limit)?;
    if dir.join("memory.oom.group").exists() {
        fs::write(dir.join("memory.oom.group"), "1")?;
    }
    let words: Vec<String> = ["enter".to_owned(), dir.display().to_string()]
        .into_iter()
        .chain(steps.split(',').map(Into::into))
        .collect();
    let status = Command::new(std::env::current_exe()?)
        .args(words)
        .status()
        .context("a task")?;
    Ok(if status.signal() == Some(9) {
        0
    } else {
        UNHARMED
    })
}

/// Enters a cgroup and then runs the steps.
pub(crate) fn enter(dir: &Path, steps: &[String]) -> Result<u8> {
    let procs = dir.join("cgroup.procs");
    let mut file = OpenOptions::new()
        .write(true)
        .open(&procs)
        .with_context(|| procs.display().to_string())?;
    file.write_all(b"0").context("entering the task's cgroup")?;
    act(steps)
}

fn hold_term() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set
}
