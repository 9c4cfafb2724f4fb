"""The program of a container with a Dask worker.

The cluster copies this file into the container. It needs only the standard library and
``distributed`` on the node::

    python headroom_dask_worker.py worker.json

Before the worker starts, the process forks. The child measures the memory of each task and writes
it to standard error while the worker is near its limit. The node reports the end of standard error
together with the end of the container, so the record survives a kill of the worker.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import sys
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

#: Field in which a worker reports its container to the scheduler.
CONTAINER_FIELD = "headroom_container"
#: Begin of a line with measurements.
RECORD_PREFIX = "headroom-memory: "
#: Time between two measurements. Seconds.
SAMPLE_INTERVAL = 0.01
#: Time between two measurements while no task runs. Seconds.
IDLE_INTERVAL = 0.04
#: Share of the limit above which measurements are written.
RECORD_ABOVE = 0.5
#: Share of the limit above which a change of the running tasks alone is written.
RECORD_TASKS_ABOVE = 0.75
#: Change of a measured use that is written, as a share of the limit.
RECORD_CHANGE = 0.03
#: Most threads with a task.
MAX_SLOTS = 256
#: Longest part of the name of a task that is kept. Bytes.
MAX_NAME_BYTES = 80

_SLOT = struct.Struct("<IIQ8s80s")
_PAGE = mmap.PAGESIZE


def task_digest(key: object) -> str:
    """A short name of a task key, the same in every process."""
    return hashlib.blake2b(repr(key).encode("utf-8", "replace"), digest_size=8).hexdigest()


class RunningTask(NamedTuple):
    """A task that a thread of the worker runs."""

    #: Thread id of the kernel.
    thread: int
    #: Number of the task within its thread.
    serial: int
    #: :func:`task_digest` of its key.
    digest: str
    #: Its key, shortened.
    name: str


class TaskBoard:
    """The running tasks of a worker, in memory shared with the measuring process."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, MAX_SLOTS * _SLOT.size)
        self._slots: Dict[int, int] = {}
        self._serials: Dict[int, int] = {}

    def begin(self, thread: int, key: object) -> None:
        """Records that the calling thread starts a task."""
        slot = self._slots.setdefault(thread, len(self._slots))
        if slot >= MAX_SLOTS:
            return
        serial = self._serials[thread] = self._serials.get(thread, 0) + 1
        name = str(key).encode("utf-8", "replace")[:MAX_NAME_BYTES]
        entry = _SLOT.pack(thread, serial, 1, bytes.fromhex(task_digest(key)), name)
        self._memory[slot * _SLOT.size : (slot + 1) * _SLOT.size] = entry

    def end(self, thread: int) -> None:
        """Records that the calling thread ended its task."""
        slot = self._slots.get(thread, MAX_SLOTS)
        if slot < MAX_SLOTS:
            offset = slot * _SLOT.size + 8
            self._memory[offset : offset + 8] = b"\0" * 8

    def running(self) -> Iterator[RunningTask]:
        """The running tasks."""
        for slot in range(MAX_SLOTS):
            entry = self._memory[slot * _SLOT.size : (slot + 1) * _SLOT.size]
            thread, serial, is_running, digest, name = _SLOT.unpack(entry)
            if thread == 0:
                return
            if is_running:
                text = name.rstrip(b"\0").decode("utf-8", "replace")
                yield RunningTask(thread, serial, digest.hex(), text)


class ThreadBoard(Dict[int, Any]):
    """The ``active_threads`` of a worker, which also records each task on a board.

    The worker sets and deletes items in the thread of the task.
    """

    def __init__(self, board: TaskBoard) -> None:
        super().__init__()
        self._board = board

    def __setitem__(self, ident: int, key: Any) -> None:
        super().__setitem__(ident, key)
        self._board.begin(_native_id(), key)

    def __delitem__(self, ident: int) -> None:
        super().__delitem__(ident)
        self._board.end(_native_id())


def _native_id() -> int:
    import threading  # not before the fork

    return threading.get_native_id()


class TaskUse:
    """The memory that one task was measured to use. Bytes."""

    def __init__(self, serial: int, name: str) -> None:
        self.serial = serial
        self.name = name
        self.used = 0.0
        self.children = 0


class UseMeter:
    """Attributes the growth of a process to its tasks.

    The kernel counts the page faults of each thread. The growth of the process between two
    samples is divided among the running tasks in proportion to the faults of their threads;
    faults of other threads count for no task, unless only one task runs. Child processes belong
    to the task whose thread started them.
    """

    def __init__(self) -> None:
        self._uses: Dict[int, TaskUse] = {}
        self._faults: Dict[int, int] = {}
        self._all_faults = 0
        self._resident: Optional[int] = None
        #: Use of the process and of child processes of tasks. Bytes.
        self.total = 0

    def update(
        self,
        tasks: List[RunningTask],
        resident: int,
        all_faults: int,
        faults: Dict[int, int],
        children: Dict[int, int],
    ) -> None:
        """Takes one sample. ``faults`` and ``children`` are by thread."""
        for thread in set(self._uses) - {task.thread for task in tasks}:
            del self._uses[thread]
        for task in tasks:
            use = self._uses.get(task.thread)
            if use is None or use.serial != task.serial:
                self._uses[task.thread] = TaskUse(task.serial, task.name)
            self._uses[task.thread].children = children.get(task.thread, 0)
        growth = 0 if self._resident is None else resident - self._resident
        # A thread that is new runs its first task: all its faults belong to it.
        new = {
            thread: max(0, faults[thread] - self._faults.get(thread, 0))
            for thread in self._uses
            if thread in faults
        }
        if growth > 0:
            other = max(0, all_faults - self._all_faults - sum(new.values()))
            shared = sum(new.values()) + (other if len(self._uses) > 1 else 0)
            for thread, use in self._uses.items():
                if len(self._uses) == 1:
                    use.used += growth
                elif shared:
                    use.used += growth * new.get(thread, 0) / shared
        elif growth < 0:
            used = sum(use.used for use in self._uses.values())
            left = max(0.0, 1 + growth / used) if used else 0.0
            for use in self._uses.values():
                use.used *= left
        self._faults.update(faults)
        self._all_faults = all_faults
        self._resident = resident
        self.total = resident + sum(children.values())

    def uses(self) -> Dict[int, int]:
        """Measured use of the running tasks by thread. Bytes."""
        return {thread: int(use.used) + use.children for thread, use in self._uses.items()}


class RecordWriter:
    """Decides which measurements are written. Pure."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._last: Tuple[int, Dict[str, int]] = (0, {})

    def record(self, total: int, tasks: List[RunningTask], uses: Dict[int, int]) -> Optional[str]:
        """The line to write for this sample, if it differs enough from the last one."""
        share = total / self._limit
        if share < RECORD_ABOVE or not tasks:
            return None
        now = {task.digest: uses.get(task.thread, 0) for task in tasks}
        before_total, before = self._last
        has_grown = abs(total - before_total) >= RECORD_CHANGE * self._limit
        has_other_tasks = share >= RECORD_TASKS_ABOVE and now.keys() != before.keys()
        if not has_grown and not has_other_tasks:
            return None
        self._last = (total, now)
        # Largest first: a shortened line keeps the tasks that matter.
        rows = sorted(tasks, key=lambda task: -uses.get(task.thread, 0))[:16]
        content = {
            "used": total,
            "limit": self._limit,
            "running": len(tasks),
            "tasks": [[task.digest, task.name, uses.get(task.thread, 0)] for task in rows],
        }
        return RECORD_PREFIX + json.dumps(content, separators=(",", ":"))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _faults_of(path: str) -> int:
    # Field 10 is minflt; the second field may contain spaces and brackets.
    return int(_read(path).rsplit(b")", 1)[1].split()[7])


def _resident_of(pid: int) -> int:
    return int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE


def _children_of(pid: int, thread: int, left: int = 64) -> int:
    """Resident memory of the processes that a thread started, and of theirs. Bytes."""
    try:
        pids = [int(word) for word in _read(f"/proc/{pid}/task/{thread}/children").split()]
    except OSError:
        return 0
    total = 0
    for child in pids[:left]:
        try:
            total += _resident_of(child) + _children_of(child, child, left // 2)
        except (OSError, IndexError, ValueError):
            continue
    return total


def _faults_by_thread(pid: int, tasks: List[RunningTask]) -> Dict[int, int]:
    """Page faults of the threads with a task. A thread that ended is left out."""
    found = {}
    for task in tasks:
        try:
            found[task.thread] = _faults_of(f"/proc/{pid}/task/{task.thread}/stat")
        except OSError:
            continue
    return found


def measure(board: TaskBoard, pid: int, limit: int) -> None:
    """Measures process ``pid`` until it ends."""
    meter = UseMeter()
    writer = RecordWriter(limit)
    tasks: List[RunningTask] = []
    while os.getppid() == pid:
        time.sleep(SAMPLE_INTERVAL if tasks else IDLE_INTERVAL)
        tasks = list(board.running())
        try:
            if not tasks:
                meter.update([], _resident_of(pid), _faults_of(f"/proc/{pid}/stat"), {}, {})
                continue
            faults = _faults_by_thread(pid, tasks)
            tasks = [task for task in tasks if task.thread in faults]
            children = {task.thread: _children_of(pid, task.thread) for task in tasks}
            resident = _resident_of(pid)
            meter.update(tasks, resident, _faults_of(f"/proc/{pid}/stat"), faults, children)
        except (OSError, IndexError, ValueError):
            continue
        line = writer.record(meter.total, tasks, meter.uses())
        if line is not None:
            os.write(2, line.encode("utf-8") + b"\n")


def start_measuring(limit: int) -> TaskBoard:
    """Forks the measuring process. Must be called before any thread starts."""
    board = TaskBoard()
    pid = os.getpid()
    if limit > 0 and os.fork() == 0:
        try:
            measure(board, pid, limit)
        finally:
            os._exit(0)
    return board


async def _container_id(worker: Any) -> str:
    """The container of this worker, for the scheduler."""
    return os.environ.get("HEADROOM_CONTAINER", "")


async def run_worker(options: Dict[str, Any], limit: int, board: TaskBoard) -> None:
    """Runs a worker until the scheduler or a signal ends it."""
    import asyncio  # not before the fork
    import signal

    from distributed import Worker

    keywords: Dict[str, Any] = {
        "nthreads": options["nthreads"],
        "name": options["name"],
        "memory_limit": limit or None,
        "resources": options["resources"],
        "local_directory": os.getcwd(),
        "death_timeout": 60,
    }
    keywords.update(options["worker_options"])
    worker = Worker(options["scheduler"], **keywords)
    worker.active_threads = ThreadBoard(board)
    worker.startup_information[CONTAINER_FIELD] = _container_id
    loop = asyncio.get_running_loop()
    endings = set()

    def close(name: str) -> None:
        endings.add(loop.create_task(worker.close(reason=f"signal-{name}")))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, close, signal.Signals(number).name)
    await worker
    await worker.finished()


def main() -> None:
    """Runs the worker that the file named by the first argument describes."""
    with open(sys.argv[1], encoding="utf-8") as file:
        options: Dict[str, Any] = json.load(file)
    limit = int(os.environ.get("HEADROOM_MEMORY_BYTES", "0"))
    board = start_measuring(limit)

    import asyncio  # not before the fork
    import logging

    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(run_worker(options, limit, board))


if __name__ == "__main__":
    main()
