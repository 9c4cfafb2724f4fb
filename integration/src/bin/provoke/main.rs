//! Fills one kind of memory until the kernel kills it, slowly enough for the sampler. Only the
//! diagnosis tests and `measure diagnosis` run it.
//!
//! `provoke own-data | arenas | children | threads | tmpfs FILE | sockets`
//!
//! The environment can make these succeed: `provoke idle-arenas | pool | temporary MIB`

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // it sleeps so that the sampler can follow

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
/// Time between two steps. A limit of some dozen MiB is reached in about 0.5 s.
const STEP: Duration = Duration::from_millis(8);
/// Time after which a child exits by itself.
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
            thread::sleep(Duration::from_secs(
                seconds.parse().context("how many seconds")?,
            ));
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

/// Allocates plain data in one thread.
fn own_data(mib: usize) {
    let mut kept = Vec::new();
    for _ in 0..mib {
        kept.push(touched(MIB));
        thread::sleep(STEP);
    }
    black_box(&kept);
    std::mem::forget(kept);
}

/// Allocates small blocks in many threads: the allocator gives each thread its own arena.
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

/// Runs threads that each free 12 MiB after use. With an arena for each thread the memory stays
/// charged; with one arena it is reused. On a single processor there are at most eight arenas.
fn idle_arenas() {
    let mut all = Vec::new();
    for _ in 0..24 {
        let (done, ready) = mpsc::channel();
        all.push(thread::spawn(move || {
            let mut used: Vec<Vec<u8>> = (0..6144).map(|_| touched(2 << 10)).collect();
            // The block at the end prevents the arena from shrinking.
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

/// Runs a pool of `OMP_NUM_THREADS` threads, or 600 without the variable; each uses a deep stack
/// once.
fn pool() -> Result<()> {
    let threads: u32 = std::env::var("OMP_NUM_THREADS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(600);
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

/// Writes a file of `mib` MiB below `TMPDIR`.
fn temporary(mib: usize) -> Result<()> {
    let path = std::env::temp_dir().join(format!("provoke-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(&path)?;
    for _ in 0..mib {
        file.write_all(&[1; MIB])?;
        thread::sleep(STEP);
    }
    Ok(std::fs::remove_file(path)?)
}

/// Runs processes that each hold a little memory.
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

/// Runs threads that use a deep stack once and then wait.
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

/// Writes a file in memory.
fn tmpfs(file: &str) -> Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(file)?;
    loop {
        file.write_all(&[1; MIB])?;
        thread::sleep(STEP);
    }
}

/// Sends data that is never received.
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
