//! Updates of the resource manager: grants, ends, refusals, and the containers that are alive after
//! a restart.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_types::{ContainerId, ExitReason, ExitReport, RequestId, Resource};
use headroom_wire::v1::application_master::{ApplicationUpdateKind, ContainerGrant};

use super::{MasterCore, MasterPhase};
use crate::event::{MasterEffect, SizeRefusal};
use crate::executors::{ConnectionState, ContainerListing, ExecutorEntry, RequestPurpose};
use crate::policy::classify::AttemptEndClass;
use crate::policy::{AttemptPlace, GiveUpCause};
use crate::record::JournalRecord;
use crate::taskset::{TaskInstance, TaskPosition};

/// Timeout for executors to reconnect after a restart of this master; then their tasks run again.
pub(super) const REATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for nodes to return after a restart of the resource manager.
const NODE_RETURN_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the final task reports of an executor whose container end is known already.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum duration of a refusal that contradicts earlier knowledge.
const MIN_REFUSAL_DURATION: Duration = Duration::from_secs(10);

impl MasterCore {
    pub(super) fn on_registered(&mut self, largest: Resource, containers: Vec<ContainerGrant>) {
        self.learn_largest(largest);
        self.view.touch_all(&self.tasks);
        self.folded.clear_forgotten();
        let listed: BTreeSet<_> = containers.iter().map(|g| g.container.clone()).collect();
        match self.phase {
            MasterPhase::Over(_) | MasterPhase::Replaying => return,
            MasterPhase::Unregistered => self.first_registration(&containers, &listed),
            MasterPhase::Working => {
                for (id, executor) in &mut self.fleet.executors {
                    if executor.line != ConnectionState::Up && !listed.contains(id) {
                        executor.line = ConnectionState::Down {
                            until: self.now.tick.plus(NODE_RETURN_TIMEOUT),
                        };
                        executor.listing = ContainerListing::Unlisted;
                    }
                }
            }
        }
        self.fleet.strays.retain(|stray| listed.contains(stray));
        for granted in containers {
            if let Some(known) = self.fleet.executors.get_mut(&granted.container) {
                known.resource = Some(granted.resource.clone());
                known.listing = ContainerListing::Listed;
                self.fleet.growing.insert(granted.container.clone());
            }
            self.on_granted(granted);
        }
        self.out.push(MasterEffect::Sync);
    }

    fn first_registration(
        &mut self,
        containers: &[ContainerGrant],
        listed: &BTreeSet<ContainerId>,
    ) {
        self.phase = MasterPhase::Working;
        let others_wrote_elsewhere = self.missed_attempts();
        self.join_runs();
        if containers
            .iter()
            .any(|granted| self.is_from_unknown_run(granted.attempt))
        {
            self.forget_ended_elsewhere(listed);
        }
        if others_wrote_elsewhere {
            self.count_unlisted_as_ended(listed);
        }
        self.restore_exclusions();
        self.begin_lease();
        for executor in self
            .fleet
            .executors
            .values_mut()
            .filter(|e| matches!(e.line, ConnectionState::Silent { .. }))
        {
            executor.line = ConnectionState::Silent {
                until: self.now.tick.plus(REATTACH_TIMEOUT),
            };
        }
        self.commit_again();
        if !self.started {
            self.record(JournalRecord::JobStarted { at: self.now.unix });
            self.report_job_started();
        }
    }

    /// Drops containers that ended under another run of the master. A live container of such a run
    /// shows that it wrote another journal. Container ends were reported to that run and are not
    /// repeated.
    fn forget_ended_elsewhere(&mut self, alive: &BTreeSet<ContainerId>) {
        let known = self
            .fleet
            .executors
            .iter()
            .filter(|(id, _)| !alive.contains(id));
        for (container, executor) in known
            .map(|(id, e)| (id.clone(), e.clone()))
            .collect::<Vec<_>>()
        {
            let why = "its executor ended during another run of the master";
            self.lose_attempts(
                &executor,
                (ExitReason::NodeLost, AttemptEndClass::Transient),
                why,
            );
            self.record(JournalRecord::Gone {
                container,
                request: executor.request,
                unused: false,
                failed: false,
            });
        }
    }

    /// True when attempts of the application between those of this journal and this one did not
    /// write it.
    fn missed_attempts(&self) -> bool {
        let first = self.runs.first().copied();
        first.is_some_and(|first| (first..self.setup.attempt).any(|run| !self.runs.contains(&run)))
    }

    /// Counts containers that the resource manager does not list as ended: their ends may have been
    /// reported to another attempt. If not, the report follows, with the reason.
    fn count_unlisted_as_ended(&mut self, alive: &BTreeSet<ContainerId>) {
        for (id, executor) in &mut self.fleet.executors {
            if !alive.contains(id) {
                executor.listing = ContainerListing::Ended;
            }
        }
    }

    /// Records the application attempts of this journal. A journal of an older version, without
    /// such records, was written by all attempts up to this one.
    fn join_runs(&mut self) {
        let this = self.setup.attempt;
        let first = if self.started && self.runs.is_empty() {
            this.min(1)
        } else {
            this
        };
        for attempt in (first..=this)
            .filter(|run| !self.runs.contains(run))
            .collect::<Vec<_>>()
        {
            self.record(JournalRecord::Run { attempt });
        }
    }

    /// True when the container was granted to an application attempt whose journal is not
    /// available. The secret is in that journal, so no executor in this container can ever send a
    /// valid hello.
    fn is_from_unknown_run(&self, attempt: u32) -> bool {
        attempt != 0 && !self.runs.contains(&attempt)
    }

    /// Keeps the largest container size ever reported, because a node that left may return.
    fn learn_largest(&mut self, largest: Resource) {
        if !largest.memory.is_zero()
            && self
                .largest
                .as_ref()
                .is_none_or(|known| known.memory < largest.memory)
        {
            self.largest = Some(largest);
        }
    }

    pub(super) fn on_update(&mut self, cursor: u64, what: ApplicationUpdateKind) {
        match what {
            ApplicationUpdateKind::Alive => return,
            ApplicationUpdateKind::Running { .. } | ApplicationUpdateKind::Expired { .. } => {}
            ApplicationUpdateKind::Resized {
                container,
                resource,
                version: _,
            } => self.on_container_size(&container, resource),
            ApplicationUpdateKind::ResizeFailed {
                container,
                resource,
                version: _,
                why,
            } => {
                if let Some(executor) = self.fleet.executors.get_mut(&container) {
                    executor.resource = Some(resource);
                }
                self.on_resize_refused(&container, &SizeRefusal::Node(why));
            }
            ApplicationUpdateKind::PreemptSoon { container, at, why } => {
                self.on_preempt_soon(&container, at, &why)
            }
            ApplicationUpdateKind::NodeDraining { node, until } => {
                self.on_node_draining(&node, until)
            }
            ApplicationUpdateKind::Order(order) => self.on_order(&order),
            ApplicationUpdateKind::Scale(order) => self.on_scale(&order),
            ApplicationUpdateKind::Allocated(granted) => self.on_granted(granted),
            ApplicationUpdateKind::Exited { request, report } => {
                self.on_exited(cursor, &request, report)
            }
        }
        self.cursor = self.cursor.max(cursor);
    }

    fn on_granted(&mut self, granted: ContainerGrant) {
        let (container, attempt) = (granted.container.clone(), granted.attempt);
        let Some(entry) = self.request_mut(&granted.request) else {
            return;
        };
        entry.refused_since = None;
        if entry.ended.contains(&container) {
            self.fleet.strays.insert(container);
            self.out.push(MasterEffect::Sync);
            return;
        }
        if !self.fleet.executors.contains_key(&container) {
            self.gain(granted);
        }
        if self.is_from_unknown_run(attempt)
            && self
                .fleet
                .executors
                .get(&container)
                .is_some_and(ExecutorEntry::may_run_tasks)
        {
            self.end_executor(&container);
        }
    }

    fn gain(&mut self, granted: ContainerGrant) {
        let ContainerGrant {
            container,
            request,
            node,
            resource,
            attempt: _,
            running: _,
        } = granted;
        self.record(JournalRecord::Gained {
            container: container.clone(),
            request,
            node,
        });
        if let Some(gained) = self.fleet.executors.get_mut(&container) {
            gained.resource = Some(resource);
        }
        if let Some(hello) = self.early.remove(&container) {
            self.on_hello(hello);
        }
    }

    fn on_exited(&mut self, cursor: u64, request: &RequestId, report: Box<ExitReport>) {
        let container = report.container.clone();
        self.fleet.strays.remove(&container);
        if let Some(executor) = self.fleet.executors.get_mut(&container) {
            // The final reports of the executor may still be on their way over the task channel.
            let waits = executor.line == ConnectionState::Up
                && !executor.seats.is_empty()
                && executor.ended.is_none();
            if waits {
                executor.ended = Some((report, self.now.tick.plus(FINAL_REPORT_TIMEOUT), cursor));
            } else if executor.ended.is_none() {
                self.container_gone(&container, &report);
            }
            return;
        }
        let Some(entry) = self.request_mut(request) else {
            return;
        };
        if !entry.ended.contains(&container) {
            self.record(JournalRecord::Gone {
                container,
                request: request.clone(),
                unused: false,
                failed: false,
            });
        }
    }

    pub(super) fn on_refused(&mut self, id: &RequestId, sentence: &str, largest: Resource) {
        let nothing_known = largest.memory.is_zero();
        self.learn_largest(largest);
        let Some(request) = self.fleet.requests.get_mut(id) else {
            return;
        };
        if nothing_known || request.wanted == 0 {
            return;
        }
        let since = *request.refused_since.get_or_insert(self.now.tick);
        let memory = request.memory;
        let plain = self.largest.as_ref().is_some_and(|l| memory > l.memory);
        if plain || self.now.tick.since(since) >= MIN_REFUSAL_DURATION {
            let purpose = request.purpose;
            if !self.shrink_request(id, purpose) {
                self.give_up_request(purpose, GiveUpCause::NeverFits, sentence);
            }
        }
    }

    /// Reduces an own container that was requested larger than any node to the largest possible
    /// size.
    fn shrink_request(&mut self, id: &RequestId, purpose: RequestPurpose) -> bool {
        let RequestPurpose::Own(key) = purpose else {
            return false;
        };
        if !self.shrink_to_cap(key) {
            return false;
        }
        let memory = self.tasks.get(key).map(|task| task.size.memory());
        if let (Some(request), Some(memory)) = (self.fleet.requests.get_mut(id), memory) {
            request.memory = memory;
            request.refused_since = None;
        }
        self.out.push(MasterEffect::Sync);
        true
    }

    /// Gives up every waiting task that depends on an infeasible request.
    pub(super) fn give_up_request(
        &mut self,
        purpose: RequestPurpose,
        cause: GiveUpCause,
        sentence: &str,
    ) {
        let keys = match purpose {
            RequestPurpose::Own(key) => vec![key],
            RequestPurpose::Set(set) => {
                let of_set = |stage: &usize| self.set_of.get(*stage) == Some(&set);
                let waits = |key: &TaskPosition| {
                    let shared = |task: &TaskInstance| task.size.place == AttemptPlace::Shared;
                    self.tasks.get(*key).is_some_and(shared)
                };
                (0..self.set_of.len())
                    .filter(of_set)
                    .flat_map(|stage| self.tasks.unfinished(stage))
                    .filter(waits)
                    .collect()
            }
        };
        for key in keys {
            let Some(task) = self.tasks.pending(key) else {
                continue;
            };
            let message = format!("{} cannot run: {sentence}", task.id);
            self.record(JournalRecord::GivenUp {
                task: key,
                cause,
                message: message.clone(),
            });
            self.report_given_up(key, cause, &message);
        }
    }
}
