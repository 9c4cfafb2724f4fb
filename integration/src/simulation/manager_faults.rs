//! Faults of several managers and of their etcd.

use super::manager::SimManagerEvent;
use super::{Simulation, SimulationEvent as Any};
use crate::fault::{Fault, FaultMoment, LastWrite, PauseMoment};

/// A connection of a manager that a fault cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagerLink {
    /// To etcd.
    Etcd,
    /// To nodes, masters, clients and the other managers.
    Callers,
}

impl Simulation {
    /// The manager that leads, or else the first one.
    pub(super) fn leading_manager(&self) -> usize {
        self.etcd.store.leader().map_or(0, |key| key.manager)
    }

    /// In three of four cases the leader.
    fn chosen_manager(&self, pick: u64) -> usize {
        let count = u64::try_from(self.managers.len()).unwrap_or(1);
        if !pick.is_multiple_of(4) {
            return self.leading_manager();
        }
        usize::try_from((pick / 4) % count).unwrap_or(0)
    }

    pub(super) fn strike_manager(&mut self, fault: &Fault) {
        match fault {
            Fault::ManagerStops {
                down_ms,
                moment: FaultMoment::Now,
            } => self.manager_stops(self.leading_manager(), *down_ms),
            Fault::ManagerStops {
                down_ms,
                moment: FaultMoment::InNextWrite,
            } => {
                let m = self.leading_manager();
                self.managers[m].doom = Some(Fault::ManagerStops {
                    down_ms: *down_ms,
                    moment: FaultMoment::Now,
                });
            }
            Fault::ManagerPaused {
                pick,
                for_ms,
                moment,
            } => {
                let m = self.chosen_manager(*pick);
                match moment {
                    PauseMoment::Now => self.manager_pauses(m, *for_ms, false),
                    PauseMoment::InNextWrite => {
                        self.managers[m].doom = Some(Fault::ManagerPaused {
                            pick: *pick,
                            for_ms: *for_ms,
                            moment: PauseMoment::Now,
                        });
                    }
                    PauseMoment::BeforeSend => self.managers[m].pause_at_check = Some(*for_ms),
                }
            }
            Fault::ManagerLosesEtcd {
                pick,
                for_ms,
                write,
            } => {
                let m = self.chosen_manager(*pick);
                match write {
                    None => self.manager_is_cut(m, ManagerLink::Etcd, *for_ms),
                    Some(write) => self.managers[m].cut_at_write = Some((*write, *for_ms)),
                }
            }
            Fault::ManagerCutOff { pick, for_ms } => {
                let m = self.chosen_manager(*pick);
                self.manager_is_cut(m, ManagerLink::Callers, *for_ms);
            }
            Fault::EtcdWithoutQuorum { for_ms } => {
                self.counts.quorum_losses += 1;
                self.etcd_stops(*for_ms);
            }
            Fault::EtcdChangesLeader { for_ms } => {
                self.counts.etcd_elections += 1;
                self.etcd_stops(*for_ms);
            }
            Fault::StandbyDies { pick, down_ms } => {
                let leader = self.leading_manager();
                let m = self.chosen_manager(*pick * 4);
                if m != leader {
                    self.kill_manager(m, LastWrite::Kept, *down_ms);
                }
            }
            Fault::ManagerDies { .. }
            | Fault::AgentDies { .. }
            | Fault::HostResets { .. }
            | Fault::HostCutOff { .. }
            | Fault::MasterDies { .. } => {}
            Fault::MasterPaused { .. }
            | Fault::MasterCutOff { .. }
            | Fault::ContainerKilled { .. }
            | Fault::TaskKilled { .. } => {}
            Fault::LineBreaks { .. } | Fault::StreamBreaks { .. } | Fault::AppKilled { .. } => {}
        }
    }

    /// Kills a manager. Its service starts it again.
    pub(super) fn kill_manager(&mut self, m: usize, write: LastWrite, down_ms: u64) {
        if self.managers[m].election.is_some() {
            self.counts.kills += 1;
        }
        self.manager_dies(m, write);
        self.later(down_ms, Any::Manager(m, SimManagerEvent::Start));
    }

    /// The leader dies, now or in its next write.
    pub(super) fn leader_dies(&mut self, write: LastWrite, moment: FaultMoment, down_ms: u64) {
        let m = self.leading_manager();
        match moment {
            FaultMoment::Now => self.kill_manager(m, write, down_ms),
            FaultMoment::InNextWrite => {
                let moment = FaultMoment::Now;
                self.managers[m].doom = Some(Fault::ManagerDies {
                    down_ms,
                    write,
                    moment,
                });
            }
        }
    }

    /// A fault may strike while a write is under way.
    pub(super) fn write_was_sent(&mut self, m: usize) {
        if let Some(doom) = self.managers[m].doom.take().filter(|_| !self.is_calm()) {
            let usual = self.scenario.managers.etcd_delay_ms;
            let after = self.chance.between(0, 2 * usual);
            self.later(after, Any::Strike(doom));
        }
    }

    /// Cuts a connection of a manager for a while.
    pub(super) fn manager_is_cut(&mut self, m: usize, link: ManagerLink, for_ms: u64) {
        match link {
            ManagerLink::Etcd => {
                self.counts.etcd_cuts += 1;
                self.managers[m].etcd_cuts += 1;
            }
            ManagerLink::Callers => {
                self.counts.caller_cuts += 1;
                self.managers[m].caller_cuts += 1;
                self.break_streams_of_manager(m, true);
            }
        }
        self.note(|| format!("manager {m} loses {link:?} for {for_ms} ms"));
        self.later(for_ms, Any::ManagerConnects(m, link));
    }

    pub(super) fn manager_connects(&mut self, m: usize, link: ManagerLink) {
        let manager = &mut self.managers[m];
        match link {
            ManagerLink::Etcd => {
                manager.etcd_cuts = manager.etcd_cuts.saturating_sub(1);
                if manager.etcd_cuts == 0 && manager.election.is_some() {
                    self.follow_leader(m);
                }
            }
            ManagerLink::Callers => manager.caller_cuts = manager.caller_cuts.saturating_sub(1),
        }
        self.note(|| format!("manager {m} has {link:?} again"));
    }

    /// Breaks the streams that a manager serves.
    pub(super) fn break_streams_of_manager(&mut self, m: usize, quiet: bool) {
        for stream in self.wires.streams_of_manager(m) {
            self.break_stream(stream, quiet);
        }
    }
}
