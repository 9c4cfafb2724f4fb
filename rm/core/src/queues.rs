//! Changes of queues at run time: a new tree, a new state, a moved application; and the view of
//! queues for users.

use std::collections::BTreeSet;

use headroom_types::{AppId, QueuePath, Reason, Resource};

use crate::cluster::Cluster;
use crate::event::{
    ApplicationLifetime, CallAnswer, CallRefusal, DryRun, EventLogLine, LogMessage, LogObject,
    LogSeverity, QueuesFrom,
};
use crate::ledger;
use crate::queue::sibling_order::GuaranteePosition;
use crate::queue::spec::{QueueDefinition, QueueDefinitionError, QueueState};
use crate::queue::{QueueNumber, QueueTree, SchedulerQueues};
use crate::save::DurableRecord;
use crate::step_context::StepContext;

/// Most applications that are listed when they prevent the removal of a queue.
const MAX_NAMED: usize = 5;

/// A queue in the form that users see.
#[derive(Clone, Debug)]
pub struct QueueSnapshot<'a> {
    /// Path.
    pub path: &'a QueuePath,
    /// Definition of the operator, without child queues.
    pub spec: &'a QueueDefinition,
    /// Child queues by name. Empty in a leaf.
    pub children: Vec<&'a QueuePath>,
    /// Effective state: its own, or that of an ancestor.
    pub state: QueueState,
    /// Guaranteed resources; zero for a resource without a guarantee.
    pub guaranteed: Resource,
    /// Maximum resources; the parent's maximum for a resource without a limit.
    pub maximum: &'a Resource,
    /// Resources of its containers.
    pub used: &'a Resource,
    /// Part of `used` that masters use.
    pub masters: &'a Resource,
    /// Resources that waiting requests and masters still miss.
    pub pending: Resource,
    /// Containers that are still to be granted.
    pub pending_containers: u64,
    /// Live containers.
    pub containers: u32,
    /// Applications that have not ended.
    pub apps: usize,
    /// Number of its running applications.
    pub running: u32,
    /// Dominant share of its guarantee, or of the cluster without a guarantee. Thousandths.
    pub dominant: u64,
    /// True when it uses less than its guarantee.
    pub below_guarantee: bool,
    /// Resources of each user; only in leaves.
    pub users: Vec<(&'a str, &'a Resource)>,
}

impl Cluster {
    /// All queues, each before its children.
    pub fn queues(&self) -> Vec<QueueSnapshot<'_>> {
        let mut views: Vec<QueueSnapshot<'_>> = self
            .queue
            .slots()
            .filter_map(|(ix, _)| self.queue_view(ix))
            .collect();
        self.add_pending(&mut views);
        views
    }
    /// Number of changes of the tree at run time.
    pub fn queues_generation(&self) -> u64 {
        self.queue.generation()
    }
    /// Queue tree in effect, as the operator defined it.
    pub fn queue_tree(&self) -> &QueueTree {
        self.queue.tree()
    }

    fn queue_view(&self, ix: QueueNumber) -> Option<QueueSnapshot<'_>> {
        let (slot, account) = (self.queue.slot(ix)?, self.ledger().queue(ix)?);
        let (standing, dominant) = self.queue.standing(ix, slot, self.ledger());
        Some(QueueSnapshot {
            path: &slot.path,
            spec: &slot.spec,
            children: slot
                .children
                .iter()
                .filter_map(|child| Some(&self.queue.slot(*child)?.path))
                .collect(),
            state: self.queue.state(ix),
            guaranteed: slot.guaranteed.over(&Resource::default()),
            maximum: &slot.most,
            used: &account.used,
            masters: &account.masters,
            pending: Resource::default(),
            pending_containers: 0,
            containers: account.containers,
            apps: slot.apps.len(),
            running: slot.running,
            dominant: dominant.thousandths(),
            below_guarantee: standing == GuaranteePosition::Below,
            users: account
                .users
                .iter()
                .map(|(user, account)| (&**user, &account.used))
                .collect(),
        })
    }

    /// Adds missing containers to the view of each leaf and its ancestors.
    fn add_pending(&self, views: &mut [QueueSnapshot<'_>]) {
        for app in self.apps.values().filter(|app| !app.state.is_ending()) {
            let Some(leaf) = self.queue.leaf_of(&app.id) else {
                continue;
            };
            let requests = app
                .requests
                .iter()
                .map(|(request, asked)| (&asked.ask.resource, app.missing(request)));
            let waits = app.run == crate::attempt::AttemptState::Scheduled;
            let master = app
                .master
                .as_ref()
                .filter(|_| waits)
                .map(|size| (&size.resource, 1));
            for (size, count) in requests.chain(master).filter(|(_, count)| *count > 0) {
                for (ix, _) in self.queue.path_of(leaf) {
                    if let Some(view) = views.get_mut(ix.index()) {
                        view.pending_containers += u64::from(count);
                        ledger::add_times(&mut view.pending, size, count);
                    }
                }
            }
        }
        // parents include the applications of their descendants
        for (ix, slot) in self.queue.slots() {
            for (above, _) in self
                .queue
                .path_of(ix)
                .skip(1)
                .filter(|_| slot.children.is_empty())
            {
                if let Some(view) = views.get_mut(above.index()) {
                    view.apps += slot.apps.len();
                    view.running += slot.running;
                }
            }
        }
    }

    pub(crate) fn set_queues(
        &mut self,
        tree: QueueTree,
        generation: Option<u64>,
        how: DryRun,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let current = self.queue.generation();
        if let Some(given) = generation.filter(|given| *given != current) {
            return Err(CallRefusal::Conflict {
                what: "the tree of queues".into(),
                given,
                current,
            });
        }
        let problems = self.queue.removed_leaf_problems(&tree);
        if !problems.is_empty() {
            return Err(CallRefusal::BadQueues(problems));
        }
        if tree == *self.queue.tree() {
            return Ok(CallAnswer::Queues {
                generation: current,
            });
        }
        let generation = current + 1;
        if how == DryRun::Really {
            let count = tree.paths().count();
            self.plant(tree, generation, ctx);
            log_queue(
                LogSeverity::Normal,
                Reason::QueuesSet,
                &QueuePath::root(),
                format!("generation {generation}, {count} queues"),
                ctx,
            );
        }
        Ok(CallAnswer::Queues { generation })
    }

    fn plant(&mut self, tree: QueueTree, generation: u64, ctx: &mut StepContext<'_>) {
        ctx.save(DurableRecord::Queues {
            generation,
            tree: Box::new(tree.clone()),
        });
        self.replant(tree, QueuesFrom::Operator);
    }

    pub(crate) fn replant(&mut self, tree: QueueTree, source: QueuesFrom) {
        self.queue
            .replant(tree, source, self.allocations.ledger_mut());
        self.scheduler.reservations.mark_all_dirty();
    }

    pub(crate) fn set_queue_state(
        &mut self,
        queue: &QueuePath,
        state: QueueState,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let ix = self
            .queue
            .find(queue)
            .ok_or_else(|| CallRefusal::NoSuchQueue(queue.clone()))?;
        let before = self.queue.slot(ix).map(|slot| slot.spec.state);
        let Some(tree) = self
            .queue
            .tree()
            .with_state(queue, state)
            .filter(|_| before != Some(state))
        else {
            return Ok(CallAnswer::Queues {
                generation: self.queue.generation(),
            });
        };
        let generation = self.queue.generation() + 1;
        self.plant(tree, generation, ctx);
        log_queue(
            LogSeverity::Normal,
            Reason::QueueStateChanged,
            queue,
            format!("is {}", state.as_str()),
            ctx,
        );
        Ok(CallAnswer::Queues { generation })
    }

    pub(crate) fn change_app(
        &mut self,
        id: &AppId,
        queue: Option<QueuePath>,
        priority: Option<i32>,
        lifetime: Option<ApplicationLifetime>,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let app = self.apps.live(id)?;
        let (before, old_priority) = (app.queue.clone(), app.priority);
        let path = queue.unwrap_or_else(|| before.clone());
        let priority = priority.unwrap_or(old_priority);
        if path == before && priority == old_priority && lifetime.is_none() {
            return Ok(CallAnswer::Done);
        }
        let leaf = if path == before {
            self.queue.find_leaf(&path)?
        } else {
            self.queue.admit(&path)?
        };
        if path != before {
            self.allocations.ledger_mut().move_app(id, leaf);
        }
        self.queue
            .change(id, leaf, priority, self.allocations.ledger());
        self.scheduler.reservations.mark_all_dirty();
        self.queue.note_room();
        if let Some(app) = self.apps.get_mut(id) {
            (app.queue, app.priority) = (path.clone(), priority);
        }
        self.set_lifetime(id, lifetime);
        self.apps.save(id, ctx);
        let message = format!(
            "from queue {before}, priority {old_priority} to queue {path}, priority {priority}"
        );
        ctx.log_app(LogSeverity::Normal, Reason::AppChanged, id, message);
        Ok(CallAnswer::Done)
    }
}

impl SchedulerQueues {
    /// Leaf for a new or moved application, if it accepts applications.
    pub(crate) fn admit(&self, queue: &QueuePath) -> Result<QueueNumber, CallRefusal> {
        let leaf = self.find_leaf(queue)?;
        let state = self.state(leaf);
        if !state.admits() {
            return Err(CallRefusal::QueueNotAdmitting {
                queue: queue.clone(),
                state: state.as_str(),
            });
        }
        let slot = self.slot(leaf);
        if let Some(most) = slot.and_then(|slot| {
            slot.spec
                .max_apps
                .filter(|most| slot.apps.len() >= *most as usize)
        }) {
            let what = format!(
                "applications in queue {} that have not ended",
                queue.short()
            );
            return Err(CallRefusal::TooMany {
                what,
                most: most as usize,
            });
        }
        Ok(leaf)
    }

    fn find_leaf(&self, queue: &QueuePath) -> Result<QueueNumber, CallRefusal> {
        let ix = self
            .find(queue)
            .ok_or_else(|| CallRefusal::NoSuchQueue(queue.clone()))?;
        let leaf = self.first_leaf(ix);
        if leaf == ix {
            return Ok(leaf);
        }
        let leaf = self
            .slot(leaf)
            .map_or_else(QueuePath::default_leaf, |slot| slot.path.clone());
        Err(CallRefusal::NotALeaf {
            queue: queue.clone(),
            leaf,
        })
    }

    /// Problems for leaves with applications that the tree does not contain as leaves.
    pub(crate) fn removed_leaf_problems(&self, tree: &QueueTree) -> Vec<QueueDefinitionError> {
        let leaves: BTreeSet<QueuePath> = tree.leaves().collect();
        let gone = self
            .slots()
            .filter(|(_, slot)| !slot.apps.is_empty() && !leaves.contains(&slot.path));
        let problems = gone.map(|(_, slot)| {
            let names: Vec<String> = slot
                .apps
                .iter()
                .take(MAX_NAMED)
                .map(ToString::to_string)
                .collect();
            let more = slot.apps.len().saturating_sub(names.len());
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            QueueDefinitionError {
                queue: slot.path.clone(),
                key: "queues",
                what: format!(
                    "would not be a leaf any more, and has the applications {}{more}",
                    names.join(", ")
                ),
                fix: "move them to another leaf first, or wait for their end".into(),
            }
        });
        problems.collect()
    }
}

pub(crate) fn log_queue(
    level: LogSeverity,
    reason: Reason,
    queue: &QueuePath,
    message: String,
    ctx: &mut StepContext<'_>,
) {
    ctx.log(EventLogLine {
        level,
        reason,
        object: LogObject::Queue(queue.clone()),
        node: None,
        words: LogMessage::Text(message),
    });
}
