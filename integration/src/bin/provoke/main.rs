//! Fills one kind of memory, slowly enough to be watched, until the kernel ends it. Run by the diagnosis tests and by
//! `measure diagnosis`; nothing else should ever want to.
//!
//! `provoke own-data | arenas | children | threads | tmpfs FILE | sockets`
//!
//! These end well where the environment cures them: `provoke idle-arenas | pool | temporary MIB`

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // it sleeps so that its memory grows slowly enough to be watched

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

const MIB: usize = 1 << 20;
/// Between two steps: a limit of some dozen MiB takes about half a second to reach.
const STEP: Duration = Duration::from_millis(8);
/// A child that nobody kills goes by itself.
const LIFE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["own-data"] => own_data(usize::MAX),
        ["hold", mib] => {
            own_data(mib.parse().context("how many MiB")?);
            thread::sleep(LIFE);
        }
        ["hold", mib, seconds] => {
            own_data(mib.parse().context("how many MiB")?);
            thread::sleep(Duration::from_secs(seconds.parse().context("how many seconds")?));
        }
        ["arenas"] => arenas(),
        ["children"] => children()?,
        ["threads"] => threads()?,
        ["tmpfs", file] => tmpfs(file)?,
        ["sockets"] => sockets()?,
        ["idle-arenas"] => idle_arenas(),
        ["pool"] => pool()?,
        ["temporary", mib] => temporary(mib.parse().context("how many MiB")?)?,
        _ => bail!("{words:?}: own-data | arenas | children | threads | tmpfs FILE | sockets"),
    }
    Ok(())
}

fn touched(bytes: usize) -> Vec<u8> {
    black_box(vec![1u8; bytes])
}

/// Plain data of its own, in one thread.
fn own_data(mib: usize) {
    let mut kept = Vec::new();
    for _ in 0..mib {
        kept.push(touched(MIB));
        thread::sleep(STEP);
    }
    black_box(&kept);
    std::mem::forget(kept);
}

/// Small blocks in many threads: the allocator gives each thread an arena of its own.
fn arenas() {
    let threads: Vec<_> = (0..16)
        .map(|_| {
            thread::spawn(|| {
                let mut kept = Vec::new();
                loop {
                    kept.extend((0..64).map(|_| touched(2 << 10)));
                    thread::sleep(STEP * 4);
                }
            })
        })
        .collect();
    let _: Vec<Result<(), _>> = threads.into_iter().map(thread::JoinHandle::join).collect();
}

/// Threads that have each freed 12 MiB that they used: with an arena for each of them it stays charged, with one arena it is used again. On a
/// single processor there are eight arenas at most.
fn idle_arenas() {
    let mut all = Vec::new();
    for _ in 0..24 {
        let (done, ready) = mpsc::channel();
        all.push(thread::spawn(move || {
            let mut used: Vec<Vec<u8>> = (0..6144).map(|_| touched(2 << 10)).collect();
            // What lies at the end keeps the arena from shrinking.
            let last = used.pop();
            drop(used);
            let _ = done.send(());
            thread::park_timeout(LIFE);
            drop(last);
        }));
        let _ = ready.recv();
        thread::sleep(STEP * 32);
    }
    for thread in all {
        thread.thread().unpark();
        let _ = thread.join();
    }
}

/// A pool of as many threads as `OMP_NUM_THREADS` says, or of very many; all of them go deep once.
fn pool() -> Result<()> {
    let threads: u32 = std::env::var("OMP_NUM_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(600);
    let mut all = Vec::new();
    for _ in 0..threads {
        let deep = || {
            black_box([1u8; 200 << 10]);
            thread::park_timeout(LIFE);
        };
        all.push(thread::Builder::new().stack_size(1 << 20).spawn(deep)?);
        thread::sleep(Duration::from_millis(4));
    }
    for thread in all {
        thread.thread().unpark();
        let _ = thread.join();
    }
    Ok(())
}

/// Files of so many MiB below `TMPDIR`.
fn temporary(mib: usize) -> Result<()> {
    let path = std::env::temp_dir().join(format!("provoke-{}", std::process::id()));
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&path)?;
    for _ in 0..mib {
        file.write_all(&[1; MIB])?;
        thread::sleep(STEP);
    }
    Ok(std::fs::remove_file(path)?)
}

/// Processes that each hold a little.
fn children() -> Result<()> {
    let me = std::env::current_exe()?;
    let mut all: Vec<Child> = Vec::new();
    for _ in 0..64 {
        all.push(Command::new(&me).args(["hold", "12"]).spawn()?);
        thread::sleep(Duration::from_millis(150));
    }
    all.iter_mut().for_each(|child| drop(child.wait()));
    Ok(())
}

/// Threads that have gone deep once and then wait.
fn threads() -> Result<()> {
    let (_keep, never) = mpsc::channel::<()>();
    let never = std::sync::Arc::new(std::sync::Mutex::new(never));
    for _ in 0..10_000 {
        let never = never.clone();
        let deep = move || {
            black_box([1u8; 200 << 10]);
            let _ = never.lock().map(|never| never.recv());
        };
        thread::Builder::new().stack_size(1 << 20).spawn(deep)?;
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A file in memory.
fn tmpfs(file: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(file)?;
    loop {
        file.write_all(&[1; MIB])?;
        thread::sleep(STEP);
    }
}

/// Data that is sent and never read.
fn sockets() -> Result<()> {
    let mut kept = Vec::new();
    loop {
        let (mut from, to) = UnixStream::pair()?;
        from.set_nonblocking(true)?;
        while from.write(&[1; 64 << 10]).is_ok() {}
        kept.push((from, to));
        thread::sleep(Duration::from_millis(2));
    }
}
