//! Files and counters of one group in the v1 memory hierarchy, from their texts.
//!
//! The head of [`v1`](super) describes their differences from v2. Nothing is written here.

use std::path::Path;

use headroom_types::Bytes;
use headroom_types::exit::{CgroupStats, MemoryEvents, MemoryStat};

use crate::error::{CgroupError, Result};
use crate::parse;

/// Maximum distance of the peak from a limit that was hit: one batch of charges (64 pages) and 32
/// pages.
pub const SLACK: Bytes = Bytes::from_kib(256 + 128);

pub(super) const LIMIT: &str = "memory.limit_in_bytes";
pub(super) const USAGE: &str = "memory.usage_in_bytes";
pub(super) const PEAK: &str = "memory.max_usage_in_bytes";
pub(super) const STAT: &str = "memory.stat";
pub(super) const KERNEL: &str = "memory.kmem.usage_in_bytes";
pub(super) const FAILCNT: &str = "memory.failcnt";
pub(super) const OOM: &str = "memory.oom_control";

/// The counters from the texts that `read` returns. `below` are the local counters of descendants.
pub fn facts_from(
    path: &Path,
    mut read: impl FnMut(&str) -> Result<Option<String>>,
    below: &[MemoryEvents],
) -> Result<CgroupStats> {
    let mut must = |file: &str| read(file)?.ok_or_else(|| gone(path, file));
    let limit = parse::limit(&must(LIMIT)?).and_then(parse::CgroupLimitValue::bytes);
    let current = CgroupError::bytes_in(path, USAGE, &must(USAGE)?)?;
    let peak = parse::number(&must(PEAK)?).map(Bytes::new);
    let stat = stat(&mut read)?;
    let mut local = local_events(&mut read)?;
    let events = below.iter().fold(local, |sum, e| MemoryEvents {
        max: sum.max.saturating_add(e.max),
        oom_kill: sum.oom_kill.saturating_add(e.oom_kill),
        ..sum
    });
    local.oom = derived_oom(limit, peak, local.max, events.oom_kill);
    let events = MemoryEvents {
        oom: local.oom,
        ..events
    };
    Ok(CgroupStats {
        limit,
        current,
        peak,
        stat,
        events,
        local,
    })
}

/// Kills in the subtree, if this level's limit was hit; see the module documentation.
pub(super) fn derived_oom(
    limit: Option<Bytes>,
    peak: Option<Bytes>,
    failcnt: u64,
    kills: u64,
) -> u64 {
    let at_limit = match (limit, peak) {
        (Some(limit), Some(peak)) => peak.saturating_add(SLACK) >= limit,
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    if failcnt > 0 && at_limit { kills } else { 0 }
}

/// The counters of one directory. v1 does not count `oom`.
pub fn local_events(mut read: impl FnMut(&str) -> Result<Option<String>>) -> Result<MemoryEvents> {
    let max = read(FAILCNT)?
        .as_deref()
        .and_then(parse::number)
        .unwrap_or(0);
    let oom_kill = read(OOM)?
        .as_deref()
        .and_then(parse::oom_control)
        .and_then(|c| c.oom_kill)
        .unwrap_or(0);
    Ok(MemoryEvents {
        max,
        oom_kill,
        ..MemoryEvents::default()
    })
}

/// Kinds of memory of one directory.
pub(super) fn stat(mut read: impl FnMut(&str) -> Result<Option<String>>) -> Result<MemoryStat> {
    let kernel = read(KERNEL)?
        .as_deref()
        .and_then(parse::number)
        .map(Bytes::new);
    Ok(parse::stat_v1(&read(STAT)?.unwrap_or_default(), kernel))
}

fn gone(path: &Path, file: &str) -> CgroupError {
    let source = nix::errno::Errno::ENOENT.into();
    CgroupError::Read {
        path: path.join(file),
        hint: "; the group is gone",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_32: Option<Bytes> = Some(Bytes::from_mib(32));

    #[test]
    fn a_kill_counts_at_the_level_of_the_reached_limit() {
        let full = Some(Bytes::from_mib(32).saturating_sub(Bytes::from_kib(200)));
        assert_eq!(derived_oom(LIMIT_32, full, 17, 2), 2);
        assert_eq!(
            derived_oom(LIMIT_32, full, 0, 2),
            0,
            "the limit was never reached"
        );
        assert_eq!(
            derived_oom(LIMIT_32, Some(Bytes::from_mib(20)), 17, 2),
            0,
            "the peak is far below the limit"
        );
        assert_eq!(derived_oom(None, full, 17, 2), 0, "there is no limit");
    }

    #[test]
    fn the_local_events_of_a_directory_are_read() {
        let read = |file: &str| {
            Ok(match file {
                FAILCNT => Some("3\n".to_owned()),
                OOM => Some("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n".to_owned()),
                _ => None,
            })
        };
        let events = local_events(read).expect("reads");
        assert_eq!((events.max, events.oom_kill, events.oom), (3, 1, 0));
    }
}
