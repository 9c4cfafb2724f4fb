"""The Parsl executor."""

from __future__ import annotations

import os

import pytest
from fake_cluster import MIB, wait_until
from test_cluster import allocate
from test_executor import need

from headroom._http import RestClient

pytest.importorskip("parsl")


@pytest.fixture
def kernel(fake, tmp_path):
    import parsl

    from headroom.parsl import HeadroomExecutor

    executor = HeadroomExecutor(memory="64MiB", addr=fake.address, warm=False)
    config = parsl.Config(
        executors=[executor], run_dir=str(tmp_path / "runs"), usage_tracking=0, strategy="none"
    )
    with parsl.load(config):
        yield parsl


def test_apps_and_memory(kernel):
    app = kernel.python_app(need)
    futures = [app(300 if n == 2 else 1, n) for n in range(5)]
    assert [future.result(60) for future in futures] == list(range(5))


def test_the_resource_specification(kernel):
    @kernel.python_app
    def size(parsl_resource_specification=None):
        import os

        return int(os.environ["HEADROOM_MEMORY_BYTES"])

    assert size(parsl_resource_specification={"memory": 128}).result(60) == 128 * MIB
    assert size(parsl_resource_specification={"memory": "1GiB"}).result(60) == 1024 * MIB
    with pytest.raises(Exception, match="gpus"):
        size(parsl_resource_specification={"gpus": 1}).result(60)
    assert os.getpid()


@pytest.fixture
def on_cluster(real_cluster, tmp_path):
    """Parsl with an executor on a cluster, and Parsl's own threads beside it."""
    import parsl

    from headroom.parsl import HeadroomExecutor

    executor = HeadroomExecutor(max_workers=2, memory="64MiB", addr=real_cluster)
    config = parsl.Config(
        executors=[executor, parsl.ThreadPoolExecutor(label="threads", max_threads=2)],
        run_dir=str(tmp_path / "runs"),
        usage_tracking=0,
        strategy="none",
    )
    with parsl.load(config):
        yield parsl, executor


def square(n):
    return allocate(300 if n == 7 else 4, n * n)


@pytest.mark.cluster
def test_an_app_that_needs_more_memory_gets_it_on_a_cluster(on_cluster):
    parsl, executor = on_cluster
    results = {}
    for label in ("headroom", "threads"):
        app = parsl.python_app(square, executors=[label])
        results[label] = [future.result(240) for future in [app(n) for n in range(12)]]
    assert results["headroom"] == results["threads"] == [n * n for n in range(12)]
    counts = executor._executor._job.counts
    assert counts.done == 12 and counts.grown + counts.killed > 0
    assert counts.peak >= 300 * MIB


def quotient(one, other):
    return one // other


@pytest.mark.cluster
def test_an_error_and_the_end_on_a_cluster(on_cluster):
    parsl, executor = on_cluster
    divide = parsl.python_app(quotient, executors=["headroom"])
    with pytest.raises(ZeroDivisionError):
        divide(1, 0).result(120)
    assert divide(7, 2).result(120) == 3
    app, address = executor._executor.app, executor._executor.address
    executor.shutdown()
    rest = RestClient(address)
    wait_until(lambda: rest.get(f"/v1/apps/{app}")["state"] == "finished", 60)
