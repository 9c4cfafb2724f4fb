//! The values for the files of a group, from the requested limits and the available controllers.
//! Pure.
//!
//! The enforcers use it; it never touches a file.

use headroom_types::Bytes;

/// Whether the kernel kills a group as a whole (v2 `memory.oom.group`). On v1 the observer of
/// `oom_kill` kills the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OomGroup {
    /// All processes of the group are killed together.
    #[default]
    Yes,
    /// Only the largest is killed.
    No,
}

/// The limits of one group. `None` leaves the kernel's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// Maximum memory. In bytes.
    pub memory: Option<Bytes>,
    /// Maximum number of processes and threads.
    pub processes: Option<u32>,
    /// Processor weight against siblings, 1 to 10000 (100 is the kernel's default).
    pub cpu_weight: Option<u32>,
    /// Whether it is killed as a whole: for a container its `main` child, for a task its own group.
    pub oom_group: OomGroup,
    /// Memory that the kernel reclaims only when nothing else is reclaimable. v2 only. In bytes.
    pub low: Option<Bytes>,
}

/// The comparison of a written value with the value read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBackCheck {
    /// Equal texts.
    Exact,
    /// A number of bytes, which the kernel rounds down to whole pages.
    Pages,
    /// Words: the text read back must contain each written `+word`.
    Words,
}

/// Whether a missing file is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobRequirement {
    /// A missing file is an error.
    Must,
    /// A missing file is no error: a kernel without the feature, such as swap, has nothing to
    /// limit.
    IfThere,
}

/// One value for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupKnob {
    /// The file.
    pub file: &'static str,
    /// The value.
    pub value: String,
    /// The comparison after the read-back.
    pub confirm: ReadBackCheck,
    /// Whether the file must exist.
    pub need: KnobRequirement,
}

impl CgroupKnob {
    fn new(
        file: &'static str,
        value: impl ToString,
        confirm: ReadBackCheck,
        need: KnobRequirement,
    ) -> CgroupKnob {
        CgroupKnob {
            file,
            value: value.to_string(),
            confirm,
            need,
        }
    }
}

/// Available controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers {
    /// Memory; required for enforcement.
    pub memory: bool,
    /// Number of processes.
    pub pids: bool,
    /// Processor weight.
    pub cpu: bool,
}

impl Controllers {
    /// Parses the words of `cgroup.controllers`.
    pub fn from_words(words: &[String]) -> Controllers {
        let has = |name: &str| words.iter().any(|w| w == name);
        Controllers {
            memory: has("memory"),
            pids: has("pids"),
            cpu: has("cpu"),
        }
    }

    /// The value of `cgroup.subtree_control` that passes the controllers to children; `None`
    /// without any.
    pub fn subtree_knob(self) -> Option<CgroupKnob> {
        let pairs = [
            (self.memory, "+memory"),
            (self.pids, "+pids"),
            (self.cpu, "+cpu"),
        ];
        let words: Vec<&str> = pairs
            .into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, word)| word)
            .collect();
        if words.is_empty() {
            return None;
        }
        Some(CgroupKnob::new(
            "cgroup.subtree_control",
            words.join(" "),
            ReadBackCheck::Words,
            KnobRequirement::Must,
        ))
    }
}

/// v2: the limits in the directory of a container or task.
pub fn v2_limits(limits: &GroupLimits, has: Controllers) -> Vec<CgroupKnob> {
    let mut knobs = Vec::new();
    if let Some(memory) = limits.memory {
        knobs.push(v2_memory(memory));
        knobs.push(CgroupKnob::new(
            "memory.swap.max",
            0,
            ReadBackCheck::Pages,
            KnobRequirement::IfThere,
        ));
    }
    knobs.extend(limits.low.map(v2_low));
    if let Some(n) = limits.processes.filter(|_| has.pids) {
        knobs.push(CgroupKnob::new(
            "pids.max",
            n,
            ReadBackCheck::Exact,
            KnobRequirement::Must,
        ));
    }
    if let Some(n) = limits.cpu_weight.filter(|_| has.cpu) {
        knobs.push(CgroupKnob::new(
            "cpu.weight",
            n.clamp(1, 10_000),
            ReadBackCheck::Exact,
            KnobRequirement::Must,
        ));
    }
    knobs
}

/// v2: maximum depth of the groups below a container, for programs that create groups of their own,
/// such as a service manager or a container runtime.
pub const MAX_DEPTH: u32 = 16;
/// v2: maximum number of groups below a container. An executor has up to 1024 groups of running
/// tasks, and about as many that wait for another task or for their removal.
pub const MAX_DESCENDANTS: u32 = 4096;

/// v2: how many groups fit below a container. Each one costs kernel memory of the host, and the agent
/// removes all of them.
pub fn v2_nesting() -> [CgroupKnob; 2] {
    [
        ("cgroup.max.depth", MAX_DEPTH),
        ("cgroup.max.descendants", MAX_DESCENDANTS),
    ]
    .map(|(file, most)| CgroupKnob::new(file, most, ReadBackCheck::Exact, KnobRequirement::IfThere))
}

/// v2: memory that is reclaimed last. It applies to pages of the group that owns them, so `main`
/// needs the same value.
pub fn v2_low(low: Bytes) -> CgroupKnob {
    CgroupKnob::new(
        "memory.low",
        low.get(),
        ReadBackCheck::Pages,
        KnobRequirement::IfThere,
    )
}

/// v2: only the memory limit.
pub fn v2_memory(memory: Bytes) -> CgroupKnob {
    CgroupKnob::new(
        "memory.max",
        memory.get(),
        ReadBackCheck::Pages,
        KnobRequirement::Must,
    )
}

/// v2: only the processor weight. It is skipped in a container without the controller.
pub fn v2_cpu_weight(weight: u32) -> CgroupKnob {
    CgroupKnob::new(
        "cpu.weight",
        weight.clamp(1, 10_000),
        ReadBackCheck::Exact,
        KnobRequirement::IfThere,
    )
}

/// v2: whether the group is killed as a whole.
pub fn v2_oom_group(wanted: OomGroup) -> CgroupKnob {
    let value = match wanted {
        OomGroup::Yes => 1,
        OomGroup::No => 0,
    };
    CgroupKnob::new(
        "memory.oom.group",
        value,
        ReadBackCheck::Exact,
        KnobRequirement::Must,
    )
}

/// The direction in which a limit changes: memory plus swap must never be below memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Up.
    Grow,
    /// Down, or from no limit.
    Shrink,
}

/// v1: the distance of the memory-plus-swap limit above the memory limit. The kernel charges memory
/// plus swap first, and `failcnt` does not move when that counter is full (seen on Linux 6.18).
/// With this distance the memory counter is always full first.
pub const V1_SWAP_ROOM: Bytes = Bytes::from_mib(1);

/// v1: the memory limit, and a slightly larger limit for memory plus swap, so that there is almost
/// no swap.
pub fn v1_memory(memory: Bytes, direction: Direction) -> Vec<CgroupKnob> {
    let limit = CgroupKnob::new(
        "memory.limit_in_bytes",
        memory.get(),
        ReadBackCheck::Pages,
        KnobRequirement::Must,
    );
    let sum = memory.saturating_add(V1_SWAP_ROOM).get();
    let with_swap = CgroupKnob::new(
        "memory.memsw.limit_in_bytes",
        sum,
        ReadBackCheck::Pages,
        KnobRequirement::IfThere,
    );
    match direction {
        Direction::Grow => vec![with_swap, limit],
        Direction::Shrink => vec![limit, with_swap],
    }
}

/// v1: the process limit in the pids hierarchy.
pub fn v1_pids(processes: u32) -> CgroupKnob {
    CgroupKnob::new(
        "pids.max",
        processes,
        ReadBackCheck::Exact,
        KnobRequirement::Must,
    )
}

/// v1: the same processor weight in the cpu hierarchy, where the kernel's default is 1024.
pub fn v1_cpu_shares(weight: u32) -> CgroupKnob {
    let shares = u64::from(weight.clamp(1, 10_000)) * 1024 / 100;
    CgroupKnob::new(
        "cpu.shares",
        shares,
        ReadBackCheck::Exact,
        KnobRequirement::Must,
    )
}

/// Whether `found` confirms `wrote` in a file of that kind. `page` is in bytes.
pub fn confirmed(confirm: ReadBackCheck, wrote: &str, found: &str, page: u64) -> bool {
    let found = found.trim();
    match confirm {
        ReadBackCheck::Exact => wrote == found,
        ReadBackCheck::Pages => match (wrote.parse::<u64>(), found.parse::<u64>()) {
            (Ok(wrote), Ok(found)) => found == wrote - wrote % page.max(1),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) | (Err(_), Err(_)) => wrote == found,
        },
        ReadBackCheck::Words => {
            let have: Vec<&str> = found.split_whitespace().collect();
            wrote
                .split_whitespace()
                .filter_map(|w| w.strip_prefix('+'))
                .all(|w| have.contains(&w))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Controllers = Controllers {
        memory: true,
        pids: true,
        cpu: true,
    };

    fn files(knobs: &[CgroupKnob]) -> Vec<&str> {
        knobs.iter().map(|k| k.file).collect()
    }

    #[test]
    fn a_v2_container_gets_every_requested_limit() {
        let limits = GroupLimits {
            memory: Some(Bytes::from_mib(64)),
            processes: Some(9),
            cpu_weight: Some(50),
            oom_group: OomGroup::Yes,
            low: None,
        };
        let knobs = v2_limits(&limits, ALL);
        assert_eq!(
            files(&knobs),
            ["memory.max", "memory.swap.max", "pids.max", "cpu.weight"]
        );
        assert_eq!(knobs[0].value, "67108864");
        assert!(v2_limits(&GroupLimits::default(), ALL).is_empty());
    }

    #[test]
    fn limits_of_absent_controllers_are_left_out_but_memory_never() {
        let limits = GroupLimits {
            memory: Some(Bytes::from_mib(64)),
            processes: Some(9),
            cpu_weight: Some(50),
            oom_group: OomGroup::Yes,
            low: None,
        };
        assert_eq!(
            files(&v2_limits(&limits, Controllers::default())),
            ["memory.max", "memory.swap.max"]
        );
    }

    #[test]
    fn on_v1_the_limit_with_swap_is_never_below_the_memory_limit() {
        assert_eq!(
            files(&v1_memory(Bytes::from_mib(1), Direction::Grow))[0],
            "memory.memsw.limit_in_bytes"
        );
        assert_eq!(
            files(&v1_memory(Bytes::from_mib(1), Direction::Shrink))[0],
            "memory.limit_in_bytes"
        );
    }

    #[test]
    fn a_share_of_processors_means_the_same_in_both_versions() {
        assert_eq!(
            (
                v2_cpu_weight(100).value.as_str(),
                v1_cpu_shares(100).value.as_str()
            ),
            ("100", "1024")
        );
        assert_eq!(
            v1_cpu_shares(1).value,
            "10",
            "the kernel accepts 2 and more"
        );
        assert_eq!(
            v1_cpu_shares(u32::MAX).value,
            "102400",
            "the kernel accepts at most 262144"
        );
    }

    #[test]
    fn a_limit_is_confirmed_to_the_page() {
        assert!(confirmed(
            ReadBackCheck::Pages,
            "33554432",
            "33554432\n",
            4096
        ));
        assert!(confirmed(
            ReadBackCheck::Pages,
            "33554433",
            "33554432\n",
            4096
        ));
        assert!(!confirmed(
            ReadBackCheck::Pages,
            "33554432",
            "33550336\n",
            4096
        ));
        assert!(
            !confirmed(ReadBackCheck::Pages, "33554432", "max\n", 4096),
            "the kernel did not apply the limit"
        );
        assert!(confirmed(ReadBackCheck::Pages, "max", "max\n", 4096));
    }

    #[test]
    fn controllers_are_confirmed_by_name() {
        let knob = ALL.subtree_knob().expect("controllers to enable");
        assert!(confirmed(
            knob.confirm,
            &knob.value,
            "cpu io memory pids\n",
            4096
        ));
        assert!(!confirmed(knob.confirm, &knob.value, "cpu pids\n", 4096));
        assert_eq!(Controllers::default().subtree_knob(), None);
    }
}
