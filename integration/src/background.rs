//! Programs that run beside a test, with their output in files, and scripts that install programs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::cluster::{ProgramOutput, until};

/// A started program. It is killed when the value is dropped.
#[derive(Debug)]
pub struct BackgroundProgram {
    child: Child,
    out: TempDir,
}

impl BackgroundProgram {
    /// Starts a program in an empty directory, without input.
    pub fn start(command: Command) -> Result<BackgroundProgram> {
        let out = tempfile::Builder::new().prefix("headroom-run-").tempdir()?;
        let folder = out.path().to_owned();
        Self::spawn(command, &folder, out)
    }

    /// Starts a program in this directory, without input.
    pub fn start_in(command: Command, folder: &Path) -> Result<BackgroundProgram> {
        let out = tempfile::Builder::new().prefix("headroom-run-").tempdir()?;
        Self::spawn(command, folder, out)
    }

    fn spawn(mut command: Command, folder: &Path, out: TempDir) -> Result<BackgroundProgram> {
        let child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(File::create(out.path().join("stdout"))?)
            .stderr(File::create(out.path().join("stderr"))?)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(BackgroundProgram { child, out })
    }

    /// Process id.
    pub fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for the end and returns the output.
    pub fn wait(mut self, timeout: Duration) -> Result<ProgramOutput> {
        let child = &mut self.child;
        let ended = until("the end of the program", timeout, || Ok(child.try_wait()?));
        let code = match ended {
            Ok(status) => status.code().unwrap_or(-1),
            Err(error) => {
                let log = last_lines(&self.read("stderr"), 40);
                return Err(error.context(format!("its errors end with:\n{log}")));
            }
        };
        Ok(ProgramOutput {
            code,
            stdout: self.read("stdout"),
            stderr: self.read("stderr"),
        })
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.out.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for BackgroundProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last `count` lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Runs a script of this crate that installs programs, and returns the directory that it prints as
/// `VARIABLE=DIRECTORY`.
pub fn run_installer(script: &str, arguments: &[&str], variable: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(&script)
        .args(arguments)
        .env_remove("NEXTEST_ENV")
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    ensure!(output.status.success(), "{} failed", script.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(variable)?.strip_prefix('='))
        .with_context(|| format!("no {variable} in the output of the installer"))?;
    Ok(PathBuf::from(line))
}
