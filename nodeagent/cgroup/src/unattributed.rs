//! Memory that is charged to a group and to none of its children: what programs left behind that ended in children that are gone.
//!
//! Files on a tmpfs, shared memory and kernel memory outlive the process that made them. When its cgroup is removed, the kernel keeps their
//! charge in the parent's figures (v1 and v2 alike), where no child accounts for it. Page cache that the kernel can give back does not
//! count.
//!
//! The figures of a group and of its children cannot be read at one moment. Each child is therefore read before and after the parent, and
//! the larger figure is taken off: a child that ends, begins or grows meanwhile makes the result smaller, never larger.

use std::collections::BTreeMap;

use headroom_types::Bytes;

use crate::error::Result;
use crate::parse;
use crate::tree::Dir;

/// Which files hold the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// cgroup v1.
    V1,
    /// cgroup v2.
    V2,
}

/// What a group is charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// All of it. Bytes.
    pub usage: Bytes,
    /// What reclaim cannot give back. Bytes.
    pub unreclaimable: Bytes,
}

/// Of a group and its children, the children read before it and after it: what it holds and they do not. A lower bound.
fn lower_bound(parent: Bytes, before: &BTreeMap<String, Bytes>, after: &BTreeMap<String, Bytes>) -> Bytes {
    let mut largest = before.clone();
    for (child, bytes) in after {
        let seen = largest.entry(child.clone()).or_default();
        *seen = (*seen).max(*bytes);
    }
    largest.values().fold(parent, |left, child| left.saturating_sub(*child))
}

/// What `dir` is charged for; zero when it is gone.
pub(crate) fn charged(dir: &Dir, files: Files) -> Result<Charged> {
    let usage = usage(dir, files)?;
    let given_back = match files {
        Files::V1 => {
            let stat = dir.read_if_there("memory.stat")?.unwrap_or_default();
            let kernel = dir.read_if_there("memory.kmem.usage_in_bytes")?.as_deref().and_then(parse::number).unwrap_or(0);
            reclaimable_v1(&stat, kernel)
        }
        Files::V2 => reclaimable_v2(&dir.read_if_there("memory.stat")?.unwrap_or_default()),
    };
    Ok(Charged { usage, unreclaimable: usage.saturating_sub(given_back) })
}

/// Clean and dirty files. v1 does not tell which kernel memory can be given back (caches of file names can), so that none of it counts.
fn reclaimable_v1(stat: &str, kernel: u64) -> Bytes {
    let get = |key| parse::keyed(stat, key).unwrap_or(0);
    Bytes::new(get("total_inactive_file").saturating_add(get("total_active_file")).saturating_add(kernel))
}

/// Clean and dirty files, and slabs that shrink. `percpu` are counters of the children themselves, which are charged to the parent.
fn reclaimable_v2(stat: &str) -> Bytes {
    let keys = ["inactive_file", "active_file", "slab_reclaimable", "percpu"];
    Bytes::new(keys.iter().fold(0, |sum: u64, key| sum.saturating_add(parse::keyed(stat, key).unwrap_or(0))))
}

fn usage(dir: &Dir, files: Files) -> Result<Bytes> {
    let file = match files {
        Files::V1 => "memory.usage_in_bytes",
        Files::V2 => "memory.current",
    };
    Ok(Bytes::new(dir.read_if_there(file)?.as_deref().and_then(parse::number).unwrap_or(0)))
}

/// A figure of each child of `dir`.
fn children(dir: &Dir, figure: impl Fn(&Dir) -> Result<Bytes>) -> Result<BTreeMap<String, Bytes>> {
    let mut found = BTreeMap::new();
    for name in dir.children()? {
        if let Some(child) = dir.child(&name)? {
            let bytes = figure(&child)?;
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

/// What `dir` holds and none of its children does, from `floor` on; zero below it. One number a child is read while that is little.
pub(crate) fn of_dir(dir: &Dir, files: Files, floor: Bytes) -> Result<Bytes> {
    let below = |figure: fn(&Dir, Files) -> Result<Bytes>| -> Result<Bytes> {
        let before = children(dir, |child| figure(child, files))?;
        let own = figure(dir, files)?;
        let after = children(dir, |child| figure(child, files))?;
        Ok(lower_bound(own, &before, &after))
    };
    // Page cache that is left behind is in it too, so that it can be too large, and never too small.
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
        rows.iter().map(|(name, mib)| ((*name).to_owned(), MIB(*mib))).collect()
    }

    /// Parent, children before and after it, and what is known to be left.
    #[test]
    fn a_child_that_changes_meanwhile_makes_it_smaller_never_larger() {
        type Rows = &'static [(&'static str, u64)];
        let table: [(&str, u64, Rows, Rows, u64); 7] = [
            ("nothing moves", 500, &[("a", 100), ("b", 100)], &[("a", 100), ("b", 100)], 300),
            ("no child", 300, &[], &[], 300),
            ("a child grew before the parent was read", 500, &[("a", 100)], &[("a", 200)], 300),
            ("a child shrank after the parent was read", 500, &[("a", 200)], &[("a", 100)], 300),
            ("a child ended", 500, &[("a", 200), ("b", 100)], &[("b", 100)], 200),
            ("a child began", 500, &[("b", 100)], &[("a", 200), ("b", 100)], 200),
            ("more than the parent has", 100, &[("a", 200)], &[("a", 150)], 0),
        ];
        for (what, parent, before, after, left) in table {
            assert_eq!(lower_bound(MIB(parent), &rows(before), &rows(after)), MIB(left), "{what}");
        }
    }

    #[test]
    fn what_reclaim_gives_back_is_not_held() {
        let v1 = "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 20\ntotal_shmem 900\n";
        assert_eq!(reclaimable_v1(v1, 5), Bytes::new(125));
        let v2 = "anon 1\nshmem 900\ninactive_file 100\nactive_file 20\nslab_reclaimable 3\nslab_unreclaimable 50\npercpu 4\n";
        assert_eq!(reclaimable_v2(v2), Bytes::new(127));
    }
}
