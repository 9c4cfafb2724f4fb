//! Errands: whoever owns the guest lays numbered shell scripts into the job directory, and finds what each wrote and how it ended.
//!
//! One thread for each errand, so that a long one keeps nobody waiting. Ends with the guest.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use integration::clock;
use integration::guest::job;

/// Between two looks for the next one.
const GLANCE: Duration = Duration::from_millis(20);

/// Runs errands in the order of their numbers, from 0, each as soon as it is there.
pub(crate) fn run() -> Result<()> {
    let place = Path::new(job::MOUNT).join(job::ERRANDS);
    for number in 0_u32.. {
        let script = place.join(number.to_string());
        while !script.exists() {
            clock::pause(GLANCE);
        }
        std::thread::spawn(move || {
            let code = sh(&script).map_or(126, code_of);
            // Whoever waits sees that there is no result, and when.
            let _ = leave(&script, code);
        });
    }
    Ok(())
}

fn sh(script: &Path) -> Result<ExitStatus> {
    let text = fs::read_to_string(script).context("reading an errand")?;
    let mut command = Command::new("sh");
    command.args(["-c", &text]).env("DEBIAN_FRONTEND", "noninteractive").current_dir("/").stdin(Stdio::null());
    command.stdout(File::create(script.with_extension("out"))?).stderr(File::create(script.with_extension("err"))?);
    Ok(command.status()?)
}

/// The exit code; 128 + n for signal n.
fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The name appears only when the text is whole.
fn leave(script: &Path, code: i32) -> Result<()> {
    let unfinished = script.with_extension("unfinished");
    fs::write(&unfinished, code.to_string())?;
    Ok(fs::rename(&unfinished, script.with_extension("rc"))?)
}
