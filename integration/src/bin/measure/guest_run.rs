//! Runs this program again in a guest with cgroup v2.

use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_types::Bytes;
use integration::guest::{Disk, Guest, job};
use serde_json::{Map, Value};

/// Usual memory of the guest.
const MEMORY: Bytes = Bytes::from_mib(2048);
/// Disk of the guest for files of programs, because the temporary directory of a guest is memory.
/// MiB.
const DISK: u32 = 1024;

/// Runs `measure WORDS -o json` in a guest with the timeout `longest`, and returns the printed
/// object.
pub(crate) fn in_a_guest(words: &[&str], longest: Duration) -> Result<Map<String, Value>> {
    in_a_guest_of(MEMORY, words, longest)
}

/// As [`in_a_guest`], in a guest with this much memory.
pub(crate) fn in_a_guest_of(
    memory: Bytes,
    words: &[&str],
    longest: Duration,
) -> Result<Map<String, Value>> {
    let own = std::env::current_exe().context("the path of this program")?;
    let own = own.to_str().context("this program's path is not UTF-8")?;
    let disk = Disk::new(DISK)?;
    let guest = Guest::new()
        .with_programs()
        .memory(memory)
        .disk(&disk)
        .env("TMPDIR", job::DISK)
        .timeout(longest)
        .quietly();
    let all: Vec<&str> = [&[own], words, &["-o", "json"]].concat();
    let outcome = guest.run(&all)?;
    let line = outcome
        .stdout
        .lines()
        .rev()
        .find(|line| line.starts_with('{'));
    let line = line.with_context(|| {
        format!(
            "the guest returned no report and exit code {}",
            outcome.code
        )
    })?;
    serde_json::from_str(line).context("the report of the guest")
}
