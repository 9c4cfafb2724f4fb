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
START_TIMEOUT = 30.0


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _has_node(address: str) -> bool:
    try:
        nodes = RestClient(address).get("/v1/nodes")
    except HeadroomError:
        return False
    return any(node["state"] == "ready" for node in nodes)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a resource manager with one node agent of 3 GiB."""
    programs = os.environ.get("HEADROOM_BIN_DIR")
    if not programs:
        pytest.skip("HEADROOM_BIN_DIR does not name the directory of the programs of Headroom")
    state: Path = tmp_path_factory.mktemp("cluster")
    address = f"127.0.0.1:{_free_port()}"
    command = [f"{programs}/rmctl", "dev", "--listen", address, "--memory", "3GiB"]
    with open(state / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, "--keep", str(state / "state")],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not _has_node(f"http://{address}"):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the cluster did not start: {(state / 'log').read_text()}")
            time.sleep(0.05)
        yield f"http://{address}"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
