//! The effects of a simulated master: written, durable, carried out; and the take-over of a shared
//! journal.

use headroom_appmaster::event::{EventTimestamp, MasterEffect};
use headroom_appmaster::record::JournalRecord;
use headroom_types::{AttemptId, NodeId, Tick};

use super::master::{Process, SimMasterEvent};
use super::master_journal::SimEffectGroup;
use super::{Simulation, SimulationEvent as Any};
use crate::scenario::PlantedBug;

/// Duration of a rename in the file system. Milliseconds.
const COMMITTED_AFTER: u64 = 3;

impl Simulation {
    /// The key of the journal of a master on this node.
    pub(super) fn journal_key(&self, node: Option<&NodeId>) -> Option<NodeId> {
        node.filter(|_| !self.scenario.shared_journals).cloned()
    }

    /// Takes over the shared journal. False after a later attempt. A write of an earlier attempt that
    /// is in progress may be part of the journal; no peer is ever notified of it.
    pub(super) fn takes_over(&mut self, job: usize, attempt: &AttemptId) -> bool {
        let journal = self.clients[job].journals.entry(None).or_default();
        if journal.attempt > attempt.attempt {
            self.note(|| format!("{attempt} starts after a later attempt"));
            return false;
        }
        let earlier = self.processes.iter().filter(|(_, p)| p.job == job);
        let earlier: Vec<u64> = earlier.map(|(pid, _)| *pid).collect();
        for pid in earlier {
            if self.chance.percent(50)
                && let Some(mut process) = self.processes.remove(&pid)
            {
                self.process_writes_all(&mut process);
                self.processes.insert(pid, process);
            }
        }
        self.clients[job].journals.entry(None).or_default().attempt = attempt.attempt;
        true
    }

    /// True if a later attempt has taken over the journal of this process.
    fn is_deposed(&self, pid: u64) -> bool {
        self.processes.get(&pid).is_some_and(|p| {
            let journal = self.clients[p.job].journals.get(&None);
            self.scenario.shared_journals
                && journal.is_some_and(|journal| journal.attempt > p.attempt)
        })
    }

    /// Writes the records first. All other effects follow when they and all earlier ones are durable.
    /// The master goes on in the meantime.
    pub(super) fn process_carries_out(&mut self, pid: u64) {
        let plant = self.plant;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let mut group = SimEffectGroup::of(std::mem::take(&mut p.effects), &p.lines);
        let has_records = !group.records.is_empty();
        if (!has_records && p.groups.is_empty()) || plant == PlantedBug::StartsBeforeJournal {
            let rest = std::mem::take(&mut group.rest);
            self.process_sends(pid, rest);
        }
        if !has_records && group.rest.is_empty() {
            return;
        }
        let takes = self.chance.between(0, 5);
        let job = self.processes.get(&pid).map(|p| p.job);
        let doom = job
            .filter(|_| has_records)
            .and_then(|job| self.clients[job].doom.take());
        if let Some(doom) = doom.filter(|_| !self.is_calm()) {
            self.later(takes / 2, Any::Strike(doom));
        }
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        p.groups.push_back(group);
        p.durable_at = p.durable_at.max(now + takes);
        let at = p.durable_at;
        self.at(at, Any::Process(pid, SimMasterEvent::Durable));
    }

    /// Pauses a master, which continues later.
    pub(super) fn process_pauses(&mut self, job: usize, for_ms: u64) {
        let running = |(_, p): &(&u64, &mut Process)| p.job == job && !p.paused;
        if let Some((pid, process)) = self.processes.iter_mut().find(running) {
            process.paused = true;
            let pid = *pid;
            self.later(for_ms, Any::Process(pid, SimMasterEvent::Continue));
        }
    }

    pub(super) fn process_continues(&mut self, pid: u64) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        p.paused = false;
        let missed = std::mem::take(&mut p.inbox);
        self.note(|| format!("master process {pid} continues"));
        for thing in missed {
            self.process_thing(pid, thing);
        }
        self.process_waits(pid);
    }

    pub(super) fn process_written(&mut self, pid: u64) {
        if self.is_deposed(pid) {
            self.note(|| format!("master process {pid} finds that it was deposed"));
            self.deposed += 1;
            if let Some(p) = self.processes.get_mut(&pid) {
                p.groups.clear();
            }
            return self.process_leaves(pid, 1);
        }
        let Some(mut process) = self.processes.remove(&pid) else {
            return;
        };
        let group = process.groups.pop_front();
        let rest = group.map(|group| {
            self.process_writes(&process, group.records);
            group.rest
        });
        self.processes.insert(pid, process);
        self.process_sends(pid, rest.unwrap_or_default());
    }

    /// Writes the records of all turns that are not durable.
    pub(super) fn process_writes_all(&mut self, process: &mut Process) {
        let groups: Vec<_> = process.groups.iter_mut().collect();
        let records = groups.into_iter().map(|g| std::mem::take(&mut g.records));
        let records: Vec<JournalRecord> = records.flatten().collect();
        self.process_writes(process, records);
    }

    fn process_writes(&mut self, process: &Process, records: Vec<JournalRecord>) {
        let key = self.journal_key(process.node.as_ref());
        let journal = self.clients[process.job].journals.entry(key).or_default();
        if journal.attempt > process.attempt && self.scenario.shared_journals {
            return; // a late write is no part of the journal
        }
        for record in records {
            self.oracle.recorded(&journal.token, &record, self.now);
            journal.records.push(record);
        }
    }

    fn process_sends(&mut self, pid: u64, rest: Vec<(Option<u64>, MasterEffect)>) {
        let now = self.now;
        let unix = self.wall();
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let tick = Tick(now - p.started);
        let (mut messages, mut commits, mut effects) = (Vec::new(), Vec::new(), Vec::new());
        for (line, effect) in rest {
            match effect {
                MasterEffect::Record(_) => {}
                // On a new connection, the core sends again what the executor lacks.
                MasterEffect::Send { container, message } => messages.extend(
                    line.filter(|line| p.lines.get(&container) == Some(line))
                        .map(|line| (line, *message)),
                ),
                MasterEffect::Commit {
                    task,
                    attempt,
                    commit: _,
                } => commits.push(SimMasterEvent::Committed { task, attempt }),
                MasterEffect::Resize {
                    container,
                    resource,
                } => p.session.resize(container, resource, &mut effects),
                // Jobs of the simulation name no inputs.
                MasterEffect::Measure { .. } => {}
                MasterEffect::Answer { .. } => {}
                MasterEffect::Sync => p.session.sync_now(tick),
                MasterEffect::Finish(outcome) => {
                    p.core
                        .report_job_end(EventTimestamp { tick, unix }, &outcome);
                    p.session.finish(tick, outcome);
                }
            }
        }
        if p.core.has_unreported_changes() {
            p.session.sync_soon(tick);
        }
        commits
            .into_iter()
            .for_each(|thing| self.later(COMMITTED_AFTER, Any::Process(pid, thing)));
        messages
            .into_iter()
            .for_each(|(line, message)| self.say_to_executor(line, message));
        self.session_carries_out(pid, effects);
    }
}
