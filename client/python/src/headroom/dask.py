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
import importlib.util
import json
import logging
import os
import re
import site
import socket
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import dask
import distributed
from dask.utils import parse_bytes, parse_timedelta
from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.protocol.pickle import dumps
from distributed.security import Security
from distributed.utils import get_ip
from tornado.ioloop import PeriodicCallback

from headroom._container_session import (
    ContainerEnd,
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
from headroom._dask_memory import RungSizes, rung_resource
from headroom._dask_scheduler import EVENT_TOPIC, HeadroomScheduler, MemoryRecovery
from headroom._http import RestClient, load_settings
from headroom.errors import HeadroomError, SettingsError, format_bytes

__all__ = ["EVENT_TOPIC", "ContainerWorker", "HeadroomCluster"]

logger = logging.getLogger("headroom.dask")

#: Oldest and newest version of ``distributed`` with which this module was tested.
TESTED_VERSIONS = ((2024, 8, 0), (2026, 8, 0))
#: Time between two looks at the workers. Seconds.
TICK_INTERVAL = 0.5
#: Wait for a larger container before an ordinary worker makes room. Seconds.
ROOM_TIMEOUT = 2.0
#: Longest wait for the end of all containers in :meth:`HeadroomCluster.close`. Seconds.
CLOSE_TIMEOUT = 20.0
#: Workers that end in a row before they reach the scheduler.
MAX_FAILED_STARTS = 3
#: Bytes of a log that are searched for measurements.
LOG_BYTES = 65536

Size = Union[str, int]


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
        self._headroom_cluster._launch(self)
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
        self._memory = _checked_size("memory", memory)
        self._max_memory = None if max_memory is None else _checked_size("max_memory", max_memory)
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
        self._python = python or sys.executable
        self._env = dict(env or {})
        self._worker_options = dict(worker_options or {})
        self._max_large_workers = max_large_workers
        self._idle_timeout = float(parse_timedelta(idle_timeout, default="s"))
        self._rest = RestClient(load_settings(addr))
        self._session = ContainerSession(
            self._rest,
            _application_name(name or Path(sys.argv[0] or "dask").stem),
            self._on_session_event,
            queue=queue,
        )
        self._by_request: Dict[str, ContainerWorker] = {}
        self._large: Dict[str, ContainerWorker] = {}
        self._next_serial = 0
        self._failed_starts = 0
        self._failure: Optional[str] = None
        self._is_local = self._has_local_nodes()
        self._tick_callback: Optional[PeriodicCallback] = None
        self._tick_task: Optional[asyncio.Task[None]] = None
        spec = {
            "cls": ContainerWorker,
            "options": {"cluster": self, "nthreads": nthreads, "memory_limit": self._memory},
        }
        scheduler = {
            "cls": HeadroomScheduler,
            "options": {
                "host": host or ("127.0.0.1" if self._is_local else self._own_address()),
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
            recovery = MemoryRecovery(RungSizes(self._memory, cap), source, self._on_demand)
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
        for worker in list(self._large.values()):
            await worker.close()
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

    def _launch(self, worker: ContainerWorker) -> None:
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
                launch=self._launch_spec(worker),
                priority=0 if worker.rung == 1 else 1,
                labels=self._labels,
            )
        )

    def _launch_spec(self, worker: ContainerWorker) -> Dict[str, Any]:
        options = dict(self._worker_options)
        resources = dict(options.pop("resources", {}))
        resources.update({rung_resource(rung): 1 for rung in range(2, worker.rung + 1)})
        files = {"headroom_dask_worker.py": _worker_program()}
        if self.security.require_encryption or self.security.tls_worker_cert:
            files.update(self._security_files())
            options["security"] = {
                "tls_ca_file": "ca.pem",
                "tls_worker_cert": "cert.pem",
                "tls_worker_key": "key.pem",
                "require_encryption": True,
            }
        files["worker.json"] = json.dumps(
            {
                "scheduler": worker.scheduler_address,
                "name": worker.name,
                "nthreads": 1 if worker.rung > 1 else worker.nthreads,
                "resources": resources,
                "worker_options": options,
            }
        )
        return {
            "command": [self._python, "headroom_dask_worker.py", "worker.json"],
            "env": self._environment(),
            "files": files,
            "stop_grace_ms": 5000,
        }

    def _security_files(self) -> Dict[str, str]:
        names = {
            "ca.pem": self.security.tls_ca_file,
            "cert.pem": self.security.tls_worker_cert,
            "key.pem": self.security.tls_worker_key,
        }
        return {
            name: value if "-----BEGIN" in value else Path(value).read_text(encoding="utf-8")
            for name, value in names.items()
            if value
        }

    def _environment(self) -> Dict[str, str]:
        settings: Dict[str, Any] = {}
        # Dask's nanny would set these before it starts a worker.
        for key in ("distributed.nanny.pre-spawn-environ", "distributed.nanny.environ"):
            settings.update(dask.config.get(key, default=None) or {})
        pairs = {name: str(value) for name, value in settings.items()}
        pairs["DASK_INTERNAL_INHERIT_CONFIG"] = dask.config.serialize(dask.config.global_config)
        if self._is_local:
            pairs["PYTHONPATH"] = os.pathsep.join(_import_path())
        pairs.update(self._env)
        return pairs

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
                self._retire([worker.name])
        elif isinstance(event, NodeDrainStarted):
            workers = [w for w in self._by_request.values() if w.node == event.node]
            logger.info("node %s is drained: %d workers move", event.node, len(workers))
            self._retire([worker.name for worker in workers])
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
                self._fail(_failed_start_sentence(worker, end))
                return
        if worker.rung > 1:
            # Another one is requested when a task waits for it.
            self._large.pop(str(worker.name), None)
            self.loop.add_callback(worker.close)
        elif not worker.is_displaced and worker.status == Status.running:
            # A worker that was told to close may be about to leave the cluster.
            wait = 1.0 if end.reason == "exit" else 0.1
            self.loop.call_later(wait, self._relaunch, worker)

    def _relaunch(self, worker: ContainerWorker) -> None:
        is_wanted = self.workers.get(worker.name) is worker and worker.name in self.worker_spec
        if self.status == Status.running and is_wanted and not worker.is_displaced:
            self._launch(worker)

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

    def _retire(self, names: List[Any]) -> None:
        """Moves the data of workers away and closes them. Ordinary ones are replaced."""
        if names:
            self.loop.add_callback(self._retire_now, names)

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

    # Workers above rung 1.

    def _on_demand(self) -> None:
        if self._tick_task is None or self._tick_task.done():
            self._tick_task = asyncio.ensure_future(self._adjust())

    async def _adjust(self) -> None:
        recovery = self._recovery
        if recovery is None or self.status != Status.running:
            return
        try:
            self._fail_waiting_tasks()
            await self._start_large(recovery)
            await self._stop_idle_large(recovery)
            await self._make_room()
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("the workers could not be adjusted; it is tried again")

    async def _start_large(self, recovery: MemoryRecovery) -> None:
        demand = recovery.runnable(self.scheduler)
        for rung in sorted(demand, reverse=True):
            # A worker serves the tasks of its rung and of all lower ones.
            needed = sum(count for other, count in demand.items() if other >= rung)
            present = sum(1 for worker in self._large.values() if worker.rung >= rung)
            room = self._max_large_workers - len(self._large)
            for _ in range(max(0, min(needed - present, room))):
                self._next_serial += 1
                name = f"rung-{rung}-{self._next_serial}"
                worker = ContainerWorker(
                    self.scheduler.contact_address or self.scheduler.address,
                    name=name,
                    cluster=self,
                    nthreads=1,
                    memory_limit=recovery.sizes.of(rung),
                    rung=rung,
                )
                self._created.add(worker)
                self._large[name] = worker
                logger.info(
                    "a worker of %s is requested for rung %d",
                    format_bytes(worker.memory_limit),
                    rung,
                )
                await worker

    async def _stop_idle_large(self, recovery: MemoryRecovery) -> None:
        now = time.monotonic()
        top = max(recovery.demand(self.scheduler), default=1)
        useless = [
            name for name, worker in self._large.items() if self._is_useless(worker, top, now)
        ]
        for name in useless:
            worker = self._large[name]
            if name in self.scheduler.aliases:
                await self._retire_now([name])
            del self._large[name]
            await worker.close()
            logger.info("worker %s is idle and released", name)
        if not self._large:
            self._end_displacement()

    def _is_useless(self, worker: ContainerWorker, top: int, now: float) -> bool:
        address = self.scheduler.aliases.get(worker.name)
        state = self.scheduler.workers.get(address) if address else None
        # Its data may not fit into other workers: it stays until they are released.
        has_data = state is not None and state.nbytes > self._memory / 4
        is_busy = state is not None and bool(state.processing)
        # A smaller worker than the waiting tasks need keeps the room that they wait for.
        is_needed = top > 1 and (worker.rung >= top or now - worker.needed_at < ROOM_TIMEOUT)
        if is_busy or has_data or is_needed:
            worker.needed_at = now
            return False
        limit = ROOM_TIMEOUT if top > worker.rung else self._idle_timeout
        return now - worker.needed_at > limit

    async def _make_room(self) -> None:
        """Ordinary workers leave their memory to a larger one that waits for it too long."""
        now = time.monotonic()
        waiting = [
            worker
            for worker in self._large.values()
            if worker.container is None and now - worker.requested_at > ROOM_TIMEOUT
        ]
        if not waiting:
            return
        ordinary = [w for w in self.workers.values() if w.rung == 1 and not w.is_displaced]
        pending = [w for w in ordinary if w.container is None]
        victims = pending or self._least_busy(ordinary)
        missing = max(worker.memory_limit for worker in waiting)
        for worker in victims[: max(1, -(-missing // self._memory))]:
            worker.is_displaced = True
            logger.info("worker %s makes room for a larger one", worker.name)
            if worker.name in self.scheduler.aliases:
                await self._retire_now([worker.name])
            self._release(worker)
        for worker in waiting:
            worker.requested_at = now

    def _least_busy(self, workers: List[ContainerWorker]) -> List[ContainerWorker]:
        def load(worker: ContainerWorker) -> Tuple[int, int]:
            address = self.scheduler.aliases.get(worker.name)
            state = self.scheduler.workers.get(address) if address else None
            return (len(state.processing), state.nbytes) if state is not None else (0, 0)

        return sorted(workers, key=load)

    def _end_displacement(self) -> None:
        for worker in self.workers.values():
            if worker.is_displaced:
                worker.is_displaced = False
                if worker.status == Status.running:
                    self._launch(worker)

    # Addresses.

    def _has_local_nodes(self) -> bool:
        """True if every node of the cluster is on this host."""
        if not self._rest.settings.is_local:
            return False
        nodes = self._rest.get("/v1/nodes")
        hosts = [urllib.parse.urlsplit(node.get("url") or "").hostname or "" for node in nodes]
        return all(host in ("localhost", "::1", "") or host.startswith("127.") for host in hosts)

    def _own_address(self) -> str:
        """The address of this host towards the resource manager."""
        parts = urllib.parse.urlsplit(self._rest.address)
        if self._rest.settings.is_local or parts.hostname is None:
            return str(get_ip())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname, parts.port or 7070))
            return str(probe.getsockname()[0])


def _checked_size(key: str, value: Size) -> int:
    try:
        size = int(parse_bytes(value))
    except ValueError:
        size = 0
    if size < 1 << 20:
        raise SettingsError(f"{key} is {value!r}: give a size such as '2GiB'")
    return size


def _application_name(text: str) -> str:
    """A name of an application, from any text.

    >>> _application_name("my script!"), _application_name("--")
    ('my-script', 'dask')
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "-", text)[:48].strip("-_")
    return name or "dask"


def _import_path() -> List[str]:
    """The directories from which this process imports modules that are not installed."""
    installed = [*site.getsitepackages(), site.getusersitepackages(), sys.prefix, sys.base_prefix]
    found = []
    for entry in sys.path:
        directory = os.path.abspath(entry or ".")
        is_installed = any(directory.startswith(root + os.sep) for root in installed)
        if os.path.isdir(directory) and not is_installed and directory not in found:
            found.append(directory)
    return found


def _worker_program() -> str:
    found = importlib.util.find_spec("headroom._dask_worker")
    if found is None or found.origin is None:
        raise ImportError("the module headroom._dask_worker is missing; install headroom again")
    return Path(found.origin).read_text(encoding="utf-8")


def _failed_start_sentence(worker: ContainerWorker, end: ContainerEnd) -> str:
    lines = [line.strip() for line in end.log_tail.splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    if end.is_memory_failure:
        last = (
            f"{format_bytes(worker.memory_limit)} of memory do not hold an idle worker; "
            "give more memory"
        )
    return (
        f"{MAX_FAILED_STARTS} workers in a row ended before they reached the scheduler; the last "
        f"one, container {end.container} on {end.node}, {end.in_words}: {last}"
    )
