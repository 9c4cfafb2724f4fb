"""A pytest plugin that runs the tests of ``distributed`` with the classes of this package.

::

    pytest -p distributed_suite distributed/deploy/tests/test_local.py

``LocalCluster`` becomes a :class:`HeadroomCluster` on the resource manager at ``HEADROOM_ADDR``,
and the scheduler of tests without a cluster a :class:`HeadroomScheduler`. The tests are those of
the source distribution of ``distributed``; they are not part of this repository.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import distributed
import distributed.deploy.local
import distributed.utils_test
from distributed.core import Status

from headroom import _dask_scheduler
from headroom.dask import ContainerWorker, HeadroomCluster

#: Memory of a worker if a test gives none, or less than a worker needs.
LEAST_MEMORY = 256 << 20


class WaitingWorker(ContainerWorker):  # type: ignore[misc]
    """Tests expect that a worker has connected when the cluster has started."""

    async def start(self) -> None:
        await super().start()
        scheduler = self._headroom_cluster.scheduler
        for _ in range(600):
            if self.name in scheduler.aliases or self.status != Status.running:
                return
            await asyncio.sleep(0.05)
        raise asyncio.TimeoutError(f"worker {self.name} did not start")


class LocalClusterStandIn(HeadroomCluster):
    """A Headroom cluster with the arguments of ``LocalCluster``."""

    _worker_class = WaitingWorker

    def __init__(self, **arguments: Any) -> None:
        arguments = dict(arguments)
        threads = arguments.pop("threads_per_worker", None) or 1
        workers = arguments.pop("n_workers", None)
        memory = arguments.pop("memory_limit", None)
        size = None
        if memory:
            size = distributed.worker_memory.parse_memory_limit(
                memory, threads, logger=logging.getLogger(__name__)
            )
        ours = {
            name: arguments.pop(name)
            for name in (
                "asynchronous",
                "dashboard_address",
                "host",
                "loop",
                "name",
                "protocol",
                "security",
                "silence_logs",
            )
            if name in arguments
        }
        ours["addr"] = os.environ["HEADROOM_ADDR"]
        ours["memory"] = max(size or LEAST_MEMORY, LEAST_MEMORY)
        ours["scheduler_options"] = {}
        if "scheduler_port" in arguments:
            ours["scheduler_options"]["port"] = arguments.pop("scheduler_port")
        ours["scheduler_options"].update(arguments.pop("scheduler_kwargs", None) or {})
        arguments.pop("processes", None)
        super().__init__(
            2 if workers is None else workers,
            nthreads=threads,
            worker_options=arguments,
            **ours,
        )


distributed.LocalCluster = LocalClusterStandIn
distributed.deploy.LocalCluster = LocalClusterStandIn
distributed.deploy.local.LocalCluster = LocalClusterStandIn
distributed.Scheduler = _dask_scheduler.HeadroomScheduler
distributed.scheduler.Scheduler = _dask_scheduler.HeadroomScheduler
distributed.utils_test.Scheduler = _dask_scheduler.HeadroomScheduler
