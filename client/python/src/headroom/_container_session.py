"""Containers of an application whose master is this process.

The session registers an unmanaged application, keeps its container requests at the resource
manager, and reports grants and ends. Requests are desired state: whatever the resource manager has
not confirmed is sent again, so a restart of the resource manager loses nothing.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple, Union

from headroom._http import JsonLines, RestClient
from headroom._job_view import JobView
from headroom.errors import ClusterUnreachable, HeadroomError, RequestRefused

__all__ = [
    "ContainerEnd",
    "ContainerExited",
    "ContainerGranted",
    "ContainerRequest",
    "ContainerSession",
    "NodeDrainStarted",
    "PreemptionAnnounced",
    "RequestInfeasible",
    "SessionEnded",
    "SessionEvent",
]

logger = logging.getLogger("headroom.session")

#: Longest time between two syncs. The resource manager allows 30 s. Seconds.
SYNC_INTERVAL = 2.0
#: Wait before a failed call is repeated. Seconds.
RETRY_INTERVAL = 0.3
#: Longest time without an answer of the resource manager. Seconds.
MANAGER_TIMEOUT = 600.0
#: Longest time for the last call of a session. Seconds.
FINISH_TIMEOUT = 20.0
#: Most requests in one sync.
MAX_ASKS_PER_SYNC = 200

_OTHER_EPOCH = "HR0410"


@dataclass(frozen=True)
class ContainerRequest:
    """One container."""

    #: Id, unique within the application.
    request: str
    #: Memory limit. Bytes.
    memory: int
    #: Processors.
    cpus: float
    #: Launch of the program, as in the REST interface.
    launch: Mapping[str, Any]
    #: Priority within the application; higher values go first.
    priority: int = 0
    #: Labels that the node must have.
    labels: Tuple[str, ...] = ()
    #: Row of the job view that the container is an attempt of, such as ``workers-512MiB/3``.
    task: str = ""

    def to_wire(self) -> Dict[str, Any]:
        """The request as JSON."""
        return {
            "request": self.request,
            "count": 1,
            "priority": self.priority,
            "resource": {"memory": self.memory, "cpus": self.cpus},
            "placement": {"labels": sorted(self.labels)},
            "launch": self.launch,
        }


@dataclass(frozen=True)
class ContainerEnd:
    """The end of a container, from the report of its node."""

    #: Id of the container.
    container: str
    #: Its node.
    node: str
    #: Closed reason such as ``overhead_oom``, ``exit`` or ``node_lost``.
    reason: str
    #: Exit code of a program that exited by itself.
    exit_code: Optional[int] = None
    #: Signal that ended the program.
    signal: Optional[int] = None
    #: Memory limit. Bytes.
    limit: Optional[int] = None
    #: Largest use. Bytes.
    peak: Optional[int] = None
    #: Mechanism that enforced the limit.
    enforcer: str = ""
    #: Cause of a memory failure, in one sentence.
    cause: str = ""
    #: Cheapest cure of a memory failure.
    fix: str = ""
    #: The end of standard error, at most 4 KiB.
    log_tail: str = ""

    MEMORY_REASONS = frozenset({"heap_oom", "overhead_oom", "task_oom", "stalled_at_limit"})
    #: Ends that are not charged to the program.
    FREE_REASONS = frozenset({"ancestor_oom", "node_lost", "node_oom", "preempted", "stopped"})

    @property
    def is_memory_failure(self) -> bool:
        """True if the program needed more memory than the container had."""
        return self.reason in self.MEMORY_REASONS

    @property
    def is_free(self) -> bool:
        """True if the program did not cause its end."""
        return self.reason in self.FREE_REASONS

    @property
    def in_words(self) -> str:
        """The end in words for users."""
        if self.reason == "exit":
            return f"exited with code {self.exit_code}"
        if self.reason == "signal":
            return f"ended by signal {self.signal}"
        return self.reason

    @classmethod
    def from_wire(cls, report: Mapping[str, Any]) -> ContainerEnd:
        """Reads the report of a node."""
        evidence = report.get("evidence") or {}
        own = evidence.get("own") or {}
        rows = report.get("diagnosis") or [{}]
        return cls(
            container=str(report["container"]),
            node=str(report["node"]),
            reason=str(report["reason"]["kind"]),
            exit_code=evidence.get("exit_code"),
            signal=evidence.get("signal"),
            limit=own.get("limit"),
            peak=own.get("peak"),
            enforcer=str(evidence.get("enforcer") or ""),
            cause=str(rows[0].get("cause") or ""),
            fix=str(rows[0].get("fix") or ""),
            log_tail=str(report.get("log_tail") or ""),
        )


@dataclass(frozen=True)
class ContainerGranted:
    """A container is granted and on its way to the node."""

    request: str
    container: str
    node: str


@dataclass(frozen=True)
class ContainerExited:
    """The container of a request ended; the request is withdrawn."""

    request: str
    end: ContainerEnd


@dataclass(frozen=True)
class RequestInfeasible:
    """No node can ever satisfy the request; it is withdrawn."""

    request: str
    sentence: str


@dataclass(frozen=True)
class PreemptionAnnounced:
    """The container of a request will be preempted soon."""

    request: str
    sentence: str


@dataclass(frozen=True)
class NodeDrainStarted:
    """The containers of a node should end soon."""

    node: str


@dataclass(frozen=True)
class SessionEnded:
    """The application cannot go on: it was killed, or the resource manager is lost."""

    sentence: str


SessionEvent = Union[
    ContainerGranted,
    ContainerExited,
    RequestInfeasible,
    PreemptionAnnounced,
    NodeDrainStarted,
    SessionEnded,
]


class _RequestState:
    """A request with its container. Guarded by the lock of the session."""

    def __init__(self, request: ContainerRequest) -> None:
        self.request = request
        self.container: Optional[str] = None
        self.is_withdrawn = False


class ContainerSession:
    """An application with an unmanaged master, as its containers' owner.

    ``on_event`` is called by a thread of the session, in order, and must not block.
    """

    def __init__(
        self,
        client: RestClient,
        name: str,
        on_event: Callable[[SessionEvent], None],
        *,
        queue: Optional[str] = None,
        manager_timeout: float = MANAGER_TIMEOUT,
    ) -> None:
        self._client = client
        self._name = name
        self._on_event = on_event
        self._queue = queue
        self._manager_timeout = manager_timeout
        #: Id of the application; empty before :meth:`open`.
        self.app = ""
        #: The largest container that the cluster and the queue could grant. Bytes.
        self.largest = 0
        self._attempt = ""
        self._changed = threading.Condition()
        self._requests: Dict[str, _RequestState] = {}
        self._unsent: Set[str] = set()
        self._drops: Set[str] = set()
        self._releases: Set[str] = set()
        self._view = JobView()
        self._epoch = 0
        self._received = 0
        self._is_dirty = False
        self._is_ended = False
        self._stream: Optional[JsonLines] = None
        self._threads: List[threading.Thread] = []

    def open(self) -> None:
        """Submits the application, registers as its master, and starts the threads.

        Raises :class:`ClusterUnreachable` and :class:`RequestRefused`.
        """
        submitted = self._client.post(
            "/v1/apps",
            {
                "name": self._name,
                "queue": self._queue,
                "idempotency_key": str(uuid.uuid4()),
                "master": {"kind": "unmanaged"},
            },
        )
        self.app = submitted["app"]
        self._attempt = submitted["attempt"]
        self._register()
        for target, name in ((self._sync_loop, "sync"), (self._update_loop, "updates")):
            thread = threading.Thread(target=target, name=f"headroom-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def request(self, request: ContainerRequest) -> None:
        """Asks for a container."""
        with self._changed:
            self._requests[request.request] = _RequestState(request)
            self._unsent.add(request.request)
            if request.task:
                self._view.requested(request.task, request.memory, request.cpus)
            self._wake()

    def release(self, request: str) -> None:
        """Gives a container back, granted or not. Its end is reported if it was granted."""
        with self._changed:
            state = self._requests.get(request)
            if state is None:
                return
            self._view.withdrawn(state.request.task, _now())
            if state.container is not None:
                self._releases.add(state.container)
            else:
                # The grant may be on its way: then it is released at its arrival.
                state.is_withdrawn = True
                self._unsent.discard(request)
                self._drops.add(request)
            self._wake()

    def finish(self, *, succeeded: bool = True, diagnostics: str = "") -> None:
        """Reports the end of the application. All its containers end."""
        with self._changed:
            was_ended, self._is_ended = self._is_ended, True
            self._wake()
        self._close_stream()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=2 * self._client.settings.timeout)
        if was_ended or not self.app:
            return
        body: Dict[str, Any] = {
            "attempt": self._attempt,
            "succeeded": succeeded,
            "diagnostics": diagnostics,
        }
        with self._changed:
            for state in self._requests.values():
                self._view.withdrawn(state.request.task, _now())
            body["job"] = self._view.whole()
        until = time.monotonic() + FINISH_TIMEOUT
        while True:
            try:
                self._client.post(f"/v1/apps/{self.app}/finish", body)
                return
            except HeadroomError as error:
                if not _is_transient(error) or time.monotonic() > until:
                    logger.warning("the end of %s could not be reported: %s", self.app, error)
                    return
                time.sleep(RETRY_INTERVAL)

    def containers(self) -> List[Dict[str, Any]]:
        """The containers of the application, as the REST interface shows them."""
        rows: List[Dict[str, Any]] = self._client.get("/v1/containers", query={"app": self.app})
        return rows

    def read_log(self, container: str, last: int) -> str:
        """The last ``last`` bytes of the standard error of a container; empty if unavailable."""
        try:
            answer = self._client.request(
                "GET",
                f"/v1/containers/{container}/files/content",
                query={"path": "stderr"},
                headers={"Range": f"bytes=-{last}"},
            )
            return answer.data.decode("utf-8", "replace")
        except HeadroomError as error:
            logger.debug("the log of %s is not available: %s", container, error)
            return ""

    def _wake(self) -> None:
        self._is_dirty = True
        self._changed.notify_all()

    def _close_stream(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.close()

    def _emit(self, events: List[SessionEvent]) -> None:
        for event in events:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("the receiver of %s failed", type(event).__name__)

    def _end(self, sentence: str) -> None:
        with self._changed:
            already, self._is_ended = self._is_ended, True
        self._close_stream()
        if not already:
            self._emit([SessionEnded(sentence)])

    # Sync thread.

    def _register(self) -> None:
        reply = self._client.post(f"/v1/apps/{self.app}/register", {"attempt": self._attempt})
        events: List[SessionEvent] = []
        with self._changed:
            self._epoch = reply["epoch"]
            self._received = reply["cursor"]
            self.largest = reply["largest"]["memory"]
            for request, state in self._requests.items():
                if not state.is_withdrawn:
                    self._unsent.add(request)
            self._view.repeat_all()
            for grant in reply["containers"]:
                events.extend(self._allocated(grant))
        self._emit(events)

    def _sync_loop(self) -> None:
        last_answer = time.monotonic()
        wait = SYNC_INTERVAL
        while True:
            with self._changed:
                if not self._is_dirty and not self._is_ended:
                    self._changed.wait(timeout=wait)
                self._is_dirty = False
                if self._is_ended:
                    return
            wait = SYNC_INTERVAL
            try:
                self._sync_once()
                last_answer = time.monotonic()
            except HeadroomError as error:
                if not _is_transient(error):
                    self._end(f"the resource manager refused the application: {error}")
                    return
                logger.debug("no sync with %s: %s", self._client.address, error)
                wait = RETRY_INTERVAL
            except Exception:
                logger.exception("a sync failed; it is repeated")
                wait = RETRY_INTERVAL
            if time.monotonic() - last_answer > self._manager_timeout:
                self._end(
                    f"no answer from the resource manager {self._client.address} "
                    f"for {self._manager_timeout:.0f} s"
                )
                return

    def _sync_once(self) -> None:
        try:
            self._send_changes()
        except RequestRefused as error:
            if error.code != _OTHER_EPOCH:
                raise
            self._register()
            logger.info("registered %s again: the resource manager restarted", self.app)
            self._close_stream()
            with self._changed:
                self._is_dirty = True

    def _send_changes(self) -> None:
        with self._changed:
            asked = sorted(self._unsent)[:MAX_ASKS_PER_SYNC]
            drops = sorted(self._drops)
            releases = sorted(self._releases)
            patch = self._view.patch()
            body = {
                "attempt": self._attempt,
                "epoch": self._epoch,
                "ack": self._received,
                "asks": [self._requests[name].request.to_wire() for name in asked],
                "drop": drops,
                "release": releases,
                "job": patch,
            }
        reply = self._client.post(f"/v1/apps/{self.app}/sync", body)
        events: List[SessionEvent] = []
        with self._changed:
            self._unsent.difference_update(asked)
            self._drops.difference_update(drops)
            self._releases.difference_update(releases)
            if patch is not None:
                self._view.sent(patch)
            for name in drops:
                state = self._requests.get(name)
                # A grant that arrives after this answer belongs to no request: it is released.
                if state is not None and state.is_withdrawn:
                    del self._requests[name]
            for verdict in reply["verdicts"]:
                if verdict["verdict"] == "never" and verdict["request"] in self._requests:
                    state = self._requests.pop(verdict["request"])
                    self._view.infeasible(state.request.task, verdict["sentence"])
                    events.append(RequestInfeasible(verdict["request"], verdict["sentence"]))
            self._is_dirty = self._is_dirty or bool(self._unsent)
        self._emit(events)
        if reply["stop"]:
            self._end("the application was killed; `rmctl describe` shows the reason")

    # Update thread.

    def _update_loop(self) -> None:
        while not self._is_ended:
            try:
                query = {"epoch": self._epoch, "cursor": self._received}
                with self._client.lines(f"/v1/apps/{self.app}/updates", query=query) as lines:
                    self._stream = lines
                    # The end of the session closes the stream only if it is known by then.
                    if self._is_ended:
                        return
                    for line in lines:
                        self._emit(self._apply(line))
            except HeadroomError as error:
                logger.debug("the stream of updates ended: %s", error)
            except Exception as error:
                # A stream that another thread closes may fail in any way.
                if not self._is_ended:
                    logger.debug("the stream of updates failed: %r", error)
            self._stream = None
            with self._changed:
                if not self._is_ended:
                    self._changed.wait(timeout=RETRY_INTERVAL)

    def _apply(self, line: Mapping[str, Any]) -> List[SessionEvent]:
        kind = line["kind"]
        with self._changed:
            if kind == "alive" or line["cursor"] <= self._received:
                return []
            self._received = line["cursor"]
            if kind == "allocated":
                return self._allocated(line)
            if kind == "exited":
                return self._exited(line)
            if kind == "preempt_soon":
                for name, state in self._requests.items():
                    if state.container == line["container"]:
                        return [PreemptionAnnounced(name, str(line["why"]))]
            if kind == "node_draining":
                return [NodeDrainStarted(line["node"])]
        return []

    def _allocated(self, grant: Mapping[str, Any]) -> List[SessionEvent]:
        state = self._requests.get(grant["request"])
        if state is None or state.is_withdrawn:
            self._releases.add(grant["container"])
            self._wake()
            return []
        if state.container is not None:
            return []
        state.container = grant["container"]
        self._view.granted(state.request.task, grant["container"], grant["node"], _now())
        self._wake()
        return [ContainerGranted(grant["request"], grant["container"], grant["node"])]

    def _exited(self, line: Mapping[str, Any]) -> List[SessionEvent]:
        state = self._requests.pop(line["request"], None)
        if state is None:
            return []
        self._view.exited(state.request.task, line["report"], _now())
        self._unsent.discard(line["request"])
        self._drops.add(line["request"])
        # The acknowledgement goes with the next sync.
        self._wake()
        if state.is_withdrawn:
            return []
        return [ContainerExited(line["request"], ContainerEnd.from_wire(line["report"]))]


def _now() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


def _is_transient(error: HeadroomError) -> bool:
    if isinstance(error, RequestRefused):
        return error.status >= 500 or error.status in (421, 429)
    return isinstance(error, ClusterUnreachable)
