//! Which files get which values: pure, from the wanted limits and what the kernel offers.
//!
//! Owned by the enforcers; it never touches a file.

use headroom_types::Bytes;

/// Whether the kernel kills a group as a whole (v2 `memory.oom.group`). On v1 whoever sees `oom_kill` move ends the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OomGroup {
    /// All processes of the group die together.
    #[default]
    Yes,
    /// Only the largest dies.
    No,
}

/// The limits of one group. `None` leaves the kernel's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most memory. Bytes.
    pub memory: Option<Bytes>,
    /// Most processes and threads.
    pub processes: Option<u32>,
    /// Share of processor time against siblings, 1 to 10000 (100 is the kernel's default). v2 only.
    pub cpu_weight: Option<u32>,
    /// Whether it dies as a whole: of a container its `main` child, of a task its own group.
    pub oom_group: OomGroup,
}
