"""The submission channel: two threads around :class:`SubmissionState`.

The reader connects, reads, and connects again after a loss. The writer sends. The state has one
lock; handlers run in the reader's thread without it.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from typing import Any, Dict, Iterable, List, Optional

from headroom._http import RestClient, UpgradedConnection
from headroom._submission import (
    MAX_LINE_BYTES,
    UPGRADE,
    BatchRefused,
    ChannelRefused,
    Event,
    JobOver,
    JournalLost,
    StageRefused,
    SubmissionState,
    TaskEnded,
    TaskStates,
)
from headroom.errors import ClusterUnreachable, HeadroomError, RequestRefused, TaskLost

__all__ = ["ChannelHandler", "SubmissionChannel"]

#: Interval of heartbeats to the master. Seconds.
HEARTBEAT_INTERVAL = 4.0
#: Longest time without data from the master, which sends a heartbeat every 5 s. Seconds.
SILENCE_TIMEOUT = 20.0
#: Time that a task waits for others to share its batch while a batch has no answer. Seconds.
BATCH_DELAY = 0.001
#: Largest wait between two attempts to connect. Seconds.
MAX_BACKOFF = 2.0
#: Number of results after which they are acknowledged at once.
ACK_AFTER = 256

_NO_ANSWER = ClusterUnreachable("the connection was closed before the first answer")
_FINAL_STATES = frozenset({"finished", "failed", "killed"})


class ChannelHandler:
    """Receives the events of a channel, in the reader's thread."""

    def task_ended(self, key: str, result: Dict[str, Any]) -> None:
        """A task has ended; called once for each key."""

    def states_changed(self, tasks: List[Dict[str, Any]]) -> None:
        """Attempts have started or changed."""

    def tasks_refused(self, keys: List[str], error: HeadroomError) -> None:
        """Tasks never run."""

    def channel_ended(self, keys: List[str], error: HeadroomError, over: bool) -> None:
        """No more events follow. ``keys`` have not ended; ``over`` is true if the job has."""


class SubmissionChannel:
    """A live job's channel, from its first connection to the end of the job."""

    def __init__(
        self,
        rest: RestClient,
        app: str,
        client: str,
        handler: ChannelHandler,
        lost_after: float,
        *,
        is_observer: bool = False,
    ) -> None:
        self.app = app
        self._rest = rest
        self._handler = handler
        self._lost_after = lost_after
        self._state = SubmissionState(client, is_observer=is_observer)
        self._changed = threading.Condition()
        self._connection: Optional[UpgradedConnection] = None
        self._ending = False
        self._unacknowledged = 0
        #: True while the writer sends without the lock.
        self._writing = False
        #: End of a line whose beginning is sent; the writer sends it before anything else.
        self._unsent = b""
        #: Time of the last message to the master.
        self._last_sent = time.monotonic()
        self._master_attempt: Optional[int] = None
        #: Set after the last event.
        self.ended = threading.Event()
        #: Set after the first ``welcome``.
        self.connected = threading.Event()
        self._reader = threading.Thread(
            target=self._read_all, name=f"headroom-{app}-reader", daemon=True
        )
        self._writer = threading.Thread(
            target=self._write_all, name=f"headroom-{app}-writer", daemon=True
        )

    def start(self) -> None:
        """Starts both threads."""
        self._reader.start()
        self._writer.start()

    def declare_stage(self, name: str, spec: Dict[str, Any]) -> None:
        """Declares a stage; a known name changes nothing."""
        with self._changed:
            self._state.declare_stage(name, spec)

    def add_task(self, stage: str, item: Dict[str, Any]) -> None:
        """Adds a task. Raises the error of its stage, or that of a channel that has ended."""
        with self._changed:
            if self._ending:
                raise TaskLost(f"{self.app} accepts no more calls: its channel has ended")
            refused = self._state.add_task(stage, item)
            self._send_soon()
        if refused is not None:
            raise RequestRefused.of_problem(0, refused, "the stage was refused")

    def _send_soon(self) -> None:
        """Sends the new task at once if the channel is idle, else leaves it to the writer. With the
        lock held.

        An idle channel has room for a line, so this thread need not wake another one.
        """
        state, connection = self._state, self._connection
        is_idle = (
            state.queued == 1
            and state.welcomed
            and not state.answers_awaited
            and not (self._writing or self._unsent)
        )
        if is_idle and connection and not isinstance(connection.socket, ssl.SSLSocket):
            try:
                data = b"".join(map(_encode, self._outgoing()))
                self._unsent = data[connection.send_now(data) :]
            except OSError:
                connection.close()
            except BaseException:
                # Ctrl-C: it is unknown how much was sent. The next connection repeats it.
                connection.close()
                raise
        if self._unsent or state.queued == 1 or (state.queued and state.queued % 64 == 0):
            self._changed.notify_all()

    def cancel(self, keys: Iterable[str]) -> List[str]:
        """Cancels tasks. Returns the keys of those that no event will follow for."""
        with self._changed:
            gone = self._state.cancel(keys)
            self._changed.notify_all()
            return gone

    def close(self) -> None:
        """No more tasks follow; the job ends when all have ended."""
        with self._changed:
            self._state.close()
            self._changed.notify_all()

    def abandon(self, reason: str) -> None:
        """Ends the channel at once; tasks that have not ended are lost."""
        self._end(TaskLost(reason), over=False)

    # Reader.

    def _read_all(self) -> None:
        backoff = 0.05
        silent_since: Optional[float] = time.monotonic()
        while not self._ending:
            try:
                connection = self._connect()
            except (ClusterUnreachable, RequestRefused) as error:
                now = time.monotonic()
                waits = isinstance(error, RequestRefused)
                silent_since = None if waits else (silent_since or now)
                if self._is_final(error, silent_since, now):
                    return
                self._pause(backoff)
                backoff = min(MAX_BACKOFF, backoff * 2)
                continue
            except HeadroomError as error:
                self._end(error, over=False)
                return
            answer = self._read_connection(connection)
            if answer == "welcome":
                backoff = 0.05
                silent_since = None
            elif not self._ending:
                now = time.monotonic()
                silent_since = None if answer == "refused" else (silent_since or now)
                if self._is_final(_NO_ANSWER, silent_since, now):
                    return
                self._pause(backoff)
                backoff = min(MAX_BACKOFF, backoff * 2)

    def _connect(self) -> UpgradedConnection:
        self._check_application()
        connection = self._rest.upgrade(f"/v1/apps/{self.app}/channel", UPGRADE)
        try:
            connection.set_timeout(SILENCE_TIMEOUT)
            with self._changed:
                first = self._state.first_line()
            connection.send(_encode(first))
        except OSError as error:
            connection.close()
            raise ClusterUnreachable(f"the channel of {self.app} broke: {error}") from error
        return connection

    def _check_application(self) -> None:
        """Finds the end of the application, and a master that was started again."""
        view = self._rest.get(f"/v1/apps/{self.app}", query={"tasks": "none"})
        if view.get("state") in _FINAL_STATES:
            raise TaskLost(
                f"{self.app} has ended ({view['state']}): "
                f"{view.get('diagnostics') or 'no reason was reported'}"
            )
        attempt = view.get("attempt")
        with self._changed:
            if self._master_attempt is not None and attempt != self._master_attempt:
                # Another run of the master may have no journal. A repeated task is known by its
                # key, so repeating everything is safe.
                self._state.repeat_all()
            self._master_attempt = attempt

    def _is_final(self, error: HeadroomError, silent_since: Optional[float], now: float) -> bool:
        """Ends the channel if waiting is useless."""
        # 410: the application has just ended; the next look at it finds the reason.
        if isinstance(error, RequestRefused) and not error.retryable and error.status != 410:
            self._end(error, over=False)
            return True
        if silent_since is not None and now - silent_since > self._lost_after:
            lost = TaskLost(
                f"the cluster has not answered for {self._lost_after:.0f} s; calls of {self.app} "
                f"that had no result are lost: {error}"
            )
            lost.__cause__ = error
            self._end(lost, over=False)
            return True
        return False

    def _read_connection(self, connection: UpgradedConnection) -> str:
        """Reads to the end of the connection. Returns the kind of the first answer."""
        first = ""
        with self._changed:
            self._connection = connection
        try:
            while not self._ending:
                line = connection.readline(MAX_LINE_BYTES + 2)
                if not line.endswith(b"\n"):
                    break
                message = json.loads(line.decode())
                first = first or str(message.get("kind"))
                if not self._take(message):
                    break
        except (OSError, ValueError):
            pass
        finally:
            with self._changed:
                self._connection = None
                self._unsent = b""
                self._state.disconnected()
                self._changed.notify_all()
            connection.close()
        return first

    def _take(self, message: Dict[str, Any]) -> bool:
        """Processes one message; false if the connection is of no more use."""
        with self._changed:
            events = self._state.received(message)
            kind = message.get("kind")
            if kind in ("welcome", "refused"):
                self._changed.notify_all()
            elif kind in ("accepted", "credit"):
                if self._state.queued or self._state.is_closed:
                    self._changed.notify_all()
            elif kind == "ended":
                # Otherwise the acknowledgement is sent together with the next task or heartbeat.
                self._unacknowledged += 1
                is_last = self._state.is_closed and self._state.open_tasks == 0
                if self._unacknowledged >= ACK_AFTER or is_last:
                    self._changed.notify_all()
        if kind == "welcome":
            self.connected.set()
        usable = [self._dispatch(event) for event in events]
        return all(usable)

    def _dispatch(self, event: Event) -> bool:
        handler = self._handler
        if isinstance(event, TaskEnded):
            handler.task_ended(event.key, event.result)
        elif isinstance(event, TaskStates):
            handler.states_changed(event.tasks)
        elif isinstance(event, (StageRefused, BatchRefused)):
            error = RequestRefused.of_problem(0, event.error, "the tasks were refused")
            handler.tasks_refused(event.keys, error)
        elif isinstance(event, ChannelRefused):
            error = RequestRefused.of_problem(0, event.error, "the channel was refused")
            if not error.retryable:
                self._end(error, over=False)
            return False
        elif isinstance(event, JournalLost):
            return False
        elif isinstance(event, JobOver):
            outcome = "finished" if event.succeeded else "failed"
            self._end(TaskLost(f"{self.app} has ended ({outcome}): {event.diagnostics}"), over=True)
            return False
        return True

    def _end(self, error: HeadroomError, over: bool) -> None:
        with self._changed:
            if self._ending:
                return
            self._ending = True
            connection = self._connection
            keys = self._state.forget_all()
            if over and connection is not None:
                self._send_ack(connection)
            self._changed.notify_all()
        if connection is not None:
            connection.close()
        try:
            self._handler.channel_ended(keys, error, over)
        finally:
            self.ended.set()

    def _send_ack(self, connection: UpgradedConnection) -> None:
        try:
            connection.send(_encode({"kind": "ack", "cursor": self._state.cursor}))
        except OSError:
            pass

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._ending:
                self._changed.wait(seconds)

    # Writer.

    def _write_all(self) -> None:
        while True:
            with self._changed:
                if self._ending:
                    return
                self._gather()
                connection = self._connection
                data, self._unsent = self._unsent, b""
                if connection is not None:
                    data += b"".join(map(_encode, self._outgoing()))
                silent = time.monotonic() - self._last_sent
                if not data and silent < HEARTBEAT_INTERVAL:
                    self._changed.wait(HEARTBEAT_INTERVAL - silent)
                    continue
                self._last_sent = time.monotonic()
                if connection is None or not self._state.welcomed:
                    continue
                self._writing = True
            try:
                connection.send(data or _encode({"kind": "alive"}))
            except OSError:
                connection.close()
            finally:
                with self._changed:
                    self._writing = False

    def _outgoing(self) -> List[Dict[str, Any]]:
        """The messages to send now. With the lock held."""
        lines = self._state.outgoing()
        if lines:
            self._unacknowledged = 0
            self._last_sent = time.monotonic()
        return lines

    def _gather(self) -> None:
        """Lets tasks of the same moment share a batch while an earlier batch has no answer."""
        state = self._state
        if state.answers_awaited and 0 < state.queued < 256:
            self._changed.wait(BATCH_DELAY)


_encode_json = json.JSONEncoder(separators=(",", ":")).encode


def _encode(message: Dict[str, Any]) -> bytes:
    return _encode_json(message).encode() + b"\n"
