//! Memory, processors, disk use and name of this host.

use std::fs;
use std::time::Duration;

use headroom_types::{Bytes, Cpus, NodeId, Tick};

/// Memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostMemory {
    /// All of it. Bytes.
    pub(crate) total: Bytes,
    /// In use and not available at once. Bytes.
    pub(crate) used: Bytes,
}

/// Reads the memory of the host. Zero if the kernel does not report it.
pub(crate) fn memory() -> HostMemory {
    fs::read_to_string("/proc/meminfo")
        .map(|text| parse(&text))
        .unwrap_or_default()
}

/// Age after which the memory in use is read again. A node with short containers reports more often.
const MAX_AGE: Duration = Duration::from_millis(500);

/// Memory in use on the host, for reports.
#[derive(Debug, Default)]
pub(crate) struct HostUse {
    read: Option<Tick>,
    used: Bytes,
}

impl HostUse {
    /// The memory in use. Reads it if the last value is too old.
    pub(crate) fn at(&mut self, now: Tick) -> Bytes {
        if self.read.is_none_or(|read| read.plus(MAX_AGE) <= now) {
            (self.read, self.used) = (Some(now), memory().used);
        }
        self.used
    }
}

fn parse(text: &str) -> HostMemory {
    let total = field(text, "MemTotal:").unwrap_or_default();
    HostMemory {
        total,
        used: field(text, "MemAvailable:")
            .map(|free| total.saturating_sub(free))
            .unwrap_or_default(),
    }
}

fn field(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Bytes::from_kib)
}

/// Swap of the host. Bytes.
pub(crate) fn swap() -> Bytes {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| field(&text, "SwapTotal:"))
        .unwrap_or_default()
}

/// Processors that this process may use.
pub(crate) fn cpus() -> Cpus {
    let n = std::thread::available_parallelism().map_or(1, usize::from);
    Cpus::from_cores(u32::try_from(n).unwrap_or(u32::MAX))
}

/// The name of the host, if it is a valid node name.
pub(crate) fn name() -> Option<NodeId> {
    nix::unistd::gethostname().ok()?.to_str()?.parse().ok()
}

/// Percent in use, counted like `df`: space reserved for root is neither free nor usable. `None`
/// for file systems without a fixed number of inodes, which report 0.
pub(crate) fn percent(all: u64, used: u64, free: u64) -> Option<u64> {
    let usable = used.saturating_add(free).min(all);
    (usable > 0).then(|| used.saturating_mul(100).div_ceil(usable).min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_of_the_kernel_is_parsed() {
        let text = "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    4096 kB\n";
        assert_eq!(
            parse(text),
            HostMemory {
                total: Bytes::from_mib(16),
                used: Bytes::from_mib(12)
            }
        );
        assert_eq!(parse("nonsense"), HostMemory::default());
        assert!(memory().total > Bytes::from_mib(16) && memory().used < memory().total);
    }

    #[test]
    fn space_reserved_for_root_is_not_free() {
        assert_eq!(
            (percent(100, 50, 45), percent(0, 0, 0), percent(100, 1, 99)),
            (Some(53), None, Some(1))
        );
    }
}
