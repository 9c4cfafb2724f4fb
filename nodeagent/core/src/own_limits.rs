//! Limits that were set by hand, from `/proc/PID/limits`, command lines and environments. Pure.
//!
//! A flag that Headroom passes itself does not count. Where a variable may hold both, only flags
//! after Headroom's own flag count.

use std::collections::BTreeMap;

use headroom_types::{Bytes, OwnLimit, OwnLimitKind};

/// JVM flags that are followed by a size, and the limit that they set.
const JVM: [(&str, OwnLimitKind); 5] = [
    ("-Xmx", OwnLimitKind::JvmHeap),
    ("-XX:MaxHeapSize=", OwnLimitKind::JvmHeap),
    ("-XX:MaxDirectMemorySize=", OwnLimitKind::DirectMemory),
    ("-XX:MaxMetaspaceSize=", OwnLimitKind::Metaspace),
    ("-XX:ReservedCodeCacheSize=", OwnLimitKind::CodeCache),
];
const NODE: [&str; 2] = ["--max-old-space-size=", "--max_old_space_size="];
const GO: &str = "GOMEMLIMIT=";

/// Limits by kind. The last value of each kind counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnLimits(BTreeMap<OwnLimitKind, Bytes>);

impl OwnLimits {
    /// Adds the soft limits of one process from the text of `/proc/PID/limits`. Unlimited values
    /// are skipped.
    pub fn add_limits_file(&mut self, text: &str) {
        for line in text.lines() {
            let kind = if line.starts_with("Max address space") {
                OwnLimitKind::AddressSpace
            } else if line.starts_with("Max data size") {
                OwnLimitKind::Data
            } else {
                continue;
            };
            if let Some(value) = line
                .split_whitespace()
                .nth(3)
                .and_then(|soft| soft.parse().ok())
            {
                self.0.insert(kind, Bytes::new(value));
            }
        }
    }

    /// Adds a command: programs, flags, and shell scripts that contain flags.
    pub fn add_command<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) {
        let apart = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '\0');
        for flag in words.into_iter().flat_map(|word| word.split(apart)) {
            self.add_flag(flag);
        }
    }

    /// Adds an environment in which Headroom's own flags come first.
    pub fn add_environment<'a>(&mut self, env: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, value) in env {
            match name {
                "JAVA_TOOL_OPTIONS" | "_JAVA_OPTIONS" => self.add_command([value]),
                "JDK_JAVA_OPTIONS" | "NODE_OPTIONS" => self.add_command(repeated(value)),
                _ => {}
            }
        }
    }

    /// Adds the limits of another scan.
    pub fn add(&mut self, other: OwnLimits) {
        self.0.extend(other.0);
    }

    /// The limits in the form of the evidence.
    pub fn into_vec(self) -> Vec<OwnLimit> {
        self.0
            .into_iter()
            .map(|(kind, value)| OwnLimit { kind, value })
            .collect()
    }

    fn add_flag(&mut self, flag: &str) {
        let jvm = JVM
            .iter()
            .find_map(|(name, kind)| Some((*kind, size(flag.strip_prefix(name)?)?)));
        let node = || {
            NODE.iter()
                .find_map(|name| flag.strip_prefix(name)?.parse().ok())
        };
        let go = || size(flag.strip_prefix(GO)?.trim_end_matches(['B', 'i']));
        let found = jvm
            .or_else(|| Some((OwnLimitKind::NodeHeap, Bytes::from_mib(node()?))))
            .or_else(|| Some((OwnLimitKind::GoMemory, go()?)));
        self.0.extend(found);
    }
}

/// The second and later occurrences of each flag in a variable. The first is Headroom's own.
fn repeated(value: &str) -> impl Iterator<Item = &str> {
    let name = |flag: &str| {
        let digits = flag
            .find(|c: char| c.is_ascii_digit() || c == '=')
            .unwrap_or(flag.len());
        flag.get(..digits).unwrap_or(flag).to_owned()
    };
    let mut seen = std::collections::BTreeSet::new();
    value
        .split_whitespace()
        .filter(move |flag| !seen.insert(name(flag)))
}

/// A size in the JVM's syntax: bytes, or a number with the suffix `k`, `m`, `g` or `t`.
fn size(text: &str) -> Option<Bytes> {
    let (number, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (text.get(..at)?, 10),
        (at, 'm' | 'M') => (text.get(..at)?, 20),
        (at, 'g' | 'G') => (text.get(..at)?, 30),
        (at, 't' | 'T') => (text.get(..at)?, 40),
        (_, _) => (text, 0),
    };
    let number: u64 = number.parse().ok()?;
    number.checked_mul(1 << shift).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(fill: impl FnOnce(&mut OwnLimits)) -> Vec<String> {
        let mut limits = OwnLimits::default();
        fill(&mut limits);
        limits.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn finite_soft_limits_of_a_process_are_found() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max cpu time              unlimited            unlimited            seconds   \n\
                    Max data size             unlimited            unlimited            bytes     \n\
                    Max address space         104857600            unlimited            bytes     \n";
        assert_eq!(
            found(|l| l.add_limits_file(text)),
            ["ulimit -v (RLIMIT_AS) = 100 MiB"]
        );
        assert!(
            found(|l| l.add_limits_file("Max address space  unlimited  unlimited  bytes"))
                .is_empty()
        );
        assert!(found(|l| l.add_limits_file("")).is_empty());
    }

    #[test]
    fn flags_are_found_on_command_lines_and_inside_scripts() {
        let java = ["java", "-Xmx64m", "-XX:MaxDirectMemorySize=24M", "Main"];
        assert_eq!(
            found(|l| l.add_command(java)),
            ["-Xmx = 64 MiB", "-XX:MaxDirectMemorySize = 24 MiB"]
        );
        let script = [
            "sh",
            "-c",
            "exec node '--max-old-space-size=48' x.js; GOMEMLIMIT=30MiB ./y",
        ];
        assert_eq!(
            found(|l| l.add_command(script)),
            ["--max-old-space-size = 48 MiB", "GOMEMLIMIT = 30 MiB"]
        );
        assert_eq!(
            found(|l| l.add_command(["-Xmx64m", "-Xmx1g"])),
            ["-Xmx = 1 GiB"],
            "the last flag is effective"
        );
        assert!(
            found(|l| l.add_command(["-Xmxlarge", "-Xms64m", "--max-old-space-size"])).is_empty()
        );
    }

    #[test]
    fn flags_set_by_headroom_are_not_own_limits() {
        let ours = [
            ("JDK_JAVA_OPTIONS", "-Xmx65536k -XX:MaxMetaspaceSize=8m"),
            ("NODE_OPTIONS", "--max-old-space-size=64"),
        ];
        assert!(found(|l| l.add_environment(ours)).is_empty());
        let both = [
            ("JDK_JAVA_OPTIONS", "-Xmx65536k -Xmx32m"),
            ("JAVA_TOOL_OPTIONS", "-XX:MaxMetaspaceSize=16m"),
        ];
        assert_eq!(
            found(|l| l.add_environment(both)),
            ["-Xmx = 32 MiB", "-XX:MaxMetaspaceSize = 16 MiB"]
        );
    }
}
