"""Dask on a real cluster of two nodes.

Needs ``HEADROOM_BIN_DIR`` with the programs of the cluster. ``HEADROOM_DASK_REPORT`` names a file
that receives the measured figures.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

distributed = pytest.importorskip("distributed")

from distributed import Client, KilledWorker, LocalCluster  # noqa: E402
from node_harness import NodeHarness, wait_until  # noqa: E402

from headroom.dask import HeadroomCluster  # noqa: E402
from headroom.errors import HeadroomError, MemoryExhausted, SettingsError  # noqa: E402

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("HEADROOM_BIN_DIR" not in os.environ, reason="needs HEADROOM_BIN_DIR"),
]

MIB = 1 << 20
SOURCES = str(Path(__file__).resolve().parent.parent / "src")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeHarness]:
    """Two nodes of 4 GiB, on which applications end 5 s after their master."""
    names = {f"dask-{os.getpid()}-{letter}": "4GiB" for letter in "ab"}
    harness = NodeHarness(tmp_path_factory.mktemp("nodes"), names, master_silence="5s")
    try:
        yield harness.start()
    finally:
        harness.stop()


def make_cluster(nodes: NodeHarness, workers: int = 2, **options: Any) -> HeadroomCluster:
    values: dict = {"memory": "256MiB", "dashboard_address": None, "addr": nodes.address}
    values.update(options)
    return HeadroomCluster(workers, **values)


def use_memory(number: int, mib: int, seconds: float = 0.2) -> int:
    kept = [bytearray(b"x" * MIB) for _ in range(mib)]
    time.sleep(seconds)
    return number * number + len(kept) - mib


def kill_own_process(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def worker_pids(client: Client) -> dict:
    return client.run(os.getpid)


def nothing_is_left(nodes: NodeHarness, app: str) -> bool:
    return not nodes.containers(app)


def need(number: int) -> int:
    """MiB that input ``number`` of the example needs beside the worker itself."""
    return 1280 if number == 17 else 40


EXPECTED = [number * number for number in range(50)]


def write_report(name: str, figures: dict) -> None:
    path = os.environ.get("HEADROOM_DASK_REPORT")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({name: figures}) + "\n")


def test_a_local_cluster_gives_up_the_task_that_needs_more() -> None:
    begin = time.monotonic()
    options = {"n_workers": 3, "threads_per_worker": 1, "memory_limit": "256MiB"}
    with LocalCluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        futures = client.map(use_memory, range(50), [need(n) for n in range(50)])
        distributed.wait(futures, timeout=240)
        errors = [future.exception() for future in futures if future.status == "error"]
    write_report(
        "local",
        {
            "seconds": time.monotonic() - begin,
            "done": 50 - len(errors),
            "errors": [type(error).__name__ for error in errors],
        },
    )
    assert errors
    assert isinstance(errors[0], KilledWorker)


def test_one_of_fifty_inputs_needs_five_times_the_memory(nodes: NodeHarness) -> None:
    begin = time.monotonic()
    with make_cluster(nodes, 3) as cluster, Client(cluster) as client:
        app = cluster.app
        futures = client.map(use_memory, range(50), [need(n) for n in range(50)])
        assert client.gather(futures) == EXPECTED
        seconds = time.monotonic() - begin
        rung = cluster.rung(futures[17].key)
        assert rung["rung"] == 4
        assert [attempt.size // MIB for attempt in rung["attempts"]] == [256, 512, 1024]
        others = [cluster.rung(f.key)["rung"] for n, f in enumerate(futures) if n != 17]
        assert set(others) == {1}
        suspicious = [task.suspicious for task in cluster.scheduler.tasks.values()]
        assert sum(suspicious) == 0
        assert len(client.get_events("headroom")) == 3
    assert nothing_is_left(nodes, app)
    write_report(
        "headroom",
        {
            "seconds": seconds,
            "kills": 3,
            "attempts": [attempt.size // MIB for attempt in rung["attempts"]] + [2048],
            "gib_seconds": nodes.gib_seconds(app),
        },
    )


def test_the_same_inputs_all_at_the_largest_size(nodes: NodeHarness) -> None:
    begin = time.monotonic()
    with make_cluster(nodes, 3, memory="2GiB") as cluster, Client(cluster) as client:
        app = cluster.app
        futures = client.map(use_memory, range(50), [need(n) for n in range(50)])
        assert client.gather(futures) == EXPECTED
        assert cluster.memory_failures == 0
        seconds = time.monotonic() - begin
    write_report(
        "all at 2 GiB", {"seconds": seconds, "kills": 0, "gib_seconds": nodes.gib_seconds(app)}
    )


def test_the_cause_is_found_among_the_threads_of_a_worker(nodes: NodeHarness) -> None:
    options = {"memory": "512MiB", "nthreads": 4}
    with make_cluster(nodes, 1, **options) as cluster, Client(cluster) as client:
        others = [client.submit(use_memory, n, 10, 3.0, key=f"other-{n}") for n in range(3)]
        large = client.submit(use_memory, 7, 600, key="large")
        assert client.gather(large) == 49
        assert client.gather(others) == [0, 1, 4]
        assert cluster.rung("large")["rung"] in (2, 3)
        assert {cluster.rung(future.key)["rung"] for future in others} == {1}
        assert all(task.suspicious == 0 for task in cluster.scheduler.tasks.values())


def test_a_task_beside_four_killed_ones_is_not_given_up(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 1, nthreads=2) as cluster, Client(cluster) as client:
        other = client.submit(use_memory, 3, 5, 8.0, key="other", priority=100)
        large = client.map(use_memory, range(5), [350] * 5)
        assert client.gather(large) == [0, 1, 4, 9, 16]
        assert client.gather(other) == 9
        assert cluster.memory_failures >= 4
        assert cluster.scheduler.tasks["other"].suspicious == 0


def test_a_task_above_the_cap_fails_with_its_sizes(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 1, max_memory="512MiB") as cluster, Client(cluster) as client:
        future = client.submit(use_memory, 1, 900, key="too-large")
        with pytest.raises(
            MemoryExhausted, match=r"256 MiB and 512 MiB.*raise max_memory"
        ) as found:
            future.result()
        error = found.value
        assert error.sizes == [256 * MIB, 512 * MIB]
        assert error.cap == 512 * MIB
        assert error.verdict == "overhead_oom"
        # The cluster goes on.
        assert client.submit(use_memory, 2, 5).result() == 4


def test_a_task_with_large_inputs_rises(nodes: NodeHarness) -> None:
    def make(mib: int) -> bytes:
        return os.urandom(MIB) * mib

    def total(parts: list) -> int:
        return sum(len(part) for part in parts) // MIB

    with make_cluster(nodes, 2, memory="512MiB") as cluster, Client(cluster) as client:
        parts = client.map(make, [100] * 6, pure=False)
        # The scheduler knows the rung as long as somebody holds the future.
        future = client.submit(total, parts, key="total")
        assert future.result() == 600
        # 600 MiB do not fit into 1 GiB together with their copies on the way.
        assert cluster.rung("total")["rung"] in (2, 3)


def test_a_killed_worker_is_dasks_own_case(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 2) as cluster, Client(cluster) as client:
        future = client.submit(kill_own_process, 1, key="killer")
        with pytest.raises(KilledWorker):
            future.result()
        assert cluster.memory_failures == 0
        assert client.submit(use_memory, 2, 5).result() == 4


def test_a_worker_that_is_killed_from_outside_is_replaced(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 2) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        futures = client.map(use_memory, range(20), [5] * 20, [0.3] * 20)
        pid = next(iter(worker_pids(client).values()))
        os.kill(pid, signal.SIGKILL)
        assert client.gather(futures) == [n * n for n in range(20)]
        wait_until(lambda: pid not in worker_pids(client).values(), "the killed worker is gone")
        client.wait_for_workers(2, timeout=60)
        assert cluster.memory_failures == 0


def test_each_worker_is_a_row_of_the_job(nodes: NodeHarness) -> None:
    def rmctl(*words: str) -> str:
        program = os.path.join(os.environ["HEADROOM_BIN_DIR"], "rmctl")
        command = [program, *words, "--addr", nodes.address]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with make_cluster(nodes, 2) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        rest = cluster._session._client

        def rows() -> dict:
            view = rest.get(f"/v1/apps/{cluster.app}")["job"] or {"tasks": []}
            return {row["task"]: row for row in view["tasks"]}

        def all_run() -> bool:
            return [row["state"] for row in rows().values()] == ["running"] * 2

        wait_until(all_run, "both workers have a row")
        assert set(rows()) == {"workers-256MiB/0", "workers-256MiB/1"}
        assert "workers-256MiB" in rmctl("ps", cluster.app)
        # The log of a worker is that of its container.
        log = f"{cluster.app}/workers-256MiB/0"
        wait_until(lambda: "Registered to" in rmctl("logs", log), "the log of a worker")
        os.kill(next(iter(worker_pids(client).values())), signal.SIGKILL)

        def is_replaced() -> bool:
            return all_run() and sum(len(row["attempts"]) for row in rows().values()) == 3

        wait_until(is_replaced, "the second container of the killed worker")
        app = cluster.app
    view = rest.get(f"/v1/apps/{app}")["job"]
    assert {row["state"] for row in view["tasks"]} == {"done"}, view


def test_scaling_starts_and_ends_containers(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 0) as cluster, Client(cluster) as client:
        app = cluster.app
        cluster.scale(3)
        client.wait_for_workers(3, timeout=60)
        assert len(nodes.containers(app)) == 3
        cluster.scale(1)
        wait_until(lambda: len(nodes.containers(app)) == 1, "two workers end")
        cluster.scale(memory="512MiB")
        client.wait_for_workers(2, timeout=60)
        assert client.submit(use_memory, 3, 5).result() == 9
        logs = cluster.get_logs()
        assert len(logs) == 4
    assert nothing_is_left(nodes, app)


def test_adaptive_scaling_follows_the_tasks(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 0) as cluster, Client(cluster) as client:
        app = cluster.app
        cluster.adapt(minimum=0, maximum=3, interval="200ms", wait_count=2, target_duration="1s")
        futures = client.map(use_memory, range(30), [5] * 30, [0.3] * 30)
        assert client.gather(futures) == [n * n for n in range(30)]
        del futures
        wait_until(lambda: not nodes.containers(app), "idle workers end")
    assert nothing_is_left(nodes, app)


def test_adaptive_scaling_beside_a_larger_worker(nodes: NodeHarness) -> None:
    options = {"idle_timeout": "1s"}
    with make_cluster(nodes, 0, **options) as cluster, Client(cluster) as client:
        app = cluster.app
        cluster.adapt(minimum=1, maximum=2, interval="200ms", wait_count=2)
        futures = client.map(use_memory, range(10), [400 if n == 3 else 20 for n in range(10)])
        assert client.gather(futures) == [n * n for n in range(10)]
        del futures

        def only_one_ordinary_worker() -> bool:
            sizes = [row["resource"]["memory"] // MIB for row in nodes.containers(app)]
            return sizes == [256]

        wait_until(only_one_ordinary_worker, "the larger worker ends")
    assert nothing_is_left(nodes, app)


def test_ordinary_workers_make_room_on_a_full_cluster(nodes: NodeHarness) -> None:
    # Both nodes are full, so that no worker of 2 GiB fits beside the others.
    options = {"memory": "1GiB", "idle_timeout": "1s"}
    with make_cluster(nodes, 8, **options) as cluster, Client(cluster) as client:
        client.wait_for_workers(8, timeout=90)
        future = client.submit(use_memory, 5, 1200, key="large")
        assert future.result(timeout=120) == 25
        del future
        wait_until(
            lambda: (
                {row["resource"]["memory"] for row in nodes.containers(cluster.app)} == {1 << 30}
            ),
            "the larger worker ends",
        )
        client.wait_for_workers(8, timeout=90)


def test_restart_of_the_client_replaces_all_workers(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 2) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        before = set(worker_pids(client).values())
        client.restart(timeout=60)
        assert not before & set(worker_pids(client).values())
        assert client.submit(use_memory, 3, 5).result() == 9
        assert len(cluster.workers) == 2


def test_a_job_survives_the_restart_of_the_manager(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 2) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        before = set(worker_pids(client).values())
        futures = client.map(use_memory, range(40), [5] * 40, [0.3] * 40)
        nodes.kill("manager")
        nodes.start_manager()
        assert client.gather(futures) == [n * n for n in range(40)]
        assert before == set(worker_pids(client).values())
        nodes.wait_for_nodes()
        # The session goes on: a larger worker can be had.
        assert client.submit(use_memory, 2, 400).result(timeout=90) == 4
        assert len(cluster.workers) == 2


def test_a_job_survives_the_restart_of_the_agents(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 2) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        before = set(worker_pids(client).values())
        futures = client.map(use_memory, range(40), [5] * 40, [0.3] * 40)
        for name in nodes.nodes:
            nodes.kill(name)
            nodes.start_node(name)
        assert client.gather(futures) == [n * n for n in range(40)]
        assert before == set(worker_pids(client).values())
        nodes.wait_for_nodes()
        assert client.submit(use_memory, 2, 400).result(timeout=90) == 4
        assert cluster.memory_failures >= 1


def test_workers_leave_a_node_that_is_drained(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 2, memory="1GiB") as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        futures = client.map(use_memory, range(30), [5] * 30, [0.3] * 30)
        kept = client.submit(use_memory, 9, 5, key="kept")
        assert kept.result() == 81
        node = nodes.containers(cluster.app)[0]["node"]
        nodes.client.post(f"/v1/nodes/{node}/drain", {"reason": "test"})
        try:
            wait_until(
                lambda: all(r["node"] != node for r in nodes.containers(cluster.app)),
                "the node is empty",
            )
            assert client.gather(futures) == [n * n for n in range(30)]
            assert all(task.suspicious == 0 for task in cluster.scheduler.tasks.values())
            client.wait_for_workers(2, timeout=60)
        finally:
            nodes.client.post(f"/v1/nodes/{node}/undrain", {})
        nodes.wait_for_nodes()


def test_the_containers_of_a_killed_client_end(nodes: NodeHarness) -> None:
    program = textwrap.dedent(
        f"""
        import time
        from headroom.dask import HeadroomCluster
        from distributed import Client
        cluster = HeadroomCluster(
            2, memory="256MiB", addr={nodes.address!r}, dashboard_address=None
        )
        client = Client(cluster)
        client.wait_for_workers(2)
        print(cluster.app, flush=True)
        time.sleep(600)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCES},
        text=True,
    )
    try:
        assert child.stdout is not None
        app = child.stdout.readline().strip()
        assert len(nodes.containers(app)) == 2
    finally:
        child.kill()
        child.wait()
    wait_until(lambda: nothing_is_left(nodes, app), "the containers end")
    rows = nodes.client.get("/v1/apps")
    state = wait_until(
        lambda: next(r["state"] for r in rows if r["id"] == app) or True, "the application is known"
    )
    assert state


def test_workers_that_cannot_start_fail_the_tasks_with_the_reason(nodes: NodeHarness) -> None:
    with make_cluster(nodes, 1, python="/no/such/python") as cluster, Client(cluster) as client:
        future = client.submit(use_memory, 1, 5)
        with pytest.raises(HeadroomError, match="3 workers in a row"):
            future.result(timeout=60)


def test_a_worker_larger_than_every_node_is_refused(nodes: NodeHarness) -> None:
    with pytest.raises(SettingsError, match="the largest container of the cluster has"):
        make_cluster(nodes, 1, memory="64GiB")


def test_wrong_arguments_are_refused(nodes: NodeHarness) -> None:
    with pytest.raises(SettingsError, match="memory is 'much'"):
        make_cluster(nodes, 1, memory="much")
    with pytest.raises(SettingsError, match="nthreads is 0"):
        make_cluster(nodes, 1, nthreads=0)
    with pytest.raises(SettingsError, match="max_memory must not be smaller"):
        make_cluster(nodes, 1, max_memory="100MiB")


def test_an_encrypted_cluster(nodes: NodeHarness) -> None:
    pytest.importorskip("cryptography")
    with make_cluster(nodes, 1, security=True) as cluster, Client(cluster) as client:
        assert cluster.scheduler_address.startswith("tls://")
        assert client.submit(use_memory, 4, 5).result(timeout=60) == 16


def test_use_inside_an_event_loop(nodes: NodeHarness) -> None:
    import asyncio

    async def run() -> int:
        async with (
            make_cluster(nodes, 1, asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            return await client.submit(use_memory, 6, 5)

    assert asyncio.run(run()) == 36
