//! The hosts of a replay: a task goes where the least memory is left over.

use headroom_types::Bytes;

/// One host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// Processors that are free.
    pub(super) cpus: u32,
    /// Memory that is free.
    pub(super) memory: Bytes,
}

/// All hosts.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    all: Vec<Host>,
    one: Host,
}

impl Hosts {
    /// So many alike.
    pub(super) fn new(count: usize, one: Host) -> Hosts {
        Hosts { all: vec![one; count], one }
    }
    /// What one has when nothing runs on it.
    pub(super) fn whole(&self) -> Host {
        self.one
    }
    /// True when no processor is free anywhere.
    pub(super) fn are_busy(&self) -> bool {
        self.all.iter().all(|host| host.cpus == 0)
    }
    /// Takes room where the least memory is left over; says where.
    pub(super) fn take(&mut self, cpus: u32, memory: Bytes) -> Option<usize> {
        let fits = |host: &Host| host.cpus >= cpus && host.memory >= memory;
        let (at, _) = self.all.iter().enumerate().filter(|(_, host)| fits(host)).min_by_key(|(_, host)| host.memory)?;
        let host = self.all.get_mut(at)?;
        host.cpus -= cpus;
        host.memory = host.memory.saturating_sub(memory);
        Some(at)
    }
    /// Takes more memory where a task runs. False when there is none.
    pub(super) fn grow(&mut self, at: usize, by: Bytes) -> bool {
        let Some(host) = self.all.get_mut(at).filter(|host| host.memory >= by) else { return false };
        host.memory = host.memory.saturating_sub(by);
        true
    }
    /// Gives room back.
    pub(super) fn free(&mut self, at: usize, cpus: u32, memory: Bytes) {
        let Some(host) = self.all.get_mut(at) else { return };
        host.cpus += cpus;
        host.memory = host.memory.saturating_add(memory);
    }
}
