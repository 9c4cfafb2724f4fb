"""The executor: ``concurrent.futures`` on a Headroom cluster."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import os
import sys
import threading
import uuid
import weakref
from dataclasses import replace
from types import TracebackType
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from headroom._futures import CallRecord, Future
from headroom._html import executor_table
from headroom._http import ClientSettings, RestClient, load_settings
from headroom._job import (
    EXECUTOR_RESERVE,
    FORK_SERVER_RESERVE,
    IMPORTS_RESERVE,
    CallOptions,
    JobSettings,
    default_name,
    submit_job,
)
from headroom._livejob import Call, LiveJob
from headroom._local_cluster import LocalCluster, find_rmctl
from headroom._map import ChunkPlan, ChunkSize, MapResults, check_chunksize
from headroom._pickling import qualified_name, stage_name
from headroom._progress import ProgressDisplay
from headroom._sizes import Memory, Time, parse_memory, parse_time
from headroom._store import SessionStore, default_store_directory
from headroom._task import TaskFunction
from headroom.errors import ClusterUnreachable, RequestRefused, SettingsError

__all__ = ["Executor", "ExecutorView"]

T = TypeVar("T")

#: Longest wait for the end of a job without calls. Seconds.
END_TIMEOUT = 30.0


class _CallSubmitter(concurrent.futures.Executor):
    """The calls of an executor, shared by :class:`Executor` and its views."""

    _options: CallOptions

    def _target(self) -> Executor:
        raise NotImplementedError

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Runs ``fn(*args, **kwargs)`` on the cluster."""
        executor = self._target()
        function, options = _unwrap(fn, self._options)
        job = executor._usable_job()
        future: Future[T] = Future(CallRecord(job, qualified_name(function), args, kwargs))
        job.submit(function, [Call(future, args, kwargs)], options)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: ChunkSize = "auto",
        buffersize: Optional[int] = None,
        ordered: bool = True,
        progress: bool = False,
    ) -> MapResults[T]:
        """Runs ``fn`` for each tuple of arguments and returns an iterator over the results.

        ``chunksize="auto"`` puts short calls into one task. With ``ordered=False`` results come as
        calls end. ``progress=True`` shows progress on standard error. The iterables are read at
        once; ``buffersize`` is accepted for compatibility and must be ``None``.
        """
        if buffersize is not None:
            raise SettingsError("buffersize is not supported: pass a slice of the iterable instead")
        size = check_chunksize(chunksize)
        executor = self._target()
        function, options = _unwrap(fn, self._options)
        job = executor._usable_job()
        name = qualified_name(function)
        calls: List[Call] = []
        for args in zip(*iterables):
            calls.append(Call(Future(CallRecord(job, name, args, {})), args, {}))
        futures = [call.future for call in calls]
        display = ProgressDisplay(len(calls), name) if progress and calls else None

        def submit_chunk(chunk: Sequence[Call]) -> None:
            job.submit(function, chunk, options)

        ChunkPlan(calls, submit_chunk, job, size, executor.worker_count)
        return MapResults(futures, timeout, ordered, display)

    async def amap(
        self, fn: Callable[..., T], *iterables: Iterable[Any], chunksize: ChunkSize = "auto"
    ) -> AsyncIterator[T]:
        """The results of :meth:`map` in order, for ``async for``."""
        results = self.map(fn, *iterables, chunksize=chunksize)
        left = results._left
        try:
            while left:
                yield await left[-1]
                left.pop()
        finally:
            results.close()

    def with_(
        self,
        *,
        memory: Optional[Memory] = None,
        cpus: Optional[int] = None,
        timeout: Optional[Time] = None,
        priority: Optional[int] = None,
        idempotent: Optional[bool] = None,
        tags: Optional[Mapping[str, str]] = None,
    ) -> ExecutorView:
        """The same executor with other options for its calls."""
        return ExecutorView(
            self._target(),
            merge_options(self._options, memory, cpus, timeout, priority, idempotent, tags),
        )


def merge_options(  # noqa: PLR0917
    base: CallOptions,
    memory: Optional[Memory],
    cpus: Optional[int],
    timeout: Optional[Time],
    priority: Optional[int],
    idempotent: Optional[bool],
    tags: Optional[Mapping[str, str]] = None,
) -> CallOptions:
    """Options with some of them replaced."""
    changes: Dict[str, Any] = {}
    if memory is not None:
        changes["memory"] = parse_memory(memory, "memory")
    if cpus is not None:
        if isinstance(cpus, bool) or not isinstance(cpus, int) or not 1 <= cpus <= 1024:
            raise SettingsError(f"cpus={cpus!r} of a call is not a whole number from 1 to 1024")
        changes["slots"] = cpus
    if timeout is not None:
        changes["timeout"] = parse_time(timeout, "timeout")
    if priority is not None:
        changes["priority"] = int(priority)
    if idempotent is not None:
        changes["idempotent"] = bool(idempotent)
    if tags is not None:
        changes["tags"] = check_tags(tags)
    return replace(base, **changes)


def check_tags(tags: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    """The tags of a call."""
    if len(tags) > MAX_TAGS:
        raise SettingsError(f"tags= has {len(tags)} labels; a call has at most {MAX_TAGS}")
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise SettingsError(f"tags={{{name!r}: {value!r}}} of a call must be texts")
    return tuple(sorted(tags.items()))


def _unwrap(fn: Callable[..., Any], options: CallOptions) -> Any:
    """The function of a task, and its options over those of the executor."""
    if isinstance(fn, TaskFunction):
        return fn.function, merge_options(options, **fn.options)
    return fn, options


#: Most tags of a call.
MAX_TAGS = 16
#: Most calls of one process, if the user names no number.
CALLS_PER_PROCESS = 1000


class Executor(_CallSubmitter):
    """Runs calls on a Headroom cluster, with a memory limit for each call.

    A call that ran out of memory runs again with more. Sizes are learned for each function. The
    executor has the interface of :class:`concurrent.futures.Executor`.

    :param max_workers: calls that run at once; as many as fit if it is left out.
    :param memory: first size of a call, such as ``"512MiB"``.
    :param cpus: processors of a call.
    :param cap: largest size of a call; the largest node if it is left out.
    :param timeout: longest run time of an attempt.
    :param retries: attempts after a plain failure, such as a segmentation fault.
    :param imports: modules that workers import once, before the first call.
    :param warm: calls are forked from a process that has imported them already.
    :param max_tasks_per_child: calls that one forked process may run, one after the other, while
        they are short, succeed, and leave no memory, thread, process or open file behind; 1 gives
        each call a new process. Without a number, up to 1,000.
    :param python: the Python of the nodes; this one if the cluster runs on this host.
    :param env: environment variables of the calls.
    :param store: directory for large data that the client and all nodes see; a private directory
        of the user if the cluster runs on this host; ``False`` for none.
    :param grow: a call near its limit may get more memory while it runs; otherwise it is killed
        and runs again.
    :param name: name of the job; that of the script if it is left out.
    :param addr: address of the resource manager, or those of all, separated by commas. If it is
        left out, the settings of ``rmctl`` apply. If they name no address and none answers,
        ``rmctl dev`` is started for the life of the executor.
    :param local: ``True`` starts ``rmctl dev`` always, ``False`` never.
    :param lease: time after which the job of a client that died ends.
    :param lost_after: time without an answer of the cluster after which calls are lost.
    """

    def __init__(
        self,
        max_workers: Optional[int] = None,
        *,
        memory: Memory = "512MiB",
        cpus: float = 1,
        cap: Optional[Memory] = None,
        timeout: Optional[Time] = None,
        retries: int = 0,
        imports: Sequence[str] = (),
        warm: bool = True,
        max_tasks_per_child: Optional[int] = None,
        python: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        store: Union[str, bool, None] = None,
        reserve: Optional[Memory] = None,
        name: Optional[str] = None,
        queue: Optional[str] = None,
        priority: int = 0,
        sizes: str = "learned",
        mode: str = "headroom",
        grow: bool = True,
        addr: Optional[str] = None,
        context: Optional[str] = None,
        local: Optional[bool] = None,
        lease: Time = 60.0,
        lost_after: Time = 60.0,
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child <= 0:
                raise ValueError("max_tasks_per_child must be >= 1")
        if not cpus > 0:
            raise SettingsError(f"cpus={cpus!r} must be above 0")
        if retries < 0:
            raise SettingsError(f"retries={retries!r} must not be negative")
        self._options = CallOptions(
            timeout=None if timeout is None else parse_time(timeout, "timeout")
        )
        self._lock = threading.Lock()
        self._is_shut = False
        self._cluster: Optional[LocalCluster] = None
        first = parse_memory(memory, "memory")
        settings = load_settings(addr, context=context)
        rest = self._connect(settings, local)
        opened: Optional[SessionStore] = None
        try:
            on_this_host = rest.settings.is_local
            extra = IMPORTS_RESERVE if imports else 0
            usual = EXECUTOR_RESERVE + (FORK_SERVER_RESERVE + extra if warm else 0)
            job = JobSettings(
                name=stage_name(name) if name else default_name(),
                memory=first,
                cpus=cpus,
                workers=max_workers,
                cap=None if cap is None else parse_memory(cap, "cap"),
                queue=queue,
                priority=priority,
                retries=retries,
                imports=tuple(imports),
                warm=warm,
                python=python or (sys.executable if on_this_host else "python3"),
                env=dict(env or {}),
                python_path=_python_path() if on_this_host else (),
                reserve=usual if reserve is None else parse_memory(reserve, "reserve"),
                sizes=sizes,
                mode=mode,
                lease=parse_time(lease, "lease"),
                local=on_this_host,
                grow=grow,
                weightless=self._cluster is not None,
                calls_per_process=max_tasks_per_child or CALLS_PER_PROCESS,
            )
            opened = _open_store(store, on_this_host)
            app, self._layout = submit_job(rest, job)
            self._job = LiveJob(rest, app, job, opened, parse_time(lost_after, "lost_after"))
        except BaseException:
            if opened is not None:
                opened.close()
            self._stop_cluster()
            raise
        self._rest = rest
        _live_jobs.add(self._job)
        self._job.on_removed = _live_jobs.discard
        cluster = self._cluster
        self._finalizer = weakref.finalize(self, _abandoned, self._job, cluster)
        self._finalizer.atexit = False
        _live_executors.add(self)

    def _connect(self, settings: ClientSettings, local: Optional[bool]) -> RestClient:
        rest = RestClient(settings)
        if local is not True:
            try:
                rest.get("/v1/version")
                return rest
            except ClusterUnreachable as error:
                rmctl = find_rmctl()
                if local is False or settings.is_explicit:
                    raise
                if rmctl is None:
                    raise ClusterUnreachable(
                        f"{error}. No cluster runs on this host, and rmctl was not found on PATH "
                        "or in HEADROOM_BIN_DIR; give Executor(addr=...), or install Headroom"
                    ) from error
        else:
            rmctl = find_rmctl()
            if rmctl is None:
                raise SettingsError(
                    "local=True needs rmctl on PATH or in HEADROOM_BIN_DIR: install Headroom"
                )
        self._cluster = LocalCluster(rmctl)
        return RestClient(ClientSettings(address=self._cluster.address, source="rmctl dev"))

    @property
    def app(self) -> str:
        """Id of the application, for ``rmctl ps`` and the web page."""
        return self._job.app

    @property
    def address(self) -> str:
        """Address of the resource manager."""
        return self._rest.address

    @property
    def worker_count(self) -> int:
        """Number of calls that run at once at most."""
        return self._layout.count * self._layout.slots

    def _target(self) -> Executor:
        return self

    def _usable_job(self) -> LiveJob:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
        if _interpreter_ends:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        return self._job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. The job ends after its last call.

        ``wait=True`` returns when all calls and the job have ended. ``cancel_futures=True`` cancels
        the calls that have not started.
        """
        with self._lock:
            self._is_shut = True
        if cancel_futures:
            for future in self._job.open_futures():
                future.cancel()
        self._job.close_when_idle()
        if self._cluster is not None and not wait:
            self._job.on_end = self._cluster.stop
            if self._job.is_ended:
                self._stop_cluster()
        if not wait:
            return
        self._job.wait_ended(END_TIMEOUT)
        self._finalizer.detach()
        self._stop_cluster()
        self._rest.close()
        _live_executors.discard(self)

    def kill(self) -> None:
        """Ends all calls and the job at once."""
        with self._lock:
            self._is_shut = True
        with contextlib.suppress(ClusterUnreachable, RequestRefused):
            self._rest.post(f"/v1/apps/{self.app}/kill", {"reason": "ended by its client"})
        self._job.abandon(f"{self.app} was ended by its client")
        self._finalizer.detach()
        self._stop_cluster()
        _live_executors.discard(self)

    def _stop_cluster(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.shutdown(wait=True)
        else:
            for future in self._job.open_futures():
                future.cancel(running=True)
            self.shutdown(wait=True, cancel_futures=True)

    def __repr__(self) -> str:
        return f"<headroom.Executor {self.app} at {self.address}: {self.worker_count} workers>"

    def _repr_html_(self) -> str:
        """The counts of the calls as a table, for notebooks."""
        job = self._job
        left = [future for future in job.open_futures() if not future.done()]
        running = sum(future.running() for future in left)
        return executor_table(
            self.app,
            self.address,
            self.worker_count,
            job.counts,
            running=running,
            waiting=len(left) - running,
        )


class ExecutorView(_CallSubmitter):
    """An executor with other options for its calls. It ends with the executor."""

    def __init__(self, executor: Executor, options: CallOptions) -> None:
        self._executor = executor
        self._options = options

    def _target(self) -> Executor:
        return self._executor

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing: the executor itself is shut down."""


def _python_path() -> Tuple[str, ...]:
    """Directories that the nodes' Python needs to find this package."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    installed = os.path.basename(package) in ("site-packages", "dist-packages")
    paths = [os.path.abspath(path) for path in given]
    return tuple(paths if installed or package in paths else [package, *paths])


def _open_store(store: Union[str, bool, None], on_this_host: bool) -> Optional[SessionStore]:
    if store is False or (store in (None, True) and not on_this_host):
        return None
    root = store if isinstance(store, str) else default_store_directory()
    return SessionStore(root, f"{os.getpid()}-{uuid.uuid4().hex[:12]}")


_live_executors: weakref.WeakSet[Executor] = weakref.WeakSet()
_live_jobs: Set[LiveJob] = set()
_interpreter_ends = False


def _abandoned(job: LiveJob, cluster: Optional[LocalCluster]) -> None:
    """The executor was collected without a shutdown: its calls still run to their end."""
    if cluster is not None:
        job.on_end = cluster.stop
    job.close_when_idle()


@atexit.register
def _finish_executors() -> None:
    """Waits for the calls of executors that were not shut down, as the standard library does."""
    global _interpreter_ends
    _interpreter_ends = True
    for executor in list(_live_executors):
        executor.shutdown(wait=True)
    for job in list(_live_jobs):
        # Its executor was collected, or was shut down without waiting.
        job.close_when_idle()
        job.wait_ended(END_TIMEOUT)
