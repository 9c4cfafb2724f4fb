//! Events of executors and tasks in the simulated cluster.

use headroom_appmaster::event::SizeRefusal;
use headroom_types::exit::{LeftoverOwner, Unattributed};

use super::*;

impl SimulatedCluster {
    /// Grants a container on a preferred node with enough memory, else on the one with the most
    /// free memory.
    pub(super) fn grant(&mut self, ask: &PlacementRequest, slots: u32) -> bool {
        let PlacementRequest {
            request,
            resource,
            placement,
            ..
        } = ask;
        let used = |node: usize| -> Bytes {
            let on = self
                .boxes
                .values()
                .filter(|b| b.granted.node.as_str() == format!("n{node}"));
            on.fold(Bytes::ZERO, |sum, b| {
                sum.saturating_add(b.granted.resource.memory)
            })
        };
        let open = |node: usize| self.closed != Some(node);
        let free = |node: usize| {
            if open(node) {
                self.nodes[node].saturating_sub(used(node))
            } else {
                Bytes::ZERO
            }
        };
        let avoid = |node: usize| {
            ask.avoid_nodes
                .iter()
                .any(|far| far.as_str() == format!("n{node}"))
        };
        let near = |node: usize| {
            placement
                .prefer_nodes
                .iter()
                .any(|near| near.as_str() == format!("n{node}"))
        };
        let fits = (0..self.nodes.len()).filter(|n| free(*n) >= resource.memory);
        let Some(node) = fits.max_by_key(|n| (!avoid(*n), near(*n), free(*n))) else {
            return false;
        };
        self.containers += 1;
        let container = format!("job.1.e{}.c{}", self.epoch, self.containers)
            .parse::<ContainerId>()
            .expect("id");
        let granted = ContainerGrant {
            container: container.clone(),
            request: request.clone(),
            node: format!("n{node}").parse().expect("node"),
            resource: resource.clone(),
            attempt: self.attempt,
            running: false,
        };
        *self.granted.entry(request.clone()).or_default() += 1;
        let boxed = SimulatedContainer {
            granted: granted.clone(),
            secret: self.host,
            slots,
            running: BTreeMap::new(),
            unacked: BTreeMap::new(),
            connected: false,
            leaving: false,
            cut: false,
        };
        self.boxes.insert(container.clone(), boxed);
        self.later(5, SimulatedEvent::Granted(granted));
        if self.barren.contains(&node) {
            self.later(
                20,
                SimulatedEvent::ContainerEnds(container, ExitReason::LaunchFailed),
            );
        } else if !self.silent {
            self.later(20, SimulatedEvent::Hello(container));
        }
        true
    }

    pub(super) fn hello(&mut self, container: &ContainerId) {
        if !self.master_up {
            self.later(100, SimulatedEvent::Hello(container.clone()));
            return;
        }
        let host = self.host;
        let Some(b) = self
            .boxes
            .get_mut(container)
            .filter(|b| !b.cut && b.secret == host)
        else {
            return;
        };
        b.connected = true;
        let held: Vec<TaskAttemptId> = b
            .running
            .iter()
            .filter(|(_, s)| s.freeze_timeout_ms.is_some())
            .map(|(a, _)| a.clone())
            .collect();
        let hello = ExecutorHello {
            container: container.clone(),
            slots: b.slots,
            task_groups: true,
            running: b.running.keys().cloned().collect(),
            unacked: b.unacked.values().cloned().collect(),
        };
        self.step(MasterEvent::Hello(hello));
        // Frozen tasks are reported again; a running task that is not frozen has its end scheduled
        // already.
        for attempt in held {
            let over = |thing: &SimulatedEvent| matches!(thing, SimulatedEvent::TaskEnds(c, a) if c == container && *a == attempt);
            if !self.things.values().any(over)
                && self.boxes[container].running.contains_key(&attempt)
            {
                self.press(container, &attempt);
            }
        }
    }

    pub(super) fn executor_hears(&mut self, container: &ContainerId, message: ToExecutor) {
        let Some(b) = self.boxes.get_mut(container) else {
            return;
        };
        if !b.connected {
            return;
        }
        match message {
            ToExecutor::Start(start) => {
                if b.running.contains_key(&start.attempt) || b.unacked.contains_key(&start.attempt)
                {
                    return;
                }
                let attempt = start.attempt.clone();
                let used: u32 = b.running.values().map(|s| s.slots).sum();
                assert!(
                    used + start.slots <= b.slots,
                    "{container} is given more than its {} slots",
                    b.slots
                );
                self.files.make(start.output.as_deref());
                self.starts.insert(attempt.clone(), (*start).clone());
                b.running.insert(attempt.clone(), *start);
                self.start(container, attempt);
            }
            ToExecutor::Stop { attempt } => {
                if b.running.contains_key(&attempt) && self.stopped.insert(attempt.clone()) {
                    self.later(20, SimulatedEvent::TaskEnds(container.clone(), attempt));
                }
            }
            ToExecutor::Ack { attempt } => {
                b.unacked.remove(&attempt);
            }
            ToExecutor::Shutdown => {
                if !b.leaving {
                    b.leaving = true;
                    self.later(
                        10,
                        SimulatedEvent::ContainerEnds(
                            container.clone(),
                            ExitReason::Exit { code: 0 },
                        ),
                    );
                }
            }
            ToExecutor::Resize { attempt, limit } => {
                let Some(start) = b.running.get_mut(&attempt) else {
                    return;
                };
                start.limit = Some(limit);
                let set = Box::new(TaskLimitResult {
                    attempt: attempt.clone(),
                    limit,
                    frozen_us: Some(1500),
                    error: None,
                });
                self.later(
                    1,
                    SimulatedEvent::Deliver(MasterEvent::LimitSet {
                        container: container.clone(),
                        set,
                    }),
                );
                self.press(container, &attempt);
            }
            ToExecutor::Unfreeze { attempt } => self.unfreeze(container, &attempt),
            ToExecutor::Refused { .. } | ToExecutor::Alive => {}
        }
    }

    /// The end of every task in the container, if its node is broken.
    fn broken(&self, container: &ContainerId) -> Option<ExitReason> {
        let node = &self.boxes[container].granted.node;
        self.broken
            .iter()
            .find(|(broken, _)| node.as_str() == format!("n{broken}"))
            .map(|(_, reason)| *reason)
    }

    pub(super) fn habit(&self, id: &TaskId) -> TaskBehaviour {
        self.habits.get(id).unwrap_or(&self.usual).clone()
    }

    pub(super) fn start(&mut self, container: &ContainerId, attempt: TaskAttemptId) {
        if self.broken(container) == Some(ExitReason::LaunchFailed) {
            return self.later(1, SimulatedEvent::TaskEnds(container.clone(), attempt));
        }
        let habit = self.habit(&attempt.task);
        let start = self.boxes[container].running[&attempt].clone();
        self.later(
            1,
            SimulatedEvent::Deliver(MasterEvent::Started {
                container: container.clone(),
                attempt: attempt.clone(),
            }),
        );
        let usage = TaskUsage {
            attempt: attempt.clone(),
            current: total(&habit),
            peak: total(&habit),
            heap: None,
            starved: habit.starved,
        };
        self.later(
            2,
            SimulatedEvent::Deliver(MasterEvent::Usage {
                container: container.clone(),
                tasks: vec![usage],
            }),
        );
        let whole = self.room(container) < total(&habit) && self.shared_fate;
        if start.freeze_timeout_ms.is_some() {
            return self.press(container, &attempt);
        }
        let killed = verdict(&habit, &start).is_some() && !self.shared_fate || whole;
        let after = if killed {
            habit.runs_ms / 2
        } else {
            habit.runs_ms
        };
        self.later(after, SimulatedEvent::TaskEnds(container.clone(), attempt));
    }

    /// A task that may grow has all the memory it needs, or is frozen.
    pub(super) fn press(&mut self, container: &ContainerId, attempt: &TaskAttemptId) {
        let (habit, start) = (
            self.habit(&attempt.task),
            self.boxes[container].running[attempt].clone(),
        );
        let (limit, container) = (start.limit.expect("a limit"), container.clone());
        if verdict(&habit, &start).is_none() {
            return self.later(
                habit.runs_ms,
                SimulatedEvent::TaskEnds(container, attempt.clone()),
            );
        }
        let over = SimulatedEvent::FreezeTimeout(container.clone(), attempt.clone(), start.limit);
        self.later(start.freeze_timeout_ms.unwrap_or_default(), over);
        self.later(
            3,
            SimulatedEvent::Deliver(MasterEvent::Pressure {
                container,
                attempt: attempt.clone(),
                limit,
            }),
        );
    }

    /// Lets the kernel decide, unless the limit was raised meanwhile.
    pub(super) fn hold_over(
        &mut self,
        container: ContainerId,
        attempt: TaskAttemptId,
        limit: Option<Bytes>,
    ) {
        let running = self
            .boxes
            .get(&container)
            .and_then(|b| b.running.get(&attempt));
        if running.is_some_and(|start| start.limit == limit) {
            self.task_ends(&container, &attempt);
        }
    }

    pub(super) fn unfreeze(&mut self, container: &ContainerId, attempt: &TaskAttemptId) {
        self.later(
            1,
            SimulatedEvent::TaskEnds(container.clone(), attempt.clone()),
        );
    }

    pub(super) fn resize(&mut self, container: ContainerId, resource: Resource) {
        let Some(b) = self.boxes.get(&container) else {
            return;
        };
        let node: usize = b.granted.node.as_str()[1..].parse().expect("a number");
        let on = self
            .boxes
            .values()
            .filter(|other| other.granted.node == b.granted.node);
        let used = on.fold(Bytes::ZERO, |sum, other| {
            sum.saturating_add(other.granted.resource.memory)
        });
        let others = used.saturating_sub(b.granted.resource.memory);
        if others.saturating_add(resource.memory) > self.nodes[node] {
            let refusal = SizeRefusal::Manager("the node has no room".to_owned());
            return self.later(
                2,
                SimulatedEvent::Deliver(MasterEvent::ResizeRefused { container, refusal }),
            );
        }
        self.resizes += 1;
        self.boxes
            .get_mut(&container)
            .expect("there")
            .granted
            .resource = resource.clone();
        self.later(4, SimulatedEvent::Resized(container, resource));
    }

    pub(super) fn room(&self, container: &ContainerId) -> Bytes {
        self.boxes[container]
            .granted
            .resource
            .memory
            .saturating_sub(Bytes::from_mib(32))
    }

    pub(super) fn task_ends(&mut self, container: &ContainerId, attempt: &TaskAttemptId) {
        let Some(b) = self.boxes.get(container) else {
            return;
        };
        let Some(start) = b.running.get(attempt).cloned() else {
            return;
        };
        let habit = self.habit(&attempt.task);
        if self.shared_fate && total(&habit) > self.room(container) {
            let tasks = Vec::new();
            self.container_ends(container, ExitReason::OverheadOom, tasks);
            return;
        }
        let nth = usize::try_from(attempt.attempt - 1).expect("small");
        let forced = habit.ends.get(nth).copied();
        let verdict = if self.shared_fate {
            None
        } else {
            verdict(&habit, &start)
        };
        let forced = self.broken(container).or(forced);
        let forced = if self.stopped.contains(attempt) {
            Some(ExitReason::Stopped)
        } else {
            forced
        };
        let (reason, dimension) = match forced {
            Some(reason) => (reason, None),
            None => verdict.unwrap_or((ExitReason::Exit { code: 0 }, None)),
        };
        let mut evidence = Evidence::empty(EnforcerKind::Cgroup2);
        evidence.own.limit = start.limit;
        evidence.own.peak = Some(start.limit.map_or(total(&habit), |l| l.min(total(&habit))));
        evidence.heap_budget = start.heap;
        evidence.heap = start.heap.map(|budget| HeapReport {
            used: habit.heap.min(budget),
            committed: habit.heap.min(budget),
            max: budget,
            ..HeapReport::default()
        });
        let mut report = TaskReport {
            attempt: attempt.clone(),
            container: container.clone(),
            reason,
            dimension,
            evidence,
            diagnosis: Vec::new(),
            started: Some(self.now().unix),
            ended: self.now().unix,
            timeline: Vec::new(),
            log_tail: String::new(),
            read: None,
            value: None,
            value_too_large: None,
            silent: false,
        };
        (habit.tells)(&mut report);
        let b = self.boxes.get_mut(container).expect("there");
        b.running.remove(attempt);
        b.unacked.insert(attempt.clone(), report.clone());
        if b.connected && self.master_up {
            let event = MasterEvent::Ended {
                container: container.clone(),
                report: Box::new(report),
            };
            if self.twice {
                self.later(3, SimulatedEvent::Deliver(event.clone()));
                self.later(700, SimulatedEvent::Deliver(event.clone()));
            }
            self.step(event);
        }
    }

    pub(super) fn container_ends(
        &mut self,
        container: &ContainerId,
        reason: ExitReason,
        tasks: Vec<TaskGroupStats>,
    ) {
        let Some(b) = self.boxes.remove(container) else {
            return;
        };
        let report = ExitReport {
            container: container.clone(),
            node: b.granted.node.clone(),
            reason,
            evidence: Evidence::empty(EnforcerKind::Cgroup2),
            diagnosis: Vec::new(),
            started: None,
            ended: self.now().unix,
            timeline: Vec::new(),
            log_tail: String::new(),
            tasks,
        };
        self.ends += 1;
        self.ended.push(self.now_ms);
        let number = self.ends;
        self.exits
            .insert(number, (b.granted.request.clone(), report, None));
        self.later(30, SimulatedEvent::Exited(number));
        if self.twice {
            self.later(900, SimulatedEvent::Exited(number));
        }
        if b.connected {
            self.later(
                1,
                SimulatedEvent::Deliver(MasterEvent::LineDown {
                    container: container.clone(),
                }),
            );
        }
    }
}

impl SimulatedCluster {
    /// Sets the memory that ended tasks left in the n-th live container.
    pub(super) fn left_behind(&mut self, nth: usize, mib: u64) {
        let Some(container) = self.boxes.keys().nth(nth).cloned() else {
            return;
        };
        let memory = Bytes::from_mib(mib);
        let left_by = vec![LeftoverOwner {
            name: "map-9-1".into(),
            memory,
        }];
        self.step(MasterEvent::Leftover {
            container,
            left: Unattributed { memory, left_by },
        });
    }
}
