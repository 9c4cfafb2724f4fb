//! Resize of a running container: checks, resource accounting, confirmation and failure.
//!
//! [`crate::size`] contains the state machine of one size; this module connects it with the ledger,
//! the node, the queue and the master. The allocations own the state. This module never reads the
//! memory use of a container: the node refuses a smaller size that it cannot enforce.
//!
//! A container can be resized while its program runs, also the master's own container: the next
//! attempt then starts with that size. A growth is counted immediately; a shrink is counted when
//! the node confirms it. Only one order per container is in progress.

use std::time::Duration;

use headroom_types::{ContainerId, Reason, Resource};

use crate::app::MasterSize;
use crate::applications::Applications;
use crate::cluster::Cluster;
use crate::container::{Container, ContainerState};
use crate::event::{
    CallAnswer, CallRefusal, ContainerCommand, ContainerSize, DryRun, LogSeverity,
    ReportedContainer, UpdateKind,
};
use crate::grant::container_line;
use crate::size::{self, ResizeAction, ResizeEvent, VersionedSize, excess};
use crate::step_context::StepContext;
use crate::table::RowPosition;
use crate::timer::TimerKey;

/// Time for a node to confirm or refuse a size.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// Shortest interval between repeated orders to a node that reports an earlier version.
const RESIZE_RESEND_INTERVAL: Duration = Duration::from_secs(2);

impl Cluster {
    pub(crate) fn resize(
        &mut self,
        id: &ContainerId,
        version: Option<u32>,
        size: ContainerSize,
        how: DryRun,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let Some(c) = self.allocations.get(id) else {
            let over = self.allocations.history().get(id).is_some();
            return Err(if over {
                not_resizable(id, "it has ended")
            } else {
                CallRefusal::NoSuchContainer(id.clone())
            });
        };
        if let Some(why) = fixed(&c.state) {
            return Err(not_resizable(id, why));
        }
        let want = wanted(c, size)?;
        let under_way = c.sizing.order();
        let now = under_way.cloned().unwrap_or_else(|| c.has());
        if (&now.resource, now.heap) == (&want.resource, want.heap) {
            return Ok(CallAnswer::Resizing {
                version: now.version,
            });
        }
        let given = version.unwrap_or(c.version);
        if under_way.is_some() || given != c.version {
            let what = format!("the size of {id}");
            return Err(CallRefusal::Conflict {
                what,
                given: given.into(),
                current: now.version.into(),
            });
        }
        self.room_to_grow(c, &excess(&want.resource, &c.resource))?;
        let version = want.version;
        if how == DryRun::Really {
            self.size_event(id, ResizeEvent::Order(want), ctx);
        }
        Ok(CallAnswer::Resizing { version })
    }

    /// Checks whether a container can grow by `more` on its node.
    fn room_to_grow(&self, c: &Container, more: &Resource) -> Result<(), CallRefusal> {
        if *more == Resource::default() {
            return Ok(());
        }
        let no_room = |sentence: String| Err(CallRefusal::NoRoom { sentence });
        let (Some(node), Some(account)) = (self.nodes.get(&c.node), self.ledger().node(&c.node))
        else {
            return no_room(format!("node {} is not registered", c.node));
        };
        if !node.state.takes_work() {
            return no_room(format!(
                "{} is {} and cannot give containers more resources now",
                node.id,
                node.state.as_str()
            ));
        }
        let limited = |app| {
            self.queue
                .limit_sentence(app, c.role(), more, self.ledger())
        };
        if let Some(sentence) = self.apps.get(&c.id.app).and_then(limited) {
            return no_room(sentence);
        }
        let free = self
            .nodes
            .room_for_others(&c.node)
            .cloned()
            .unwrap_or_default();
        if account.overdrawn || !more.fits(&free) {
            return no_room(format!(
                "needs {} more on {}, which has {free} free",
                only_what_is(more),
                node.id
            ));
        }
        Ok(())
    }

    /// Processes a node's report about a container's size.
    pub(crate) fn seen_size(
        &mut self,
        row: RowPosition,
        seen: &ReportedContainer,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(c) = self.allocations.at(row).filter(|c| c.state.is_alive()) else {
            return;
        };
        let is_stable = c.sizing == size::ResizeState::Stable;
        if is_stable && seen.version == c.version {
            return; // the usual case
        }
        let id = &seen.container;
        self.size_event(
            id,
            ResizeEvent::Shown {
                resource: seen.resource.clone(),
                version: seen.version,
            },
            ctx,
        );
        if let Some(what) = seen.refused.clone() {
            self.size_event(
                id,
                ResizeEvent::Refused {
                    what,
                    keeps: seen.version,
                },
                ctx,
            );
        }
        self.allocations
            .resend_size(seen, RESIZE_RESEND_INTERVAL, ctx);
    }

    /// Handles a node that did not confirm a size in time.
    pub(crate) fn resize_overdue(&mut self, id: &ContainerId, ctx: &mut StepContext<'_>) {
        if let Some(c) = self.allocations.get(id).filter(|c| c.state.is_alive()) {
            let message = format!(
                "{} did not report the result of the resize for {} s",
                c.node,
                RESIZE_TIMEOUT.as_secs()
            );
            ctx.log(container_line(
                LogSeverity::Warning,
                Reason::ResizeOverdue,
                id,
                &c.node,
                message,
            ));
            self.size_event(id, ResizeEvent::Overdue, ctx);
        }
    }

    /// Applies an event to a container's size and carries out the resulting actions. The ledger is
    /// updated in the same step.
    fn size_event(&mut self, id: &ContainerId, event: ResizeEvent, ctx: &mut StepContext<'_>) {
        if let Some(row) = self.allocations.row_of(id)
            && let Some(c) = self.allocations.at(row)
            && let (Some(request), Some(app)) = (&c.request, self.apps.at_mut(c.home))
        {
            let grant = || UpdateKind::Allocated(c.granted_for(request.clone()));
            app.updates.keep_grant(row, grant);
        }
        let (acts, moved) = self.allocations.apply_size_event(id, event, ctx);
        if let Some(node) = moved {
            self.note_freed(node);
            self.reindex_at(node);
        }
        for act in acts {
            match act {
                ResizeAction::Has(now) => self.apps.keep_master_size(id, now, ctx),
                ResizeAction::SendOrder => self.send_size(id, ctx),
                ResizeAction::Resized => self.resize_over(id, None, ctx),
                ResizeAction::Failed(why) => self.resize_over(id, Some(why), ctx),
            }
        }
    }

    fn send_size(&mut self, id: &ContainerId, ctx: &mut StepContext<'_>) {
        let Some(c) = self.allocations.note_size_sent(id, ctx.now) else {
            return;
        };
        let order = c.order();
        self.timers
            .set(TimerKey::Resize(id.clone()), ctx.now.plus(RESIZE_TIMEOUT));
        if c.state == ContainerState::Running {
            let message = format!(
                "from {} to {}, version {}",
                c.resource, order.resource, order.version
            );
            ctx.log(container_line(
                LogSeverity::Normal,
                Reason::ContainerResizing,
                id,
                &c.node,
                message,
            ));
            ctx.send_command(&c.node, id, ContainerCommand::Run(Box::new(order)));
        }
    }

    /// Reports the end of a resize; `failure` is the reason of a failed one.
    fn resize_over(
        &mut self,
        id: &ContainerId,
        failure: Option<String>,
        ctx: &mut StepContext<'_>,
    ) {
        self.timers.cancel(&TimerKey::Resize(id.clone()));
        let Some(c) = self.allocations.get(id) else {
            return;
        };
        let (container, resource, version) = (id.clone(), c.resource.clone(), c.version);
        let (level, reason, message) = match &failure {
            None => {
                let message = format!("has {resource}, version {version}");
                (LogSeverity::Normal, Reason::ContainerResized, message)
            }
            Some(why) => {
                let message = format!("still has {resource}: {why}");
                (LogSeverity::Warning, Reason::ResizeFailed, message)
            }
        };
        ctx.log(container_line(level, reason, id, &c.node, message));
        let what = match failure {
            None => UpdateKind::Resized {
                container,
                resource,
                version,
            },
            Some(why) => UpdateKind::ResizeFailed {
                container,
                resource,
                version,
                why,
            },
        };
        self.apps.update(&id.app, what, ctx);
    }
}

impl Applications {
    /// Sets the size of the next attempt to the current size of the master.
    fn keep_master_size(
        &mut self,
        id: &ContainerId,
        now: VersionedSize,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(app) = self
            .get_mut(&id.app)
            .filter(|app| app.is_current_master(id))
        else {
            return;
        };
        app.master = Some(MasterSize {
            resource: now.resource,
            heap: now.heap,
        });
        self.save(&id.app, ctx);
    }
}

/// Reason why a container in this state cannot be resized.
fn fixed(state: &ContainerState) -> Option<&'static str> {
    match state {
        ContainerState::Running => None,
        ContainerState::Allocated | ContainerState::Launching => {
            Some("its program does not run yet; retry when the container is running")
        }
        ContainerState::Stopping { .. } => Some("it is about to end"),
        ContainerState::Exited { .. } | ContainerState::Done { .. } => Some("it has ended"),
    }
}

/// The size as it will be ordered.
fn wanted(c: &Container, size: ContainerSize) -> Result<VersionedSize, CallRefusal> {
    let ContainerSize { mut resource, heap } = size;
    resource.extra.retain(|_, n| *n > 0);
    let heap = heap.or(c.launch.heap);
    if resource.memory.is_zero() {
        return Err(not_resizable(
            &c.id,
            "its memory would be 0; give the whole size, not the difference",
        ));
    }
    if let Some(heap) = heap.filter(|heap| *heap > resource.memory) {
        let why = format!(
            "a heap of {heap} does not fit in {}; give a smaller heap too",
            resource.memory
        );
        return Err(not_resizable(&c.id, why));
    }
    Ok(VersionedSize {
        resource,
        heap,
        version: c.newest.saturating_add(1),
    })
}

/// Text of a difference, without resources that do not change.
fn only_what_is(more: &Resource) -> String {
    let memory = (!more.memory.is_zero()).then(|| more.memory.to_string());
    let cpus = (more.cpus.milli() > 0).then(|| more.cpus.words());
    let extra = more.extra.iter().map(|(name, n)| format!("{n} {name}"));
    memory
        .into_iter()
        .chain(cpus)
        .chain(extra)
        .collect::<Vec<_>>()
        .join(", ")
}

fn not_resizable(id: &ContainerId, why: impl Into<String>) -> CallRefusal {
    CallRefusal::NotResizable {
        container: id.clone(),
        why: why.into(),
    }
}
