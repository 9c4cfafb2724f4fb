"""A live job: calls become tasks, and results become the results of futures."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from headroom import _verdict
from headroom._calls import (
    PROGRESS_SUFFIX,
    CallInput,
    ErrorParts,
    encode_payload,
    parse_stored,
    parse_value,
    read_reference,
)
from headroom._channel import ChannelHandler, SubmissionChannel
from headroom._futures import CallRecord, Future
from headroom._html import CallCounts
from headroom._http import RestClient
from headroom._job import CallOptions, JobSettings, stage_spec
from headroom._pickling import FunctionPickler, PickledFunction, dumps, stage_name
from headroom._store import SessionStore
from headroom._submission import MAX_INPUT_BYTES
from headroom.errors import HeadroomError, RemoteTraceback, SettingsError, TaskFailed, TaskLost

__all__ = ["Call", "LiveJob", "read_outcome"]

#: Largest pickle of a function that travels in the command of its stage. Bytes.
INLINE_FUNCTION = 4 << 10
#: The same without a store. Bytes.
INLINE_FUNCTION_WITHOUT_STORE = 60 << 10
#: Largest pickle of arguments that travels in the input. Bytes.
INLINE_ARGUMENTS = 36 << 10

_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Call(NamedTuple):
    """One call of a task."""

    future: Future[Any]
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]


@dataclass
class _Stage:
    name: str
    function: PickledFunction


@dataclass
class _Task:
    function: PickledFunction
    options: CallOptions
    calls: List[Call]
    #: Files of the store that belong to the task.
    files: List[str]
    cancelled: bool = False


class LiveJob(ChannelHandler):
    """The calls of one executor. Its threads keep it alive until the job has ended."""

    def __init__(
        self,
        rest: RestClient,
        app: str,
        settings: JobSettings,
        store: Optional[SessionStore],
        lost_after: float,
    ) -> None:
        self.app = app
        self.settings = settings
        #: The ended calls.
        self.counts = CallCounts()
        self._store = store
        self._pickler = FunctionPickler()
        self._lock = threading.Lock()
        self._stages: Dict[Tuple[str, CallOptions], _Stage] = {}
        self._stage_names: Dict[str, int] = {}
        self._tasks: Dict[str, _Task] = {}
        self._count = 0
        self._idle = threading.Condition(self._lock)
        self._submitting = 0
        self._held: Dict[int, List[Call]] = {}
        self._closing = False
        self._error: Optional[HeadroomError] = None
        self._session = uuid.uuid4().hex[:8]
        client = f"python-{socket.gethostname()[:24]}-{os.getpid()}-{self._session}"
        self._channel = SubmissionChannel(rest, app, client, self, lost_after)
        #: Called once after the last event.
        self.on_end: Optional[Callable[[], None]] = None
        #: Called with the job after that.
        self.on_removed: Optional[Callable[[LiveJob], None]] = None
        self._channel.start()

    # Calls.

    def submit(
        self, function: Callable[..., Any], calls: Sequence[Call], options: CallOptions
    ) -> None:
        """Submits calls as one task. Errors of pickling become the results of the futures."""
        try:
            pickled = self._pickler.pickle(function)
        except Exception as error:
            for call in calls:
                call.future._finish(None, error)
            return
        self._submit_pickled(pickled, list(calls), options)

    def _submit_pickled(
        self, function: PickledFunction, calls: List[Call], options: CallOptions
    ) -> None:
        with self._lock:
            self._count += 1
            self._submitting += 1
            key = f"{self._session}.{self._count}"
            stage = self._find_stage(function, options)
        try:
            task = _Task(function, options, calls, [])
            item = self._item(key, task, stage)
            with self._lock:
                if self._error is not None:
                    raise TaskLost(str(self._error)) from self._error
                self._tasks[key] = task
            for call in calls:
                call.future._record.key = key
            self._channel.add_task(stage.name, item)
        except Exception as error:
            with self._lock:
                self._tasks.pop(key, None)
            for call in calls:
                call.future._finish(None, error)
        finally:
            with self._lock:
                self._submitting -= 1
                self._notify_if_idle()

    def _find_stage(self, function: PickledFunction, options: CallOptions) -> _Stage:
        """The stage of a function's name and its options. With the lock held."""
        # Memory, priority and tags belong to a task; the other options belong to its stage.
        kept = CallOptions(
            slots=options.slots, timeout=options.timeout, idempotent=options.idempotent
        )
        found = self._stages.get((function.name, kept))
        if found is None:
            name = stage_name(function.name)
            number = self._stage_names[name] = self._stage_names.get(name, 0) + 1
            found = _Stage(name if number == 1 else f"{name}-{number}", function)
            self._stages[function.name, kept] = found
            argument = self._function_argument(function)
            spec = stage_spec(self.settings, function.name, argument, kept)
            self._channel.declare_stage(found.name, spec)
        return found

    def _function_argument(self, function: PickledFunction) -> str:
        payload = self._function_payload(function)
        if isinstance(payload, dict):
            import json

            return json.dumps(payload, separators=(",", ":"))
        return str(payload)

    def _function_payload(self, function: PickledFunction) -> Any:
        store = self._store
        limit = INLINE_FUNCTION if store else INLINE_FUNCTION_WITHOUT_STORE
        if len(function.data) <= limit:
            return encode_payload(function.data, None)
        if store is None:
            raise SettingsError(
                f"{function.name} has {len(function.data)} bytes when pickled, with everything "
                "that it refers to; give Executor(store=DIRECTORY) a directory that the client "
                "and all nodes see, or pass large data as arguments"
            )
        return encode_payload(None, store.put_content(function.digest, function.data))

    def _item(self, key: str, task: _Task, stage: _Stage) -> Dict[str, Any]:
        """The task on the wire."""
        data = dumps([(call.args, call.kwargs) for call in task.calls])
        same = task.function.digest == stage.function.digest
        store = self._store
        if len(data) <= INLINE_ARGUMENTS:
            arguments = encode_payload(data, None)
        elif store is not None:
            reference = store.put(f"{key}.arguments", data)
            task.files.append(reference.path)
            arguments = encode_payload(None, reference)
        else:
            raise SettingsError(
                f"the arguments of {task.function.name} have {len(data)} bytes when pickled; above "
                f"{INLINE_ARGUMENTS} bytes give Executor(store=DIRECTORY) a directory that the "
                "client and all nodes see, or pass the path of a file"
            )
        if store is not None and len(task.calls) > 1:
            task.files.append(os.path.join(store.path, key + PROGRESS_SUFFIX))
        text = CallInput(
            python=_PYTHON,
            function=None if same else self._function_payload(task.function),
            calls=arguments,
            length=len(task.calls),
            store=store.path if store is not None else "",
            key=key,
        ).to_text()
        if len(text) > MAX_INPUT_BYTES:
            raise SettingsError(
                f"the call of {task.function.name} has {len(text)} bytes, above the limit of "
                f"{MAX_INPUT_BYTES}; give Executor(store=DIRECTORY)"
            )
        item: Dict[str, Any] = {"key": key, "input": text}
        if task.options.memory is not None and task.options.memory != self.settings.memory:
            item["memory"] = task.options.memory
        if task.options.priority:
            item["priority"] = task.options.priority
        if task.options.tags:
            item["tags"] = dict(task.options.tags)
        return item

    def hold(self, calls: List[Call]) -> int:
        """Keeps the job open for calls that are submitted later. Returns a number for
        :meth:`release`."""
        with self._lock:
            self._count += 1
            self._held[self._count] = calls
            return self._count

    def release(self, number: int) -> None:
        """The calls of :meth:`hold` are submitted or cancelled."""
        with self._lock:
            self._held.pop(number, None)
            self._notify_if_idle()

    def cancel_call(self, record: CallRecord, running: bool) -> bool:
        """Cancels the task of a call when all its calls are cancelled."""
        with self._lock:
            task = self._tasks.get(record.key)
            if task is None:
                return not running
            if running and len(task.calls) > 1:
                return False
            if not running and not all(call.future.cancelled() for call in task.calls):
                return True
            task.cancelled = True
        for key in self._channel.cancel([record.key]):
            self._remove(key)
        return True

    # Events of the channel.

    def states_changed(self, tasks: List[Dict[str, Any]]) -> None:
        for row in tasks:
            task = self._tasks.get(str(row.get("key")))
            if task is None:
                continue
            for call in task.calls:
                call.future._record.state = row
                if row.get("state") == "running":
                    call.future._begin()

    def task_ended(self, key: str, result: Dict[str, Any]) -> None:
        task = self._tasks.get(key)
        if task is None:
            return
        try:
            self._resolve(task, result)
        except Exception as error:
            for call in task.calls:
                if not call.future.done():
                    call.future._finish(None, error)
        finally:
            self._remove(key)

    def tasks_refused(self, keys: List[str], error: HeadroomError) -> None:
        for key in keys:
            self._fail(key, error)

    def channel_ended(self, keys: List[str], error: HeadroomError, over: bool) -> None:
        with self._lock:
            self._error = error
            left = list(self._tasks)
        for key in left:
            self._fail(key, error)
        with self._lock:
            self._idle.notify_all()
        if self._store is not None:
            self._store.close()
        if self.on_end is not None:
            self.on_end()
        if self.on_removed is not None:
            self.on_removed(self)

    def _fail(self, key: str, error: HeadroomError) -> None:
        task = self._tasks.get(key)
        if task is None:
            return
        for call in task.calls:
            copy = pickle.loads(pickle.dumps(error))
            copy.__cause__ = error.__cause__
            call.future._finish(None, copy)
        self._remove(key)

    def _remove(self, key: str) -> None:
        with self._lock:
            task = self._tasks.pop(key, None)
            self._notify_if_idle()
        if task is not None and self._store is not None:
            for path in task.files:
                self._store.remove(path)

    def _notify_if_idle(self) -> None:
        if self._is_idle():
            if self._closing:
                self._channel.close()
            self._idle.notify_all()

    # Results.

    def _resolve(self, task: _Task, result: Dict[str, Any]) -> None:
        self.counts.add_attempts(result.get("attempts") or ())
        outcomes, partial = self._outcomes(result)
        for call in task.calls:
            call.future._record.result = result
        outcome = result.get("outcome")
        if outcome == "succeeded":
            self._deliver(task.calls, outcomes)
            rest = task.calls[len(outcomes) :]
            if rest and (partial or outcomes):
                self._submit_again(task, rest)
            else:
                for call in rest:
                    call.future._finish(None, self._failure(call, result, None))
        elif outcome == "cancelled":
            self._resolve_cancelled(task, result)
        else:
            self._resolve_failed(task, result, outcomes)

    def _outcomes(self, result: Dict[str, Any]) -> Tuple[List[bytes], bool]:
        text = result.get("value")
        if not text:
            return [], False
        outcomes, reference, partial = parse_value(text)
        if reference is not None:
            try:
                outcomes = parse_stored(read_reference(reference))
            finally:
                if self._store is not None:
                    self._store.remove(reference.path)
        return outcomes, partial

    def _deliver(self, calls: Sequence[Call], outcomes: Sequence[bytes]) -> None:
        for call, data in zip(calls, outcomes):
            try:
                value, error = read_outcome(data, call.future._record)
            except Exception as wrong:
                value, error = None, wrong
            call.future._finish(value, error)

    def _resolve_cancelled(self, task: _Task, result: Dict[str, Any]) -> None:
        for call in task.calls:
            if task.cancelled:
                call.future._finish_cancelled()
            else:
                message = result.get("message") or "cancelled by another client or a user"
                lost = TaskLost(
                    f"{call.future._record.describe()}: {message}",
                    task=f"{self.app}/{result.get('task')}",
                )
                call.future._finish(None, lost)

    def _resolve_failed(self, task: _Task, result: Dict[str, Any], outcomes: List[bytes]) -> None:
        """The call that the task was in fails; the others of the task run again."""
        calls = task.calls
        remote = _memory_error(outcomes[-1]) if outcomes else None
        if remote is not None:
            outcomes = outcomes[:-1]
        elif len(calls) > 1 and not result.get("value"):
            progress = self._progress(task)
            if progress is None:
                # The attempt did not report how far it came: each call runs alone.
                for call in calls:
                    self._submit_again(task, [call])
                return
            outcomes = progress
        self._deliver(calls, outcomes)
        for call in calls[len(outcomes) : len(outcomes) + 1]:
            call.future._finish(None, self._failure(call, result, remote))
        rest = calls[len(outcomes) + 1 :]
        if rest:
            self._submit_again(task, rest)

    def _progress(self, task: _Task) -> Optional[List[bytes]]:
        """Outcomes of a failed task with several calls, from its file in the store."""
        for path in task.files:
            if path.endswith(PROGRESS_SUFFIX):
                try:
                    with open(path, "rb") as file:
                        return parse_stored(file.read())
                except (OSError, ValueError):
                    return None
        return None

    def _submit_again(self, task: _Task, calls: List[Call]) -> None:
        left = [call for call in calls if not call.future.cancelled()]
        for call in left:
            call.future._record.result = {}
        if left:
            self._submit_pickled(task.function, left, task.options)

    def _failure(
        self, call: Call, result: Dict[str, Any], remote: Optional[Tuple[str, str]]
    ) -> HeadroomError:
        record = call.future._record
        return _verdict.failure(result, self.app, record.describe(), self.settings.cap, remote)

    # The end.

    @property
    def is_ended(self) -> bool:
        """True if the job takes no more calls."""
        return self._error is not None

    def open_futures(self) -> List[Future[Any]]:
        """The futures of all calls that have not ended."""
        with self._lock:
            groups = [*(task.calls for task in self._tasks.values()), *self._held.values()]
            return [call.future for calls in groups for call in calls]

    def close_when_idle(self) -> None:
        """The job ends after the last call."""
        with self._lock:
            self._closing = True
            self._notify_if_idle()

    def wait_idle(self, timeout: Optional[float] = None) -> bool:
        """Waits until all calls have ended."""
        with self._lock:
            return self._idle.wait_for(self._is_idle, timeout)

    def _is_idle(self) -> bool:
        return not (self._tasks or self._submitting or self._held)

    def wait_ended(self, timeout: float) -> None:
        """Waits until all calls have ended, and then ``timeout`` seconds for the end of the job."""
        while not (self.wait_idle(1.0) or self.is_ended):
            pass
        if not self._channel.ended.wait(timeout):
            self.abandon(f"{self.app} did not end in {timeout:.0f} s")

    def abandon(self, reason: str) -> None:
        """Ends the channel at once; calls without a result are lost."""
        self._channel.abandon(reason)


def read_outcome(data: bytes, record: CallRecord) -> Tuple[Any, Optional[BaseException]]:
    """The value or the error of one call."""
    outcome = pickle.loads(data)
    if outcome[0] == "ok":
        record.seconds = outcome[2]
        return outcome[1], None
    _, pickled, kind, text, trace, _ = outcome
    error: Optional[BaseException] = None
    if pickled is not None:
        try:
            error = pickle.loads(pickled)
            error = error.build() if isinstance(error, ErrorParts) else error
        except Exception:
            error = None
    if not isinstance(error, BaseException):
        error = TaskFailed(
            f"{record.describe()} raised {kind}: {text} (the exception itself cannot be pickled)"
        )
    error.__cause__ = RemoteTraceback(trace)
    return None, error


def _memory_error(data: bytes) -> Optional[Tuple[str, str]]:
    """Text and traceback if the outcome is a ``MemoryError``."""
    try:
        outcome = pickle.loads(data)
    except Exception:
        return None
    if outcome[0] != "error" or outcome[1] is None:
        return None
    try:
        error = pickle.loads(outcome[1])
    except Exception:
        return None
    return (f"{outcome[2]}: {outcome[3]}", outcome[4]) if isinstance(error, MemoryError) else None
