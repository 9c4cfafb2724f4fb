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
