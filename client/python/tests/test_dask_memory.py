"""Which tasks rise after a memory failure, and the measurements of a worker. No cluster."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest

from headroom import _dask_worker as worker
from headroom._container_session import ContainerEnd
from headroom._dask_memory import (
    Culprit,
    MeasuredTask,
    MemoryRecord,
    RungSizes,
    TaskRung,
    WorkerTask,
    exhausted_error,
    find_culprits,
    last_record,
)

MIB = 1 << 20


def task(key: str, **fields: object) -> WorkerTask:
    values: dict = {"is_running": False, "input_bytes": 0}
    values.update(fields)
    return WorkerTask(key=key, digest=worker.task_digest(key), **values)


def record(used: int, **uses: int) -> MemoryRecord:
    rows = sorted(uses.items(), key=lambda pair: -pair[1])
    tasks = tuple(MeasuredTask(worker.task_digest(key), size * MIB) for key, size in rows)
    return MemoryRecord(used=used * MIB, tasks=tasks)


def culprits(tasks: list, found: MemoryRecord | None, nthreads: int = 4) -> list:
    return [c.key for c in find_culprits(tasks, found, 1000 * MIB, nthreads, 3)]


def test_the_largest_user_of_several_threads_is_the_cause() -> None:
    tasks = [task(name) for name in "abcd"]
    assert culprits(tasks, record(980, a=40, b=700, c=40, d=50)) == ["b"]


def test_every_task_above_its_share_is_a_cause() -> None:
    tasks = [task(name) for name in "abcd"]
    assert culprits(tasks, record(990, a=400, b=20, c=420, d=30)) == ["a", "c"]


def test_without_a_task_above_its_share_the_largest_is_the_cause() -> None:
    tasks = [task(name) for name in "abcd"]
    assert culprits(tasks, record(960, a=150, b=160, c=140, d=150)) == ["b"]


def test_small_tasks_of_a_worker_full_of_results_are_no_cause() -> None:
    assert culprits([task("a"), task("b")], record(990, a=20, b=10)) == []


def test_a_task_that_ran_in_many_killed_workers_is_a_cause_in_the_end() -> None:
    tasks = [task("a", collateral=3), task("b")]
    assert culprits(tasks, record(990, a=20, b=800)) == ["b", "a"]


def test_without_measurements_the_only_running_task_is_the_cause() -> None:
    tasks = [task("first"), task("second", is_running=True)]
    assert culprits(tasks, None, nthreads=1) == ["second"]


def test_without_measurements_large_inputs_are_the_cause() -> None:
    tasks = [task("a", is_running=True), task("b", is_running=True), task("c", input_bytes=1 << 29)]
    assert culprits(tasks, None) == ["c"]


def test_without_any_hint_no_task_of_several_threads_is_the_cause() -> None:
    assert culprits([task("a"), task("b")], None) == []
    assert culprits([], None, nthreads=1) == []


def test_the_last_complete_record_counts() -> None:
    line = worker.RECORD_PREFIX + '{"used":10,"tasks":[["00",%s,7]]}'
    text = "\n".join(["noise", line % '"x"', line % '"y"', worker.RECORD_PREFIX + '{"used":1'])
    assert last_record(text) == MemoryRecord(10, (MeasuredTask("00", 7),))
    assert last_record("nothing here") is None


@pytest.mark.parametrize(
    ("first", "cap", "sizes"),
    [
        (100, 100, [100]),
        (100, 105, [100]),
        (100, 500, [100, 200, 400, 500]),
        (100, 800, [100, 200, 400, 800]),
    ],
)
def test_rungs_double_up_to_the_cap(first: int, cap: int, sizes: list) -> None:
    rungs = RungSizes(first * MIB, cap * MIB)
    assert [rungs.of(rung) // MIB for rung in range(1, rungs.last + 1)] == sizes


def test_the_exception_names_all_sizes_and_the_fix() -> None:
    end = ContainerEnd("app.1.e1.c1", "n1", "overhead_oom", limit=200 * MIB, enforcer="cgroup1")
    state = TaskRung()
    for size in (100 * MIB, 200 * MIB):
        state.add_kill(end, size, Culprit("load-1", size, "it used much"))
    error = exhausted_error("load-1", state, end, 200 * MIB, "max_memory")
    assert "100 MiB and 200 MiB" in str(error)
    assert "raise max_memory" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert again.sizes == [100 * MIB, 200 * MIB]
    assert isinstance(again, MemoryError)


def running(*rows: tuple) -> list:
    return [worker.RunningTask(thread, 1, str(thread) * 16, name) for thread, name in rows]


def test_growth_is_divided_by_the_faults_of_the_threads() -> None:
    meter = worker.UseMeter()
    tasks = running((1, "a"), (2, "b"))
    meter.update(tasks, 100 * MIB, 1000, {1: 100, 2: 100}, {})
    meter.update(tasks, 200 * MIB, 2000, {1: 1000, 2: 200}, {})
    assert meter.uses() == {1: 90 * MIB, 2: 10 * MIB}


def test_the_growth_by_other_threads_counts_for_the_only_task() -> None:
    meter = worker.UseMeter()
    meter.update(running((1, "a")), 100 * MIB, 1000, {1: 100}, {})
    meter.update(running((1, "a")), 200 * MIB, 9000, {1: 110}, {})
    assert meter.uses() == {1: 100 * MIB}


def test_memory_that_a_task_freed_is_not_counted() -> None:
    meter = worker.UseMeter()
    meter.update(running((1, "a")), 100 * MIB, 0, {1: 0}, {})
    meter.update(running((1, "a")), 300 * MIB, 9, {1: 9}, {})
    meter.update(running((1, "a")), 150 * MIB, 9, {1: 9}, {})
    assert meter.uses() == {1: 50 * MIB}


def test_child_processes_belong_to_the_task_that_started_them() -> None:
    meter = worker.UseMeter()
    tasks = running((1, "a"), (2, "b"))
    meter.update(tasks, 100 * MIB, 0, {1: 0, 2: 0}, {2: 50 * MIB})
    assert meter.uses() == {1: 0, 2: 50 * MIB}
    assert meter.total == 150 * MIB


def test_records_are_written_near_the_limit_only_and_when_they_change() -> None:
    writer = worker.RecordWriter(1000 * MIB)
    tasks = running((1, "a"))
    assert writer.record(400 * MIB, tasks, {1: 300 * MIB}) is None
    assert writer.record(600 * MIB, tasks, {1: 500 * MIB}) is not None
    assert writer.record(610 * MIB, tasks, {1: 510 * MIB}) is None
    line = writer.record(800 * MIB, tasks, {1: 700 * MIB})
    assert line is not None
    found = last_record(line)
    assert found is not None
    assert found.tasks == (MeasuredTask("1" * 16, 700 * MIB),)


def test_the_board_shows_running_tasks_to_the_measuring_process() -> None:
    board = worker.TaskBoard()
    threads = worker.ThreadBoard(board)
    ident = threading.get_ident()
    threads[ident] = ("sum-" + "x" * 200, 3)
    (seen,) = board.running()
    assert seen.thread == threading.get_native_id()
    assert seen.digest == worker.task_digest(("sum-" + "x" * 200, 3))
    assert len(seen.name) <= worker.MAX_NAME_BYTES
    del threads[ident]
    assert list(board.running()) == []
    assert dict(threads) == {}


PROGRAM = """
import sys, threading, time
sys.path.insert(0, {path!r})
from headroom import _dask_worker as worker
board = worker.start_measuring({limit})
threads = worker.ThreadBoard(board)
kept = []

def run(key, size):
    threads[threading.get_ident()] = key
    for _ in range(size):
        kept.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.004)

workers = [threading.Thread(target=run, args=pair) for pair in (("small", 5), ("large", 120))]
[thread.start() for thread in workers]
[thread.join() for thread in workers]
"""


def test_two_threads_of_a_real_process_are_told_apart() -> None:
    path = os.path.dirname(os.path.dirname(worker.__file__))
    program = PROGRAM.format(path=path, limit=160 * MIB)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    found = last_record(ended.stderr)
    assert found is not None
    uses = {task.digest: task.used for task in found.tasks}
    assert uses[worker.task_digest("large")] > 90 * MIB
    assert uses.get(worker.task_digest("small"), 0) < 20 * MIB


def test_the_measuring_process_ends_with_its_parent() -> None:
    path = os.path.dirname(os.path.dirname(worker.__file__))
    program = (
        f"import sys, os; sys.path.insert(0, {path!r})\n"
        "from headroom import _dask_worker as worker\n"
        "worker.start_measuring(1 << 30)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    child.wait(timeout=30)
    assert isinstance(child.stderr, io.BufferedReader)
    begin = time.monotonic()
    # The pipe closes when the last process that holds it has ended.
    assert child.stderr.read() == b""
    assert time.monotonic() - begin < 10
