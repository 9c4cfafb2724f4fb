"""Maps: many calls of one function, in chunks."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Generic, Iterator, List, Optional, Sequence, TypeVar, Union

from headroom._futures import Future
from headroom._livejob import Call, LiveJob
from headroom._progress import ProgressDisplay
from headroom.errors import SettingsError

__all__ = ["ChunkPlan", "MapResults"]

T = TypeVar("T")

ChunkSize = Union[int, str]

#: Calls that run alone before the size of chunks is chosen.
PROBES = 32
#: Calls with a longer mean run time stay alone. Seconds.
SHORT_CALL = 0.050
#: Run time that a chunk should have. Seconds.
CHUNK_SECONDS = 0.100
#: Largest chunk.
MAX_CHUNK = 512

SubmitChunk = Callable[[Sequence[Call]], None]


def check_chunksize(chunksize: ChunkSize) -> Optional[int]:
    """The number of calls in a chunk; ``None`` for an automatic one."""
    if chunksize == "auto":
        return None
    if isinstance(chunksize, bool) or not isinstance(chunksize, int):
        raise SettingsError(f"chunksize={chunksize!r} is not a whole number or 'auto'")
    if chunksize < 1:
        raise ValueError("chunksize must be >= 1.")
    return chunksize


def chunk_length(mean_seconds: float, left: int, workers: int) -> int:
    """Calls in a chunk, by their mean run time.

    >>> chunk_length(0.2, 1000, 4), chunk_length(0.01, 1000, 4), chunk_length(0.00001, 10000, 4)
    (1, 10, 512)
    """
    if mean_seconds >= SHORT_CALL:
        return 1
    wanted = int(CHUNK_SECONDS / max(mean_seconds, 1e-6))
    fair = -(-left // max(1, workers * 4))
    return max(1, min(wanted, fair, MAX_CHUNK))


class ChunkPlan:
    """Submits calls in chunks; the size is chosen when the first calls have ended."""

    def __init__(
        self,
        calls: Sequence[Call],
        submit: SubmitChunk,
        job: LiveJob,
        chunksize: Optional[int],
        workers: int,
    ) -> None:
        self._job = job
        self._submit = submit
        self._workers = workers
        self._lock = threading.Lock()
        self._rest: List[Call] = []
        self._probes: List[Call] = []
        self._ended = 0
        if chunksize is not None:
            self._submit_chunks(calls, chunksize)
            return
        self._probes = list(calls[:PROBES])
        self._rest = list(calls[PROBES:])
        self._needed = max(1, min(len(self._probes), 8))
        # The job stays open until the rest is submitted.
        self._hold = job.hold(self._rest) if self._rest else 0
        for call in self._probes:
            submit([call])
        if self._rest:
            for call in self._probes:
                call.future.add_done_callback(self._probe_ended)

    def _submit_chunks(self, calls: Sequence[Call], size: int) -> None:
        for start in range(0, len(calls), size):
            self._submit(calls[start : start + size])

    def _probe_ended(self, _: Any) -> None:
        with self._lock:
            self._ended += 1
            if self._ended < self._needed or not self._rest:
                return
            rest, self._rest = self._rest, []
            probes, self._probes = self._probes, []
        times = [call.future._record.seconds for call in probes if call.future.done()]
        mean = sum(times) / max(1, len(times))
        left = [call for call in rest if not call.future.cancelled()]
        size = chunk_length(mean, len(left), self._workers)
        try:
            # Another thread submits, so that results are read meanwhile.
            threading.Thread(target=self._submit_rest, args=(left, size), daemon=True).start()
        except RuntimeError:
            self._submit_rest(left, size)  # the interpreter ends, and starts no more threads

    def _submit_rest(self, calls: Sequence[Call], size: int) -> None:
        try:
            self._submit_chunks(calls, size)
        finally:
            self._job.release(self._hold)


class MapResults(Iterator[T], Generic[T]):
    """The results of a map, in order or as they come."""

    def __init__(
        self,
        futures: Sequence[Future[T]],
        timeout: Optional[float],
        ordered: bool,
        progress: Optional[ProgressDisplay],
    ) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout
        self._left: List[Future[T]] = list(reversed(futures))
        self._ready: Optional[queue.SimpleQueue[Future[T]]] = None
        self._progress = progress
        self._is_read = False
        if not ordered:
            self._ready = queue.SimpleQueue()
            for future in futures:
                future.add_done_callback(self._put)
        if progress is not None:
            for future in futures:
                future.add_done_callback(lambda _: progress.add())

    def _put(self, future: Any) -> None:
        if self._ready is not None:
            self._ready.put(future)

    def __iter__(self) -> MapResults[T]:
        return self

    def __next__(self) -> T:
        self._is_read = True
        if not self._left:
            raise StopIteration
        left = None if self._end is None else max(0.0, self._end - time.monotonic())
        try:
            if self._ready is None:
                result = self._left[-1].result(left)
                self._left.pop()
            else:
                try:
                    future = self._ready.get(timeout=left)
                except queue.Empty:
                    raise TimeoutError from None
                self._left.pop()
                result = future.result()
        except BaseException:
            self.close()
            raise
        return result

    def close(self) -> None:
        """Cancels the calls that have not started."""
        left, self._left = self._left, []
        for future in left:
            future.cancel()
        if self._progress is not None:
            self._progress.close()

    def __del__(self) -> None:
        # Calls of a map that was never read run to their end, as in the standard library.
        if getattr(self, "_is_read", False) and self._left:
            self.close()
