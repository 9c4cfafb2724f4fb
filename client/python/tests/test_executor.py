"""The executor against the fake cluster: results, errors, memory, cancellation, faults."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import resource
import signal
import time

import pytest
from fake_cluster import MIB, problem, wait_until

import headroom
from headroom import errors


def square(n):
    return n * n


def need(mib, value=None):
    """Is killed below ``mib`` MiB."""
    if int(os.environ["HEADROOM_MEMORY_BYTES"]) < mib * MIB:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def touch_and_wait(path):
    with open(path, "w"):
        pass
    time.sleep(60)


class CustomError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one}-{two}")
        self.one = one


class Point:
    def __init__(self, x):
        self.x = x


def test_a_call_returns_its_value(executor):
    future = executor.submit(square, 7)
    assert future.result(60) == 49
    assert future.verdict == "succeeded"
    assert [a.size for a in future.attempts] == [64 * MIB]
    assert future.peak == 10 * MIB
    assert "square(7)" in future.explain()
    assert future.task.startswith(executor.app + "/square/")


def test_lambdas_closures_keywords_and_local_classes(executor):
    factor = 3
    assert executor.submit(lambda n, *, plus: n * factor + plus, 4, plus=1).result(60) == 13
    point = executor.submit(lambda p: Point(p.x + 1), Point(1)).result(60)
    assert type(point) is Point and point.x == 2


def test_a_killed_call_runs_again_with_more(executor):
    futures = [executor.submit(need, 200 if i == 3 else 10, i) for i in range(6)]
    assert [f.result(60) for f in futures] == list(range(6))
    assert [a.size // MIB for a in futures[3].attempts] == [64, 128, 256]
    assert [a.verdict for a in futures[3].attempts] == ["task_oom", "task_oom", "succeeded"]
    assert all(len(f.attempts) == 1 for i, f in enumerate(futures) if i != 3)


def test_a_call_above_the_cap_raises_memory_exhausted(fake):
    with headroom.Executor(memory="64MiB", cap="128MiB", addr=fake.address, warm=False) as ex:
        with pytest.raises(MemoryError) as caught:
            ex.submit(need, 1000).result(60)
    error = caught.value
    assert isinstance(error, errors.MemoryExhausted)
    assert error.sizes == [64 * MIB, 128 * MIB]
    assert error.verdict == "task_oom" and error.cap == 128 * MIB
    assert "need(1000)" in str(error) and "64 and 128 MiB" in str(error) and "cap=" in str(error)


def raise_memory_error(mib):
    if int(os.environ["HEADROOM_MEMORY_BYTES"]) < mib * MIB:
        raise MemoryError("no room")
    return "fits"


def test_a_memory_error_climbs_too(executor, fake):
    future = executor.submit(raise_memory_error, 100)
    assert future.result(60) == "fits"
    assert [a.verdict for a in future.attempts] == ["heap_oom", "succeeded"]
    with pytest.raises(errors.MemoryExhausted) as caught:
        executor.submit(raise_memory_error, 5000).result(60)
    assert "no room" in str(caught.value.__cause__)


def test_an_exception_comes_back_with_its_traceback(executor):
    with pytest.raises(ZeroDivisionError) as caught:
        executor.submit(lambda: 1 // 0).result(60)
    assert "1 // 0" in str(caught.value.__cause__) or "lambda" in str(caught.value.__cause__)
    with pytest.raises(CustomError) as caught:
        executor.submit(fail_custom).result(60)
    assert str(caught.value) == "a-b"


def fail_custom():
    raise CustomError("a", "b")


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("x")
        self.lock = __import__("threading").Lock()


def fail_unpicklable():
    raise Unpicklable


def test_what_cannot_be_pickled_is_an_error_of_the_call(executor):
    with pytest.raises(Unpicklable) as caught:
        executor.submit(fail_unpicklable).result(60)
    assert "x" in str(caught.value) and not hasattr(caught.value, "lock")
    with pytest.raises(Exception, match="cannot be sent back"):
        executor.submit(lambda: __import__("threading").Lock()).result(60)
    with pytest.raises(TypeError, match="lock"):
        executor.submit(square, __import__("threading").Lock()).result(60)


def test_a_missing_module_is_named(executor, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def f():\n    return 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    assert executor.submit(only_here.f).result(60) == 5, "modules beside the script go by value"

    def missing():
        import no_such_module_at_all  # noqa: F401

    with pytest.raises(ModuleNotFoundError):
        executor.submit(missing).result(60)


def test_exit_signal_and_timeout(executor):
    with pytest.raises(errors.TaskFailed, match="exit code 7") as caught:
        executor.submit(os._exit, 7).result(60)
    assert caught.value.exit_code == 7
    with pytest.raises(errors.TaskFailed, match="signal 11") as caught:
        executor.submit(lambda: os.kill(os.getpid(), signal.SIGSEGV)).result(60)
    assert caught.value.signal == 11
    with pytest.raises(errors.TaskFailed, match="without a result"):
        executor.submit(os._exit, 0).result(60)
    with pytest.raises(TimeoutError):
        executor.with_(timeout=0.3).submit(time.sleep, 30).result(60)


def test_large_arguments_and_results_go_through_the_store(executor, tmp_path):
    data = os.urandom(3 * MIB)
    assert executor.submit(lambda b: b[::-1], data).result(60) == data[::-1]
    big = os.urandom(100_000)
    assert executor.submit(lambda: len(big)).result(60) == 100_000
    store = executor._job._store.path
    wait_until(lambda: not [n for n in os.listdir(store) if "arguments" in n or "value" in n])


def test_without_a_store_large_data_is_refused_with_the_remedy(fake):
    with headroom.Executor(addr=fake.address, warm=False, store=False) as ex:
        with pytest.raises(errors.SettingsError, match="store="):
            ex.submit(len, b"x" * 100_000).result(60)
        with pytest.raises(errors.TaskFailed, match="store="):
            ex.submit(lambda: b"x" * 100_000).result(60)


def test_map_in_order_and_as_completed(executor):
    assert list(executor.map(square, range(5), chunksize=1)) == [0, 1, 4, 9, 16]
    assert list(executor.map(pow, [2, 3], [3, 2], chunksize=2)) == [8, 9]
    assert sorted(executor.map(square, range(5), chunksize=2, ordered=False)) == [0, 1, 4, 9, 16]
    assert list(executor.map(square, range(120))) == [n * n for n in range(120)]


def test_a_map_that_is_not_read_runs_to_its_end(fake, tmp_path):
    log = tmp_path / "log"

    def work(n):
        with open(log, "a") as file:
            file.write(f"{n}\n")

    with headroom.Executor(addr=fake.address, warm=False) as ex:
        ex.map(work, range(40))
    assert sorted(map(int, log.read_text().split())) == list(range(40))
    with headroom.Executor(addr=fake.address, warm=False) as ex:
        results = ex.map(time.sleep, [0.01] * 40)
        futures = list(results._left)
        ex.shutdown(cancel_futures=True)
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) > 5


def test_only_the_call_that_a_chunk_was_in_climbs(executor, fake, tmp_path):
    log = tmp_path / "log"

    def work(n):
        with open(log, "a") as file:
            file.write(f"{n} {int(os.environ['HEADROOM_MEMORY_BYTES']) // MIB}\n")
        return need(300 if n == 4 else 1, n * 10)

    assert list(executor.map(work, range(10), chunksize=10)) == [n * 10 for n in range(10)]
    lines = log.read_text().splitlines()
    sizes = {}
    for line in lines:
        n, size = map(int, line.split())
        sizes.setdefault(n, []).append(size)
    assert sizes[4] == [64, 128, 256, 512]
    assert all(sizes[n] == [64] for n in range(10) if n != 4), sizes


def test_a_chunk_whose_call_exceeds_the_cap_loses_only_that_call(fake):
    with headroom.Executor(memory="64MiB", cap="128MiB", addr=fake.address, warm=False) as ex:
        results = ex.map(lambda n: need(999 if n == 2 else 1, n), range(6), chunksize=6)
        futures = list(reversed(results._left))
        assert [f.result(60) for i, f in enumerate(futures) if i != 2] == [0, 1, 3, 4, 5]
        assert isinstance(futures[2].exception(60), errors.MemoryExhausted)


def test_a_crash_in_a_chunk_is_charged_to_its_call(executor):
    def crash(n):
        if n == 1:
            os._exit(9)
        return n

    results = executor.map(crash, range(4), chunksize=4)
    futures = list(reversed(results._left))
    assert [f.result(60) for i, f in enumerate(futures) if i != 1] == [0, 2, 3]
    assert futures[1].exception(60).exit_code == 9


def test_cancel_waiting_and_running(executor, tmp_path):
    path = tmp_path / "runs"
    running = [executor.submit(touch_and_wait, f"{path}{i}") for i in range(2)]
    waiting = [executor.submit(square, i) for i in range(3)]
    wait_until(lambda: all(os.path.exists(f"{path}{i}") for i in range(2)))
    wait_until(lambda: all(f.running() for f in running))
    assert waiting[0].cancel() and waiting[0].cancelled()
    assert not running[0].cancel()
    assert running[0].cancel(running=True)
    assert running[1].cancel(running=True)
    for future in running:
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(60)
    assert [f.result(60) for f in waiting[1:]] == [1, 4]


def test_as_completed_and_wait(executor):
    futures = {executor.submit(square, n): n for n in range(5)}
    for future in concurrent.futures.as_completed(futures, timeout=20):
        assert future.result() == futures[future] ** 2
    done, left = concurrent.futures.wait(futures, timeout=5)
    assert len(done) == 5 and not left


def test_async(executor):
    async def work():
        one = await executor.submit(square, 5)
        rest = [r async for r in executor.amap(square, [1, 2, 3])]
        loop = asyncio.get_running_loop()
        return one, rest, await loop.run_in_executor(executor, square, 9)

    assert asyncio.run(work()) == (25, [1, 4, 9], 81)


def test_shutdown(fake):
    ex = headroom.Executor(addr=fake.address, warm=False)
    future = ex.submit(square, 3)
    ex.shutdown(wait=True)
    assert future.result(0) == 9
    with pytest.raises(RuntimeError, match="after shutdown"):
        ex.submit(square, 3)
    master = fake.masters[ex.app]
    assert master.over is True
    assert not os.path.exists(ex._job._store.path)


def test_shutdown_that_cancels_lets_running_calls_end(fake, tmp_path):
    path = tmp_path / "go"

    def wait_for(path):
        while not path.exists():
            time.sleep(0.01)
        return "ended"

    ex = headroom.Executor(addr=fake.address, warm=False)
    futures = [ex.submit(wait_for, path) for _ in range(10)]
    wait_until(lambda: sum(f.running() for f in futures) == 2)
    ex.shutdown(wait=False, cancel_futures=True)
    path.touch()
    ex.shutdown(wait=True)
    assert [f.result(0) for f in futures if not f.cancelled()] == ["ended", "ended"]


def test_a_killed_executor(fake):
    ex = headroom.Executor(addr=fake.address, warm=False)
    future = ex.submit(touch_and_wait, os.devnull)
    wait_until(future.running)
    ex.kill()
    with pytest.raises(errors.TaskLost, match=r"by its client|killed by a user"):
        future.result(60)
    assert fake.masters[ex.app].over is False


def test_an_exception_in_the_block_ends_the_calls(fake, tmp_path):
    path = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        with headroom.Executor(addr=fake.address, warm=False) as ex:
            running = ex.submit(touch_and_wait, str(path))
            rest = [ex.submit(touch_and_wait, str(path)) for _ in range(5)]
            wait_until(path.exists)
            raise KeyboardInterrupt
    assert running.cancelled() and all(f.cancelled() for f in rest)


def test_broken_connections_lose_nothing_and_repeat_nothing(executor, fake, tmp_path):
    log = tmp_path / "log"

    def work(n):
        with open(log, "a") as file:
            file.write(f"{n}\n")
        return n

    futures = []
    for n in range(60):
        futures.append(executor.submit(work, n))
        if n % 20 == 10:
            fake.break_connections()
    assert [f.result(60) for f in futures] == list(range(60))
    assert sorted(map(int, log.read_text().split())) == list(range(60))


def test_lines_that_break_before_every_answer(executor, fake):
    fake.break_after = 3
    futures = [executor.submit(square, n) for n in range(10)]
    time.sleep(0.5)
    fake.break_after = None
    fake.break_connections()
    assert [f.result(60) for f in futures] == [n * n for n in range(10)]


def test_a_master_without_its_journal_gets_everything_again(executor, fake):
    first = [executor.submit(square, n) for n in range(10)]
    assert [f.result(60) for f in first] == [n * n for n in range(10)]
    futures = [executor.submit(square, n) for n in range(30)]
    fake.lose_journal(executor.app)
    assert [f.result(60) for f in futures] == [n * n for n in range(30)]


def test_more_calls_than_the_credit(fake):
    fake.credit_limit = 5
    with headroom.Executor(addr=fake.address, warm=False) as ex:
        futures = [ex.submit(square, n) for n in range(23)]
        assert [f.result(60) for f in futures] == [n * n for n in range(23)]


def test_a_cluster_that_is_gone(fake):
    ex = headroom.Executor(addr=fake.address, warm=False, lost_after=0.5)
    future = ex.submit(touch_and_wait, os.devnull)
    wait_until(future.running)
    fake.down = True
    fake.break_connections()
    with pytest.raises(errors.TaskLost, match="has not answered"):
        future.result(60)
    with pytest.raises(errors.TaskLost):
        ex.submit(square, 1).result(60)
    ex.shutdown()


def test_a_killed_job(fake):
    with headroom.Executor(addr=fake.address, warm=False) as ex:
        future = ex.submit(touch_and_wait, os.devnull)
        wait_until(future.running)
        ex._rest.post(f"/v1/apps/{ex.app}/kill", {})
        with pytest.raises(errors.TaskLost, match="killed by a user"):
            future.result(60)


def test_a_refused_stage(fake):
    fake.refuse_stage = problem("HR0400", "stage.square.timeout is wrong")
    with headroom.Executor(addr=fake.address, warm=False) as ex:
        with pytest.raises(errors.RequestRefused, match="timeout is wrong"):
            ex.submit(square, 1).result(60)
        with pytest.raises(errors.RequestRefused, match="HR0400"):
            ex.submit(square, 1).result(60)


def test_nothing_answers(tmp_path, monkeypatch):
    with pytest.raises(errors.ClusterUnreachable, match="argument addr"):
        headroom.Executor(addr="http://127.0.0.1:1")


def test_the_decorator(executor, fake):
    @headroom.task(memory="256MiB", timeout="1m")
    def wide(n):
        return int(os.environ["HEADROOM_MEMORY_BYTES"]) // MIB + n

    assert executor.submit(wide, 1).result(60) == 257
    assert list(executor.map(wide, [1, 2])) == [257, 258]


def test_a_changed_function_is_sent_again(executor):
    def make(n):
        return lambda: n

    assert [executor.submit(make(n)).result(60) for n in range(4)] == [0, 1, 2, 3]
    assert len(executor._job._stages) == 1


def test_progress_on_standard_error(executor, capsys):
    assert list(executor.map(square, range(3), progress=True)) == [0, 1, 4]


def test_a_store_without_space_is_named_with_the_fix(fake, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with headroom.Executor(addr=fake.address, warm=False, store=str(tmp_path / "store")) as ex:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            with pytest.raises(OSError, match="cannot be written to the store") as caught:
                ex.submit(len, b"x" * (8 << 20)).result(60)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "store=DIRECTORY" in str(caught.value)
        assert caught.value.filename.startswith(str(tmp_path))
        assert ex.submit(square, 3).result(60) == 9
