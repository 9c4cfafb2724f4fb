//! Programs with a wrong wall clock; see `skew.c`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

const SOURCE: &str = include_str!("skew.c");

/// The error of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Seconds. A positive value means that the clock is ahead.
    pub seconds: i64,
}

impl Skew {
    /// An error in hours. A positive value means that the clock is ahead.
    pub fn hours(hours: i64) -> Self {
        Skew {
            seconds: hours * 3600,
        }
    }

    /// Applies the error to a program before its start. The preloaded library is built in `dir`.
    pub fn put(self, command: &mut Command, dir: &Path) -> Result<()> {
        let (source, library) = (dir.join("skew.c"), dir.join("skew.so"));
        if !library.exists() {
            fs::write(&source, SOURCE)?;
            let output = Command::new("cc")
                .args(["-O2", "-shared", "-fPIC", "-o"])
                .arg(&library)
                .arg(&source)
                .arg("-ldl")
                .output();
            let output = output.context("cc: `apt-get install -y gcc libc6-dev`")?;
            ensure!(
                output.status.success(),
                "cc: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        command
            .env("LD_PRELOAD", &library)
            .env("HEADROOM_TEST_SKEW", self.seconds.to_string());
        Ok(())
    }
}
