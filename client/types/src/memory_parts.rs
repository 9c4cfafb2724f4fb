//! Parts of the memory at the end of a program. They add up to the charged memory.
//!
//! The kinds of the kernel come first and are exact. If the largest process was sampled, its
//! anonymous memory is divided further by the shape of its mappings. The difference between that
//! sample and the kernel's number belongs to the other processes. The heap of a runtime is a part
//! of its own process only.

use crate::Bytes;
use crate::exit::Evidence;

/// One part of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// Short name of the part.
    pub what: &'static str,
    /// Size of the part. Bytes.
    pub bytes: Bytes,
}

impl Evidence {
    /// The nonzero parts, in a fixed order. Empty if the kernel reports no kinds.
    pub fn memory_parts(&self) -> Vec<MemoryPart> {
        let stat = &self.own.stat;
        let Some(anon) = stat.anon else {
            return Vec::new();
        };
        let mut parts = self.anonymous_parts(anon);
        let shmem = stat.shmem.unwrap_or_default();
        parts.push((
            "page cache and mapped files",
            stat.file.unwrap_or_default().saturating_sub(shmem),
        ));
        parts.push(("tmpfs and shared memory", shmem));
        parts.push((
            "the kernel's",
            stat.kernel.or(stat.slab_unreclaimable).unwrap_or_default(),
        ));
        parts.push(("sockets", stat.sock.unwrap_or_default()));
        parts
            .into_iter()
            .filter(|(_, bytes)| !bytes.is_zero())
            .map(|(what, bytes)| MemoryPart { what, bytes })
            .collect()
    }

    fn anonymous_parts(&self, anon: Bytes) -> Vec<(&'static str, Bytes)> {
        let mut left = anon;
        let mut take = |what, wanted: Bytes| {
            let part = wanted.min(left);
            left = left.saturating_sub(part);
            (what, part)
        };
        let Some(inside) = &self.inside else {
            let heap = self.heap.map(|heap| take("heap", heap.committed));
            return heap
                .into_iter()
                .chain([("anonymous memory", left)])
                .collect();
        };
        let mut parts = vec![
            take("stacks of threads", inside.stacks),
            take("compiled code", inside.code),
            take("native arenas", inside.arenas.saturating_add(inside.brk)),
        ];
        let mut other = inside.other;
        if self.runtime_memory().is_none() {
            // The heap belongs to another process.
            parts.push(take("large native blocks", other));
            if let Some(heap) = &self.heap {
                parts.push(take("heap", heap.committed));
                let metaspace = heap.metaspace.unwrap_or_default();
                parts.push(take("class metadata", metaspace));
            }
        } else {
            if let Some(heap) = &self.heap {
                let committed = heap.committed.min(other);
                parts.push(take("heap", committed));
                let metaspace = heap
                    .metaspace
                    .unwrap_or_default()
                    .min(other.saturating_sub(committed));
                parts.push(take("class metadata", metaspace));
                other = other.saturating_sub(committed).saturating_sub(metaspace);
            }
            parts.push(take("large native blocks", other));
        }
        parts.push(("other processes, or later changes", left));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EnforcerKind;
    use crate::exit::{HeapReport, MemoryStat, ProcessMemory};

    const MIB: fn(u64) -> Bytes = Bytes::from_mib;

    fn sum(e: &Evidence) -> Bytes {
        e.memory_parts()
            .iter()
            .fold(Bytes::ZERO, |sum, share| sum.saturating_add(share.bytes))
    }

    #[test]
    fn the_heap_is_no_part_of_a_larger_child_process() {
        let mut e = Evidence::empty(EnforcerKind::Cgroup2);
        e.own.stat.anon = Some(MIB(1100));
        e.heap = Some(HeapReport {
            pid: Some(7),
            committed: MIB(65),
            metaspace: Some(MIB(48)),
            ..HeapReport::default()
        });
        e.inside = Some(ProcessMemory {
            pid: 8,
            other: MIB(919),
            ..ProcessMemory::default()
        });
        let parts: Vec<(&str, Bytes)> =
            e.memory_parts().iter().map(|p| (p.what, p.bytes)).collect();
        assert_eq!(
            parts,
            [
                ("large native blocks", MIB(919)),
                ("heap", MIB(65)),
                ("class metadata", MIB(48)),
                ("other processes, or later changes", MIB(68)),
            ]
        );
    }

    #[test]
    fn parts_add_up_to_the_charged_memory() {
        let mut e = Evidence::empty(EnforcerKind::Cgroup2);
        assert!(e.memory_parts().is_empty());
        e.own.stat = MemoryStat {
            anon: Some(MIB(100)),
            file: Some(MIB(20)),
            shmem: Some(MIB(5)),
            kernel: Some(MIB(3)),
            ..MemoryStat::default()
        };
        assert_eq!(sum(&e), MIB(123));
        e.heap = Some(HeapReport {
            committed: MIB(40),
            metaspace: Some(MIB(6)),
            ..HeapReport::default()
        });
        assert_eq!(sum(&e), MIB(123));
        e.inside = Some(ProcessMemory {
            stacks: MIB(9),
            other: MIB(70),
            arenas: MIB(4),
            ..ProcessMemory::default()
        });
        assert_eq!(sum(&e), MIB(123));
        let names: Vec<&str> = e.memory_parts().iter().map(|s| s.what).collect();
        assert!(
            names.contains(&"heap")
                && names.contains(&"class metadata")
                && names.contains(&"stacks of threads"),
            "{names:?}"
        );
        e.inside = Some(ProcessMemory {
            stacks: MIB(900),
            other: MIB(700),
            ..ProcessMemory::default()
        });
        assert_eq!(
            sum(&e),
            MIB(123),
            "an old sample is capped at the charged memory"
        );
    }
}
