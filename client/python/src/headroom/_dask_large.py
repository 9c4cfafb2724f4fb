"""Workers above rung 1: when they are started and released, and how they get room."""

from __future__ import annotations

import logging
import time
from typing import Any, Dict, List, Tuple

from distributed.core import Status

from headroom._dask_scheduler import MemoryRecovery
from headroom.errors import format_bytes

__all__ = ["LargeWorkerPool"]

logger = logging.getLogger("headroom.dask")

#: Wait for a larger container before ordinary workers make room. Seconds.
ROOM_TIMEOUT = 2.0
#: A larger worker with more data than this part of an ordinary one is not released.
MAX_MOVED_SHARE = 0.25


class LargeWorkerPool:
    """The workers above rung 1 of a cluster. In the event loop of the cluster only."""

    def __init__(
        self, cluster: Any, recovery: MemoryRecovery, max_workers: int, idle_timeout: float
    ) -> None:
        self._cluster = cluster
        self._recovery = recovery
        self._max_workers = max_workers
        self._idle_timeout = idle_timeout
        #: The workers by name.
        self.workers: Dict[str, Any] = {}
        self._next_serial = 0

    async def adjust(self) -> None:
        """Starts the workers that tasks need, releases idle ones, and makes room."""
        await self._start_missing()
        await self._release_idle()
        await self._make_room()

    async def close(self) -> None:
        """Releases all workers."""
        for worker in list(self.workers.values()):
            await worker.close()
        self.workers.clear()

    async def _start_missing(self) -> None:
        scheduler = self._cluster.scheduler
        demand = self._recovery.runnable(scheduler)
        for rung in sorted(demand, reverse=True):
            # A worker serves the tasks of its rung and of all lower ones.
            needed = sum(count for other, count in demand.items() if other >= rung)
            present = sum(1 for worker in self.workers.values() if worker.rung >= rung)
            room = self._max_workers - len(self.workers)
            for _ in range(max(0, min(needed - present, room))):
                self._next_serial += 1
                name = f"rung-{rung}-{self._next_serial}"
                memory = self._recovery.sizes.of(rung)
                worker = self._cluster.new_large_worker(name, memory, rung)
                self.workers[name] = worker
                logger.info("a worker of %s is requested for rung %d", format_bytes(memory), rung)
                await worker

    async def _release_idle(self) -> None:
        now = time.monotonic()
        top = max(self._recovery.demand(self._cluster.scheduler), default=1)
        for name, worker in list(self.workers.items()):
            if self._is_idle(worker, top, now):
                self.workers.pop(name, None)
                await worker.close()
                logger.info("worker %s is idle and released", name)
        if all(worker.container is not None for worker in self.workers.values()):
            self._end_displacement()

    def _is_idle(self, worker: Any, top: int, now: float) -> bool:
        """True after some time without a task; ``top`` is the highest rung that tasks need."""
        state = self._state_of(worker)
        memory = self._recovery.sizes.first
        # Its data may not fit into other workers: it stays until they are released.
        has_data = state is not None and state.nbytes > MAX_MOVED_SHARE * memory
        is_busy = state is not None and bool(state.processing)
        if is_busy or has_data or worker.rung >= top > 1:
            worker.needed_at = now
            return False
        # A worker that is too small for the waiting tasks keeps the room that they wait for.
        limit = ROOM_TIMEOUT if top > worker.rung else self._idle_timeout
        return bool(now - worker.needed_at > limit)

    async def _make_room(self) -> None:
        """Ordinary workers leave their memory to a larger one that waits for it too long."""
        now = time.monotonic()
        waiting = [
            worker
            for worker in self.workers.values()
            if worker.container is None and now - worker.requested_at > ROOM_TIMEOUT
        ]
        if not waiting:
            return
        ordinary = [w for w in self._cluster.workers.values() if not w.is_displaced]
        pending = [worker for worker in ordinary if worker.container is None]
        missing = max(worker.memory_limit for worker in waiting)
        count = max(1, -(-missing // self._recovery.sizes.first))
        running = [worker for worker in ordinary if worker.container is not None]
        for worker in [*pending, *self._victims(running, count)]:
            worker.is_displaced = True
            logger.info("worker %s makes room for a larger one", worker.name)
            await self._cluster.move_and_release(worker)
        for worker in waiting:
            worker.requested_at = now

    def _victims(self, running: List[Any], count: int) -> List[Any]:
        """The ``count`` workers of one node with the least to do, if a node has as many."""

        def load(worker: Any) -> Tuple[int, int]:
            state = self._state_of(worker)
            return (len(state.processing), state.nbytes) if state is not None else (0, 0)

        by_node: Dict[Any, List[Any]] = {}
        for worker in sorted(running, key=load):
            by_node.setdefault(worker.node, []).append(worker)
        groups = [workers[:count] for workers in by_node.values() if len(workers) >= count]
        if groups:
            return min(groups, key=lambda workers: sorted(map(load, workers), reverse=True))
        return sorted(running, key=load)[:count]

    def _end_displacement(self) -> None:
        for worker in self._cluster.workers.values():
            if worker.is_displaced:
                worker.is_displaced = False
                if worker.status == Status.running:
                    self._cluster.launch(worker)

    def _state_of(self, worker: Any) -> Any:
        """The scheduler's view of a worker; ``None`` if it has not registered."""
        scheduler = self._cluster.scheduler
        address = scheduler.aliases.get(worker.name)
        return scheduler.workers.get(address) if address else None
