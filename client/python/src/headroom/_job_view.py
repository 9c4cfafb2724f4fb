"""The job view of an application whose master is this process: one row for each worker.

``rmctl ps APP`` and the web page show these rows, and ``rmctl logs APP`` prints their logs. A row
is a task with the containers of its worker as attempts. Pure: time is an argument.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Set

__all__ = ["JobView"]

#: Rows of workers that have ended; the oldest ones are dropped.
MAX_ENDED_ROWS = 200
#: Attempts of a row; the oldest ones are dropped.
MAX_ATTEMPTS = 20

_MEMORY = frozenset({"heap_oom", "overhead_oom", "task_oom", "stalled_at_limit"})

Row = Dict[str, Any]


class JobView:
    """The rows, and those that the resource manager does not have yet."""

    def __init__(self) -> None:
        self._rows: Dict[str, Row] = {}
        self._changed: Set[str] = set()
        self._is_full = False
        #: Number of attempts of each row.
        self._numbers: Dict[str, int] = {}
        self._kills = 0

    def requested(self, task: str, memory: int, cpus: float) -> None:
        """A container of this row is requested."""
        row = self._rows.pop(task, None) or {"task": task, "rung": 1, "attempts": []}
        row.update(state="pending", profile=_profile(memory, cpus), note="")
        self._rows[task] = row  # at the end: the newest
        self._changed.add(task)

    def granted(self, task: str, container: str, node: str, now: int) -> None:
        """The container of this row starts. ``now`` is in milliseconds since 1970."""
        row = self._rows.get(task)
        if row is None or any(a["container"] == container for a in row["attempts"]):
            return
        number = self._numbers[task] = self._numbers.get(task, 0) + 1
        row["state"] = "running"
        row["attempts"] = row["attempts"][1 - MAX_ATTEMPTS :]
        row["attempts"].append(
            {
                "attempt": f"{task}@{number}",
                "profile": row["profile"],
                "slots": 1,
                "rung": 1,
                "container": container,
                "node": node,
                "started": now,
                "ended": None,
                "peak": None,
                "used": None,
                "reason": None,
                "dimension": None,
                "evidence": None,
                # All lines of the container's standard error are those of the worker.
                "log_marker": "",
            }
        )
        self._changed.add(task)

    def withdrawn(self, task: str, now: int) -> None:
        """The worker of this row is not needed any more."""
        row = self._rows.get(task)
        if row is None or row["state"] not in ("pending", "running"):
            return
        for attempt in row["attempts"]:
            if attempt["ended"] is None:
                attempt["ended"], attempt["reason"] = now, {"kind": "stopped"}
        self._end(row, "done", "released")

    def exited(self, task: str, report: Mapping[str, Any], now: int) -> None:
        """The container of this row has ended. ``report`` is that of its node."""
        row = self._rows.get(task)
        attempt = row and next(
            (a for a in row["attempts"] if a["container"] == report["container"]), None
        )
        if row is None or attempt is None or attempt["ended"] is not None:
            return
        reason = report["reason"]
        failed = not (reason["kind"] == "stopped" or reason.get("code") == 0)
        evidence = report.get("evidence") or {}
        attempt["ended"], attempt["reason"] = now, reason
        attempt["peak"] = (evidence.get("own") or {}).get("peak")
        if failed:
            attempt["evidence"] = report.get("evidence")
            attempt["diagnosis"] = list(report.get("diagnosis") or ())
            attempt["log_tail"] = str(report.get("log_tail") or "")
        self._kills += reason["kind"] in _MEMORY
        self._end(row, "failed" if failed else "done", "")

    def infeasible(self, task: str, sentence: str) -> None:
        """No node can run the container of this row."""
        row = self._rows.get(task)
        if row is not None:
            self._end(row, "failed", sentence)

    def _end(self, row: Row, state: str, note: str) -> None:
        row["state"], row["note"] = state, note
        self._changed.add(row["task"])
        ended = [name for name, r in self._rows.items() if r["state"] in ("done", "failed")]
        for name in ended[: max(0, len(ended) - MAX_ENDED_ROWS)]:
            del self._rows[name]
            self._numbers.pop(name, None)
            self._changed.discard(name)
            self._is_full = True

    def repeat_all(self) -> None:
        """The resource manager has lost the rows."""
        self._is_full = True

    def patch(self) -> Optional[Dict[str, Any]]:
        """The changes to send; ``None`` without any."""
        if not self._changed and not self._is_full:
            return None
        rows = [r for name, r in self._rows.items() if self._is_full or name in self._changed]
        return {"full": self._is_full, "totals": self._totals(), "tasks": _copies(rows)}

    def sent(self, patch: Mapping[str, Any]) -> None:
        """The resource manager has this patch."""
        for row in patch["tasks"]:
            if self._rows.get(row["task"]) == row:
                self._changed.discard(row["task"])
        self._is_full = self._is_full and not patch["full"]

    def whole(self) -> Dict[str, Any]:
        """All rows, for the history."""
        return {"full": True, "totals": self._totals(), "tasks": _copies(self._rows.values())}

    def _totals(self) -> Dict[str, Any]:
        states = [row["state"] for row in self._rows.values()]
        zero = ("collateral_reruns", "transient", "escalated", "rerun_byte_ms", "allocated_byte_ms")
        return {
            "mode": "headroom",
            "tasks": len(states),
            **{state: states.count(state) for state in ("done", "failed", "running")},
            "memory_kills": self._kills,
            **dict.fromkeys(zero, 0),
        }


def _profile(memory: int, cpus: float) -> Dict[str, Any]:
    return {"heap": memory, "overhead": 0, "cpus": cpus}


def _copies(rows: Any) -> List[Row]:
    """Copies that later changes do not reach."""
    return [{**row, "attempts": [dict(one) for one in row["attempts"]]} for row in rows]
