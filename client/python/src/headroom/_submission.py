"""The client's side of the submission channel as a pure state machine.

It decides which lines are sent, and turns received lines into events. It reads no clock and no
socket. Everything that the client sends may be repeated: a stage by its name, a batch by its id, a
task by its key. After a lost connection the machine repeats all lines without an answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, Iterable, List, Optional, Set, Tuple, Union

__all__ = [
    "BatchRefused",
    "ChannelRefused",
    "JobOver",
    "JournalLost",
    "StageRefused",
    "SubmissionState",
    "TaskEnded",
    "TaskStates",
]

#: Version of the protocol.
PROTOCOL_VERSION = 1
#: The protocol's name in the ``Upgrade`` header.
UPGRADE = "headroom-submission/1"
#: Maximum length of a line. Bytes.
MAX_LINE_BYTES = 1 << 20
#: Maximum length of the input of a task. Bytes.
MAX_INPUT_BYTES = 64 << 10
#: Tasks that go into one batch at most.
MAX_BATCH_TASKS = 256
#: Inputs that go into one batch at most, so that its line stays below the limit. Bytes.
MAX_BATCH_BYTES = 768 << 10

Message = Dict[str, Any]


@dataclass(frozen=True)
class TaskEnded:
    """A task has ended; reported once."""

    #: The client's key of the task.
    key: str
    #: The whole ``ended`` message.
    result: Message


@dataclass(frozen=True)
class TaskStates:
    """Present states of tasks that have not ended."""

    tasks: List[Message]


@dataclass(frozen=True)
class StageRefused:
    """A stage is invalid; its tasks never run."""

    name: str
    keys: List[str]
    error: Message


@dataclass(frozen=True)
class BatchRefused:
    """A batch is invalid; its tasks never run."""

    keys: List[str]
    error: Message


@dataclass(frozen=True)
class ChannelRefused:
    """The whole connection is refused."""

    error: Message


@dataclass(frozen=True)
class JournalLost:
    """The master has lost its journal: the client must connect again and repeat everything."""


@dataclass(frozen=True)
class JobOver:
    """The job has ended; no message follows."""

    succeeded: bool
    diagnostics: str


Event = Union[
    TaskEnded, TaskStates, StageRefused, BatchRefused, ChannelRefused, JournalLost, JobOver
]


@dataclass
class _Stage:
    spec: Message
    sent: bool = False
    accepted: bool = False
    refused: Optional[Message] = None


@dataclass
class _Task:
    stage: str
    item: Message
    size: int
    cancelled: bool = False
    batch: Optional[str] = None


@dataclass
class _Batch:
    stage: str
    keys: List[str]
    sent: bool = False


@dataclass
class SubmissionState:
    """The stages and tasks of a job, as far as the client knows. Pure."""

    #: The client's name for itself, the same on every connection.
    client: str
    #: Cursor of the last processed result.
    cursor: int = 0
    #: True if results of the tasks of other clients are reported, too.
    is_observer: bool = False
    #: True between the ``welcome`` and the loss of a connection.
    welcomed: bool = False
    _credit: int = 0
    _stages: Dict[str, _Stage] = field(default_factory=dict)
    _tasks: Dict[str, _Task] = field(default_factory=dict)
    _queue: Deque[str] = field(default_factory=deque)
    _batches: Dict[str, _Batch] = field(default_factory=dict)
    _batch_count: int = 0
    _cancels: Set[str] = field(default_factory=set)
    _acknowledged: int = 0
    _close_asked: bool = False
    _close_sent: bool = False

    # Requests of the client.

    def declare_stage(self, name: str, spec: Message) -> None:
        """Declares a stage; a known name changes nothing."""
        self._stages.setdefault(name, _Stage(spec))

    def add_task(self, stage: str, item: Message) -> Optional[Message]:
        """Adds a task of a declared stage. Returns the error of the stage if it was refused."""
        entry = self._stages[stage]
        if entry.refused is not None:
            return entry.refused
        key = item["key"]
        size = len(item.get("input") or "") + sum(map(len, item.get("args", ()))) + 200
        self._tasks[key] = _Task(stage, item, size)
        self._queue.append(key)
        return None

    def cancel(self, keys: Iterable[str]) -> List[str]:
        """Cancels tasks. Returns the keys of those that were not sent yet: they are gone."""
        gone = []
        for key in keys:
            task = self._tasks.get(key)
            if task is None:
                if self.is_observer:
                    self._cancels.add(key)
                continue
            if task.batch is None and not task.cancelled:
                task.cancelled = True
                del self._tasks[key]
                gone.append(key)
            elif not task.cancelled:
                task.cancelled = True
                self._cancels.add(key)
        return gone

    def close(self) -> None:
        """No more tasks follow. The line is sent after the last task."""
        self._close_asked = True

    def forget_all(self) -> List[str]:
        """Drops all tasks that have not ended, and returns their keys."""
        keys = list(self._tasks)
        self._tasks.clear()
        self._queue.clear()
        self._batches.clear()
        self._cancels.clear()
        return keys

    # The connection.

    def first_line(self) -> Message:
        """The first line of a new connection."""
        return {
            "kind": "submitter",
            "version": PROTOCOL_VERSION,
            "client": self.client,
            "after": self.cursor,
        }

    def disconnected(self) -> None:
        """The connection is lost: everything that was not answered is sent again."""
        self.welcomed = False
        self._close_sent = False
        for stage in self._stages.values():
            stage.sent = stage.accepted
        for batch in self._batches.values():
            batch.sent = False
        self._cancels = {key for key, task in self._tasks.items() if task.cancelled and task.batch}

    def restart(self) -> None:
        """The master has no memory of this job: its results begin at 1 again."""
        self.repeat_all()
        self.cursor = 0
        self._acknowledged = 0

    def repeat_all(self) -> None:
        """Everything that has not ended is sent again, also accepted batches."""
        self.disconnected()
        self._batches.clear()
        for stage in self._stages.values():
            stage.sent = stage.accepted = False
        for task in self._tasks.values():
            task.batch = None
        self._queue = deque(self._tasks)

    # State for the writer.

    @property
    def open_tasks(self) -> int:
        """Number of tasks that have not ended."""
        return len(self._tasks)

    @property
    def queued(self) -> int:
        """Number of tasks that are in no batch yet."""
        return len(self._queue)

    @property
    def answers_awaited(self) -> int:
        """Number of batches without an answer."""
        return len(self._batches)

    @property
    def is_closed(self) -> bool:
        """True if no more tasks may be added."""
        return self._close_asked

    def outgoing(self) -> List[Message]:
        """The messages to send now. They count as sent."""
        if not self.welcomed:
            return []
        lines: List[Message] = []
        for batch_id, batch in self._batches.items():
            if not batch.sent:
                lines.extend(self._stage_lines(batch.stage))
                batch.sent = True
                lines.append(self._batch_line(batch_id, batch))
        lines.extend(self._new_batches())
        cancelled = sorted(filter(self._is_sent, self._cancels))
        if cancelled:
            lines.append({"kind": "cancel", "keys": cancelled})
            self._cancels.difference_update(cancelled)
        if self.cursor > self._acknowledged:
            self._acknowledged = self.cursor
            lines.append({"kind": "ack", "cursor": self.cursor})
        finished = not self._queue and not self._batches
        if self._close_asked and not self._close_sent and finished:
            self._close_sent = True
            lines.append({"kind": "close"})
        return lines

    def _is_sent(self, key: str) -> bool:
        task = self._tasks.get(key)
        return task is None or task.batch is not None

    def _stage_lines(self, name: str) -> List[Message]:
        stage = self._stages[name]
        if stage.sent:
            return []
        stage.sent = True
        return [{"kind": "stage", "name": name, "spec": stage.spec}]

    def _batch_line(self, batch_id: str, batch: _Batch) -> Message:
        items = [self._tasks[key].item for key in batch.keys if key in self._tasks]
        return {"kind": "tasks", "batch": batch_id, "stage": batch.stage, "items": items}

    def _new_batches(self) -> List[Message]:
        lines: List[Message] = []
        credit = self._credit - sum(len(batch.keys) for batch in self._batches.values())
        while self._queue and credit > 0:
            keys, stage = self._take_batch(credit)
            if not keys:
                continue
            self._batch_count += 1
            batch_id = f"{self.client[:40]}.{self._batch_count}"
            batch = _Batch(stage, keys, sent=True)
            self._batches[batch_id] = batch
            for key in keys:
                self._tasks[key].batch = batch_id
            credit -= len(keys)
            lines.extend(self._stage_lines(stage))
            lines.append(self._batch_line(batch_id, batch))
        return lines

    def _take_batch(self, credit: int) -> Tuple[List[str], str]:
        """Tasks of one stage from the front of the queue."""
        keys: List[str] = []
        stage = ""
        size = 0
        while self._queue and len(keys) < min(credit, MAX_BATCH_TASKS):
            task = self._tasks.get(self._queue[0])
            if task is None:
                self._queue.popleft()
                continue
            if keys and (task.stage != stage or size + task.size > MAX_BATCH_BYTES):
                break
            stage = task.stage
            size += task.size
            keys.append(self._queue.popleft())
        return keys, stage

    # Received messages.

    def received(self, message: Message) -> List[Event]:
        """Takes one message of the master. Unknown kinds are ignored."""
        kind = message.get("kind")
        if kind == "welcome":
            return self._on_welcome(message)
        if kind == "stage_accepted":
            stage = self._stages.get(str(message.get("name")))
            if stage is not None:
                stage.accepted = True
        elif kind == "accepted":
            self._batches.pop(str(message.get("batch")), None)
            self._credit = int(message.get("credit", 0))
        elif kind == "credit":
            self._credit = int(message.get("credit", 0))
        elif kind == "refused":
            return self._on_refused(message)
        elif kind == "states":
            return [TaskStates(list(message.get("tasks") or ()))]
        elif kind == "ended":
            return self._on_ended(message)
        elif kind == "over":
            return [JobOver(bool(message.get("succeeded")), str(message.get("diagnostics") or ""))]
        return []

    def _on_welcome(self, message: Message) -> List[Event]:
        if int(message.get("cursor", 0)) < self.cursor:
            self.restart()
            return [JournalLost()]
        self.welcomed = True
        self._credit = int(message.get("credit", 0))
        return []

    def _on_ended(self, message: Message) -> List[Event]:
        cursor = int(message.get("cursor", 0))
        if cursor <= self.cursor:
            return []
        self.cursor = cursor
        key = str(message.get("key"))
        task = self._tasks.pop(key, None)
        self._cancels.discard(key)
        return [TaskEnded(key, message)] if task is not None or self.is_observer else []

    def _on_refused(self, message: Message) -> List[Event]:
        subject = message.get("subject")
        error: Message = message.get("error") or {}
        if subject is None:
            if error.get("code") == "HR0409" and self.cursor > 0:
                # The master has fewer results than were processed: its journal is another one.
                self.restart()
                return [JournalLost()]
            return [ChannelRefused(error)]
        subject = str(subject)
        batch = self._batches.pop(subject, None)
        if batch is not None:
            if error.get("retryable") or self._has_unsettled_stage(batch.stage):
                return self._queue_again(batch)
            return [BatchRefused(self._drop(batch.keys), error)]
        stage = self._stages.get(subject)
        if stage is None:
            return []
        stage.refused = error
        keys = [key for key, task in self._tasks.items() if task.stage == subject]
        for batch_id in [name for name, b in self._batches.items() if b.stage == subject]:
            del self._batches[batch_id]
        return [StageRefused(subject, self._drop(keys), error)]

    def _has_unsettled_stage(self, name: str) -> bool:
        stage = self._stages[name]
        return not stage.accepted and stage.refused is None

    def _queue_again(self, batch: _Batch) -> List[Event]:
        """A batch beyond the credit goes back to the front of the queue."""
        self._credit = 0
        keys = [key for key in batch.keys if key in self._tasks]
        for key in keys:
            self._tasks[key].batch = None
        self._queue.extendleft(reversed(keys))
        return []

    def _drop(self, keys: Iterable[str]) -> List[str]:
        gone = [key for key in keys if self._tasks.pop(key, None) is not None]
        self._cancels.difference_update(gone)
        return gone
