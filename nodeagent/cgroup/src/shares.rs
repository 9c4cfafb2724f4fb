//! Processor and disk limits of a container besides its weight: `cpu.max` and `io.weight`.
//!
//! They are optional: a value that cannot be set is reported and does not prevent the start. cgroup
//! v2 only.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use headroom_types::Cpus;

use crate::group::EnforcedGroup;

/// The kernel's default period. In microseconds.
const PERIOD: u64 = 100_000;

/// The requested shares. `None` leaves the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuIoShares {
    /// Maximum processor time.
    pub cpu_max: Option<Cpus>,
    /// Disk weight against siblings, 1 to 10000 (100 is the kernel's default).
    pub io_weight: Option<u32>,
}

/// Sets the shares. Returns a reason for each value that could not be set.
pub fn set(group: &EnforcedGroup, wanted: &CpuIoShares) -> Vec<String> {
    let EnforcedGroup::Cgroup2(group) = group else {
        return if *wanted == CpuIoShares::default() {
            Vec::new()
        } else {
            vec!["cpu.max and io.weight need cgroup v2".to_owned()]
        };
    };
    let dir = group.dir().path();
    let mut lacking = Vec::new();
    if let Some(cpus) = wanted.cpu_max {
        lacking.extend(confirmed(dir, "cpu.max", &cpu_max(cpus)).err());
    }
    if let Some(weight) = wanted.io_weight {
        let weight = weight.clamp(1, 10_000).to_string();
        let set = if dir.join("io.weight").exists() {
            Ok(())
        } else {
            hand_down_io(dir)
        };
        lacking.extend(
            set.and_then(|()| confirmed_word(dir, "io.weight", &weight))
                .err(),
        );
    }
    lacking
}

/// Microseconds per period; the kernel accepts no less than a thousand.
fn cpu_max(cpus: Cpus) -> String {
    let quota = (u64::from(cpus.milli()) * PERIOD / 1000).max(1000);
    format!("{quota} {PERIOD}")
}

/// Enables the io controller from the levels that belong to the node; levels above are not changed.
fn hand_down_io(dir: &Path) -> Result<(), String> {
    let has = |dir: &Path| {
        let words = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
        words.split_whitespace().any(|word| word == "io")
    };
    let above: Vec<&Path> = dir.ancestors().skip(1).take(2).collect();
    let Some(first) = above.iter().position(|dir| has(dir)) else {
        return Err("io.weight: no io controller".to_owned());
    };
    above
        .iter()
        .take(first + 1)
        .rev()
        .try_for_each(|dir| write(dir, "cgroup.subtree_control", "+io"))
}

fn confirmed(dir: &Path, file: &str, value: &str) -> Result<(), String> {
    write(dir, file, value)?;
    match fs::read_to_string(dir.join(file)) {
        Ok(read) if read.trim() == value => Ok(()),
        Ok(read) => Err(format!(
            "{file}: wrote {value:?} and read {:?}",
            read.trim()
        )),
        Err(error) => Err(format!("{file}: {error}")),
    }
}

/// `io.weight` reads as `default 100`, with a line for each disk that has its own weight.
fn confirmed_word(dir: &Path, file: &str, value: &str) -> Result<(), String> {
    write(dir, file, value)?;
    let read = fs::read_to_string(dir.join(file)).map_err(|error| format!("{file}: {error}"))?;
    if read.split_whitespace().any(|word| word == value) {
        Ok(())
    } else {
        Err(format!("{file}: wrote {value} and read {read:?}"))
    }
}

fn write(dir: &Path, file: &str, value: &str) -> Result<(), String> {
    let written = OpenOptions::new()
        .write(true)
        .open(dir.join(file))
        .and_then(|mut f| f.write_all(value.as_bytes()));
    written.map_err(|error| format!("{file} in {}: {error}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_converted_to_a_quota_per_period() {
        assert_eq!(cpu_max(Cpus::from_milli(2500)), "250000 100000");
        assert_eq!(cpu_max(Cpus::from_milli(1)), "1000 100000");
    }
}
