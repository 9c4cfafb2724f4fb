"""The executor: submits the jobs of Snakemake, watches and cancels them."""

import getpass
import os
import threading
import time
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headroom._batch import escape_places, name_of
from headroom._batch_watch import BatchWatcher, TaskEnd
from headroom._http import RestClient, load_settings
from headroom.errors import (
    ClusterUnreachable,
    HeadroomError,
    RequestRefused,
    SettingsError,
    format_bytes,
)
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import SharedFSUsage

from snakemake_executor_plugin_headroom.jobs import (
    HeldJobs,
    JobClass,
    ResourceError,
    application_of,
    batch_job,
    class_of,
    first_size,
    masters_that_fit,
)
from snakemake_executor_plugin_headroom.settings import ExecutorSettings

#: Longest interval between two status checks. Seconds.
STATUS_INTERVAL = 1

#: Time for which a submission is repeated while the resource manager does not respond. Seconds.
SUBMIT_TIMEOUT = 60.0

#: Time for the last applications to end after the last job. Seconds.
SHUTDOWN_TIMEOUT = 5.0


def _shares_files(workflow: Any) -> bool:
    """Whether the nodes see the files of Snakemake, such as inputs and the scripts of jobs."""
    usage = workflow.storage_settings.shared_fs_usage
    return SharedFSUsage.INPUT_OUTPUT in usage and SharedFSUsage.SOURCES in usage


class Executor(RemoteExecutor):  # type: ignore[misc]
    """Runs each job of Snakemake as a task of Headroom."""

    #: None until the constructor of the base class has called ``__post_init__``.
    _watcher: BatchWatcher | None = None

    def __post_init__(self) -> None:
        if not _shares_files(self.workflow):
            raise WorkflowError(
                "Headroom needs a working directory that all nodes see: inputs, outputs and "
                "sources. Leave out --shared-fs-usage, or add input-output and sources to it."
            )
        settings = self.workflow.executor_settings or ExecutorSettings()
        self._settings: ExecutorSettings = settings
        try:
            found = load_settings(settings.address, context=settings.context)
            self._client = RestClient(found)
            nodes = self._client.get("/v1/nodes")
        except SettingsError as error:
            raise WorkflowError(f"Headroom settings: {error}") from error
        except HeadroomError as error:
            raise WorkflowError(
                f"Headroom: {error}\nSet --headroom-address or HEADROOM_ADDR. `rmctl dev` starts a "
                "cluster on this host."
            ) from error
        authenticates = bool(found.cert or found.read_token())
        self._user = None if authenticates else getpass.getuser()
        self._prefix = name_of(settings.name or Path.cwd().name)
        self._limit = settings.max_applications or masters_that_fit(nodes)
        self._suggestions: dict[str, list[dict[str, Any]]] = {}
        # The lock protects the held jobs, the watcher and the submitted jobs: Snakemake submits in
        # one thread and checks in another one.
        self._batch_lock = threading.RLock()
        self._held = HeldJobs()
        self._submitted: dict[tuple[str, int], SubmittedJobInfo] = {}
        self._is_unreachable = False
        self._is_cancelled = False
        status_interval = self.workflow.remote_execution_settings.seconds_between_status_checks
        self.next_seconds_between_status_checks = min(status_interval, STATUS_INTERVAL)
        self._watcher = BatchWatcher(self._client)

    # Submission.

    def run_jobs(self, jobs: list[Any]) -> None:
        """Submits jobs: one application for the jobs of a rule that have the same size."""
        for job in jobs:
            self.run_job_pre(job)
            self._hold(job)
        self._submit_held()

    def run_job(self, job: Any) -> None:
        """Submits one job."""
        self._hold(job)
        self._submit_held()

    def _hold(self, job: Any) -> None:
        settings = self._settings
        try:
            kind = class_of(
                job.name,
                job.threads,
                job.resources,
                default_mem_mb=settings.default_mem_mb,
                overhead_mb=settings.overhead_mb,
                queue=settings.queue,
                cap_mb=settings.cap_mb,
            )
        except ResourceError as error:
            self.report_job_error(SubmittedJobInfo(job), msg=f"{error}. ")
            return
        with self._batch_lock:
            self._held.add(kind, job)

    def _submit_held(self) -> None:
        """Submits held jobs until the largest number of applications is reached."""
        watcher = self._watcher
        if watcher is None:
            return
        with self._batch_lock:
            while not self._is_cancelled and watcher.applications < self._limit:
                taken = self._held.take(max(1, self._settings.array_size))
                if taken is None:
                    return
                self._submit(watcher, *taken)

    def _submit(self, watcher: BatchWatcher, kind: JobClass, jobs: list[Any]) -> None:
        key = uuid.uuid4().hex
        try:
            command, tasks = self._command(key, jobs)
            name = application_of(self._prefix, kind.rule)
            batch = batch_job(
                kind,
                name=name,
                memory=self._first_size(name, kind),
                command=command,
                tasks=tasks,
                directory=os.getcwd(),
                env=self._environment(),
                mode=self._settings.mode,
                grow=False if self._settings.no_growth else None,
                priority=self._settings.priority,
            )
            app = self._post(batch.submission(f"smk-{key}", self._user))
        except HeadroomError as error:
            for job in jobs:
                message = f"Headroom did not accept the job: {error}. "
                self.report_job_error(SubmittedJobInfo(job), msg=message)
            return
        watcher.add(app, batch.stage, range(len(jobs)), is_array=tasks is not None)
        for index, job in enumerate(jobs):
            info = SubmittedJobInfo(job, external_jobid=f"{app}/{batch.stage}/{index}")
            self._submitted[app, index] = info
            self.report_job_submission(info)

    def _command(self, key: str, jobs: list[Any]) -> tuple[list[str], int | None]:
        """The command of each task, and the number of tasks of the array."""
        folder = Path(self.tmpdir) / key
        folder.mkdir()
        for index, job in enumerate(jobs):
            self.write_jobscript(job, str(folder / f"{index}.sh"))
        tasks = len(jobs) if len(jobs) > 1 else None
        return ["sh", f"{escape_places(str(folder))}/{{index}}.sh"], tasks

    def _environment(self) -> dict[str, str]:
        names = [name for name in self._settings.env if name in os.environ]
        return {name: escape_places(os.environ[name]) for name in names}

    def _first_size(self, name: str, kind: JobClass) -> int:
        """The first size of the jobs of a class. Bytes."""
        if self._settings.no_learn:
            return kind.memory
        if name not in self._suggestions:
            try:
                rows = self._client.get("/v1/suggestions", query={"job": name})
            except HeadroomError as error:
                self.logger.debug(f"Headroom: no sizes of earlier jobs: {error}")
                rows = []
            self._suggestions[name] = rows
        size = first_size(kind, self._suggestions[name], self._user)
        if size > kind.memory:
            self.logger.info(
                f"Headroom: jobs of rule {kind.rule} start with {format_bytes(size)}, learned from "
                f"earlier jobs; mem_mb gives {format_bytes(kind.memory)}"
            )
        return size

    def _post(self, body: dict[str, Any]) -> str:
        """Submits an application; returns its id. The idempotency key makes repeating safe."""
        deadline = time.monotonic() + SUBMIT_TIMEOUT
        wait = 0.1
        while True:
            try:
                return str(self._client.post("/v1/apps", body)["app"])
            except (ClusterUnreachable, RequestRefused) as error:
                final = isinstance(error, RequestRefused) and not error.retryable
                if final or time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            wait = min(wait * 2, 5.0)

    # Status.

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Reports ended jobs, and yields the others. Makes two calls for all jobs."""
        ended: dict[str, TaskEnd] = {}
        if self._watcher is not None and active_jobs:
            async with self.status_rate_limiter:
                ended = self._poll(self._watcher)
        for info in active_jobs:
            end = ended.get(info.external_jobid)
            if end is None:
                yield info
            elif end.succeeded:
                self.report_job_success(info)
            else:
                self._report_failure(info, end)
        if ended:
            self._submit_held()

    def _poll(self, watcher: BatchWatcher) -> dict[str, TaskEnd]:
        """Ended tasks by the external id of their job."""
        with self._batch_lock:
            try:
                ends = watcher.poll()
            except (ClusterUnreachable, RequestRefused) as error:
                if not self._is_unreachable:
                    self.logger.warning(f"Headroom: {error}; the status is checked again")
                self._is_unreachable = True
                return {}
            if self._is_unreachable:
                self.logger.info("Headroom: the resource manager responds again")
            self._is_unreachable = False
            for news in watcher.take_news():
                info = self._submitted.get((news.app, news.index))
                if info is not None:
                    job = f"jobid {info.job.jobid} ({info.job.name})"
                    self.logger.info(f"Headroom: {job}: {news.app}/{news.message}")
            found: dict[str, TaskEnd] = {}
            for end in ends:
                info = self._submitted.pop((end.app, end.index), None)
                if info is not None:
                    found[info.external_jobid] = end
            return found

    def _report_failure(self, info: SubmittedJobInfo, end: TaskEnd) -> None:
        text = end.report.text if end.report else f"Headroom task {info.external_jobid}"
        if end.diagnostics and end.diagnostics not in text:
            text += f"\n  reason: {end.diagnostics}"
        if info.job.is_group():
            # The message of a group is left out by Snakemake.
            self.logger.error(text)
        self.report_job_error(info, msg=f"{text}\n")

    # End.

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Kills all applications.

        ``active_jobs`` is empty while the status is checked, so the applications are those that
        are watched.
        """
        if self._watcher is None:
            return
        with self._batch_lock:
            self._is_cancelled = True
            self._held.clear()
            body = {"reason": "Snakemake was cancelled"}
            for app in self._watcher.watched:
                try:
                    self._client.post(f"/v1/apps/{quote(app)}/kill", body)
                except HeadroomError as error:
                    self.logger.error(f"Headroom: {app} was not cancelled: {error}")

    def shutdown(self) -> None:
        """Stops the status checks, and logs the use of memory."""
        super().shutdown()
        if self._watcher is None:
            return
        if not self.workflow.remote_execution_settings.immediate_submit:
            self._wait_for_applications(self._watcher)
        totals = self._watcher.totals
        if totals.applications:
            self.logger.info(
                f"Headroom: {totals.tasks} jobs in {totals.applications} applications, "
                f"{totals.memory_kills} memory kills, {totals.grown} times more memory in place, "
                f"{totals.byte_seconds / (1 << 30):.1f} GiB·s, of which "
                f"{totals.rerun_byte_seconds / (1 << 30):.1f} GiB·s ran again"
            )
        self._client.close()

    def _wait_for_applications(self, watcher: BatchWatcher) -> None:
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT
        while watcher.applications and time.monotonic() < deadline:
            try:
                watcher.poll()
            except HeadroomError:
                return
            time.sleep(0.05)


__all__ = ["Executor"]
