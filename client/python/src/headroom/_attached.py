"""Results of the calls of an earlier process, such as a notebook's kernel before its restart."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from typing import Any, Dict, List, Optional

from headroom import _verdict
from headroom._calls import parse_stored, parse_value, read_reference, value_header
from headroom._channel import ChannelHandler, SubmissionChannel
from headroom._futures import CallRecord, Future
from headroom._html import CallCounts
from headroom._http import RestClient, load_settings
from headroom._livejob import read_outcome
from headroom._sizes import Time, parse_time
from headroom.errors import HeadroomError, TaskLost

__all__ = ["AttachedJob", "attach"]


def attach(
    app: str,
    *,
    addr: Optional[str] = None,
    context: Optional[str] = None,
    lost_after: Time = 60.0,
) -> AttachedJob:
    """Connects to the calls of a process that has ended, by the id of their executor.

    The process must have ended without a shutdown of its executor, at most ``lease`` ago. The
    results of calls that ended before it did are gone: it has received them.
    """
    rest = RestClient(load_settings(addr, context=context))
    return AttachedJob(rest, app, parse_time(lost_after, "lost_after"))


class AttachedJob(ChannelHandler):
    """The calls of another process. It adds none."""

    def __init__(self, rest: RestClient, app: str, lost_after: float) -> None:
        self.app = app
        self.counts = CallCounts()
        self._rest = rest
        self._lock = threading.Lock()
        self._futures: Dict[str, Future[Any]] = {}
        self._error: Optional[HeadroomError] = None
        name = f"attached-{socket.gethostname()[:24]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._channel = SubmissionChannel(rest, app, name, self, lost_after, is_observer=True)
        self._channel.start()

    def future(self, key: str) -> Future[Any]:
        """The future of a call, by the ``key`` of its earlier future.

        It waits for ever if the key is wrong, or if the earlier process has the result.
        """
        with self._lock:
            found = self._futures.get(key)
            if found is None:
                found = self._futures[key] = Future(CallRecord(self, key, (), {}))
                found._record.key = key
                if self._error is not None:
                    found._finish(None, TaskLost(str(self._error)))
            return found

    def received(self) -> List[str]:
        """The keys of all calls whose results have arrived."""
        with self._lock:
            return [key for key, future in self._futures.items() if future.done()]

    def close(self) -> None:
        """No more calls follow: the job ends when all calls have ended."""
        self._channel.close()

    def __enter__(self) -> AttachedJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._channel.ended.wait()

    def __repr__(self) -> str:
        return f"<headroom.AttachedJob {self.app} at {self._rest.address}>"

    # For its futures.

    def cancel_call(self, record: CallRecord, running: bool) -> bool:
        """Cancels a call, waiting or running: only the master knows which."""
        self._channel.cancel([record.key])
        return True

    # Events of the channel.

    def states_changed(self, tasks: List[Dict[str, Any]]) -> None:
        for row in tasks:
            future = self.future(str(row.get("key")))
            future._record.state = row
            if row.get("state") == "running":
                future._begin()

    def task_ended(self, key: str, result: Dict[str, Any]) -> None:
        future = self.future(key)
        future._record.result = result
        self.counts.add_attempts(result.get("attempts") or ())
        try:
            value, error = self._outcome(future, result)
        except Exception as wrong:
            value, error = None, wrong
        if result.get("outcome") == "cancelled" and error is None:
            future._finish_cancelled()
        else:
            future._finish(value, error)

    def _outcome(self, future: Future[Any], result: Dict[str, Any]) -> Any:
        if result.get("outcome") == "cancelled":
            return None, None
        outcomes, reference, _ = parse_value(result.get("value") or value_header())
        if reference is not None:
            outcomes = parse_stored(read_reference(reference))
        if result.get("outcome") != "succeeded" or not outcomes:
            call = future._record.describe()
            return None, _verdict.failure(result, self.app, call, None, None)
        if len(outcomes) == 1:
            return read_outcome(outcomes[0], future._record)
        pairs = [read_outcome(outcome, future._record) for outcome in outcomes]
        wrong = next((error for _, error in pairs if error is not None), None)
        return [value for value, _ in pairs], wrong

    def channel_ended(self, keys: List[str], error: HeadroomError, over: bool) -> None:
        with self._lock:
            self._error = error
            left = [future for future in self._futures.values() if not future.done()]
        for future in left:
            future._finish(None, TaskLost(str(error)))
