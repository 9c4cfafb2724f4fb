"""Futures of calls on the cluster."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import _base
from typing import Any, Dict, Generator, Optional, Protocol, Tuple, TypeVar

from headroom import _verdict
from headroom._html import CallCounts, future_table
from headroom._pickling import OmittedArgument, describe_call
from headroom.errors import AttemptReport

__all__ = ["CallRecord", "Future"]

T = TypeVar("T")


class CallOwner(Protocol):
    """The part of a job that a future needs."""

    app: str
    counts: CallCounts

    def cancel_call(self, record: CallRecord, running: bool) -> bool:
        """Cancels the call of a record. True if the cancellation was sent or is not needed."""


class CallRecord:
    """A call with its last reported state."""

    __slots__ = ("args", "key", "kwargs", "name", "owner", "result", "seconds", "state")

    def __init__(
        self, owner: CallOwner, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> None:
        self.owner = owner
        self.name = name
        # Large arguments are not kept: only their types are shown.
        self.args = tuple(map(_for_display, args[:8]))
        self.kwargs = {key: _for_display(value) for key, value in list(kwargs.items())[:8]}
        #: Run time on the node, without start and transport. Seconds; 0 until it has ended.
        self.seconds = 0.0
        #: Key of the task that the call is in at present.
        self.key = ""
        #: The last reported state.
        self.state: Dict[str, Any] = {}
        #: The ``ended`` message.
        self.result: Dict[str, Any] = {}

    def describe(self) -> str:
        """The call for messages."""
        return describe_call(self.name, self.args, self.kwargs)


def _for_display(value: Any) -> Any:
    kind = type(value)
    if kind in (int, float, bool, type(None)):
        return value
    if kind in (str, bytes):
        return value[:64]
    return OmittedArgument(kind.__name__)


class Future(concurrent.futures.Future[T]):
    """A future of the standard library that also reports the memory of its call."""

    def __init__(self, record: CallRecord) -> None:
        super().__init__()
        self._record = record

    @property
    def key(self) -> str:
        """Name of the call in the job, for :func:`headroom.attach`. Empty until it is submitted,
        and changed when a part of a map is submitted again."""
        return self._record.key

    @property
    def task(self) -> Optional[str]:
        """Id of the task for ``rmctl diagnose``; known when the call has ended."""
        task = self._record.result.get("task")
        return f"{self._record.owner.app}/{task}" if task else None

    @property
    def attempts(self) -> Tuple[AttemptReport, ...]:
        """All attempts of the call, the first one first. Until the call has ended, the present
        one at most."""
        record = self._record
        if record.result:
            return _verdict.attempt_reports(record.result)
        if not record.state.get("attempts"):
            return ()
        return (
            AttemptReport(
                number=int(record.state["attempts"]),
                size=int(record.state.get("memory", 0)),
                peak=None,
                verdict="",
                node=record.state.get("node"),
            ),
        )

    @property
    def verdict(self) -> Optional[str]:
        """Outcome of the last attempt: ``succeeded``, ``task_oom``, ``exit``, ``signal`` …;
        ``None`` until the call has ended."""
        return _verdict.verdict_of(self._record.result.get("reason")) or None

    @property
    def peak(self) -> Optional[int]:
        """Highest memory use of all attempts. Bytes; ``None`` if it was not measured."""
        peaks = [attempt.peak for attempt in self.attempts if attempt.peak is not None]
        return max(peaks, default=None)

    def explain(self) -> str:
        """The attempts with sizes, peaks and verdicts, and the remedy."""
        result = self._record.result
        state = str(result.get("outcome") or self._record.state.get("state") or "waiting")
        return _verdict.explain(
            self._record.describe(),
            self.task,
            state,
            self.attempts,
            str(result.get("message") or ""),
        )

    def _repr_html_(self) -> str:
        """The attempts as a table, for notebooks."""
        result = self._record.result
        state = str(result.get("outcome") or self._record.state.get("state") or "waiting")
        if self.cancelled():
            state = "cancelled"
        return future_table(self._record.describe(), state, self.task, self.attempts)

    def cancel(self, running: bool = False) -> bool:
        """Cancels the call if it waits. With ``running=True`` also ends one that runs; the future
        is cancelled when the cluster has ended it."""
        if super().cancel():
            with self._condition:
                if self._state == _base.CANCELLED:
                    self.set_running_or_notify_cancel()
                    self._record.owner.counts.add_cancelled()
            self._record.owner.cancel_call(self._record, running=False)
            return True
        if running and not self.done():
            return self._record.owner.cancel_call(self._record, running=True)
        return False

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio  # at its first use: it is large

        return asyncio.wrap_future(self).__await__()

    # For the job.

    def _begin(self) -> None:
        """The first attempt runs."""
        with self._condition:
            if self._state == _base.PENDING:
                self.set_running_or_notify_cancel()

    def _finish(self, value: Any, error: Optional[BaseException]) -> None:
        """The call has ended with a value or an error."""
        self._begin()
        if self.done():
            return  # cancelled meanwhile
        self._record.owner.counts.add_end(error)
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)

    def _finish_cancelled(self) -> None:
        """The cluster has ended the call on request, also while it ran."""
        with self._condition:
            if self._state == _base.RUNNING:
                self._state = _base.PENDING
        if super().cancel():
            with self._condition:
                if self._state == _base.CANCELLED:
                    self.set_running_or_notify_cancel()
                    self._record.owner.counts.add_cancelled()
