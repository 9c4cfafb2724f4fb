"""A Dask scheduler that learns from Headroom why a worker ended.

The scheduler of Dask counts every lost worker against all tasks of that worker. This one waits for
the report of the node first. After a memory failure only the tasks that used the memory get a
larger worker, and no task is counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from distributed import Scheduler
from distributed.comm import CommClosedError
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps

from headroom._container_session import ContainerEnd
from headroom._dask_memory import (
    Culprit,
    RungSizes,
    TaskRung,
    WorkerTask,
    exhausted_error,
    find_culprits,
    last_record,
    rung_of_resource,
    rung_resource,
)
from headroom._dask_worker import CONTAINER_FIELD, task_digest
from headroom.errors import format_bytes

__all__ = ["EVENT_TOPIC", "HeadroomScheduler", "MemoryRecovery", "rung_of_worker"]

logger = logging.getLogger("headroom.dask")

#: Topic of the scheduler's events about memory failures (``Client.get_events``).
EVENT_TOPIC = "headroom"
#: Longest wait for the report of a node about a worker whose connection broke. Seconds.
REPORT_TIMEOUT = 60.0
#: Begin of the stimulus ids of a connection that broke.
_BROKEN_CONNECTION = ("handle-worker-cleanup", "worker-send-comm-fail", "send-all-comm-fail")
_WAITING_STATES = frozenset({"waiting", "queued", "no-worker", "processing"})


def rung_of_worker(worker: Any) -> int:
    """The rung of a worker of the scheduler; 1 for an ordinary one."""
    return max((rung_of_resource(name) or 1 for name in worker.resources), default=1)


@dataclass(frozen=True)
class _MemoryKill:
    """A worker that was killed for memory."""

    scheduler: Any
    worker: Any
    end: ContainerEnd
    #: Memory limit of the container. Bytes.
    limit: int
    stimulus_id: str


class MemoryRecovery(SchedulerPlugin):  # type: ignore[misc]
    """Moves tasks that ran out of memory to larger workers.

    Part of the scheduler; its state changes in the event loop of the scheduler only.
    """

    name = "headroom-memory-recovery"

    def __init__(
        self,
        sizes: RungSizes,
        cap_source: str,
        on_demand: Callable[[], None],
        on_registered: Callable[[Any, str], None],
    ) -> None:
        #: Memory of workers by rung.
        self.sizes = sizes
        #: Memory failures of workers so far.
        self.kills = 0
        #: Containers whose worker has registered, until their end is handled.
        self.registered: Set[str] = set()
        self._cap_source = cap_source
        self._on_demand = on_demand
        self._on_registered = on_registered
        self._rungs: Dict[Any, TaskRung] = {}

    # Interface of Dask's plugins.

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Remembers that the program of a container reached the scheduler."""
        state = scheduler.workers.get(worker)
        if state is not None:
            self.registered.add(state.extra.get(CONTAINER_FIELD, ""))
            self._on_registered(state.name, worker)

    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        """Forgets the size of a task with the task, and reports a waiting task."""
        if finish == "forgotten":
            self._rungs.pop(key, None)
        elif finish == "no-worker" and key in self._rungs:
            self._on_demand()

    def restart(self, scheduler: Any) -> None:
        """Forgets all sizes."""
        self._rungs.clear()

    def valid_workers_downscaling(self, scheduler: Any, workers: List[Any]) -> List[Any]:
        """Keeps workers above rung 1 out of the automatic scaling; the cluster releases them."""
        return [worker for worker in workers if rung_of_worker(worker) == 1]

    # Interface of the cluster and the scheduler.

    def demand(self, scheduler: Any) -> Dict[int, int]:
        """Tasks that need a worker above rung 1 now or later, by rung."""
        found: Dict[int, int] = {}
        for key, state in self._rungs.items():
            task = scheduler.tasks.get(key)
            if task is not None and state.rung > 1 and task.state in _WAITING_STATES:
                found[state.rung] = found.get(state.rung, 0) + 1
        return found

    def runnable(self, scheduler: Any) -> Dict[int, int]:
        """Tasks that could run now on a worker above rung 1, by rung."""
        found: Dict[int, int] = {}
        for key, state in self._rungs.items():
            task = scheduler.tasks.get(key)
            if task is not None and state.rung > 1 and task.state in ("no-worker", "processing"):
                found[state.rung] = found.get(state.rung, 0) + 1
        return found

    def attempts(self, key: Any) -> Mapping[str, Any]:
        """Rung and killed attempts of a task that the scheduler still knows."""
        state = self._rungs.get(key, TaskRung())
        return {"rung": state.rung, "attempts": list(state.attempts)}

    def on_memory_failure(
        self, scheduler: Any, worker: Any, end: ContainerEnd, output: str, stimulus_id: str
    ) -> None:
        """Chooses the tasks that need a larger worker, and raises or fails them."""
        self.kills += 1
        limit = end.limit or worker.memory_limit or self.sizes.of(rung_of_worker(worker))
        assigned = sorted(
            (task for task in worker.processing if not task.actor),
            key=lambda task: task.priority,
        )
        running = set(worker.executing) | set(worker.long_running)
        culprits = find_culprits(
            [self._worker_task(task, running) for task in assigned],
            last_record(output),
            limit,
            worker.nthreads,
            scheduler.allowed_failures,
        )
        blamed = {culprit.key for culprit in culprits}
        for task in running or assigned[: worker.nthreads]:
            if task.key not in blamed:
                self._rungs.setdefault(task.key, TaskRung()).collateral += 1
        kill = _MemoryKill(scheduler, worker, end, limit, stimulus_id)
        self._report(kill, culprits, len(assigned))
        for culprit in culprits:
            self._raise(kill, culprit)

    def _worker_task(self, task: Any, running: Set[Any]) -> WorkerTask:
        state = self._rungs.get(task.key)
        return WorkerTask(
            key=task.key,
            digest=task_digest(task.key),
            is_running=task in running,
            input_bytes=sum(max(0, other.nbytes) for other in task.dependencies),
            collateral=state.collateral if state else 0,
        )

    def _report(self, kill: _MemoryKill, culprits: List[Culprit], assigned: int) -> None:
        worker, end, limit = kill.worker, kill.end, kill.limit
        names = ", ".join(f"{str(c.key)[:80]} ({c.why})" for c in culprits) or "none of its tasks"
        logger.info(
            "worker %s (container %s on %s) was killed at %s: %s needs more memory; "
            "%d other tasks run again at their size",
            worker.name,
            end.container,
            end.node,
            format_bytes(limit),
            names,
            assigned - len(culprits),
        )
        kill.scheduler.log_event(
            EVENT_TOPIC,
            {
                "action": "memory-failure",
                "worker": worker.name,
                "container": end.container,
                "node": end.node,
                "reason": end.reason,
                "limit": limit,
                "culprits": {str(c.key): c.used for c in culprits},
                "others": assigned - len(culprits),
                "cause": end.cause,
                "fix": end.fix,
            },
        )

    def _raise(self, kill: _MemoryKill, culprit: Culprit) -> None:
        scheduler, worker, end = kill.scheduler, kill.worker, kill.end
        task = scheduler.tasks[culprit.key]
        state = self._rungs.setdefault(culprit.key, TaskRung())
        state.add_kill(end, kill.limit, culprit)
        rung = max(state.rung, rung_of_worker(worker)) + 1
        if rung > self.sizes.last:
            error = exhausted_error(task.key, state, end, self.sizes.cap, self._cap_source)
            logger.error("%s", error)
            recommendations = scheduler.transition(
                task.key,
                "erred",
                exception=dumps(error),
                cause=task.key,
                stimulus_id=kill.stimulus_id,
                worker=worker.address,
            )
            scheduler.transitions(recommendations, stimulus_id=kill.stimulus_id)
            return
        # The worker is about to leave, so that no resource of it is booked any more.
        _restrict(task, state, rung)

    def fit_inputs(self, task: Any) -> None:
        """Raises a task that is about to be placed, and whose inputs exceed its worker."""
        inputs = sum(max(0, other.nbytes) for other in task.dependencies)
        if inputs <= self.sizes.first:
            return
        state = self._rungs.setdefault(task.key, TaskRung())
        fitting = [
            rung for rung in range(state.rung, self.sizes.last + 1) if self.sizes.of(rung) > inputs
        ]
        if fitting and fitting[0] > state.rung:
            logger.info(
                "task %s has inputs of %s: it gets a worker of %s",
                str(task.key)[:80],
                format_bytes(inputs),
                format_bytes(self.sizes.of(fitting[0])),
            )
            _restrict(task, state, fitting[0])


def _restrict(task: Any, state: TaskRung, rung: int) -> None:
    """Binds a task that is on no worker to the workers of a rung."""
    if state.restrictions is None:
        state.restrictions = dict(task.resource_restrictions or {})
    state.rung = rung
    task.resource_restrictions = {**state.restrictions, rung_resource(rung): 1}
    task.worker_restrictions = None
    task.host_restrictions = None


class HeadroomScheduler(Scheduler):  # type: ignore[misc]
    """The scheduler of a :class:`headroom.dask.HeadroomCluster`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: Set by the cluster before the first worker.
        self.recovery: Optional[MemoryRecovery] = None
        #: Reads the log of an ended container.
        self.read_log: Optional[Callable[[str], Any]] = None
        self._reports: Dict[str, asyncio.Future[Optional[ContainerEnd]]] = {}
        self._removals: Set[asyncio.Task[Any]] = set()
        #: Registered workers above rung 1.
        self._large_workers: Set[Any] = set()
        super().__init__(*args, **kwargs)

    def address_in(self, container: str) -> Optional[str]:
        """The address of the worker in a container; ``None`` if none is registered."""
        for address, worker in self.workers.items():
            if worker.extra.get(CONTAINER_FIELD) == container:
                return str(address)
        return None

    def container_ended(self, end: ContainerEnd) -> None:
        """Takes the report about the container of a worker. In the event loop only."""
        address = self.address_in(end.container)
        if address is None:
            return
        waiting = self._reports.get(address)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(end)
            return
        # The connection to the worker has not ended yet, such as after the loss of a node.
        stimulus_id = f"headroom-container-ended-{time.time()}"
        removal = asyncio.ensure_future(self._remove_ended(address, end, stimulus_id))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def remove_worker(
        self,
        address: str,
        *,
        stimulus_id: str,
        expected: bool = False,
        close: bool = True,
    ) -> Any:
        """Removes a worker. If its connection broke, waits for the report of its node first."""
        address = self.coerce_address(address)
        waiting = self._reports.get(address)
        if waiting is not None:
            return "already-removed"
        worker = self.workers.get(address)
        is_broken = stimulus_id.startswith(_BROKEN_CONNECTION)
        has_report = worker is not None and bool(worker.extra.get(CONTAINER_FIELD))
        if expected or not has_report or not is_broken or self.status != Status.running:
            return await super().remove_worker(
                address, stimulus_id=stimulus_id, expected=expected, close=close
            )
        waiting = asyncio.get_running_loop().create_future()
        self._reports[address] = waiting
        try:
            # No task is sent to it any more; those that it has wait for the report.
            self.handle_worker_status_change(Status.paused, worker, stimulus_id)
            with suppress(AttributeError, KeyError, CommClosedError):
                self.stream_comms[address].send(
                    {"op": "close", "reason": "scheduler-remove-worker"}
                )
            end = await self._wait_for_report(worker, waiting)
            return await self._remove_ended(address, end, stimulus_id)
        finally:
            del self._reports[address]

    async def _wait_for_report(
        self, worker: Any, waiting: asyncio.Future[Optional[ContainerEnd]]
    ) -> Optional[ContainerEnd]:
        try:
            return await asyncio.wait_for(waiting, REPORT_TIMEOUT)
        except asyncio.TimeoutError:
            logger.warning(
                "worker %s was lost, and no report of its node came within %d s: "
                "its tasks are treated as Dask does without Headroom",
                worker.name,
                REPORT_TIMEOUT,
            )
            return None

    async def _remove_ended(
        self, address: str, end: Optional[ContainerEnd], stimulus_id: str
    ) -> Any:
        output = ""
        if end is not None and end.is_memory_failure:
            output = end.log_tail
            if last_record(output) is None and self.read_log is not None:
                output = await self.read_log(end.container)
        worker = self.workers.get(address)
        if worker is None or self.status != Status.running:
            return "already-removed"
        is_free = end is not None and (end.is_memory_failure or end.is_free)
        if end is not None and end.is_memory_failure and self.recovery is not None:
            self.recovery.on_memory_failure(self, worker, end, output, stimulus_id)
        elif end is not None:
            logger.info("worker %s ended: %s", worker.name, end.in_words)
        return await super().remove_worker(
            address, stimulus_id=stimulus_id, expected=is_free, close=True
        )

    async def close(self, *args: Any, **kwargs: Any) -> None:
        """Closes the scheduler; nothing waits for reports any more."""
        for waiting in self._reports.values():
            if not waiting.done():
                waiting.set_result(None)
        await super().close(*args, **kwargs)

    # A worker above rung 1 runs only the tasks that need it, one at a time.

    def remove_resources(self, worker: str) -> None:
        """Part of the removal of a worker."""
        self._large_workers.discard(self.workers.get(worker))
        super().remove_resources(worker)

    def decide_worker_non_rootish(self, ts: Any) -> Any:
        """The worker for a task; first its size rises to that of its inputs."""
        if self.recovery is not None and ts.dependencies and not ts.actor:
            self.recovery.fit_inputs(ts)
        return super().decide_worker_non_rootish(ts)

    def valid_workers(self, ts: Any) -> Any:
        """The workers that may run a task: none above rung 1, unless it needs one."""
        valid = super().valid_workers(ts)
        if ts.resource_restrictions and any(
            rung_of_resource(name) is not None for name in ts.resource_restrictions
        ):
            return valid
        if not self._large_workers:
            return valid
        return (set(self.running) if valid is None else valid) - self._large_workers

    def check_idle_saturated(self, ws: Any, occ: float = -1.0) -> None:
        """Keeps workers above rung 1 out of the sets from which Dask takes workers for any task."""
        super().check_idle_saturated(ws, occ)
        if rung_of_worker(ws) > 1:
            if self.workers.get(ws.address) is ws:
                self._large_workers.add(ws)
            self.idle.pop(ws.address, None)
            self.idle_task_count.discard(ws)
            self.saturated.discard(ws)
