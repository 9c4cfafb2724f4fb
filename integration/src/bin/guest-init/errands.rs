//! Scripts of a running guest: the owner puts numbered shell scripts into the job directory, and
//! finds their output and exit codes there.
//!
//! Each script has its own thread, so a long one does not delay the others. It ends with the guest.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use integration::clock;
use integration::guest::job;

/// Interval of polls for the next script.
const GLANCE: Duration = Duration::from_millis(20);

/// Runs scripts in the order of their numbers, from 0, each as soon as it exists.
pub(crate) fn run() -> Result<()> {
    let place = Path::new(job::MOUNT).join(job::ERRANDS);
    for number in 0_u32.. {
        let script = place.join(number.to_string());
        while !script.exists() {
            clock::pause(GLANCE);
        }
        std::thread::spawn(move || {
            let code = sh(&script).map_or(126, code_of);
            // Without a result the owner's wait times out.
            let _ = leave(&script, code);
        });
    }
    Ok(())
}

fn sh(script: &Path) -> Result<ExitStatus> {
    let text = fs::read_to_string(script).context("reading a script")?;
    let mut command = Command::new("sh");
    command
        .args(["-c", &text])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .current_dir("/")
        .stdin(Stdio::null());
    command
        .stdout(File::create(script.with_extension("out"))?)
        .stderr(File::create(script.with_extension("err"))?);
    Ok(command.status()?)
}

/// The exit code; 128 + n for signal n.
fn code_of(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Writes the result file by rename, so that it appears complete.
fn leave(script: &Path, code: i32) -> Result<()> {
    let unfinished = script.with_extension("unfinished");
    fs::write(&unfinished, code.to_string())?;
    Ok(fs::rename(&unfinished, script.with_extension("rc"))?)
}
