"""Submitit on Headroom: ``submitit.AutoExecutor(folder, cluster="headroom")``.

Submitit finds the classes of this module by the entry points of the package. A call of
``submit`` is an application with one task, a call of ``map_array`` an application with an array.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import shlex
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import (
    Any,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    Union,
)
from urllib.parse import quote

from submitit.core import core, utils
from submitit.core import logger as submitit_logger

from headroom._batch import MAX_STAGE_NAME, BatchJob, escape_places, learned_size, name_of
from headroom._batch_watch import BatchWatcher, TaskEnd
from headroom._http import ClientSettings, RestClient, load_settings
from headroom._submitit_environment import (
    ARRAY_VARIABLE,
    DEFAULT_SIGNAL_DELAY,
    DELAY_VARIABLE,
    HeadroomJobEnvironment,
)
from headroom.errors import ClusterUnreachable, HeadroomError, RequestRefused

__all__ = ["HeadroomExecutor", "HeadroomJob", "HeadroomJobEnvironment", "JobMemoryError"]

ResultType = TypeVar("ResultType", covariant=True)  # noqa: PLC0105

GIB = 1 << 30

#: Memory of a job without ``mem_gb``. GiB.
DEFAULT_MEM_GB = 2.0

#: Time limit of a job without ``timeout_min``. Minutes; that of the other executors of submitit.
DEFAULT_TIMEOUT_MIN = 5

#: Longest interval between two status calls for all jobs. Seconds.
STATUS_INTERVAL = 1

#: Time for which a submission is repeated while the resource manager does not respond. Seconds.
SUBMIT_TIMEOUT = 60.0

#: Variables that jobs get from the environment of the caller, if they are set there.
DEFAULT_EXPORT = (
    "PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LD_LIBRARY_PATH",
)

#: Lines of standard error in the exception of a job without a result.
_TAIL_LINES = 30


class JobMemoryError(utils.UncompletedJobError, MemoryError):
    """A job that needs more memory than it may get. The text has its sizes and the remedy."""


class HeadroomInfoWatcher(core.InfoWatcher):
    """The states of all jobs of one resource manager, by two calls for all of them."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(delay_s=STATUS_INTERVAL)
        self.client = RestClient(settings)
        self._batch = BatchWatcher(self.client)
        self._ends: Dict[Tuple[str, int], TaskEnd] = {}
        self._cancelled: Set[str] = set()
        self._jobs: Dict[Tuple[str, int], str] = {}
        self._lock = threading.RLock()

    def register_job(self, job_id: str) -> None:
        """Registers a job, also one of an earlier session."""
        with self._lock:
            super().register_job(job_id)
            app, index = split_job_id(job_id)
            key = (app, index or 0)
            self._jobs[key] = job_id
            if key not in self._ends:
                self._batch.add(app, None, [key[1]], is_array=index is not None)

    def mark_cancelled(self, job_id: str) -> None:
        """Notes that the caller has cancelled the job."""
        with self._lock:
            self._cancelled.add(job_id)

    def end_of(self, job_id: str) -> Optional[TaskEnd]:
        """The end of a job, from the latest update."""
        app, index = split_job_id(job_id)
        return self._ends.get((app, index or 0))

    def update_if_long_enough(self, mode: str) -> None:
        """As in the base class, with a constant interval: a call costs little."""
        assert mode in ("standard", "force", "cache")
        interval = 0.001 if mode == "force" else self._delay_s
        if mode != "cache" and time.time() - self._last_status_check > interval:
            self.update()

    def update(self) -> None:
        """Reads the states of all jobs."""
        with self._lock:
            self._num_calls += 1
            try:
                ends = self._batch.poll()
            except (ClusterUnreachable, RequestRefused) as error:
                submitit_logger.get_logger().warning(f"The states of jobs may be old: {error}")
                ends = []
            self._batch.take_news()
            self._last_status_check = time.time()
            for end in ends:
                self._ends[end.app, end.index] = end
            for (app, index), job_id in self._jobs.items():
                state = self._state(app, index, job_id)
                self._info_dict[job_id] = {"JobID": job_id, "State": state}

    def _state(self, app: str, index: int, job_id: str) -> str:
        end = self._ends.get((app, index))
        if end is not None:
            if end.succeeded:
                return "COMPLETED"
            if end.killed or job_id in self._cancelled:
                return "CANCELLED"
            verdict = end.report.verdict if end.report else ""
            return {"timeout": "TIMEOUT", **_MEMORY_STATES}.get(verdict, "FAILED")
        return "RUNNING" if self._batch.state(app) == "running" else "PENDING"

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The state in the words of Slurm."""
        return str(self.get_info(job_id, mode=mode).get("State", "UNKNOWN"))


_MEMORY_STATES = dict.fromkeys(
    ("heap_oom", "overhead_oom", "task_oom", "stalled_at_limit"), "OUT_OF_MEMORY"
)


def split_job_id(job_id: str) -> Tuple[str, Optional[int]]:
    """Application and index of a job; the index is ``None`` outside of an array.

    >>> split_job_id("train.7_3"), split_job_id("train_a.8")
    (('train.7', 3), ('train_a.8', None))
    """
    head, dot, tail = job_id.rpartition(".")
    number, _, index = tail.partition("_")
    return f"{head}{dot}{number}", int(index) if index else None


_watchers: Dict[ClientSettings, HeadroomInfoWatcher] = {}
_watchers_lock = threading.Lock()


def _watcher_of(settings: ClientSettings) -> HeadroomInfoWatcher:
    with _watchers_lock:
        if settings not in _watchers:
            _watchers[settings] = HeadroomInfoWatcher(settings)
        return _watchers[settings]


class HeadroomJob(core.Job[ResultType]):
    """A job on Headroom. Its id is that of the application, or ``APP_INDEX`` in an array."""

    _results_timeout_s = 2

    def __init__(
        self,
        folder: Union[Path, str],
        job_id: str,
        tasks: Sequence[int] = (0,),
        settings: Optional[ClientSettings] = None,
    ) -> None:
        self._settings = settings or load_settings()
        super().__init__(folder, job_id, tasks)

    @property
    def watcher(self) -> HeadroomInfoWatcher:  # type: ignore[override]
        """The watcher that all jobs of a resource manager share."""
        return _watcher_of(self._settings)

    def __getstate__(self) -> Dict[str, Any]:
        """The job without the secret token, which is read from the environment again."""
        settings = dataclasses.replace(self._settings, token=None)
        return {**self.__dict__, "_settings": settings}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        token = os.environ.get("HEADROOM_TOKEN")
        settings = dataclasses.replace(state["_settings"], token=token)
        super().__setstate__({**state, "_settings": settings})

    def cancel(self, check: bool = True) -> None:
        """Ends the job. In an array, only this one. A job that has ended stays as it is."""
        app, index = split_job_id(self.job_id)
        self.watcher.mark_cancelled(self.job_id)
        body = {"reason": "cancelled by submitit"}
        try:
            if index is None:
                self.watcher.client.post(f"/v1/apps/{quote(app)}/kill", body)
            else:
                self.watcher.client.post(f"{self._task_path()}/kill", body)
        except HeadroomError as error:
            ended = isinstance(error, RequestRefused) and error.code == "HR0409"
            if check and not ended:
                raise RuntimeError(f"job {self.job_id} was not cancelled: {error}") from error

    def explain(self) -> str:
        """The attempts of the job with sizes and verdicts, and the remedy, as text."""
        from headroom._report import report_of

        return report_of(split_job_id(self.job_id)[0], self._row()).text

    def _interrupt(self) -> None:
        """Ends the running attempt as a preemption does; Headroom starts another one."""
        body = {"reason": "interrupted by submitit"}
        self.watcher.client.post(f"{self._task_path()}/retry", body)

    def _row(self) -> Mapping[str, Any]:
        """The row of the task."""
        app, index = split_job_id(self.job_id)
        view = self.watcher.client.get(f"/v1/apps/{quote(app)}", query={"tasks": "all"})
        for row in (view.get("job") or {}).get("tasks") or []:
            if int(str(row["task"]).rpartition("/")[2]) == (index or 0):
                found: Mapping[str, Any] = row
                return found
        raise RuntimeError(f"the application master of {app} has not reported its tasks yet")

    def _task_path(self) -> str:
        stage, _, index = str(self._row()["task"]).rpartition("/")
        app = split_job_id(self.job_id)[0]
        return f"/v1/apps/{quote(app)}/tasks/{quote(stage)}/{index}"

    def _get_outcome_and_result(self) -> Tuple[str, Any]:
        """As in the base class. A job without a result explains its end."""
        if not self.paths.result_pickle.exists():
            self.watcher.update_if_long_enough("force")
            end = self.watcher.end_of(self.job_id)
            if end is not None and not end.succeeded:
                raise self._failure(end)
        outcome: Tuple[str, Any] = super()._get_outcome_and_result()
        return outcome

    def _failure(self, end: TaskEnd) -> utils.UncompletedJobError:
        state = self.state
        lines = [f"Job {self.job_id} ended without a result (state: {state})"]
        if end.report:
            lines.append(end.report.text)
        if end.diagnostics and end.diagnostics not in "".join(lines):
            lines.append(f"reason: {end.diagnostics}")
        printed = (self.stderr() or "").splitlines()[-_TAIL_LINES:]
        if printed:
            lines += ["end of standard error:", *printed]
        lines.append(f"logs: {self.paths.stderr} · {self.paths.stdout}")
        kind = JobMemoryError if state == "OUT_OF_MEMORY" else utils.UncompletedJobError
        return kind("\n".join(lines))


class HeadroomExecutor(core.PicklingExecutor):
    """Submits jobs to Headroom.

    ``folder`` is seen by the caller and by all nodes. ``max_num_timeout`` is the number of times
    that a checkpointable job runs again after its time limit. ``python`` is the interpreter on the
    nodes. Address and credentials are found as ``rmctl`` finds them; ``addr`` or ``context``
    override them.
    """

    job_class = HeadroomJob

    def __init__(
        self,
        folder: Union[Path, str],
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: Optional[str] = None,
        *,
        addr: Optional[str] = None,
        context: Optional[str] = None,
    ) -> None:
        super().__init__(folder, max_num_timeout, max_pickle_size_gb)
        self.python = python or sys.executable
        self._settings = load_settings(addr, context=context)

    @classmethod
    def affinity(cls) -> int:
        """Above the local executor if an address is set in the environment."""
        return 2 if os.environ.get("HEADROOM_ADDR") else 0

    @classmethod
    def _valid_parameters(cls) -> Set[str]:
        return set(_PARAMETERS)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        unknown = sorted(set(kwargs) - set(_PARAMETERS) - set(_SHARED_PARAMETERS))
        if unknown:
            known = "\n".join(f"  - {name}: {text}" for name, text in _PARAMETERS.items())
            raise ValueError(f"unknown parameters: {', '.join(unknown)}; known are:\n{known}")
        for name in ("nodes", "tasks_per_node"):
            if kwargs.get(name, 1) != 1:
                raise ValueError(
                    f"{name}={kwargs[name]}: a job on Headroom is one process on one node; "
                    "use map_array for many"
                )
        if kwargs.get("gpus_per_node", 0):
            raise ValueError("gpus_per_node: Headroom does not schedule GPUs")
        super()._internal_update_parameters(**kwargs)

    def _num_tasks(self) -> int:
        return 1

    @property
    def _submitit_command_str(self) -> str:
        return shlex.join(self._command())

    def _command(self) -> List[str]:
        """The command of a task."""
        words = [self.python, "-u", "-m", "headroom._submitit_task", str(self.folder)]
        setup = list(self.parameters.get("setup") or [])
        if setup:
            words = ["sh", "-c", " && ".join([*setup, f"exec {shlex.join(words)}"])]
        return [escape_places(word) for word in words]

    def _internal_process_submissions(
        self, delayed_submissions: List[utils.DelayedSubmission]
    ) -> List[core.Job[Any]]:
        """Submits one application for all calls."""
        timeout = self.parameters.get("timeout_min", DEFAULT_TIMEOUT_MIN)
        pickles = self._dump(delayed_submissions, timeout)
        is_array = len(delayed_submissions) > 1
        batch = self._batch(_stage_of(delayed_submissions[0].function), len(pickles), is_array)
        app = self._post(batch)
        jobs: List[core.Job[Any]] = []
        for index, pickle in enumerate(pickles):
            job_id = f"{app}_{index}" if is_array else app
            job: HeadroomJob[Any] = HeadroomJob(self.folder, job_id, settings=self._settings)
            job.paths.move_temporary_file(pickle, "submitted_pickle")
            jobs.append(job)
        return jobs

    def _dump(self, submissions: Sequence[utils.DelayedSubmission], timeout: int) -> List[Path]:
        """Writes the calls into the folder; returns the files."""
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for delayed in submissions:
            file = folder / f"{uuid.uuid4().hex}.pkl"
            delayed.set_timeout(timeout, self.max_num_timeout)
            delayed.dump(file)
            files.append(file)
            size = file.stat().st_size * len(submissions) / GIB
            if size > self.max_pickle_size_gb and len(files) == 1:
                file.unlink()
                raise RuntimeError(
                    f"{len(submissions)} calls have about {size:.2f} GiB of arguments, more than "
                    f"max_pickle_size_gb={self.max_pickle_size_gb}; pass paths instead of data"
                )
        return files

    def _batch(self, stage: str, tasks: int, is_array: bool) -> BatchJob:
        """The application of ``tasks`` calls."""
        given = self.parameters
        name = name_of(given.get("name", "submitit"))
        timeout = given.get("timeout_min", DEFAULT_TIMEOUT_MIN) * 60
        memory = int(given.get("mem_gb", DEFAULT_MEM_GB) * GIB)
        cap = given.get("cap_gb")
        if given.get("learn", True):
            memory = max(memory, self._learned_size(name, stage, cap) or 0)
        return BatchJob(
            name=name,
            stage=stage,
            command=self._command(),
            memory=memory,
            directory=os.getcwd(),
            tasks=tasks if is_array else None,
            cpus=given.get("cpus_per_task", 1),
            parallel=given.get("array_parallelism"),
            env=self._environment(is_array),
            # An attempt has the time limit, and again after each checkpoint.
            timeout=timeout * (self.max_num_timeout + 1) + 60,
            cap=None if cap is None else max(int(cap * GIB), memory),
            mode=given.get("mode"),
            grow=given.get("grow"),
            runtime="python",
            queue=given.get("queue"),
            priority=given.get("priority", 0),
        )

    def _learned_size(self, name: str, stage: str, cap_gb: Optional[float]) -> Optional[int]:
        try:
            rows = RestClient(self._settings).get("/v1/suggestions", query={"job": name})
        except HeadroomError:
            return None
        size = learned_size(rows, stage, self._user())
        return min(size, int(cap_gb * GIB)) if size and cap_gb else size

    def _environment(self, is_array: bool) -> Dict[str, str]:
        given = self.parameters
        names = given.get("export", DEFAULT_EXPORT)
        env = {name: os.environ[name] for name in names if name in os.environ}
        env.update({name: str(value) for name, value in (given.get("env") or {}).items()})
        env["SUBMITIT_EXECUTOR"] = self.name()
        env[DELAY_VARIABLE] = str(given.get("signal_delay_s", DEFAULT_SIGNAL_DELAY))
        if is_array:
            env[ARRAY_VARIABLE] = "1"
        if given.get("stderr_to_stdout"):
            env["SUBMITIT_STDERR_TO_STDOUT"] = "1"
        return {name: escape_places(value) for name, value in env.items()}

    def _user(self) -> Optional[str]:
        """The name of the submitting user; a client that authenticates states none."""
        if self._settings.cert or self._settings.read_token():
            return None
        return getpass.getuser()

    def _post(self, batch: BatchJob) -> str:
        """Submits an application; returns its id. The idempotency key makes repeating safe."""
        body = batch.submission(f"submitit-{uuid.uuid4().hex}", self._user())
        deadline = time.monotonic() + SUBMIT_TIMEOUT
        wait = 0.1
        with RestClient(self._settings) as client:
            while True:
                try:
                    return str(client.post("/v1/apps", body)["app"])
                except (ClusterUnreachable, RequestRefused) as error:
                    final = isinstance(error, RequestRefused) and not error.retryable
                    if final or time.monotonic() + wait > deadline:
                        raise utils.FailedSubmissionError(str(error)) from error
                time.sleep(wait)
                wait = min(wait * 2, 5.0)

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        """Not used: there is no submission file."""
        return ""

    def _make_submission_command(self, submission_file_path: Path) -> List[str]:
        """Not used: jobs are submitted by the REST interface."""
        return []

    @staticmethod
    def _get_job_id_from_submission_command(string: Union[bytes, str]) -> str:
        """Not used: the response of the resource manager has the id."""
        return string if isinstance(string, str) else string.decode()


#: Parameters of this executor, each with the prefix ``headroom_`` in an ``AutoExecutor``.
_PARAMETERS: Dict[str, str] = {
    "queue": "queue of the jobs",
    "priority": "priority in the queue, -1000 to 1000",
    "cap_gb": "memory that no job exceeds, GiB",
    "mode": "reaction to memory failures: headroom, or fixed for none",
    "grow": "False kills a job at its limit instead of giving it more memory while it runs",
    "learn": "False starts with mem_gb also if earlier jobs of the function needed more",
    "array_parallelism": "number of jobs of an array that run at once",
    "signal_delay_s": "time between the checkpoint and the end of the time limit, seconds",
    "setup": "shell commands that run before the job",
    "env": "additional environment variables of the jobs",
    "export": "names of variables that jobs get from the environment of the caller",
}

_SHARED_PARAMETERS = (
    "name",
    "timeout_min",
    "mem_gb",
    "nodes",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "stderr_to_stdout",
)


def _stage_of(function: Any) -> str:
    """The stage of a function, by which sizes are learned."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return name_of(str(name), MAX_STAGE_NAME)
