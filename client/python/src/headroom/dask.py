"""Dask clusters whose workers are containers of Headroom.

::

    from dask.distributed import Client
    from headroom.dask import HeadroomCluster

    with HeadroomCluster(8, memory="2GiB") as cluster, Client(cluster) as client:
        results = client.gather(client.map(load, files))

A worker that needs more memory than its container has is killed by the kernel. The task that used
the memory then runs alone on a worker of twice the size, up to ``max_memory``; the other tasks run
again at their size, and none of them is counted towards Dask's ``allowed-failures``. A task that
does not fit into the largest worker fails with :class:`headroom.errors.MemoryExhausted`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import distributed
from dask.utils import parse_timedelta
from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.protocol.pickle import dumps
from distributed.security import Security
from tornado.ioloop import PeriodicCallback

from headroom._container_session import (
    ContainerExited,
    ContainerGranted,
    ContainerRequest,
    ContainerSession,
    NodeDrainStarted,
    PreemptionAnnounced,
    RequestInfeasible,
    SessionEnded,
    SessionEvent,
)
from headroom._dask_large import LargeWorkerPool
from headroom._dask_launch import (
    Size,
    WorkerLaunch,
    application_name,
    checked_options,
    checked_size,
    failed_start_sentence,
    has_local_nodes,
    own_address,
    worker_stage,
)
from headroom._dask_memory import RungSizes
from headroom._dask_scheduler import (
    EVENT_TOPIC,
    HeadroomScheduler,
    MemoryRecovery,
    rung_of_worker,
)
from headroom._http import RestClient, load_settings
from headroom.errors import HeadroomError, SettingsError, format_bytes

__all__ = ["EVENT_TOPIC", "ContainerWorker", "HeadroomCluster"]

logger = logging.getLogger("headroom.dask")

#: Oldest and newest version of ``distributed`` with which this module was tested.
TESTED_VERSIONS = ((2024, 8, 0), (2026, 8, 0))
#: Time between two looks at the workers. Seconds.
TICK_INTERVAL = 0.5
#: Longest wait for a worker that takes the data of one that must leave. Seconds.
MOVE_TIMEOUT = 30.0
#: Longest wait for the end of all containers in :meth:`HeadroomCluster.close`. Seconds.
CLOSE_TIMEOUT = 20.0
#: Workers that end in a row before they reach the scheduler.
MAX_FAILED_STARTS = 3
#: Bytes of a log that are searched for measurements.
LOG_BYTES = 65536


def _check_version(text: str) -> None:
    """Refuses a version of ``distributed`` outside of the tested range.

    >>> _check_version("2025.4.1")
    >>> _check_version("2023.1.0")
    Traceback (most recent call last):
    ...
    ImportError: headroom.dask works with distributed 2024.8.0 to 2026.8.0, and 2023.1.0 is \
installed; pip install 'distributed>=2024.8.0,<=2026.8.0'
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", text)[:3])
    oldest, newest = TESTED_VERSIONS
    if not oldest <= numbers <= newest:
        first, last = (".".join(map(str, version)) for version in TESTED_VERSIONS)
        raise ImportError(
            f"headroom.dask works with distributed {first} to {last}, and {text} is installed; "
            f"pip install 'distributed>={first},<={last}'"
        )


_check_version(distributed.__version__)


class ContainerWorker(ProcessInterface):  # type: ignore[misc]
    """One worker of the cluster: a container that is replaced when it ends."""

    status: Any

    def __init__(
        self,
        scheduler: str,
        *,
        name: Any,
        cluster: HeadroomCluster,
        nthreads: int,
        memory_limit: int,
        rung: int = 1,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.scheduler_address = scheduler
        self.name = name
        self.nthreads = nthreads
        #: Memory of the container. Bytes.
        self.memory_limit = memory_limit
        #: 1 for an ordinary worker; larger numbers for larger ones.
        self.rung = rung
        #: The open container request, if any.
        self.request: Optional[str] = None
        #: Id of the granted container, its node, and the time of the request.
        self.container: Optional[str] = None
        self.node: Optional[str] = None
        self.requested_at = 0.0
        #: True while it leaves its memory to a larger worker.
        self.is_displaced = False
        #: Last time at which a task needed it.
        self.needed_at = time.monotonic()
        self._headroom_cluster = cluster

    async def start(self) -> None:
        """Asks for the container. Does not wait for it."""
        self._headroom_cluster.launch(self)
        await super().start()

    async def close(self) -> None:
        """Moves the data of the worker away, and gives the container back."""
        if self.status not in (Status.closing, Status.closed):
            self.status = Status.closing
            await self._headroom_cluster._retire_closing(self)
            self._headroom_cluster._release(self)
            await super().close()


class HeadroomCluster(SpecCluster):  # type: ignore[misc]
    """A Dask cluster on Headroom. The scheduler runs in this process.

    Parameters
    ----------
    workers
        Number of workers; :meth:`scale` and :meth:`adapt` change it.
    memory, cpus, nthreads
        Memory limit, processors and threads of each worker.
    max_memory
        Largest worker for a task that ran out of memory. Default: the largest container that the
        cluster can grant.
    addr
        Address of the resource manager, found as ``rmctl`` finds it if omitted.
    host
        Address of this host at which the nodes reach the scheduler. Default: the loopback address
        if all nodes are on this host, else the address towards the resource manager.
    queue, labels
        Queue of the application, and labels that the nodes of the workers must have.
    name
        Name of the application.
    python
        Python interpreter on the nodes. Default: that of this process.
    env
        Environment variables of the workers.
    worker_options
        Further keywords of :class:`distributed.Worker`.
    scheduler_options
        Further keywords of :class:`distributed.Scheduler`.
    max_large_workers, idle_timeout
        Most larger workers at a time, and the time without a task after which one is released.
    """

    status: Any
    _worker_class = ContainerWorker

    def __init__(
        self,
        workers: int = 0,
        memory: Size = "2GiB",
        cpus: float = 1,
        nthreads: int = 1,
        *,
        max_memory: Optional[Size] = None,
        addr: Optional[str] = None,
        host: Optional[str] = None,
        queue: Optional[str] = None,
        labels: Sequence[str] = (),
        name: Optional[str] = None,
        python: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        worker_options: Optional[Mapping[str, Any]] = None,
        scheduler_options: Optional[Mapping[str, Any]] = None,
        dashboard_address: Optional[str] = ":8787",
        max_large_workers: int = 4,
        idle_timeout: Union[str, float] = "10s",
        protocol: Optional[str] = None,
        security: Union[Security, bool, None] = None,
        asynchronous: bool = False,
        loop: Any = None,
        silence_logs: Any = logging.WARNING,
        shutdown_on_close: bool = True,
    ) -> None:
        self._memory = checked_size("memory", memory)
        self._max_memory = None if max_memory is None else checked_size("max_memory", max_memory)
        if self._max_memory is not None and self._max_memory < self._memory:
            raise SettingsError(
                f"max_memory is {format_bytes(self._max_memory)} and memory is "
                f"{format_bytes(self._memory)}: max_memory must not be smaller"
            )
        for key, value in (("cpus", cpus), ("nthreads", nthreads)):
            if value <= 0:
                raise SettingsError(f"{key} is {value}: it must be above 0")
        if security is True:
            security = Security.temporary()
        self._cpus = cpus
        self._labels = tuple(labels)
        self._max_large_workers = max_large_workers
        self._idle_timeout = float(parse_timedelta(idle_timeout, default="s"))
        self._rest = RestClient(load_settings(addr))
        self._session = ContainerSession(
            self._rest,
            application_name(name or Path(sys.argv[0] or "dask").stem),
            self._on_session_event,
            queue=queue,
        )
        self._by_request: Dict[str, ContainerWorker] = {}
        self._large: Optional[LargeWorkerPool] = None
        self._next_serial = 0
        #: Numbers of the workers of each size, in the job view.
        self._row_numbers: Dict[str, Dict[str, int]] = {}
        self._failed_starts = 0
        self._failure: Optional[str] = None
        is_local = has_local_nodes(self._rest)
        self._worker_launch = WorkerLaunch(
            python=python or sys.executable,
            env=dict(env or {}),
            options=checked_options(worker_options),
            is_local=is_local,
            security=security or Security(),
        )
        self._tick_callback: Optional[PeriodicCallback] = None
        self._tick_task: Optional[asyncio.Task[None]] = None
        spec = {
            "cls": self._worker_class,
            "options": {"cluster": self, "nthreads": nthreads, "memory_limit": self._memory},
        }
        scheduler = {
            "cls": HeadroomScheduler,
            "options": {
                "host": host or ("127.0.0.1" if is_local else own_address(self._rest)),
                "protocol": protocol,
                "security": security or None,
                "dashboard": dashboard_address is not None,
                "dashboard_address": dashboard_address,
                **(scheduler_options or {}),
            },
        }
        super().__init__(
            workers=dict.fromkeys(range(workers), spec),
            scheduler=scheduler,
            worker=spec,
            asynchronous=asynchronous,
            loop=loop,
            security=security or None,
            silence_logs=silence_logs,
            name=name,
            shutdown_on_close=shutdown_on_close,
        )

    # Properties for users.

    @property
    def app(self) -> str:
        """Id of the application for ``rmctl``, such as ``dask.7``."""
        return self._session.app

    @property
    def memory_failures(self) -> int:
        """Workers that were killed for memory so far."""
        recovery = self._recovery
        return recovery.kills if recovery is not None else 0

    def rung(self, key: Any) -> Mapping[str, Any]:
        """Rung of a task and its attempts that were killed: ``{"rung": 2, "attempts": [...]}``.

        The scheduler forgets both with the task.
        """
        recovery = self._recovery
        return recovery.attempts(key) if recovery is not None else {"rung": 1, "attempts": []}

    @property
    def _recovery(self) -> Optional[MemoryRecovery]:
        return getattr(self.scheduler, "recovery", None)

    # Start and end.

    async def _start(self) -> None:
        if self.status == Status.created:
            self.status = Status.starting
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._session.open)
                self._check_largest()
            except BaseException:
                self.status = Status.failed
                raise
            self.status = Status.created
        await super()._start()
        if self._tick_callback is None and self.status == Status.running:
            largest = self._session.largest
            cap = min(self._max_memory or largest, largest)
            source = "max_memory" if self._max_memory == cap else "add a larger node"
            recovery = MemoryRecovery(
                RungSizes(self._memory, cap), source, self._on_demand, self._on_registered
            )
            self._large = LargeWorkerPool(
                self, recovery, self._max_large_workers, self._idle_timeout
            )
            self.scheduler.recovery = recovery
            self.scheduler.read_log = self._read_log
            self.scheduler.add_plugin(recovery, name=recovery.name)
            self._tick_callback = PeriodicCallback(self._on_demand, TICK_INTERVAL * 1000)
            self._tick_callback.start()

    def _check_largest(self) -> None:
        largest = self._session.largest
        if self._memory > largest:
            self._session.finish(succeeded=False, diagnostics="a worker is too large")
            raise SettingsError(
                f"memory is {format_bytes(self._memory)}, and the largest container of the "
                f"cluster has {format_bytes(largest)}: lower memory, or add a larger node"
            )

    async def _close(self) -> None:
        if self.status in (Status.closing, Status.closed):
            await super()._close()
            return
        if self._tick_callback is not None:
            self._tick_callback.stop()
        if self._tick_task is not None:
            self._tick_task.cancel()
        if self._large is not None:
            await self._large.close()
        try:
            await super()._close()
        finally:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._finish_session)

    def _finish_session(self) -> None:
        self._session.finish(succeeded=self._failure is None, diagnostics=self._failure or "")
        until = time.monotonic() + CLOSE_TIMEOUT
        while self._session.app and time.monotonic() < until:
            try:
                rows = self._session.containers()
            except HeadroomError:
                break
            if all(row["state"] == "exited" for row in rows):
                break
            time.sleep(0.1)
        self._rest.close()

    def _update_worker_status(self, op: Any, msg: Any) -> None:
        # The method of SpecCluster gives up a worker that does not come back in time. Here the
        # container is replaced, which may take longer on a full cluster.
        Cluster._update_worker_status(self, op, msg)

    # Containers.

    def launch(self, worker: ContainerWorker) -> None:
        """Asks for a container of a worker."""
        if worker.request is not None or self._failure is not None:
            return
        self._next_serial += 1
        worker.request = f"worker-{self._next_serial}"
        worker.container = worker.node = None
        worker.requested_at = time.monotonic()
        self._by_request[worker.request] = worker
        self._session.request(
            ContainerRequest(
                request=worker.request,
                memory=worker.memory_limit,
                cpus=self._cpus,
                launch=self._worker_launch.spec(
                    worker.scheduler_address, worker.name, worker.nthreads, worker.rung
                ),
                priority=0 if worker.rung == 1 else 1,
                labels=self._labels,
                task=self._row_of(worker),
            )
        )

    def _row_of(self, worker: ContainerWorker) -> str:
        """The row of a worker in ``rmctl ps``: the same one for all its containers."""
        stage = worker_stage(worker.memory_limit)
        numbers = self._row_numbers.setdefault(stage, {})
        return f"{stage}/{numbers.setdefault(str(worker.name), len(numbers))}"

    def _release(self, worker: ContainerWorker) -> None:
        """Gives back the container of a worker, and does not replace it."""
        if worker.request is not None:
            self._session.release(worker.request)
            if worker.container is None:
                self._by_request.pop(worker.request, None)
            worker.request = worker.container = None

    async def _retire_closing(self, worker: ContainerWorker) -> None:
        if self.status == Status.running and worker.container is not None:
            address = self.scheduler.address_in(worker.container)
            if address is not None:
                await self._retire_now([worker.name])

    # Reports of the resource manager.

    def _on_session_event(self, event: SessionEvent) -> None:
        # Called by a thread of the session.
        if self.status not in (Status.closing, Status.closed):
            self.loop.add_callback(self._handle_event, event)

    def _handle_event(self, event: SessionEvent) -> None:
        if isinstance(event, ContainerGranted):
            worker = self._by_request.get(event.request)
            if worker is not None:
                worker.container, worker.node = event.container, event.node
                worker.needed_at = time.monotonic()
        elif isinstance(event, ContainerExited):
            worker = self._by_request.pop(event.request, None)
            if worker is not None:
                self._on_exited(worker, event)
        elif isinstance(event, RequestInfeasible):
            worker = self._by_request.pop(event.request, None)
            if worker is not None:
                worker.request = None
                self._fail(f"a worker of {format_bytes(worker.memory_limit)}: {event.sentence}")
        elif isinstance(event, PreemptionAnnounced):
            worker = self._by_request.get(event.request)
            if worker is not None:
                logger.info("worker %s will be preempted: %s", worker.name, event.sentence)
                self.loop.add_callback(self._move_workers, [worker])
        elif isinstance(event, NodeDrainStarted):
            workers = [w for w in self._by_request.values() if w.node == event.node]
            logger.info("node %s is drained: %d workers move", event.node, len(workers))
            self.loop.add_callback(self._move_workers, workers)
        elif isinstance(event, SessionEnded):
            self._fail(event.sentence)

    def _on_exited(self, worker: ContainerWorker, event: ContainerExited) -> None:
        end = event.end
        if self.status != Status.running:
            return
        registered = self.scheduler.recovery.registered
        has_registered = end.container in registered
        registered.discard(end.container)
        self.scheduler.container_ended(end)
        if worker.request != event.request:
            # A container that was released.
            return
        worker.request = worker.container = None
        if has_registered or end.is_free:
            self._failed_starts = 0
        elif end.is_memory_failure or end.exit_code != 0:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                self._fail(failed_start_sentence(MAX_FAILED_STARTS, worker.memory_limit, end))
                return
        if worker.rung > 1:
            # Another one is requested when a task waits for it.
            if self._large is not None:
                self._large.workers.pop(str(worker.name), None)
            self.loop.add_callback(worker.close)
        elif not worker.is_displaced and worker.status == Status.running:
            # A worker that closed by itself may be about to leave the cluster.
            wait = 1.0 if end.reason == "exit" else 0.1
            self.loop.call_later(wait, self._relaunch, worker)

    def _on_registered(self, name: Any, address: str) -> None:
        for request, worker in self._by_request.items():
            if worker.name == name and worker.request == request:
                worker.address = address

    def _relaunch(self, worker: ContainerWorker) -> None:
        is_wanted = self.workers.get(worker.name) is worker and worker.name in self.worker_spec
        if self.status == Status.running and is_wanted and not worker.is_displaced:
            self.launch(worker)

    def _fail(self, sentence: str) -> None:
        """Ends the cluster's attempts to start workers. Tasks without a worker fail."""
        if self._failure is None:
            self._failure = sentence
            logger.error("%s", sentence)

    def _fail_waiting_tasks(self) -> None:
        if self._failure is None or self.scheduler.workers:
            return
        error = dumps(HeadroomError(self._failure))
        stimulus_id = f"headroom-failed-{time.time()}"
        for task in [*self.scheduler.unrunnable, *self.scheduler.queued]:
            recommendations = self.scheduler.transition(
                task.key, "erred", exception=error, cause=task.key, stimulus_id=stimulus_id
            )
            self.scheduler.transitions(recommendations, stimulus_id=stimulus_id)

    async def _read_log(self, container: str) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._session.read_log, container, LOG_BYTES)

    async def _move_workers(self, workers: List[ContainerWorker]) -> None:
        """Closes workers one after the other, with their data moved away. They are replaced."""
        for worker in workers:
            until = time.monotonic() + MOVE_TIMEOUT
            while (
                not self._has_receiver(worker)
                and len(self.worker_spec) > 1
                and time.monotonic() < until
            ):
                await asyncio.sleep(TICK_INTERVAL)
            if self.status != Status.running:
                return
            if self._has_receiver(worker):
                await self._retire_now([worker.name])
            is_left = worker.container is not None and self.scheduler.address_in(worker.container)
            if is_left and worker.rung == 1:
                logger.info(
                    "worker %s leaves without its data, which is computed again", worker.name
                )
                self._release(worker)
                self.loop.call_later(1.0, self._relaunch, worker)

    def _has_receiver(self, worker: ContainerWorker) -> bool:
        """True if another worker could take the data of this one."""
        return any(
            other.name != worker.name and rung_of_worker(other) == 1
            for other in self.scheduler.running
        )

    async def _retire_now(self, names: List[Any]) -> None:
        try:
            await self.scheduler.retire_workers(
                names=names,
                close_workers=True,
                remove=True,
                stimulus_id=f"headroom-retire-{time.time()}",
            )
        except Exception:
            logger.exception("workers %s could not be retired", names)

    async def move_and_release(self, worker: ContainerWorker) -> None:
        """Moves the data of a worker away if possible, and gives its container back."""
        if worker.container is not None and self.scheduler.address_in(worker.container):
            await self._retire_now([worker.name])
        self._release(worker)

    # Workers above rung 1.

    def new_large_worker(self, name: str, memory: int, rung: int) -> ContainerWorker:
        """A worker for tasks of a rung, which asks for its container when it is awaited."""
        worker = ContainerWorker(
            self.scheduler.contact_address or self.scheduler.address,
            name=name,
            cluster=self,
            nthreads=1,
            memory_limit=memory,
            rung=rung,
        )
        self._created.add(worker)
        return worker

    def _on_demand(self) -> None:
        if self._tick_task is None or self._tick_task.done():
            self._tick_task = asyncio.ensure_future(self._adjust())

    async def _adjust(self) -> None:
        if self._large is None or self.status != Status.running:
            return
        try:
            self._fail_waiting_tasks()
            await self._large.adjust()
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("the workers could not be adjusted; it is tried again")
