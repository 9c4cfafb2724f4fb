//! The matrix in guests: this program runs again in each of them.
//!
//! Most guests have memory for all containers; one also has swap on its disk, and one is starved.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::{Bytes, EnforcerKind};

use super::case::Stage;
use super::tools::{CLASSES, Tools};
use super::{MatrixResults, Plan, bin_dir, on_this_kernel};
use crate::guest::{Disk, Guest, job};

/// Memory of the guests with memory for a hundred containers.
const ROOMY: Bytes = Bytes::from_mib(2048);
/// Memory of the starved guest.
const SCARCE: Bytes = Bytes::from_mib(224);
/// Disk of a guest. MiB.
const DISK: u32 = 1024;
/// Swap of a guest. MiB.
const SWAP: u32 = 128;
/// The stages that share a guest.
const GUESTS: [&[Stage]; 5] = [
    &[Stage::Roomy],
    &[Stage::Burst],
    &[Stage::Fenced, Stage::Nested, Stage::Fragile],
    &[Stage::Swapped],
    &[Stage::Starved],
];
/// Timeout for the start of the runtimes, in a guest on a busy machine.
const FIRST: Duration = Duration::from_secs(600);
/// Timeout for one round of all cases in a guest.
const ROUND: Duration = Duration::from_secs(40);

/// Runs the matrix in guests, by starting `program` (this one) with `arguments` in them. The last
/// line of its output is its results as JSON. An empty `stages` means all.
pub fn in_guests(
    rounds: u32,
    only: &str,
    stages: &[Stage],
    program: &Path,
    arguments: &[&str],
) -> Result<MatrixResults> {
    let classes = tempfile::Builder::new()
        .prefix("headroom-classes-")
        .tempdir()
        .context("a directory for classes")?;
    let tools = Tools::find(classes.path())?;
    let mut all = MatrixResults {
        enforcer: EnforcerKind::Cgroup2.to_string(),
        ..MatrixResults::default()
    };
    for together in GUESTS {
        let wanted = |stage: &&Stage| stages.is_empty() || stages.contains(stage);
        let names: Vec<&str> = together
            .iter()
            .filter(wanted)
            .map(|stage| stage.as_str())
            .collect();
        if names.is_empty() {
            continue;
        }
        let memory = if together.contains(&Stage::Starved) {
            SCARCE
        } else {
            ROOMY
        };
        let disk = Disk::new(DISK)?;
        let mut guest = Guest::new()
            .with_programs()
            .memory(memory)
            .keep(classes.path())
            .keep(bin_dir()?)
            .disk(&disk);
        if let Some(dir) = tools.classes() {
            guest = guest.env(CLASSES, &dir.display().to_string());
        }
        let (rounds_text, names) = (rounds.to_string(), names.join(","));
        let program = program
            .to_str()
            .context("this program's path is not UTF-8")?;
        let own = ["--rounds", &rounds_text, "--only", only, "--stages", &names];
        let words: Vec<&str> = std::iter::once(program)
            .chain(arguments.iter().copied())
            .chain(own)
            .collect();
        let outcome = guest
            .timeout(FIRST + ROUND * rounds)
            .quietly()
            .run(&words)?;
        let line = outcome.stdout.lines().rev().find(|l| l.starts_with('{'));
        let line = line.with_context(|| {
            format!(
                "the guest returned no report and exit code {}: {}",
                outcome.code, outcome.stderr
            )
        })?;
        all.join(serde_json::from_str(line).context("the report of the guest")?);
    }
    Ok(all)
}

/// In a guest: runs the given stages.
pub fn here(rounds: u32, only: String, stages: Vec<Stage>) -> Result<MatrixResults> {
    let scratch = Path::new(job::DISK).join("scratch");
    std::fs::create_dir_all(&scratch)?;
    if stages.contains(&Stage::Swapped) {
        swap_on()?;
    }
    let plan = Plan {
        enforcer: EnforcerKind::Cgroup2,
        rounds,
        only,
        stages,
    };
    on_this_kernel(&plan, &scratch)
}

fn swap_on() -> Result<()> {
    let file = Path::new(job::DISK).join("swap");
    let path = file.to_str().context("a path")?;
    let count = format!("count={SWAP}");
    let of = format!("of={path}");
    for words in [
        ["dd", "if=/dev/zero", &of, "bs=1M", &count].as_slice(),
        &["mkswap", path],
        &["swapon", path],
    ] {
        let output = Command::new("/bin/busybox")
            .args(words)
            .output()
            .context("/bin/busybox: `apt-get install -y busybox-static`")?;
        ensure!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
