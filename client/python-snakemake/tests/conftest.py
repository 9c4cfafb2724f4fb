"""A cluster of this host for the tests that are marked ``cluster``."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headroom._http import RestClient
from headroom.errors import HeadroomError

#: Longest time until a new cluster accepts jobs. Seconds.
START_TIMEOUT = 60.0


class TestCluster:
    """A resource manager with one node agent, in one process with a state directory."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        programs = os.environ.get("HEADROOM_BIN_DIR")
        if not programs:
            pytest.skip("HEADROOM_BIN_DIR does not name the directory of the programs of Headroom")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
        self.address = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._command = [f"{programs}/rmctl", "dev", "--listen", f"127.0.0.1:{port}"]
        self._command += ["--memory", "3GiB", "--keep", str(folder / "state")]
        self._env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the cluster, with the state of the one before; returns when its node is ready."""
        with open(self._folder / "log", "ab") as log:
            process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=self._env
            )
        self._process = process
        deadline = time.monotonic() + START_TIMEOUT
        while not self._has_node():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the cluster did not start: {(self._folder / 'log').read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends the process without a chance to save anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends the cluster with all its containers."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def _has_node(self) -> bool:
        try:
            nodes = RestClient(self.address).get("/v1/nodes")
        except HeadroomError:
            return False
        return any(node["state"] == "ready" for node in nodes)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster that many tests use."""
    made = TestCluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made.address
    finally:
        made.stop()


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """A cluster that one test may kill."""
    made = TestCluster(tmp_path_factory.mktemp("own-cluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
