//! Power cuts while the store commits: all acknowledged commits are present afterwards.
//!
//! A guest with its own disk runs this test as the writer. It reports each commit to the host after
//! the return. The host kills the guest's kernel at a moment that depends on the seed; the next
//! guest finds the disk as the cut left it. `HEADROOM_POWER_SEED=N` repeats the moments of a run.

#![allow(missing_docs)] // a test binary has no public API

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_rm_core::DurableRecord;
use headroom_rm_store::{RecordStore as _, open_with_log};
use headroom_types::{AppId, Bytes, StoreBackend};
use integration::clock;
use integration::guest::{Disk, Guest, in_guest, job};
use integration::simulation::random_source::RandomSource;

/// Power cuts in one test. Each takes one or two seconds.
const ROUNDS: u32 = 10;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Size of the files of the store's log. Cuts also fall into checkpoints.
const LOG: Bytes = Bytes::from_kib(256);

fn app(n: usize) -> AppId {
    AppId::new(
        "job".parse().expect("name"),
        u32::try_from(n).expect("small"),
    )
}

/// A document with one of several sizes, so that the values of a key shrink and grow.
fn document(n: usize) -> Vec<u8> {
    vec![b'0' + u8::try_from(n % 10).expect("small"); 1000 + 7919 * (n % 5)]
}

fn say(what: &str, n: usize) {
    let mut out = std::io::stdout();
    writeln!(out, "{what} {n}")
        .and_then(|()| out.flush())
        .expect("the host reads");
}

/// In the guest: checks and counts the present commits, and then commits until the power is cut.
fn commit_for_ever(backend: StoreBackend) {
    let dir = Path::new(job::DISK).join("state");
    let mut opened = open_with_log(&dir, backend, LOG).expect("opens after a power cut");
    let mut have: Vec<usize> = opened
        .restored
        .nodes
        .iter()
        .map(|n| n.as_str()[1..].parse().expect("a number"))
        .collect();
    have.sort_unstable();
    assert_eq!(have, (0..have.len()).collect::<Vec<_>>(), "a hole");
    for n in have.len().saturating_sub(20)..have.len() {
        assert_eq!(
            opened.documents.get(&app(n % 20)).expect("reads"),
            Some(document(n)),
            "the batch of {n} is not whole"
        );
    }
    say("have", have.len());
    for n in have.len().. {
        opened
            .journal
            .append(&DurableRecord::Node(format!("n{n}").parse().expect("id")))
            .expect("appends");
        opened
            .journal
            .append_document(&app(n % 20), document(n))
            .expect("appends");
        opened.commit().expect("commits");
        say("acked", n + 1);
        if n % 16 == 15 {
            opened.store.snapshot().expect("writes");
        }
    }
}

/// The number of the last complete line `WHAT NUMBER`.
fn last(what: &str, output: &str) -> Option<usize> {
    let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
    // The first line shares its place with output of the test runner.
    whole
        .lines()
        .rev()
        .find_map(|line| line.split_once(&format!("{what} "))?.1.parse().ok())
}

fn seed() -> u64 {
    let given = std::env::var("HEADROOM_POWER_SEED")
        .ok()
        .map(|seed| seed.parse().expect("HEADROOM_POWER_SEED is a number"));
    given.unwrap_or_else(|| u64::try_from(clock::realtime_nanos() % 1_000_000).expect("small"))
}

/// One boot: the number of commits that the guest found, and of those that it had acknowledged at
/// the cut.
fn until_the_cut(
    name: &str,
    disk: &Disk,
    chance: &mut RandomSource,
) -> anyhow::Result<(usize, usize)> {
    let exe = std::env::current_exe()?;
    let argv = [
        exe,
        PathBuf::from("--exact"),
        PathBuf::from(name),
        PathBuf::from("--nocapture"),
    ];
    let guest = Guest::new()
        .memory(Bytes::from_mib(192))
        .timeout(TIMEOUT)
        .disk(disk);
    let mut guest = guest.start(&argv)?;
    let more = usize::try_from(chance.between(1, 60))?;
    guest.until(|output| {
        last("have", output)
            .is_some_and(|have| last("acked", output).is_some_and(|acked| acked >= have + more))
    })?;
    // The cut falls anywhere within the next commits, not only after an acknowledged one.
    clock::pause(Duration::from_micros(chance.below(30_000)));
    let output = guest.cut()?;
    Ok((
        last("have", &output).unwrap_or(0),
        last("acked", &output).unwrap_or(0),
    ))
}

fn survives(name: &str, backend: StoreBackend) {
    if in_guest() {
        return commit_for_ever(backend);
    }
    let seed = seed();
    let mut chance = RandomSource::new(seed);
    let disk = Disk::new(256).expect("an image");
    let (mut acked, mut all) = (0, Ok(()));
    for round in 0..=ROUNDS {
        all = until_the_cut(name, &disk, &mut chance)
            .map_err(|error| format!("{error:#}"))
            .and_then(|(have, now)| {
                let whole = have == acked || have == acked + 1;
                let before = std::mem::replace(&mut acked, now);
                whole
                    .then_some(())
                    .ok_or_else(|| format!("{before} commits were acknowledged, but {have} exist"))
            });
        if let Err(wrong) = &mut all {
            *wrong = format!("after cut {round} (HEADROOM_POWER_SEED={seed}): {wrong}");
            break;
        }
    }
    if let Err(wrong) = all {
        panic!("{wrong}\nthe disk: {}", disk.keep().display());
    }
}

#[test]
fn every_commit_to_sled_survives_in_a_guest() {
    survives(
        "every_commit_to_sled_survives_in_a_guest",
        StoreBackend::Sled,
    );
}

#[test]
fn every_commit_to_redb_survives_in_a_guest() {
    survives(
        "every_commit_to_redb_survives_in_a_guest",
        StoreBackend::Redb,
    );
}

/// Proves that the cut is effective: data without a sync is lost, although the write succeeded.
#[test]
fn unsynced_writes_are_lost_in_a_guest() {
    let file = Path::new(job::DISK).join("numbers");
    if in_guest() {
        say(
            "have",
            std::fs::metadata(&file).map_or(0, |m| usize::try_from(m.len()).expect("small")),
        );
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&file)
            .expect("opens");
        for n in 1.. {
            file.write_all(b"x").expect("writes");
            say("acked", n);
        }
    }
    let (disk, mut chance) = (Disk::new(64).expect("an image"), RandomSource::new(seed()));
    let name = "unsynced_writes_are_lost_in_a_guest";
    let (_, written) = until_the_cut(name, &disk, &mut chance).expect("runs");
    let (found, _) = until_the_cut(name, &disk, &mut chance).expect("runs");
    assert!(
        written > 0 && found < written,
        "{found} of {written} bytes survived without a sync"
    );
}
