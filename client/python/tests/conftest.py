"""Fixtures: a fake cluster, an executor on it, and a real cluster."""

from __future__ import annotations

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(__file__)), "src"))
sys.path.insert(0, os.path.dirname(__file__))

from fake_cluster import FakeCluster


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HEADROOM_CONFIG", str(tmp_path / "none.toml"))
    for name in ("HEADROOM_ADDR", "HEADROOM_TOKEN", "HEADROOM_TOKEN_FILE", "HEADROOM_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    cluster = FakeCluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def executor(fake):
    import headroom

    with headroom.Executor(memory="64MiB", addr=fake.address, warm=False) as made:
        yield made


@pytest.fixture(scope="module")
def real_cluster():
    """The address of a cluster of real programs; only for tests that are marked ``cluster``."""
    from headroom._local_cluster import LocalCluster, find_rmctl

    if not os.environ.get("HEADROOM_BIN_DIR"):
        pytest.skip("HEADROOM_BIN_DIR does not name the directory of the programs")
    made = LocalCluster(find_rmctl(), memory=3 << 30)
    yield made.address
    made.stop()
