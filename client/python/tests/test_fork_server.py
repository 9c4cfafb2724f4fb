"""The fork server against a requester in Python, without an executor."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from headroom._sibling_fork import find_sibling_fork

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src"
PR_SET_CHILD_SUBREAPER = 36
TIMEOUT = 60


class Requester:
    """An executor's part of the protocol, for one fork server."""

    def __init__(self, directory: pathlib.Path, options: List[str], shell: bool = False) -> None:
        self.directory = directory
        self.count = 0
        self.channel, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(TIMEOUT)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = str(SOURCES)
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["HEADROOM_FORK_SERVER_FD"] = str(far_end.fileno())
        between = ["sh", "-c", '"$@"; exit $?', "sh"] if shell else []
        with far_end, open(directory / "log", "w", encoding="utf-8") as log:
            self.server = subprocess.Popen(
                [*between, sys.executable, "-m", "headroom.fork_server", *options],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[far_end.fileno()],
            )

    def receive(self) -> Dict[str, Any]:
        """The next message; empty at the end."""
        packet = self.channel.recv(1 << 17)
        return dict(json.loads(packet)) if packet else {}

    def log(self) -> str:
        return (self.directory / "log").read_text(encoding="utf-8")

    def start(
        self,
        command: List[str],
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
    ) -> Tuple[int, socket.socket]:
        """Requests a process. Returns its pid and the requester's end of its gate."""
        self.count += 1
        attempt = f"calls/{self.count}@1"
        gate, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gate.settimeout(TIMEOUT)
        message = {
            "kind": "fork",
            "attempt": attempt,
            "command": command,
            "env": env or {},
            "cwd": cwd or str(self.directory),
            "oom_score_adj": 500,
            "grace_ms": 2000,
            "descriptors": ["stdout", "stderr", "gate", "cgroup"],
        }
        with (
            far_end,
            open(self.directory / "out", "w", encoding="utf-8") as out,
            open(self.directory / "err", "w", encoding="utf-8") as err,
            open(self.directory / "procs", "w", encoding="utf-8") as procs,
        ):
            files = [out.fileno(), err.fileno(), far_end.fileno(), procs.fileno()]
            socket.send_fds(self.channel, [json.dumps(message).encode()], files)
        answer = self.receive()
        assert (answer["kind"], answer["attempt"]) == ("forked", attempt), answer
        return answer["pid"], gate

    def run(self, command: List[str], env: Optional[Dict[str, str]] = None) -> Tuple[int, str, str]:
        """Runs a command. Returns its exit code, negative after a signal, and its output."""
        pid, gate = self.start(command, env)
        with gate:
            assert gate.recv(4096) == b"ready"
            gate.send(b"run")
        return self.end(pid)

    def end(self, pid: int) -> Tuple[int, str, str]:
        _, status = os.waitpid(pid, 0)
        out, err = ((self.directory / name).read_text(encoding="utf-8") for name in ("out", "err"))
        return os.waitstatus_to_exitcode(status), out, err


@pytest.fixture
def requester(tmp_path: pathlib.Path) -> Iterator[Requester]:
    yield from serve(tmp_path, [])


def serve(directory: pathlib.Path, options: List[str], shell: bool = False) -> Iterator[Requester]:
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    requester = Requester(directory, options, shell)
    try:
        yield requester
    finally:
        requester.channel.close()
        requester.server.wait(TIMEOUT)


def test_a_server_ends_with_its_socket(requester: Requester) -> None:
    assert requester.receive() == {"kind": "ready", "version": 1, "warnings": []}
    requester.channel.close()
    assert requester.server.wait(TIMEOUT) == 0


def test_a_call_runs_prepared(requester: Requester) -> None:
    requester.receive()
    code = (
        "import os, sys\n"
        "print(sorted(os.environ.items()), os.getcwd(), sys.argv, __name__)\n"
        "print(open('/proc/self/oom_score_adj').read().strip(), os.getsid(0) == os.getpid())\n"
        "print(open('procs').read(), repr(sys.stdin.read()), len(os.listdir('/proc/self/fd')))\n"
    )
    result = requester.run(["-c", code, "a"], {"NAME": "value"})
    lines = [
        f"[('NAME', 'value')] {requester.directory} ['-c', 'a'] __main__",
        "500 True",
        # The directory itself is open besides the three standard descriptors.
        "0 '' 4",
    ]
    assert result == (0, "\n".join(lines) + "\n", "")


@pytest.mark.parametrize(
    ("code", "exit_code", "words"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('a reason')", 1, "a reason\n"),
        ("raise SystemExit(-1)", 255, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("def f():\n    1 / 0\nf()", 1, 'File "<string>", line 2, in f'),
        ("1 +", 1, "SyntaxError"),
        ("import sys; sys.stdout.write('x'); sys.stdout.close()", 0, ""),
    ],
)
def test_exit_codes_are_those_of_python(
    requester: Requester, code: str, exit_code: int, words: str
) -> None:
    requester.receive()
    found, _, err = requester.run(["-c", code])
    expected = subprocess.run(
        [sys.executable, "-c", code], check=False, stdin=subprocess.DEVNULL, capture_output=True
    )
    assert found == exit_code == expected.returncode, err
    assert words in err
    assert "fork_server" not in err


def test_a_memory_error_is_written_to_the_marker(requester: Requester) -> None:
    requester.receive()
    marker = requester.directory / "marker"
    code = "class ArrayError(MemoryError): pass\nraise ArrayError('Unable to allocate 7 PiB')"
    found, _, err = requester.run(["-c", code], {"HEADROOM_OOM_MARKER": str(marker)})
    assert found == 3, err
    assert marker.read_text(encoding="utf-8") == "ArrayError: Unable to allocate 7 PiB"
    assert "ArrayError: Unable to allocate 7 PiB" in err


def test_a_closed_gate_ends_the_process_before_its_code(requester: Requester) -> None:
    requester.receive()
    pid, gate = requester.start(["-c", "open('ran', 'w')"])
    assert gate.recv(4096) == b"ready"
    gate.close()
    assert requester.end(pid)[0] == 126
    assert not (requester.directory / "ran").exists()


def test_a_process_that_cannot_be_prepared_names_the_reason(requester: Requester) -> None:
    requester.receive()
    pid, gate = requester.start(["-c", "open('ran', 'w')"], cwd="/no/such/directory")
    with gate:
        assert gate.recv(4096).startswith(b"failed FileNotFoundError: ")
    assert requester.end(pid)[0] == 126


def test_unknown_messages_are_ignored(requester: Requester) -> None:
    requester.receive()
    for packet in (b"{}", b"[]", b"no JSON", b'{"kind": "later"}', b'{"kind": "fork"}'):
        requester.channel.send(packet)
    assert requester.run(["-c", "print(1)"]) == (0, "1\n", "")


def test_modules_are_imported_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "counted.py").write_text("print('imported', flush=True)\n", encoding="utf-8")
    for requester in serve(tmp_path, ["--import", "counted"]):
        requester.receive()
        for _ in range(3):
            assert requester.run(["-c", "import counted"]) == (0, "", "")
        assert requester.log() == "imported\n"


def test_a_module_with_threads_is_imported_in_each_call(tmp_path: pathlib.Path) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True)"
    (tmp_path / "threaded.py").write_text(f"{code}.start()\n", encoding="utf-8")
    (tmp_path / "quick.py").write_text(f"{code.replace('600', '0.05')}.start()\n", encoding="utf-8")
    for requester in serve(tmp_path, ["--import", "quick", "--import", "threaded"]):
        warnings = requester.receive()["warnings"]
        assert len(warnings) == 1
        assert warnings[0].startswith("threaded starts threads")
        code = "import sys; print('threaded' in sys.modules, 'quick' in sys.modules)"
        assert requester.run(["-c", code]) == (0, "True True\n", "")


def test_a_missing_module_ends_the_server(tmp_path: pathlib.Path) -> None:
    for requester in serve(tmp_path, ["--import", "no_such_module"]):
        assert requester.receive() == {}
        assert requester.server.wait(TIMEOUT) == 1
        assert "No module named 'no_such_module'" in requester.log()


SIBLING = """
import os, signal, socket, subprocess, sys, threading
from headroom._sibling_fork import find_sibling_fork
fork = find_sibling_fork(socket.socket(fileno=int(sys.argv[1])))
pid = fork()
if pid:
    print(pid, flush=True)
    os._exit(0)
received = []
signal.signal(signal.SIGUSR1, lambda *_: received.append(1))
signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
thread = threading.Thread(target=received.append, args=(2,))
thread.start()
thread.join()
received.append(subprocess.run(["true"]).returncode)
os._exit(7 if received == [1, 2, 0] else 8)
"""


def test_a_forked_sibling_is_a_whole_process_and_a_child_of_the_parent() -> None:
    near, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far_end:
        server = subprocess.run(
            [sys.executable, "-c", SIBLING, str(far_end.fileno())],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            pass_fds=[far_end.fileno()],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    _, status = os.waitpid(int(server.stdout), 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_a_server_with_another_parent_forks_twice(tmp_path: pathlib.Path) -> None:
    near, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far_end:
        assert find_sibling_fork(far_end) is None, "the parent of this process has not made it"
    for requester in serve(tmp_path, [], shell=True):
        requester.receive()
        assert requester.run(["-c", "print(1)"]) == (0, "1\n", "")
        # The processes are children of this one, as with a forked sibling.
        assert requester.run(["-c", "raise SystemExit(3)"])[0] == 3
