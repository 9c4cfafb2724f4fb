"""A resource manager and node agents of a test, as processes with a directory of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from headroom._http import RestClient
from headroom.errors import HeadroomError

#: Longest wait for a state of the cluster. Seconds.
SOON = 60.0


def wait_until(condition: Callable[[], Any], what: str, limit: float = SOON) -> Any:
    """Waits for a true value, and returns it."""
    until = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"not within {limit} s: {what}"
        time.sleep(0.05)


# A node is ready even if the disk of the test machine is nearly full.
_ON_ANY_DISK = "[health]\ndisk_full = 100\ninodes_full = 100\n"


class NodeHarness:
    """Daemons from ``HEADROOM_BIN_DIR``."""

    def __init__(self, directory: Path, nodes: Dict[str, str], master_silence: str = "30s") -> None:
        self.directory = directory
        self.nodes = nodes
        self.programs = Path(os.environ["HEADROOM_BIN_DIR"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.processes: Dict[str, subprocess.Popen[bytes]] = {}
        (directory / "rm.toml").write_text(f'master_silence = "{master_silence}"\n')
        (directory / "node.toml").write_text(_ON_ANY_DISK)
        self.client = RestClient(self.address)

    def start(self) -> NodeHarness:
        self.start_manager()
        for name in self.nodes:
            self.start_node(name)
        self.wait_for_nodes()
        return self

    def start_manager(self) -> None:
        self._run(
            "manager",
            "resourcemanager",
            "--config",
            str(self.directory / "rm.toml"),
            "--listen",
            f"127.0.0.1:{self.port}",
            "--state",
            str(self.directory / "rm"),
        )

    def start_node(self, name: str) -> None:
        self._run(
            name,
            "nodeagent",
            "--config",
            str(self.directory / "node.toml"),
            "--rm",
            self.address,
            "--name",
            name,
            "--memory",
            self.nodes[name],
            "--cpus",
            "16",
            "--listen",
            "127.0.0.1:0",
            "--run-as",
            "agent",
            "--allow-root",
            "--state",
            str(self.directory / name),
        )

    def wait_for_nodes(self) -> None:
        def ready() -> bool:
            try:
                rows = self.client.get("/v1/nodes")
            except HeadroomError:
                return False
            return sum(row["state"] == "ready" for row in rows) == len(self.nodes)

        wait_until(ready, "all nodes are ready")

    def kill(self, name: str) -> None:
        """Kills a daemon at once."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def containers(self, app: Optional[str] = None) -> List[Dict[str, Any]]:
        """The containers that have not ended."""
        rows = self.client.get("/v1/containers", query={"app": app})
        return [row for row in rows if row["state"] != "exited"]

    def gib_seconds(self, app: str) -> float:
        """Memory times time of all ended containers of an application."""
        rows = self.client.get("/v1/containers", query={"app": app})
        return sum(
            row["resource"]["memory"] / (1 << 30) * (row["ended"] - row["granted"]) / 1000
            for row in rows
            if row.get("ended")
        )

    def stop(self) -> None:
        for name in reversed(list(self.processes)):
            self.processes[name].terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.client.close()
        for name in self.nodes:
            _remove_cgroups(name)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, name: str, program: str, *arguments: str) -> None:
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(self.programs / program), *arguments], stdout=log, stderr=log
            )


def _remove_cgroups(node: str) -> None:
    """Removes the empty cgroups that a node agent leaves for its next start."""
    for root in Path("/sys/fs/cgroup").glob(f"**/headroom-{node}"):
        for directory, _, _ in sorted(os.walk(root), reverse=True):
            try:
                os.rmdir(directory)
            except OSError:
                pass
