"""The Parsl executor."""

from __future__ import annotations

import os

import pytest
from fake_cluster import MIB
from test_executor import need

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
