//! Other settings while the cluster runs.
//!
//! What is measured against a setting is measured against the new one from now on: a silence that has begun, a request that waits, what is
//! kept of what is over. A deadline that was told to somebody stays as it was told.

use headroom_types::{NodeId, QueuePath, Reason, Tick};

use crate::cluster::{Cluster, Ctx, Settings};
use crate::event::{Answer, Level, QueuesFrom, Refusal};
use crate::queues::log_queue;
use crate::save::Save;
use crate::timer::Key;

impl Cluster {
    /// Takes all of the settings over, or nothing.
    pub(crate) fn configure(&mut self, new: Settings, ctx: &mut Ctx<'_>) -> Result<Answer, Refusal> {
        if self.queues_from == QueuesFrom::Settings {
            let problems = self.homeless(&new.queues);
            if !problems.is_empty() {
                return Err(Refusal::BadQueues(problems));
            }
        }
        let Settings { recovery_wait, master_linger, unix_at_zero, .. } = self.settings;
        // These belong to the life that has begun with them.
        self.settings = Settings { recovery_wait, master_linger, unix_at_zero, ..new };
        for gone in self.history.keep(self.settings.keep_containers) {
            ctx.save(Save::ContainerGone(gone));
        }
        self.forget_old(ctx);
        self.take_tree(ctx);
        self.look_at_silences(ctx.now);
        // Reservations and preemption have other deadlines now.
        self.reservations.doubt_all();
        self.room_changed = true;
        Ok(Answer::Configured { queues: self.queues_from })
    }

    /// Silences that have begun are measured anew; what follows from that follows with the next deadlines, which are now at the earliest.
    fn look_at_silences(&mut self, now: Tick) {
        let heard: Vec<(NodeId, Tick)> = self.nodes.iter().map(|(id, node)| (id.clone(), node.heard)).collect();
        for (id, heard) in heard {
            let (key, at) = (Key::Node(id), heard.plus(self.settings.suspect).max(now));
            // A node that is given up has no deadline.
            if self.timers.of(&key).is_some_and(|due| at < due) {
                self.timers.set(key, at);
            }
        }
    }

    /// The tree of the settings, where no other one was set. It is not saved: a later life reads it where this one did.
    fn take_tree(&mut self, ctx: &mut Ctx<'_>) {
        let tree = self.settings.queues.clone();
        if self.queues_from == QueuesFrom::Operator || tree == *self.queue.tree() {
            return;
        }
        let (generation, count) = (self.queue.generation() + 1, tree.paths().count());
        self.replant(tree, generation);
        let message = format!("generation {generation}, {count} queues, from the configuration");
        log_queue(Level::Normal, Reason::QueuesSet, &QueuePath::root(), message, ctx);
    }
}
