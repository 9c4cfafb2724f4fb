"""Which tasks of a killed Dask worker need more memory, and how much.

Pure: without clocks and sockets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Tuple

from headroom._container_session import ContainerEnd
from headroom._dask_worker import RECORD_PREFIX
from headroom.errors import AttemptReport, MemoryExhausted, format_bytes

__all__ = [
    "MeasuredTask",
    "MemoryRecord",
    "RungSizes",
    "TaskRung",
    "WorkerTask",
    "exhausted_error",
    "find_culprits",
    "last_record",
    "rung_of_resource",
    "rung_resource",
]

_RESOURCE_PREFIX = "headroom-rung-"
#: A size that is larger by less than this factor is not worth an attempt.
MIN_GROWTH = 1.1
#: A task that uses less than this share of the limit did not fill a worker that was full before.
SMALL_SHARE = 0.1
#: A worker that uses this share of its limit without its tasks is full of stored data.
FULL_SHARE = 0.7
#: Inputs of a task above this share of the limit explain a kill during their transfer.
LARGE_INPUT_SHARE = 0.25


def rung_resource(rung: int) -> str:
    """The Dask resource of workers of a rung.

    >>> rung_resource(2), rung_of_resource("headroom-rung-2"), rung_of_resource("GPU")
    ('headroom-rung-2', 2, None)
    """
    return f"{_RESOURCE_PREFIX}{rung}"


def rung_of_resource(name: str) -> Optional[int]:
    """The rung of a Dask resource; ``None`` for other resources."""
    number = name[len(_RESOURCE_PREFIX) :]
    return int(number) if name.startswith(_RESOURCE_PREFIX) and number.isdigit() else None


@dataclass(frozen=True)
class RungSizes:
    """Memory of workers by rung: each rung has twice the memory of the one before.

    >>> sizes = RungSizes(first=1 << 30, cap=5 << 30)
    >>> [sizes.of(rung) >> 20 for rung in (1, 2, 3, 4)], sizes.last
    ([1024, 2048, 4096, 5120], 4)
    """

    #: Memory of rung 1, the size of ordinary workers. Bytes.
    first: int
    #: The largest size. Bytes.
    cap: int

    def of(self, rung: int) -> int:
        """Memory of a worker of this rung. Bytes."""
        return max(self.first, min(self.cap, self.first << (rung - 1)))

    @property
    def last(self) -> int:
        """The highest rung: the next one would be less than a tenth larger."""
        rung = 1
        while self.of(rung + 1) >= MIN_GROWTH * self.of(rung):
            rung += 1
        return rung


@dataclass(frozen=True)
class MeasuredTask:
    """A running task in a record of measurements."""

    #: ``task_digest`` of its key.
    digest: str
    #: Measured use. Bytes.
    used: int


@dataclass(frozen=True)
class MemoryRecord:
    """The last measurements of a worker before its end."""

    #: Use of the worker and of child processes of its tasks. Bytes.
    used: int
    #: The running tasks, the largest first.
    tasks: Tuple[MeasuredTask, ...]


def last_record(text: str) -> Optional[MemoryRecord]:
    """The last complete record in the output of a worker."""
    for line in reversed(text.splitlines()):
        start = line.find(RECORD_PREFIX)
        if start < 0:
            continue
        try:
            content: Dict[str, Any] = json.loads(line[start + len(RECORD_PREFIX) :])
            return MemoryRecord(
                used=int(content["used"]),
                tasks=tuple(MeasuredTask(str(row[0]), int(row[2])) for row in content["tasks"]),
            )
        except (ValueError, KeyError, IndexError, TypeError):
            # The end of the line is missing, or another program printed it.
            continue
    return None


@dataclass(frozen=True)
class WorkerTask:
    """A task that the scheduler had assigned to a worker which ended."""

    #: Its key.
    key: Any
    #: ``task_digest`` of its key.
    digest: str
    #: True if the last heartbeat of the worker listed it as running.
    is_running: bool
    #: Size of its inputs. Bytes.
    input_bytes: int
    #: Kills in which it ran beside the task that was found to be the cause.
    collateral: int = 0


@dataclass(frozen=True)
class Culprit:
    """A task that needs more memory."""

    #: Its key.
    key: Any
    #: Its measured use; ``None`` if it was not measured. Bytes.
    used: Optional[int]
    #: The reason for the choice.
    why: str


def find_culprits(
    tasks: Sequence[WorkerTask],
    record: Optional[MemoryRecord],
    limit: int,
    nthreads: int,
    allowed_failures: int,
) -> List[Culprit]:
    """The tasks that need a larger worker, of those that the scheduler had assigned in order of
    their priority.

    Empty if no task is the cause, such as for a worker that is full of stored results.
    """
    uses = {task.digest: task.used for task in record.tasks} if record else {}
    running = [task for task in tasks if task.digest in uses]
    if running and record is not None:
        found = _largest_users(running, uses, record.used, limit, nthreads)
    else:
        found = _without_record(tasks, limit, nthreads)
    blamed = {culprit.key for culprit in found}
    for task in running or tasks[:nthreads]:
        if task.key not in blamed and task.collateral >= allowed_failures:
            why = f"it ran in {task.collateral + 1} workers that were killed"
            found.append(Culprit(task.key, uses.get(task.digest), why))
    return found


def _largest_users(
    running: Sequence[WorkerTask],
    uses: Dict[str, int],
    total: int,
    limit: int,
    nthreads: int,
) -> List[Culprit]:
    base = max(0, total - sum(uses.values()))
    largest = max(uses[task.digest] for task in running)
    if base > FULL_SHARE * limit and largest < SMALL_SHARE * limit:
        return []
    share = max(0, limit - base) / max(1, nthreads)
    above = [
        task for task in running if uses[task.digest] > share and uses[task.digest] >= largest / 2
    ]
    chosen = above or [task for task in running if uses[task.digest] == largest][:1]
    return [
        Culprit(task.key, uses[task.digest], f"it used {format_bytes(uses[task.digest])}")
        for task in chosen
    ]


def _without_record(tasks: Sequence[WorkerTask], limit: int, nthreads: int) -> List[Culprit]:
    running = [task for task in tasks if task.is_running]
    if not running and len(tasks) == 1:
        running = list(tasks)
    if len(running) == 1 and nthreads == 1:
        return [Culprit(running[0].key, None, "it was the only running task")]
    largest = max(tasks, key=lambda task: task.input_bytes, default=None)
    if largest is not None and largest.input_bytes > LARGE_INPUT_SHARE * limit:
        size = format_bytes(largest.input_bytes)
        return [Culprit(largest.key, None, f"its inputs have {size}")]
    # With one thread, the task with the highest priority runs first.
    if nthreads == 1 and tasks:
        return [Culprit(tasks[0].key, None, "it was the first task of the worker")]
    return []


@dataclass
class TaskRung:
    """The size of one task, and its attempts that were killed."""

    #: Its present rung.
    rung: int = 1
    #: Kills in which it was the cause.
    attempts: List[AttemptReport] = field(default_factory=list)
    #: Kills in which it ran beside the cause, since it last rose.
    collateral: int = 0
    #: Resource restrictions that the user gave.
    restrictions: Optional[Dict[str, float]] = None

    def add_kill(self, end: ContainerEnd, size: int, culprit: Culprit) -> None:
        """Records a kill in which the task was the cause."""
        evidence = [f"{end.enforcer or 'node'}: the container {end.container} reached its limit"]
        evidence.append(culprit.why)
        if end.cause:
            evidence.append(end.cause)
        self.collateral = 0
        self.attempts.append(
            AttemptReport(
                number=len(self.attempts) + 1,
                size=size,
                peak=culprit.used if culprit.used is not None else end.peak,
                verdict=end.reason,
                dimension="native",
                signal=end.signal,
                node=end.node,
                evidence=tuple(evidence),
            )
        )


def exhausted_error(
    key: Any, state: TaskRung, end: ContainerEnd, cap: int, cap_source: str
) -> MemoryExhausted:
    """The exception of a task that was killed at the largest size."""
    sizes = [format_bytes(attempt.size) for attempt in state.attempts]
    listed = sizes[0] if len(sizes) == 1 else ", ".join(sizes[:-1]) + " and " + sizes[-1]
    fix = f"raise {cap_source}, or split the input of the task"
    if cap_source != "max_memory":
        fix = f"split the input of the task, or {cap_source}"
    sentence = (
        f"the task {str(key)[:200]} was killed at {listed} of memory ({end.reason} on {end.node}); "
        f"{format_bytes(cap)} is the largest size that it may get; {fix}"
    )
    return MemoryExhausted(
        sentence,
        attempts=tuple(state.attempts),
        verdict=end.reason,
        dimension="native",
        cap=cap,
        fix=fix,
        task=str(key),
        log_tail=end.log_tail,
    )
