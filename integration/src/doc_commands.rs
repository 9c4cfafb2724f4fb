//! Commands in the documentation: extracts them from a page and runs them in a shell that stops at
//! the first failure.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cluster::until;
use crate::programs;

/// The code blocks of a page with this mark, in order.
pub fn blocks(text: &str, mark: &str) -> Vec<String> {
    let (fence, mut blocks, mut inside) = (format!("```{mark}"), Vec::<String>::new(), false);
    for line in text.lines().map(str::trim_end) {
        if !inside && line == fence {
            inside = true;
            blocks.push(String::new());
        } else if inside && line == "```" {
            inside = false;
        } else if let Some(block) = blocks.last_mut().filter(|_| inside) {
            block.push_str(line);
            block.push('\n');
        }
    }
    blocks
}

/// Runs a script with the programs of this build on `PATH`, waits for its end, and returns its
/// output. `said` is the file that collects the output.
///
/// # Errors
/// The script failed or did not end within `timeout`. The error contains the output.
pub fn run(shell: &mut Command, said: &Path, timeout: Duration) -> Result<String> {
    let file = File::create(said)?;
    let path = format!(
        "{}:{}",
        programs::dir()?.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let shell = shell
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    let mut child = shell.spawn().context("a shell")?;
    let ended = until("the end of the typed commands", timeout, || {
        Ok(child.try_wait()?)
    });
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let words = std::fs::read_to_string(said).unwrap_or_default();
    let status = ended.with_context(|| format!("the commands did not end; output:\n{words}"))?;
    ensure!(
        status.success(),
        "the commands failed with {status}; output:\n{words}"
    );
    Ok(words)
}
