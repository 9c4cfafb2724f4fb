//! Injection of faults.

use headroom_types::NodeId;

use super::executor;
use super::host::SimProgramEnd;
use super::{Simulation, SimulationEvent, manager, master};
use crate::fault::{Fault, FaultMoment, LastWrite};

impl Simulation {
    pub(super) fn strike(&mut self, fault: Fault) {
        self.note(|| format!("!! {fault:?}"));
        match fault {
            Fault::ManagerDies {
                down_ms,
                write,
                moment,
            } if self.managers.len() > 1 => self.leader_dies(write, moment, down_ms),
            Fault::ManagerDies {
                down_ms,
                write,
                moment,
            } => self.only_manager_dies(write, moment, down_ms),
            Fault::ManagerStops { .. }
            | Fault::ManagerPaused { .. }
            | Fault::ManagerLosesEtcd { .. }
            | Fault::ManagerCutOff { .. }
            | Fault::EtcdWithoutQuorum { .. }
            | Fault::EtcdChangesLeader { .. }
            | Fault::StandbyDies { .. } => self.strike_manager(&fault),
            Fault::AgentDies { node, down_ms } => {
                self.with_node(node, |w, n| w.agent_dies(n, down_ms))
            }
            Fault::HostResets { node, down_ms } => {
                self.with_node(node, |w, n| w.host_resets(n, down_ms))
            }
            Fault::HostCutOff { node, for_ms } => {
                self.with_node(node, |w, n| w.host_cut_off(n, for_ms))
            }
            Fault::MasterDies {
                job,
                down_ms,
                write,
                moment: FaultMoment::InNextWrite,
            } => {
                let fault = Fault::MasterDies {
                    job,
                    down_ms,
                    write,
                    moment: FaultMoment::Now,
                };
                if let Some(client) = self.clients.get_mut(job) {
                    client.doom = Some(fault);
                }
            }
            Fault::MasterDies {
                job,
                down_ms,
                write,
                moment: FaultMoment::Now,
            } => self.kill_master(job, down_ms, write),
            Fault::MasterCutOff { job, for_ms } => {
                let master = self.processes.values().find(|p| p.job == job);
                if let Some(node) = master.and_then(|p| p.node.clone()) {
                    self.host_cut_off(&node, for_ms);
                }
            }
            Fault::MasterPaused { job, for_ms } => self.process_pauses(job, for_ms),
            Fault::ContainerKilled { pick } => self.kill_container(pick),
            Fault::TaskKilled { pick } => self.kill_task(pick),
            Fault::LineBreaks { pick } => self.break_one_connection(pick),
            Fault::StreamBreaks { pick } => self.break_one_stream(pick),
            Fault::AppKilled { job } => self.later(
                0,
                SimulationEvent::Client(job, master::SimClientEvent::Kill),
            ),
        }
    }

    /// The only manager dies, now or in its next write.
    fn only_manager_dies(&mut self, write: LastWrite, moment: FaultMoment, down_ms: u64) {
        match moment {
            FaultMoment::Now => {
                self.manager_dies(0, write);
                self.later(
                    down_ms,
                    SimulationEvent::Manager(0, manager::SimManagerEvent::Start),
                );
            }
            FaultMoment::InNextWrite => {
                let moment = FaultMoment::Now;
                self.managers[0].doom = Some(Fault::ManagerDies {
                    down_ms,
                    write,
                    moment,
                });
            }
        }
    }

    /// Kills the master of a job. The simulation restarts it if it is unmanaged.
    fn kill_master(&mut self, job: usize, down_ms: u64, write: LastWrite) {
        let found = self
            .processes
            .iter()
            .find(|(_, p)| p.job == job)
            .map(|(pid, p)| (*pid, p.container.clone()));
        match found {
            Some((pid, None)) => {
                self.process_dies(pid, write);
                self.later(
                    down_ms,
                    SimulationEvent::Client(job, master::SimClientEvent::Master),
                );
            }
            Some((pid, Some(container))) => {
                let node = self.processes.get(&pid).and_then(|p| p.node.clone());
                self.process_dies(pid, write);
                node.into_iter()
                    .for_each(|node| self.cell_ends(&node, &container, SimProgramEnd::Killed));
            }
            None => {}
        }
    }

    /// Kills one of the containers that are alive.
    fn kill_container(&mut self, pick: u64) {
        let all: Vec<_> = self
            .hosts
            .values()
            .flat_map(|h| alive(h).map(|id| (h.id.clone(), id.clone())))
            .collect();
        if let Some((node, id)) = nth(&all, pick) {
            self.cell_ends(&node, &id, SimProgramEnd::Killed);
        }
    }

    /// Kills one of the tasks that run.
    fn kill_task(&mut self, pick: u64) {
        let all: Vec<_> = self
            .executors
            .iter()
            .flat_map(|(id, e)| e.tasks().map(|a| (id.clone(), a.clone())))
            .collect();
        if let Some((id, attempt)) = nth(&all, pick) {
            self.executor_thing(&id, executor::SimExecutorEvent::Killed { attempt });
        }
    }

    /// Breaks one of the open connections.
    fn break_one_connection(&mut self, pick: u64) {
        let all = self.connections_of(|_| true);
        nth(&all, pick)
            .into_iter()
            .for_each(|line| self.break_connection(line, false));
    }

    /// Breaks one of the open streams.
    fn break_one_stream(&mut self, pick: u64) {
        let all = self.streams_of(None);
        nth(&all, pick)
            .into_iter()
            .for_each(|stream| self.break_stream(stream, pick.is_multiple_of(2)));
    }

    fn with_node(&mut self, n: usize, what: impl FnOnce(&mut Simulation, &NodeId)) {
        if let Some(node) = self.hosts.keys().nth(n).cloned() {
            what(self, &node);
        }
    }

    fn host_cut_off(&mut self, node: &NodeId, for_ms: u64) {
        let Some(host) = self.hosts.get_mut(node).filter(|h| !h.cut) else {
            return;
        };
        host.cut = true;
        for stream in self.streams_of(Some(node)) {
            self.break_stream(stream, true);
        }
        let there = |w: &Simulation, c: &super::network::Connection| {
            let executors = w.executors.get(&c.container).map(|e| e.node.clone());
            let masters = w.processes.get(&c.pid).and_then(|p| p.node.clone());
            (executors, masters)
        };
        let lines = self.connections_of(|c| {
            let (one, other) = there(self, c);
            one != other && (one.as_ref() == Some(node) || other.as_ref() == Some(node))
        });
        lines
            .into_iter()
            .for_each(|line| self.break_connection(line, true));
        self.later(for_ms, SimulationEvent::Mended(node.clone()));
    }

    pub(super) fn mended(&mut self, node: &NodeId) {
        if let Some(host) = self.hosts.get_mut(node) {
            host.cut = false;
            self.note(|| format!("{node} is reachable again"));
        }
    }
}

fn alive(host: &super::host::Host) -> impl Iterator<Item = &headroom_types::ContainerId> {
    host.cells.iter().filter(|(_, c)| c.alive).map(|(id, _)| id)
}

fn nth<T: Clone>(all: &[T], pick: u64) -> Option<T> {
    let n = u64::try_from(all.len()).ok().filter(|n| *n > 0)?;
    all.get(usize::try_from(pick % n).ok()?).cloned()
}
