//! Memory that is charged to a group and to none of its children: leftovers of ended programs.
//!
//! Files on a tmpfs, shared memory and kernel memory outlive their process. When its cgroup is
//! removed, the kernel moves their charge to the parent (v1 and v2), where no child accounts for
//! it. Reclaimable page cache does not count.
//!
//! The counters of a group and its children cannot be read at one moment. Each child is therefore
//! read before and after the parent, and the larger value is subtracted. A child that ends, starts
//! or grows meanwhile makes the result smaller, never larger.

use std::collections::BTreeMap;

use headroom_types::Bytes;

use crate::error::Result;
use crate::parse;
use crate::tree::CgroupDir;

/// The version whose files hold the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterFiles {
    /// cgroup v1.
    V1,
    /// cgroup v2.
    V2,
}

/// The memory charged to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChargedMemory {
    /// All of it. In bytes.
    pub usage: Bytes,
    /// The part that reclaim cannot free. In bytes.
    pub unreclaimable: Bytes,
}

/// The memory of a group that its children do not hold, with the children read before and after it.
/// A lower bound.
fn lower_bound(
    parent: Bytes,
    before: &BTreeMap<String, Bytes>,
    after: &BTreeMap<String, Bytes>,
) -> Bytes {
    let mut largest = before.clone();
    for (child, bytes) in after {
        let seen = largest.entry(child.clone()).or_default();
        *seen = (*seen).max(*bytes);
    }
    largest
        .values()
        .fold(parent, |left, child| left.saturating_sub(*child))
}

/// The memory charged to `dir`; zero when it is gone.
pub(crate) fn charged(dir: &CgroupDir, files: CounterFiles) -> Result<ChargedMemory> {
    let usage = usage(dir, files)?;
    let given_back = match files {
        CounterFiles::V1 => {
            let stat = dir.read_if_there("memory.stat")?.unwrap_or_default();
            let kernel = dir
                .read_if_there("memory.kmem.usage_in_bytes")?
                .as_deref()
                .and_then(parse::number)
                .unwrap_or(0);
            reclaimable_v1(&stat, kernel)
        }
        CounterFiles::V2 => reclaimable_v2(&dir.read_if_there("memory.stat")?.unwrap_or_default()),
    };
    Ok(ChargedMemory {
        usage,
        unreclaimable: usage.saturating_sub(given_back),
    })
}

/// The unreclaimable memory charged to `dir`, if at least `floor`; otherwise zero. While its whole use
/// is below, only one number is read.
pub(crate) fn held(dir: &CgroupDir, files: CounterFiles, floor: Bytes) -> Result<Bytes> {
    if usage(dir, files)? < floor {
        return Ok(Bytes::ZERO);
    }
    let held = charged(dir, files)?.unreclaimable;
    Ok(if held < floor { Bytes::ZERO } else { held })
}

/// Clean and dirty file pages, and all kernel memory. v1 does not report which kernel memory is
/// reclaimable (such as dentries), so none of it counts as held.
fn reclaimable_v1(stat: &str, kernel: u64) -> Bytes {
    let get = |key| parse::keyed(stat, key).unwrap_or(0);
    Bytes::new(
        get("total_inactive_file")
            .saturating_add(get("total_active_file"))
            .saturating_add(kernel),
    )
}

/// Clean and dirty file pages, and reclaimable slabs. `percpu` holds counters of the children,
/// which are charged to the parent.
fn reclaimable_v2(stat: &str) -> Bytes {
    let keys = ["inactive_file", "active_file", "slab_reclaimable", "percpu"];
    Bytes::new(keys.iter().fold(0, |sum: u64, key| {
        sum.saturating_add(parse::keyed(stat, key).unwrap_or(0))
    }))
}

/// All memory charged to `dir`; zero when it is gone.
pub(crate) fn usage(dir: &CgroupDir, files: CounterFiles) -> Result<Bytes> {
    let file = match files {
        CounterFiles::V1 => "memory.usage_in_bytes",
        CounterFiles::V2 => "memory.current",
    };
    Ok(Bytes::new(
        dir.read_if_there(file)?
            .as_deref()
            .and_then(parse::number)
            .unwrap_or(0),
    ))
}

/// A counter of each child of `dir`.
fn children(
    dir: &CgroupDir,
    figure: impl Fn(&CgroupDir) -> Result<Bytes>,
) -> Result<BTreeMap<String, Bytes>> {
    let mut found = BTreeMap::new();
    for name in dir.children()? {
        if let Some(child) = dir.child(&name)? {
            let bytes = figure(&child)?;
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

/// The memory that `dir` holds and none of its children does; zero below `floor`. While the result
/// is small, only one number per child is read.
pub(crate) fn of_dir(dir: &CgroupDir, files: CounterFiles, floor: Bytes) -> Result<Bytes> {
    let below = |figure: fn(&CgroupDir, CounterFiles) -> Result<Bytes>| -> Result<Bytes> {
        let before = children(dir, |child| figure(child, files))?;
        let own = figure(dir, files)?;
        let after = children(dir, |child| figure(child, files))?;
        Ok(lower_bound(own, &before, &after))
    };
    // This value includes leftover page cache, so it is an upper bound.
    if below(usage)? < floor {
        return Ok(Bytes::ZERO);
    }
    let held = below(|dir, files| charged(dir, files).map(|charged| charged.unreclaimable))?;
    Ok(if held < floor { Bytes::ZERO } else { held })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: fn(u64) -> Bytes = Bytes::from_mib;

    fn rows(rows: &[(&str, u64)]) -> BTreeMap<String, Bytes> {
        rows.iter()
            .map(|(name, mib)| ((*name).to_owned(), MIB(*mib)))
            .collect()
    }

    /// Each row: parent, children before and after it, and the leftover memory.
    #[test]
    fn a_child_that_changes_meanwhile_never_raises_the_lower_bound() {
        type Rows = &'static [(&'static str, u64)];
        let table: [(&str, u64, Rows, Rows, u64); 7] = [
            (
                "no child changes",
                500,
                &[("a", 100), ("b", 100)],
                &[("a", 100), ("b", 100)],
                300,
            ),
            ("no child", 300, &[], &[], 300),
            (
                "a child grew before the parent was read",
                500,
                &[("a", 100)],
                &[("a", 200)],
                300,
            ),
            (
                "a child shrank after the parent was read",
                500,
                &[("a", 200)],
                &[("a", 100)],
                300,
            ),
            (
                "a child ended",
                500,
                &[("a", 200), ("b", 100)],
                &[("b", 100)],
                200,
            ),
            (
                "a child began",
                500,
                &[("b", 100)],
                &[("a", 200), ("b", 100)],
                200,
            ),
            (
                "more than the parent has",
                100,
                &[("a", 200)],
                &[("a", 150)],
                0,
            ),
        ];
        for (case, parent, before, after, left) in table {
            assert_eq!(
                lower_bound(MIB(parent), &rows(before), &rows(after)),
                MIB(left),
                "{case}"
            );
        }
    }

    #[test]
    fn reclaimable_memory_is_not_counted_as_held() {
        let v1 =
            "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 20\ntotal_shmem 900\n";
        assert_eq!(reclaimable_v1(v1, 5), Bytes::new(125));
        let v2 = "anon 1\nshmem 900\ninactive_file 100\nactive_file 20\nslab_reclaimable 3\nslab_unreclaimable 50\npercpu 4\n";
        assert_eq!(reclaimable_v2(v2), Bytes::new(127));
    }
}
