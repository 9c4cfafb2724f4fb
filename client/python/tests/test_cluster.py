"""End to end: real manager, agent, master and executor, started by the package itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from fake_cluster import MIB, SOURCES, wait_until

import headroom
from headroom import errors

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not os.environ.get("HEADROOM_BIN_DIR"), reason="needs HEADROOM_BIN_DIR"),
]


@pytest.fixture(scope="module")
def cluster(real_cluster):
    return real_cluster


@pytest.fixture(params=[True, False], ids=["warm", "cold"])
def executor(cluster, request):
    with headroom.Executor(
        2, memory="64MiB", cap="1GiB", addr=cluster, warm=request.param, name="e2e"
    ) as made:
        yield made


def allocate(mib, value=None):
    data = bytearray(mib * MIB)
    for offset in range(0, len(data), 4096):
        data[offset] = 1
    return value


def allocate_slowly(mib, seconds):
    kept = []
    for _ in range(mib // 8):
        kept.append(b"x" * (8 * MIB))
        time.sleep(seconds * 8 / mib)
    return len(kept)


def test_values(executor):
    assert executor.submit(pow, 2, 10).result(120) == 1024
    assert list(executor.map(abs, range(-100, 0))) == list(range(100, 0, -1))


def test_a_call_that_needs_more_gets_more(executor):
    futures = [executor.submit(allocate, 300 if n == 3 else 8, n) for n in range(10)]
    assert [future.result(120) for future in futures] == list(range(10))
    last = futures[3].attempts[-1]
    assert last.size >= 300 * MIB and last.verdict == "succeeded"
    assert len(futures[3].attempts) > 1 or last.grown_from
    assert all(len(future.attempts) == 1 for n, future in enumerate(futures) if n != 3)
    assert "allocate(300, 3)" in futures[3].explain()


def test_the_cap(cluster):
    with headroom.Executor(2, memory="64MiB", cap="128MiB", addr=cluster, name="cap") as ex:
        with pytest.raises(errors.MemoryExhausted) as caught:
            ex.submit(allocate, 400).result(120)
    error = caught.value
    assert isinstance(error, MemoryError) and max(error.sizes) <= 128 * MIB
    assert "allocate(400)" in str(error) and "cap" in str(error), str(error)


def fail():
    raise KeyError("missing")


def test_an_exception(executor):
    with pytest.raises(KeyError, match="missing") as caught:
        executor.submit(fail).result(120)
    assert "in fail" in str(caught.value.__cause__)


def huge():
    import array

    return len(array.array("b", bytes(1)) * (1 << 50))


def test_a_memory_error_far_below_the_limit_is_final(executor):
    future = executor.submit(huge)
    with pytest.raises(MemoryError):
        future.result(120)
    assert len(future.attempts) <= 2


def test_a_signal_and_an_exit(executor):
    with pytest.raises(errors.TaskFailed) as caught:
        executor.submit(os._exit, 5).result(120)
    assert caught.value.exit_code == 5
    with pytest.raises(errors.TaskFailed) as caught:
        executor.submit(os.kill, os.getpid(), 0).result(120) or executor.submit(
            signal.raise_signal, signal.SIGSEGV
        ).result(120)
    assert caught.value.signal == signal.SIGSEGV


def test_a_chunk(executor):
    results = executor.map(lambda n: allocate(250 if n == 7 else 2, n), range(30), chunksize=15)
    assert list(results) == list(range(30))


def test_only_the_call_that_a_killed_chunk_was_in_climbs(cluster, tmp_path):
    log = tmp_path / "log"

    def work(n):
        with open(log, "a") as file:
            file.write(f"{n}\n")
        return allocate(150 if n == 4 else 2, n)

    with headroom.Executor(
        2, memory="64MiB", addr=cluster, grow=False, sizes="stated", name="chunk"
    ) as ex:
        assert list(ex.map(work, range(10), chunksize=10)) == list(range(10))
    runs = [int(line) for line in log.read_text().split()]
    assert runs.count(4) > 1, "it was killed"
    assert all(runs.count(n) == 1 for n in range(10) if n != 4), runs


def test_large_data(executor):
    data = os.urandom(2 * MIB)
    assert executor.submit(lambda b: b[::-1], data).result(120) == data[::-1]


def test_cancel_of_a_running_call(executor):
    future = executor.submit(time.sleep, 300)
    wait_until(future.running, 60)
    assert future.cancel(running=True)
    wait_until(future.cancelled, 30)
    assert executor.submit(pow, 2, 2).result(120) == 4


def test_imports(cluster):
    with headroom.Executor(2, memory="64MiB", addr=cluster, imports=["decimal"], name="imp") as ex:
        assert ex.submit(lambda: "decimal" in __import__("sys").modules).result(120)


def test_a_client_that_dies_leaves_nothing(cluster, tmp_path):
    script = tmp_path / "client.py"
    script.write_text(
        "import headroom, time, sys\n"
        f"ex = headroom.Executor(2, memory='64MiB', addr={cluster!r}, lease=2, name='dies')\n"
        "f = ex.submit(time.sleep, 600)\n"
        "while not f.running(): time.sleep(0.01)\n"
        "print(ex.app, flush=True)\n"
        "time.sleep(600)\n"
    )
    client = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
    )
    app = client.stdout.readline().strip()
    client.kill()
    client.wait()
    from headroom._http import RestClient

    rest = RestClient(cluster)
    wait_until(lambda: rest.get(f"/v1/apps/{app}")["state"] in ("failed", "killed"), 60)
    wait_until(lambda: rest.get(f"/v1/apps/{app}")["containers"] == 0, 60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"imports": ["no_such_module"]}, "has no module no_such_module"),
        ({"python": "/usr/bin/no-such-python"}, "no program /usr/bin/no-such-python"),
        ({"python": "/usr/bin/no-such-python", "warm": False}, "no program"),
    ],
)
def test_a_node_that_cannot_run_the_call(cluster, options, message):
    with headroom.Executor(2, memory="64MiB", addr=cluster, name="unfit", **options) as ex:
        future = ex.submit(pow, 2, 3)
        with pytest.raises(errors.FunctionUnavailable, match=message):
            future.result(120)


def processes(app, word):
    """Pids of an application's processes whose command line contains a word."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read().decode("utf-8", "replace")
        except OSError:
            continue
        if f"HEADROOM_APP={app}\0".encode() in environment and word in command:
            found.append(int(name))
    return found


@pytest.mark.parametrize("victim", ["appmaster", "executor", "fork_server"])
def test_a_killed_process_of_the_job_loses_no_call(cluster, victim):
    def work(n):
        time.sleep(0.05)
        return n

    with headroom.Executor(2, memory="64MiB", addr=cluster, name="faults") as ex:
        futures = [ex.submit(work, n) for n in range(40)]
        assert futures[10].result(120) == 10
        victims = processes(ex.app, victim)
        assert victims
        os.kill(victims[0], signal.SIGKILL)
        assert [future.result(240) for future in futures] == list(range(40))


def test_a_manager_and_an_agent_that_are_killed(tmp_path):
    from node_harness import NodeHarness

    harness = NodeHarness(tmp_path, {"py-a": "1GiB", "py-b": "1GiB"})
    try:
        harness.start()

        def work(n):
            time.sleep(0.05)
            return n

        with headroom.Executor(4, memory="64MiB", cpus=0.5, addr=harness.address) as ex:
            futures = [ex.submit(work, n) for n in range(60)]
            assert futures[5].result(120) == 5
            harness.kill("manager")
            futures += [ex.submit(work, n) for n in range(60, 70)]
            harness.start_manager()
            assert futures[30].result(120) == 30
            harness.kill("py-b")
            harness.start_node("py-b")
            assert [future.result(240) for future in futures] == list(range(70))
    finally:
        harness.stop()


def test_the_demonstration(cluster, capsys):
    from headroom.__main__ import main

    assert main(["demo", "--addr", cluster, "--calls", "8"]) == 0
    assert "equal to those of this process" in capsys.readouterr().out


def test_an_executor_starts_its_own_cluster(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADROOM_ADDR", raising=False)
    monkeypatch.setenv("HEADROOM_CONFIG", str(tmp_path / "none"))
    with headroom.Executor(2, memory="64MiB", local=True) as ex:
        assert ex.submit(pow, 3, 3).result(120) == 27
        process = ex._cluster._process
    assert process.poll() is not None


def test_tags_are_shown_while_the_task_is_listed(executor):
    tagged = executor.with_(tags={"day": "monday"}).submit(time.sleep, 6)
    plain = executor.submit(time.sleep, 6)

    def tags():
        # Until the first report of the master, there are no rows.
        job = executor._rest.get(f"/v1/apps/{executor.app}").get("job") or {}
        rows = job.get("tasks", [])
        return sorted(str(row.get("tags")) for row in rows)

    wait_until(lambda: tags() == ["None", "{'day': 'monday'}"])
    assert tagged.result(120) is plain.result(120) is None
    with pytest.raises(errors.SettingsError, match="at most 16"):
        executor.with_(tags={str(number): "" for number in range(17)})
