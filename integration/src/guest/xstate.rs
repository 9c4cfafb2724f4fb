//! A preloaded library for `linux.uml` on processors with larger register states than it knows; see
//! `xstate.c`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

const SOURCE: &str = include_str!("xstate.c");
/// The CPU flag of tile registers.
const TILES: &str = "amx_tile";

/// Compiles the library in `dir`. `None` on a processor that does not need it.
pub(super) fn library(dir: &Path) -> Result<Option<PathBuf>> {
    let processors = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    if !has_tiles(&processors) {
        return Ok(None);
    }
    let (source, library) = (dir.join("xstate.c"), dir.join("xstate.so"));
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
    Ok(Some(library))
}

fn has_tiles(processors: &str) -> bool {
    let flags = processors
        .lines()
        .find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    flags.is_some_and(|(_, flags)| flags.split_whitespace().any(|flag| flag == TILES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_seen_in_the_flags() {
        let text = |flags| {
            format!("processor\t: 0\nmodel name\t: amx_tile\nflags\t\t: fpu {flags} avx2\n")
        };
        assert!(has_tiles(&text("amx_bf16 amx_tile")));
        assert!(!has_tiles(&text("amx_tiles")));
    }
}
