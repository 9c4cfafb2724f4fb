//! Parsers of kernel files. Pure; keys of other kernel versions are ignored.
//!
//! `v1`, `v2`, `poll` and `detect` use them. A key that the kernel does not have gives `None`,
//! never 0.

use std::path::PathBuf;

use headroom_types::Bytes;
use headroom_types::exit::{MemoryEvents, MemoryStat};

/// The value of `key` in lines of `key value`.
pub fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

/// Parses one number.
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// v2 `memory.events` and `memory.events.local`.
pub fn memory_events(text: &str) -> MemoryEvents {
    let get = |key| keyed(text, key).unwrap_or(0);
    MemoryEvents {
        high: get("high"),
        max: get("max"),
        oom: get("oom"),
        oom_kill: get("oom_kill"),
        oom_group_kill: get("oom_group_kill"),
    }
}

/// v2 `memory.stat`, which always includes all descendants.
pub fn stat_v2(text: &str) -> MemoryStat {
    let bytes = |key| keyed(text, key).map(Bytes::new);
    MemoryStat {
        anon: bytes("anon"),
        file: bytes("file"),
        file_mapped: bytes("file_mapped"),
        shmem: bytes("shmem"),
        kernel: bytes("kernel"),
        kernel_stack: bytes("kernel_stack"),
        slab_unreclaimable: bytes("slab_unreclaimable"),
        sock: bytes("sock"),
        workingset_refault_file: keyed(text, "workingset_refault_file"),
    }
}

/// v1 `memory.stat`: the `total_` lines, which include all descendants. `kernel` is the value of
/// the separate file `memory.kmem.usage_in_bytes`.
pub fn stat_v1(text: &str, kernel: Option<Bytes>) -> MemoryStat {
    let bytes = |key| keyed(text, key).map(Bytes::new);
    MemoryStat {
        anon: bytes("total_rss"),
        file: bytes("total_cache"),
        file_mapped: bytes("total_mapped_file"),
        shmem: bytes("total_shmem"),
        kernel,
        kernel_stack: None,
        slab_unreclaimable: None,
        sock: None,
        workingset_refault_file: keyed(text, "total_workingset_refault_file"),
    }
}

/// v1 `memory.oom_control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomControl {
    /// The kernel does not kill at the limit; processes wait.
    pub disabled: bool,
    /// Some processes wait at present.
    pub under_oom: bool,
    /// Killed processes of this group itself; `None` before Linux 4.13.
    pub oom_kill: Option<u64>,
}

/// v1 `memory.oom_control`; `None` for another text.
pub fn oom_control(text: &str) -> Option<OomControl> {
    Some(OomControl {
        disabled: keyed(text, "oom_kill_disable")? != 0,
        under_oom: keyed(text, "under_oom")? != 0,
        oom_kill: keyed(text, "oom_kill"),
    })
}

/// A limit in the form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupLimitValue {
    /// `max`, or v1's largest number of whole pages.
    Unlimited,
    /// A number of bytes.
    Limit(Bytes),
}

/// The limit in `memory.max` or `memory.limit_in_bytes`; `None` for another text.
pub fn limit(text: &str) -> Option<CgroupLimitValue> {
    // v1 shows no limit as the largest page counter: 2^63 rounded down to a page of 4 to 64 KiB.
    const V1_NONE: u64 = (1 << 63) - (1 << 16);
    match text.trim() {
        "max" => Some(CgroupLimitValue::Unlimited),
        digits => match digits.parse::<u64>().ok()? {
            n if n >= V1_NONE => Some(CgroupLimitValue::Unlimited),
            n => Some(CgroupLimitValue::Limit(Bytes::new(n))),
        },
    }
}

impl CgroupLimitValue {
    /// The number; `None` without a limit.
    pub fn bytes(self) -> Option<Bytes> {
        match self {
            CgroupLimitValue::Unlimited => None,
            CgroupLimitValue::Limit(bytes) => Some(bytes),
        }
    }
}

/// Pids, one per line. A 0 (a process of another pid namespace) is skipped.
pub fn pids(text: &str) -> Vec<i32> {
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .filter(|pid| *pid > 0)
        .collect()
}

/// `rchar` of `/proc/PID/io`: bytes read by system calls.
pub fn read_chars(text: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    line.trim().parse().ok().map(Bytes::new)
}

/// The start time of a process, in clock ticks after boot: field 22 of its `stat`. The name in
/// parentheses may contain any characters.
pub fn starttime(stat: &str) -> Option<u64> {
    let after_name = stat.get(stat.rfind(')')? + 1..)?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

/// The words after `key`, such as `Uid:`, in a process's `status`.
pub fn status<'a>(text: &'a str, key: &str) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .map(str::split_whitespace)
}

/// `populated` of v2 `cgroup.events`.
pub fn populated(text: &str) -> Option<bool> {
    keyed(text, "populated").map(|n| n != 0)
}

/// Words of `cgroup.controllers` or `cgroup.subtree_control`.
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedHierarchy {
    /// The directory of the hierarchy that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// `cgroup` or `cgroup2`.
    pub fstype: String,
    /// Mount options of the file system; for v1 they include the controllers.
    pub options: Vec<String>,
}

/// The cgroup mounts in `/proc/self/mountinfo`.
pub fn mountinfo(text: &str) -> Vec<MountedHierarchy> {
    text.lines()
        .filter_map(mount)
        .filter(|m| m.fstype == "cgroup" || m.fstype == "cgroup2")
        .collect()
}

fn mount(line: &str) -> Option<MountedHierarchy> {
    // 36 31 0:32 ROOT POINT options [optional fields…] - FSTYPE SOURCE SUPER
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let mut right = right.split(' ');
    Some(MountedHierarchy {
        root: unescape(left.next()?).into(),
        point: unescape(left.next()?).into(),
        fstype: right.next()?.to_owned(),
        options: right.nth(1)?.split(',').map(str::to_owned).collect(),
    })
}

/// Decodes blanks, which mountinfo writes as octal `\040`.
fn unescape(word: &str) -> String {
    word.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// One line of `/proc/PID/cgroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// 0 for v2.
    pub hierarchy: u32,
    /// Controllers, or `name=systemd`; empty for v2.
    pub controllers: Vec<String>,
    /// Path in that hierarchy.
    pub path: PathBuf,
}

/// Parses `/proc/PID/cgroup`.
pub fn self_cgroup(text: &str) -> Vec<Membership> {
    text.lines().filter_map(membership).collect()
}

fn membership(line: &str) -> Option<Membership> {
    let mut parts = line.splitn(3, ':');
    Some(Membership {
        hierarchy: parts.next()?.parse().ok()?,
        controllers: parts
            .next()?
            .split(',')
            .filter(|c| !c.is_empty())
            .map(str::to_owned)
            .collect(),
        path: parts.next()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_v2() {
        let text = "low 0\nhigh 3\nmax 41\noom 1\noom_kill 2\noom_group_kill 1\n";
        let events = memory_events(text);
        assert_eq!(
            events,
            MemoryEvents {
                high: 3,
                max: 41,
                oom: 1,
                oom_kill: 2,
                oom_group_kill: 1
            }
        );
        let old = memory_events("low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n");
        assert_eq!(
            (old.max, old.oom_group_kill),
            (7, 0),
            "a kernel without oom_group_kill"
        );
    }

    #[test]
    fn a_key_is_matched_whole() {
        assert_eq!(keyed("anon_thp 5\nanon 7\n", "anon"), Some(7));
        assert_eq!(keyed("oom_kill 2\n", "oom"), None);
        assert_eq!(keyed("anon x\n", "anon"), None);
    }

    #[test]
    fn stat_of_v2_distinguishes_missing_from_zero() {
        let stat = stat_v2(
            "anon 1048576\nfile 4096\nkernel_stack 16384\nsock 0\nworkingset_refault_file 9\n",
        );
        assert_eq!(stat.anon, Some(Bytes::from_mib(1)));
        assert_eq!(stat.sock, Some(Bytes::ZERO));
        assert_eq!(stat.kernel, None, "before Linux 5.18");
        assert_eq!(stat.workingset_refault_file, Some(9));
    }

    #[test]
    fn stat_of_v1_reads_the_totals() {
        let text = "cache 0\nrss 0\nshmem 0\ntotal_cache 8192\ntotal_rss 12288\ntotal_mapped_file 4096\ntotal_workingset_refault_file 5\n";
        let stat = stat_v1(text, Some(Bytes::new(77)));
        assert_eq!(
            (stat.anon, stat.file),
            (Some(Bytes::new(12288)), Some(Bytes::new(8192)))
        );
        assert_eq!(
            (stat.file_mapped, stat.shmem),
            (Some(Bytes::new(4096)), None)
        );
        assert_eq!(
            (stat.kernel, stat.workingset_refault_file),
            (Some(Bytes::new(77)), Some(5))
        );
    }

    #[test]
    fn oom_control_of_v1() {
        let text = "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n";
        assert_eq!(
            oom_control(text),
            Some(OomControl {
                disabled: false,
                under_oom: true,
                oom_kill: Some(3)
            })
        );
        assert_eq!(
            oom_control("oom_kill_disable 1\nunder_oom 0\n").and_then(|c| c.oom_kill),
            None
        );
        assert_eq!(oom_control("nonsense"), None);
    }

    #[test]
    fn no_limit_has_two_spellings() {
        assert_eq!(limit("max\n"), Some(CgroupLimitValue::Unlimited));
        assert_eq!(
            limit("9223372036854771712\n"),
            Some(CgroupLimitValue::Unlimited)
        );
        assert_eq!(
            limit("33554432\n"),
            Some(CgroupLimitValue::Limit(Bytes::from_mib(32)))
        );
        assert_eq!(limit("\n"), None);
    }

    #[test]
    fn mounts_with_optional_fields_and_blanks() {
        let text = "\
24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
32 31 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:10 master:3 - cgroup2 cgroup2 rw,nsdelegate
36 31 0:32 /a\\040b /mnt/with\\040blank rw - cgroup cgroup rw,memory
broken line
";
        let mounts = mountinfo(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(
            (mounts[0].fstype.as_str(), mounts[0].options.clone()),
            ("cgroup2", vec!["rw".into(), "nsdelegate".into()])
        );
        assert_eq!(mounts[1].point, PathBuf::from("/mnt/with blank"));
        assert_eq!(mounts[1].root, PathBuf::from("/a b"));
    }

    #[test]
    fn memberships() {
        let list = self_cgroup("4:memory:/a:b/c\n3:cpu,cpuacct:/\n1:name=systemd:/\n0::/x y\n");
        assert_eq!(list.len(), 4);
        assert_eq!(list[0].path, PathBuf::from("/a:b/c"));
        assert_eq!(list[1].controllers, ["cpu", "cpuacct"]);
        assert_eq!(
            (list[3].hierarchy, list[3].path.clone()),
            (0, PathBuf::from("/x y"))
        );
    }

    #[test]
    fn process_lists() {
        assert_eq!(pids("12\n0\n345\n"), [12, 345]);
        assert_eq!(populated("populated 1\nfrozen 0\n"), Some(true));
        assert_eq!(
            words("cpu io memory pids\n"),
            ["cpu", "io", "memory", "pids"]
        );
    }
}
