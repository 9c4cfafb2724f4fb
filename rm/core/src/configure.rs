//! Change of settings at run time.
//!
//! New settings apply immediately to silences in progress, to waiting requests and to kept
//! history. A deadline that was already sent to a master or node does not change.

use headroom_types::{QueuePath, Reason, Tick};

use crate::cluster::Cluster;
use crate::event::{CallAnswer, CallRefusal, LogSeverity, QueuesFrom};
use crate::queues::log_queue;
use crate::save::DurableRecord;
use crate::settings::ClusterSettings;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

impl Cluster {
    /// Applies all of the settings, or none.
    pub(crate) fn configure(
        &mut self,
        new: ClusterSettings,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        if self.queue.source() == QueuesFrom::Settings {
            let problems = self.queue.removed_leaf_problems(&new.queues);
            if !problems.is_empty() {
                return Err(CallRefusal::BadQueues(problems));
            }
        }
        let ClusterSettings {
            recovery_wait,
            master_linger,
            unix_at_zero,
            ..
        } = self.settings;
        // These settings are fixed for the incarnation.
        self.settings = ClusterSettings {
            recovery_wait,
            master_linger,
            unix_at_zero,
            ..new
        };
        let kept = self.settings.keep_containers;
        for gone in self.allocations.history_mut().keep(kept) {
            ctx.save(DurableRecord::ContainerGone(gone));
        }
        self.forget_old(ctx);
        self.take_tree(ctx);
        self.look_at_silences(ctx.now);
        // Deadlines of reservations and preemption have changed.
        self.scheduler.reservations.mark_all_dirty();
        self.queue.note_room();
        Ok(CallAnswer::Configured {
            queues: self.queue.source(),
        })
    }

    /// Measures current silences against the new timeouts. Effects follow when the next timers
    /// fire, at the earliest at `now`.
    fn look_at_silences(&mut self, now: Tick) {
        for node in self.nodes.values() {
            let at = node.heard.plus(self.settings.suspect).max(now);
            let key = TimerKey::Node(node.id.clone());
            // A lost node has no timer.
            if self.timers.of(&key).is_some_and(|due| at < due) {
                self.timers.set(key, at);
            }
        }
    }

    /// Applies the queue tree of the settings, unless an operator has set another one. The tree is
    /// not saved: a later incarnation reads it from its own configuration.
    fn take_tree(&mut self, ctx: &mut StepContext<'_>) {
        let tree = self.settings.queues.clone();
        if self.queue.source() == QueuesFrom::Operator || tree == *self.queue.tree() {
            return;
        }
        let count = tree.paths().count();
        self.replant(tree, QueuesFrom::Settings);
        let generation = self.queue.generation();
        let message = format!("generation {generation}, {count} queues, from the configuration");
        log_queue(
            LogSeverity::Normal,
            Reason::QueuesSet,
            &QueuePath::root(),
            message,
            ctx,
        );
    }
}
