"""A cluster on this host for the life of an object: ``rmctl dev`` as a child process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from typing import IO, List, Optional

from headroom.errors import ClusterUnreachable

__all__ = ["LocalCluster", "find_rmctl"]

#: Longest time from the start to the first line. Seconds.
START_TIMEOUT = 40.0
#: Longest time from the request to stop to the end. Seconds.
STOP_TIMEOUT = 30.0

# The shell stops rmctl when its standard input ends, also when this process is killed.
_GUARD = (
    'rmctl="$1"; shift; "$rmctl" "$@" </dev/null & child=$!; exec >&-; '
    "read -r _; kill -TERM $child; wait $child"
)


def find_rmctl() -> Optional[str]:
    """Path of ``rmctl``: in ``HEADROOM_BIN_DIR``, else on the ``PATH``."""
    folder = os.environ.get("HEADROOM_BIN_DIR")
    if folder:
        path = os.path.join(folder, "rmctl")
        return path if os.access(path, os.X_OK) else None
    return shutil.which("rmctl")


class LocalCluster:
    """A running ``rmctl dev``."""

    def __init__(self, rmctl: str, memory: Optional[int] = None) -> None:
        arguments = [rmctl, "dev", "--listen", "127.0.0.1:0", "-o", "json"]
        if memory is not None:
            arguments += ["--memory", f"{memory}B"]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("HEADROOM_ADDR", "HEADROOM_CONTEXT", "HEADROOM_OUTPUT")
        }
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        try:
            line = self._first_line()
            self.address = str(json.loads(line)["addr"])
        except (ValueError, KeyError) as error:
            self.stop()
            raise ClusterUnreachable(
                f"`{' '.join(arguments)}` did not start a cluster: {self._log_tail()}"
            ) from error
        except BaseException:
            self.stop()
            raise

    def _first_line(self) -> bytes:
        lines: List[bytes] = []
        output = self._process.stdout

        def read(stream: IO[bytes]) -> None:
            lines.append(stream.readline())
            while stream.read(1 << 16):
                pass  # so that rmctl never waits for a reader

        if output is not None:
            reader = threading.Thread(target=read, args=(output,), daemon=True)
            reader.start()
            for _ in range(int(START_TIMEOUT * 50)):
                reader.join(0.02)
                if lines or not reader.is_alive():
                    break
        return lines[0] if lines else b""

    def _log_tail(self) -> str:
        self._log.seek(0)
        text = self._log.read().decode("utf-8", "replace").strip()
        return text[-2000:] or "it wrote no reason"

    def stop(self) -> None:
        """Ends all containers and daemons."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            try:
                process.stdin.close()
            except OSError:
                pass
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
