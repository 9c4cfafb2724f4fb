"""Watches the tasks of many batch jobs with a fixed number of calls.

A poll lists the applications once and reads the events of tasks once, however many applications and
tasks there are. Rows of tasks are read only after a task failed or an application ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple
from urllib.parse import quote

from headroom._http import RestClient
from headroom._report import TaskReport, report_of
from headroom.errors import RequestRefused

__all__ = ["BatchTotals", "BatchWatcher", "TaskEnd", "TaskNews"]

#: States of an application that has ended.
ENDED_STATES = frozenset({"finished", "failed", "killed"})

#: Reasons of events about memory, which a user reads while a job runs.
NEWS_REASONS = frozenset(
    {
        "OomKilled",
        "Escalated",
        "TaskGrown",
        "GrowthRefused",
        "TaskFrozen",
        "TaskEvicted",
        "AttemptLost",
    }
)

#: Status of a response for a cursor that is older than the log.
_GONE = 410
_NOT_FOUND = 404


@dataclass(frozen=True)
class TaskEnd:
    """The end of one task."""

    app: str
    index: int
    succeeded: bool
    #: True if the application was killed.
    killed: bool
    #: Attempts of the task; ``None`` if its row was not read, or no longer exists.
    report: Optional[TaskReport]
    #: Reason of the end in words, for a task that failed.
    diagnostics: str


@dataclass(frozen=True)
class TaskNews:
    """An event about a task that still runs."""

    app: str
    index: int
    reason: str
    message: str


@dataclass
class BatchTotals:
    """Sums over the applications that have ended."""

    applications: int = 0
    tasks: int = 0
    failed: int = 0
    memory_kills: int = 0
    #: Steps of growth in place.
    grown: int = 0
    #: Memory x time of all attempts. Byte-seconds.
    byte_seconds: float = 0.0
    #: Memory x time of attempts that had to run again. Byte-seconds.
    rerun_byte_seconds: float = 0.0

    def add(self, totals: Mapping[str, Any]) -> None:
        """Adds the totals of an application, as ``GET /v1/apps/{app}`` returns them."""
        self.applications += 1
        self.tasks += int(totals.get("tasks") or 0)
        self.failed += int(totals.get("failed") or 0)
        self.memory_kills += int(totals.get("memory_kills") or 0)
        self.grown += int(totals.get("grown") or 0)
        self.byte_seconds += int(totals.get("allocated_byte_ms") or 0) / 1000
        self.rerun_byte_seconds += int(totals.get("rerun_byte_ms") or 0) / 1000


@dataclass
class _WatchedApp:
    """An application with tasks that have not ended."""

    #: Name of its only stage; ``None`` until a row or an event has it.
    stage: Optional[str]
    is_array: bool
    open: Set[int]
    #: State in the latest list.
    state: str = "accepted"


def _sequence(app: str) -> int:
    """The number in the id of an application, which counts all applications of a cluster."""
    return int(app.rpartition(".")[2])


def _shared_prefix(texts: Iterable[str]) -> str:
    """The longest text with which all of them begin."""
    ordered = sorted(texts)
    first, last = ordered[0], ordered[-1]
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]


class BatchWatcher:
    """The batch jobs of one client. Not safe for use by several threads at once."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._apps: Dict[str, _WatchedApp] = {}
        self._cursor: Optional[int] = None
        self._is_gapped = False
        self.totals = BatchTotals()
        #: Events since the last call of :meth:`take_news`.
        self._news: List[TaskNews] = []

    def add(
        self, app: str, stage: Optional[str], indexes: Iterable[int] = (0,), *, is_array: bool
    ) -> None:
        """Watches tasks of an application of one stage."""
        watched = self._apps.setdefault(app, _WatchedApp(stage, is_array, set()))
        watched.open.update(indexes)

    def forget(self, app: str) -> None:
        """Stops watching an application."""
        self._apps.pop(app, None)

    @property
    def applications(self) -> int:
        """Number of applications with tasks that have not ended."""
        return len(self._apps)

    @property
    def watched(self) -> List[str]:
        """Applications with tasks that have not ended, in the order of submission."""
        return sorted(self._apps, key=_sequence)

    def state(self, app: str) -> Optional[str]:
        """The state of a watched application in the latest list."""
        watched = self._apps.get(app)
        return None if watched is None else watched.state

    def take_news(self) -> List[TaskNews]:
        """The events about running tasks since the last call."""
        news, self._news = self._news, []
        return news

    def poll(self) -> List[TaskEnd]:
        """Returns the tasks that have ended since the last call.

        Raises :class:`ClusterUnreachable` and :class:`RequestRefused`; nothing is lost then.
        """
        if not self._apps:
            return []
        # The list is read first: a task that ends between both calls has an event.
        rows = self._listed()
        ends = self._ends_of_events(self._task_events())
        if self._is_gapped:
            for app in [name for name, watched in self._apps.items() if watched.is_array]:
                ends += self._ends_of_rows(app, self._app_or_none(app))
            self._is_gapped = False
        for app in self.watched:
            row = rows.get(app)
            if row is not None:
                self._apps[app].state = str(row["state"])
            if row is None or row["state"] in ENDED_STATES:
                ends += self._ends_of_rows(app, self._app_or_none(app))
        return ends

    def _listed(self) -> Dict[str, Any]:
        apps = self.watched
        prefix = _shared_prefix(app.rpartition(".")[0] for app in apps)
        query: Dict[str, Any] = {"name": prefix} if prefix else {}
        first = _sequence(apps[0])
        if first > 1:
            query["after"] = f"a.{first - 1}"
        rows = self._client.get("/v1/apps", query=query)
        return {row["id"]: row for row in rows}

    def _task_events(self) -> List[Dict[str, Any]]:
        """The events of watched tasks since the last poll."""
        if self._cursor is None:
            first = self._events({"app": self.watched[0]})
            self._cursor = first[0]["index"] - 1 if first else 0
        prefix = _shared_prefix(watched.stage or "" for watched in self._apps.values())
        query: Dict[str, Any] = {"topic": "task", "cursor": self._cursor}
        if prefix:
            query["object"] = prefix
        try:
            events = self._events(query)
        except RequestRefused as refused:
            if refused.status != _GONE:
                raise
            self._is_gapped = True
            events = self._events({**query, "cursor": 0})
        if events:
            self._cursor = events[-1]["index"]
        return [event for event in events if event.get("app") in self._apps]

    def _events(self, query: Mapping[str, Any]) -> List[Dict[str, Any]]:
        text = self._client.get_text("/v1/events", query=query)
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _ends_of_events(self, events: Iterable[Mapping[str, Any]]) -> List[TaskEnd]:
        ends = []
        for event in events:
            app, reason = str(event["app"]), str(event["reason"])
            found = _index_of(str(event["object"]))
            watched = self._apps.get(app)
            if found is None or watched is None:
                continue
            watched.stage, index = found
            if reason in NEWS_REASONS:
                self._news.append(TaskNews(app, index, reason, str(event["message"])))
            if index not in watched.open or not watched.is_array:
                continue
            if reason == "TaskFinished":
                ends.append(TaskEnd(app, index, True, False, None, ""))
            elif reason == "TaskFailed":
                report = self._task_report(app, watched.stage, index)
                ends.append(TaskEnd(app, index, False, False, report, str(event["message"])))
            else:
                continue
            watched.open.discard(index)
        return ends

    def _task_report(self, app: str, stage: str, index: int) -> Optional[TaskReport]:
        try:
            row = self._client.get(f"/v1/apps/{quote(app)}/tasks/{quote(stage)}/{index}")
        except RequestRefused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return None
        return report_of(app, row)

    def _app_or_none(self, app: str) -> Optional[Dict[str, Any]]:
        try:
            view: Dict[str, Any] = self._client.get(
                f"/v1/apps/{quote(app)}", query={"tasks": "all"}
            )
        except RequestRefused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return None
        return view

    def _ends_of_rows(self, app: str, view: Optional[Dict[str, Any]]) -> List[TaskEnd]:
        """The ends in the rows of an application. Forgets it if it has ended."""
        watched = self._apps[app]
        job: Mapping[str, Any] = (view or {}).get("job") or {}
        state = (view or {}).get("state", "killed")
        rows = {int(str(row["task"]).rpartition("/")[2]): row for row in job.get("tasks") or []}
        ends = []
        for index in sorted(watched.open):
            end = _end_of(app, index, rows.get(index), view)
            if end is not None:
                ends.append(end)
                watched.open.discard(index)
        if view is None or state in ENDED_STATES:
            self.totals.add(job.get("totals") or {})
            self.forget(app)
        return ends


def _end_of(
    app: str, index: int, row: Optional[Mapping[str, Any]], view: Optional[Mapping[str, Any]]
) -> Optional[TaskEnd]:
    """The end of a task, or ``None`` while it goes on."""
    state = (view or {}).get("state")
    report = report_of(app, row) if row else None
    if row and row.get("state") == "done":
        return TaskEnd(app, index, True, False, report, "")
    if row and row.get("state") == "failed":
        return TaskEnd(app, index, False, state == "killed", report, str(row.get("note") or ""))
    if view is None:
        gone = f"the resource manager does not know {app} any more"
        return TaskEnd(app, index, False, True, report, gone)
    if state not in ENDED_STATES:
        return None
    if state == "finished" and row is None:
        return TaskEnd(app, index, True, False, None, "")
    words = view.get("diagnostics") or f"the application is {state}"
    return TaskEnd(app, index, False, state == "killed", report, str(words))


def _index_of(name: str) -> Optional[Tuple[str, int]]:
    """Stage and index in the id of a task or of an attempt, such as ``map/7`` or ``map/7@2``."""
    stage, _, rest = name.partition("/")
    digits = rest.partition("@")[0]
    return (stage, int(digits)) if digits.isdigit() else None
