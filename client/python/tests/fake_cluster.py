"""A small cluster in this process, for tests: it speaks the REST calls and the submission channel.

Calls run as real processes (``python -m headroom.call``). A process that is ended by SIGKILL counts
as killed for memory; the next attempt gets twice its size. Connections can be broken, and the
master can be started again, with its journal or without.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, List, Optional

MIB = 1 << 20
SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")


@dataclass
class FakeTask:
    key: str
    stage: str
    item: Dict[str, Any]
    index: int
    memory: int
    attempts: List[Dict[str, Any]] = field(default_factory=list)
    process: Optional[subprocess.Popen] = None
    cancelled: bool = False
    done: bool = False
    previous: str = ""


@dataclass
class FakeMaster:
    """The master of one live job."""

    app: str
    slots: int
    cap: int
    memory: int
    max_attempts: int = 1
    credit_limit: int = 10_000
    attempt: int = 1
    stages: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    tasks: Dict[str, FakeTask] = field(default_factory=dict)
    batches: set = field(default_factory=set)
    results: List[Dict[str, Any]] = field(default_factory=list)
    cursor: int = 0
    closed: bool = False
    over: Optional[bool] = None
    diagnostics: str = ""


class FakeCluster:
    """A resource manager and the masters of its live jobs."""

    def __init__(self, slots: int = 2, cap: int = 1024 * MIB, run: Optional[Callable] = None):
        self.slots = slots
        self.cap = cap
        self.run_call = run or self._run_process
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.masters: Dict[str, FakeMaster] = {}
        self.submissions: List[Dict[str, Any]] = []
        self.connections: List[socket.socket] = []
        self.queue: Deque[FakeTask] = deque()
        self.received: List[Dict[str, Any]] = []
        self.break_after: Optional[int] = None
        self.refuse_channel: Optional[int] = None
        self.refuse_stage: Optional[Dict[str, Any]] = None
        self.down = False
        self.stopped = False
        self.credit_limit = 10_000
        self.folder = tempfile.mkdtemp(prefix="headroom-fake-")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()
        for _ in range(slots):
            threading.Thread(target=self._work, daemon=True).start()

    # Faults.

    def break_connections(self) -> None:
        """Closes every connection without a warning."""
        with self.lock:
            connections, self.connections = self.connections, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def lose_journal(self, app: str) -> None:
        """Starts the master again without what it knew."""
        with self.lock:
            old = self.masters[app]
            for task in old.tasks.values():
                task.cancelled = True
                if task.process is not None:
                    task.process.kill()
            self.queue.clear()
            self.masters[app] = FakeMaster(
                app, old.slots, old.cap, old.memory, old.max_attempts, attempt=old.attempt + 1
            )
        self.break_connections()

    def stop(self) -> None:
        self.stopped = True
        self.listener.close()
        self.break_connections()
        with self.lock:
            for master in self.masters.values():
                for task in master.tasks.values():
                    if task.process is not None:
                        task.process.kill()
            self.changed.notify_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    # HTTP.

    def _accept(self) -> None:
        while not self.stopped:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            if self.down:
                connection.close()
                continue
            with self.lock:
                self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        with contextlib.suppress(OSError, ValueError):
            while True:
                head = reader.readline()
                if not head:
                    break
                method, target, _ = head.decode().split(" ", 2)
                headers = {}
                while True:
                    line = reader.readline().decode().strip()
                    if not line:
                        break
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = reader.read(int(headers.get("content-length") or 0))
                if headers.get("upgrade") == "headroom-submission/1":
                    self._channel(target.split("/")[3], connection, reader)
                    break
                status, answer = self._answer(method, target.split("?")[0], body)
                data = json.dumps(answer).encode()
                kind = "application/json" if status < 400 else "application/problem+json"
                connection.sendall(
                    f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n"
                    f"content-length: {len(data)}\r\n\r\n".encode()
                    + data
                )
        with contextlib.suppress(OSError):
            connection.close()

    def _answer(self, method: str, path: str, body: bytes):
        if path == "/v1/version":
            return 200, {"version": "0.1.0"}
        if path == "/v1/nodes":
            offers = {"memory": 4096 * MIB, "cpus": self.slots}
            return 200, [{"id": "fake-1", "state": "ready", "offers": offers}]
        if path == "/v1/apps" and method == "POST":
            return 200, self._submit(json.loads(body))
        parts = path.split("/")
        master = self.masters.get(parts[3]) if len(parts) > 3 else None
        if master is None:
            return 404, problem("HR0404", f"there is no application at {path}")
        if path.endswith("/kill"):
            with self.lock:
                self._finish(master, False, "killed by a user")
            return 200, {}
        state = "running" if master.over is None else ("finished" if master.over else "failed")
        return 200, {
            "id": master.app,
            "state": state,
            "attempt": master.attempt,
            "diagnostics": master.diagnostics,
        }

    def _submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        with self.lock:
            self.submissions.append(request)
            app = f"{request['name']}.{len(self.submissions)}"
            text = request["master"]["launch"]["files"]["job.toml"]
            values = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
            size = (int(values["memory"]) - int(values["reserve"])) // int(values["slots"])
            cap = int(values.get("cap", self.cap))
            self.masters[app] = FakeMaster(
                app, self.slots, cap, size, int(values["max_attempts"]), self.credit_limit
            )
            return {"app": app}

    # The channel.

    def _channel(self, app: str, connection: socket.socket, reader: Any) -> None:
        master = self.masters.get(app)
        if self.refuse_channel is not None or master is None or master.over is not None:
            status = self.refuse_channel or 410
            data = json.dumps(problem(f"HR0{status}", "no channel", status=status)).encode()
            head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            connection.sendall(head + data)
            return
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n"
            b"upgrade: headroom-submission/1\r\n\r\n"
        )
        first = json.loads(reader.readline())
        assert first["kind"] == "submitter" and first["version"] == 1, first
        if int(first["after"]) > master.cursor:
            error = problem("HR0409", "its journal is another one")
            self._send(connection, {"kind": "refused", "subject": None, "error": error})
            return
        end = threading.Event()
        sender = threading.Thread(
            target=self._send_results,
            args=(master, connection, int(first["after"]), end),
            daemon=True,
        )
        with self.lock:
            self._send(
                connection,
                {
                    "kind": "welcome",
                    "version": 1,
                    "credit": self._credit(master),
                    "cursor": master.cursor,
                    "closed": master.closed,
                },
            )
        sender.start()
        count = 0
        try:
            while True:
                line = reader.readline()
                if not line:
                    return
                message = json.loads(line)
                count += 1
                with self.lock:
                    if self.masters[app] is not master:
                        return  # this connection ended with its master
                    self.received.append(message)
                    answer = self._receive(master, message)
                    if self.break_after is not None and count >= self.break_after:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    if answer is not None:
                        self._send(connection, answer)
                    self.changed.notify_all()
        finally:
            end.set()
            with self.lock:
                self.changed.notify_all()

    def _send(self, connection: socket.socket, message: Dict[str, Any]) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    def _send_results(self, master, connection, after, end) -> None:
        shown: Dict[str, int] = {}
        with contextlib.suppress(OSError):
            while not end.is_set() and not self.stopped:
                with self.lock:
                    rows = [r for r in master.results if r["cursor"] > after]
                    for row in rows:
                        self._send(connection, row)
                        after = row["cursor"]
                    if rows:
                        self._send(connection, {"kind": "credit", "credit": self._credit(master)})
                    states = [
                        {
                            "key": t.key,
                            "state": "running",
                            "attempts": len(t.attempts),
                            "memory": t.memory,
                            "node": "fake-1",
                        }
                        for t in master.tasks.values()
                        if not t.done and t.attempts and shown.get(t.key) != len(t.attempts)
                    ]
                    if states:
                        shown.update((s["key"], s["attempts"]) for s in states)
                        self._send(connection, {"kind": "states", "tasks": states})
                    if master.over is not None:
                        self._send(
                            connection,
                            {
                                "kind": "over",
                                "succeeded": master.over,
                                "diagnostics": master.diagnostics,
                            },
                        )
                        return
                    self.changed.wait(1.0)

    def _credit(self, master: FakeMaster) -> int:
        return master.credit_limit - sum(not task.done for task in master.tasks.values())

    def _receive(self, master: FakeMaster, message: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        kind = message["kind"]
        if kind == "stage":
            if self.refuse_stage is not None:
                return {"kind": "refused", "subject": message["name"], "error": self.refuse_stage}
            master.stages[message["name"]] = message["spec"]
            return {"kind": "stage_accepted", "name": message["name"]}
        if kind == "tasks":
            return self._tasks(master, message)
        if kind == "cancel":
            for key in message["keys"]:
                task = master.tasks.get(key)
                if task is not None and not task.done:
                    task.cancelled = True
                    if task.process is not None:
                        task.process.terminate()
                    elif not task.attempts:
                        self._ended(master, task, "cancelled", {"message": "cancelled"})
        elif kind == "close":
            master.closed = True
            self._check_over(master)
        elif kind == "ack":
            master.results = [r for r in master.results if r["cursor"] > message["cursor"]]
        return None

    def _tasks(self, master: FakeMaster, message: Dict[str, Any]) -> Dict[str, Any]:
        batch = message["batch"]
        if message["stage"] not in master.stages:
            error = problem("HR0404", f"there is no stage {message['stage']}")
            return {"kind": "refused", "subject": batch, "error": error}
        new = [item for item in message["items"] if item["key"] not in master.tasks]
        if batch not in master.batches and len(new) > self._credit(master):
            error = problem("HR0429", "too many open tasks", retryable=True)
            return {"kind": "refused", "subject": batch, "error": error}
        if batch not in master.batches:
            master.batches.add(batch)
            for item in new:
                size = int(item.get("memory") or master.memory)
                task = FakeTask(item["key"], message["stage"], item, len(master.tasks), size)
                master.tasks[task.key] = task
                task.item["app"] = master.app
                self.queue.append(task)
        return {"kind": "accepted", "batch": batch, "credit": self._credit(master)}

    def _ended(
        self, master: FakeMaster, task: FakeTask, outcome: str, more: Dict[str, Any]
    ) -> None:
        if task.done or master.tasks.get(task.key) is not task:
            return
        task.done = True
        master.cursor += 1
        master.results.append(
            {
                "kind": "ended",
                "cursor": master.cursor,
                "key": task.key,
                "task": f"{task.stage}/{task.index}",
                "outcome": outcome,
                "attempts": task.attempts,
                **more,
            }
        )
        self._check_over(master)
        self.changed.notify_all()

    def _check_over(self, master: FakeMaster) -> None:
        if master.closed and all(task.done for task in master.tasks.values()):
            self._finish(master, True, f"{len(master.tasks)} tasks")

    def _finish(self, master: FakeMaster, succeeded: bool, diagnostics: str) -> None:
        if master.over is None:
            master.over, master.diagnostics = succeeded, diagnostics
        self.changed.notify_all()

    # Attempts.

    def _work(self) -> None:
        while not self.stopped:
            with self.lock:
                while not self.queue and not self.stopped:
                    self.changed.wait(1.0)
                if self.stopped:
                    return
                task = self.queue.popleft()
                master = self.masters[task.item["app"]]
                if task.done or task.cancelled:
                    continue
                row = {
                    "attempt": f"{task.stage}/{task.index}@{len(task.attempts) + 1}",
                    "profile": {"heap": task.memory, "overhead": 0, "cpus": 1},
                    "node": "fake-1",
                    "peak": None,
                    "reason": None,
                    "dimension": None,
                    "diagnosis": [],
                    "evidence": None,
                }
                task.attempts.append(row)
                spec = master.stages[task.stage]
                self.changed.notify_all()
            try:
                reason, value, tail = self.run_call(task, spec)
            except OSError:
                if self.stopped:
                    return  # its directory is gone
                raise
            with self.lock:
                self._after(master, task, row, reason, value, tail)

    def _after(self, master, task, row, reason, value, tail) -> None:
        row["reason"] = reason
        row["peak"] = min(task.memory, 10 * MIB)
        kind = reason["kind"]
        more: Dict[str, Any] = {"reason": reason, "log_tail": tail}
        if value is not None and reason == {"kind": "exit", "code": 0}:
            more["value"] = value  # only successful attempts return a value
        if task.cancelled:
            self._ended(master, task, "cancelled", {"message": "cancelled", "reason": reason})
        elif kind in ("task_oom", "heap_oom"):
            row["peak"], row["dimension"] = task.memory, "native"
            task.previous = kind
            if task.memory * 2 <= master.cap:
                task.memory *= 2
                self.queue.append(task)
                self.changed.notify_all()
            else:
                more.update(dimension="native", message="no larger size is available")
                self._ended(master, task, "failed", more)
        elif reason == {"kind": "exit", "code": 0}:
            self._ended(master, task, "succeeded", more)
        elif len(task.attempts) < master.max_attempts:
            self.queue.append(task)
            self.changed.notify_all()
        else:
            self._ended(master, task, "failed", {**more, "message": "failed"})

    def _run_process(self, task: FakeTask, spec: Dict[str, Any]):
        folder = os.path.join(self.folder, f"{task.key}-{len(task.attempts)}")
        os.makedirs(folder, exist_ok=True)
        paths = {name: os.path.join(folder, name) for name in ("input", "value", "marker")}
        with open(paths["input"], "w") as file:
            file.write(task.item["input"])
        words = [word.replace("{{", "{").replace("}}", "}") for word in spec["command"]]
        if spec.get("fork_server"):
            words = [sys.executable, "-m", "headroom.call", *words[1:]]
        environment = {
            **os.environ,
            **spec.get("env", {}),
            "PYTHONPATH": os.pathsep.join([SOURCES, os.environ.get("PYTHONPATH", "")]),
            "HEADROOM_INPUT_FILE": paths["input"],
            "HEADROOM_VALUE_FILE": paths["value"],
            "HEADROOM_OOM_MARKER": paths["marker"],
            "HEADROOM_APP_DIR": self.folder,
            "HEADROOM_ATTEMPT": str(len(task.attempts)),
            "HEADROOM_MEMORY_BYTES": str(task.memory),
            "HEADROOM_PREVIOUS_REASON": task.previous,
        }
        with open(os.path.join(folder, "stderr"), "w+") as log:
            process = subprocess.Popen(
                words, env=environment, stdout=subprocess.DEVNULL, stderr=log, cwd=folder
            )
            task.process = process
            limit = spec.get("timeout")
            seconds = float(limit[:-2]) / 1000 if limit else None
            timed_out = False
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                code, timed_out = process.wait(), True
            task.process = None
            log.seek(0)
            tail = log.read()[-4096:]
        value = None
        if os.path.exists(paths["value"]):
            with open(paths["value"], encoding="utf-8") as file:
                value = file.read()
            assert len(value) <= 16 << 10
        reason: Dict[str, Any] = {"kind": "exit", "code": code}
        if timed_out:
            reason = {"kind": "timeout"}
        elif code == -signal.SIGKILL:
            reason = {"kind": "task_oom"}
        elif code < 0:
            reason = {"kind": "signal", "signal": -code}
        elif code == 3 and os.path.exists(paths["marker"]):
            reason = {"kind": "heap_oom"}
        return reason, value, tail


def problem(code: str, detail: str, status: int = 0, retryable: bool = False) -> Dict[str, Any]:
    return {
        "type": f"/v1/errors/{code}",
        "title": "x",
        "status": status or int(code[2:]),
        "detail": detail,
        "code": code,
        "retryable": retryable,
        "hints": ["a hint"],
    }


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.005)
