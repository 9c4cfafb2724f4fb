"""The joblib backend."""

from __future__ import annotations

import os
import time

import pytest
from fake_cluster import MIB, wait_until
from test_cluster import allocate
from test_executor import need

joblib = pytest.importorskip("joblib")


@pytest.fixture
def backend(fake):
    import headroom.joblib  # noqa: F401

    with joblib.parallel_config(
        backend="headroom", memory="64MiB", addr=fake.address, warm=False, n_jobs=2
    ):
        yield


def test_calls_and_sizes(backend):
    results = joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(20))
    assert results == [n * n for n in range(20)]


def test_a_killed_batch_runs_again(backend):
    results = joblib.Parallel(batch_size=1)(
        joblib.delayed(need)(200 if n == 3 else 1, n) for n in range(6)
    )
    assert results == list(range(6))


def test_an_exception_ends_the_rest(backend):
    with pytest.raises(ZeroDivisionError):
        joblib.Parallel(batch_size=1)(joblib.delayed(divmod)(1, n % 3) for n in range(9))
    assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]


def test_a_generator_and_an_executor_of_the_caller(fake):
    import headroom
    import headroom.joblib

    with headroom.Executor(memory="64MiB", addr=fake.address, warm=False) as executor:
        with joblib.parallel_config(backend="headroom", executor=executor):
            made = joblib.Parallel(n_jobs=-1, return_as="generator")(
                joblib.delayed(abs)(-n) for n in range(5)
            )
            assert list(made) == [0, 1, 2, 3, 4]
        sizes = executor.submit(lambda: int(os.environ["HEADROOM_MEMORY_BYTES"])).result(20)
        assert sizes == 64 * MIB, "the executor of the caller lives on"


@pytest.fixture
def on_cluster(real_cluster):
    import headroom
    import headroom.joblib

    with headroom.Executor(2, memory="64MiB", addr=real_cluster, name="joblib") as executor:
        with joblib.parallel_config(backend="headroom", executor=executor, n_jobs=2):
            yield executor


@pytest.mark.cluster
def test_a_batch_that_needs_more_memory_gets_it_on_a_cluster(on_cluster):
    def square(n):
        return allocate(300 if n == 7 else 4, n * n)

    def squares(**options):
        return joblib.Parallel(batch_size=1, **options)(
            joblib.delayed(square)(n) for n in range(12)
        )

    # joblib alone has no limit, so the large input passes there, too.
    assert squares() == squares(backend="threading", n_jobs=2)
    counts = on_cluster._job.counts
    assert counts.done == 12 and counts.grown + counts.killed > 0
    assert counts.peak >= 300 * MIB


@pytest.mark.cluster
def test_an_exception_ends_the_rest_on_a_cluster(on_cluster):
    with pytest.raises(ZeroDivisionError):
        joblib.Parallel(batch_size=1)(joblib.delayed(divmod)(1, n - 2) for n in range(6))
    assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]


@pytest.mark.cluster
def test_a_generator_that_is_closed_ends_its_batches_on_a_cluster(on_cluster):
    made = joblib.Parallel(batch_size=1, return_as="generator", pre_dispatch="all")(
        joblib.delayed(time.sleep)(0 if n == 0 else 300) for n in range(6)
    )
    assert next(made) is None
    made.close()
    wait_until(lambda: not on_cluster._job.open_futures(), 60)
    assert on_cluster._job.counts.cancelled == 5
    assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]
