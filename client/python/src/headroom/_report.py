"""The end of a task in words for users: its attempts, their sizes and verdicts, and the remedy.

The functions read rows of tasks as ``GET /v1/apps/{app}`` returns them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

from headroom.errors import format_bytes

__all__ = ["TaskReport", "attempt_lines", "is_memory_kill", "report_of", "verdict_of"]

_MEMORY = frozenset({"heap_oom", "overhead_oom", "task_oom", "stalled_at_limit"})

_SENTENCES: Dict[str, str] = {
    "heap_oom": "out of memory: the heap is full",
    "overhead_oom": "out of memory: memory outside of the heap passed the limit",
    "task_oom": "out of memory at its own limit",
    "stalled_at_limit": "stalled at its own memory limit",
    "ancestor_oom": "killed for the limit of an outer cgroup, not for its own",
    "node_oom": "killed because the host ran out of memory",
    "killed_externally": "killed from outside (SIGKILL, and no memory counter moved)",
    "stopped": "stopped on request",
    "preempted": "preempted for another queue",
    "timeout": "ran longer than its time limit",
    "node_lost": "its node was lost",
    "launch_failed": "could not be started",
}

#: Lines of standard error in a report.
_TAIL_LINES = 30


def verdict_of(reason: Optional[Mapping[str, Any]]) -> str:
    """The name of an exit reason, such as ``task_oom`` or ``exit(1)``; ``running`` without one."""
    if not reason:
        return "running"
    kind = str(reason.get("kind", ""))
    if kind == "exit":
        return f"exit({reason.get('code')})"
    if kind == "signal":
        return f"signal({reason.get('signal')})"
    return kind


def _sentence(reason: Optional[Mapping[str, Any]]) -> str:
    if not reason:
        return "running"
    kind = str(reason.get("kind", ""))
    if kind == "exit":
        code = reason.get("code")
        return "finished" if code == 0 else f"ended with exit code {code}"
    if kind == "signal":
        return f"ended by signal {reason.get('signal')}"
    return _SENTENCES.get(kind, kind)


def is_memory_kill(attempt: Mapping[str, Any]) -> bool:
    """Whether an attempt ended because of its own memory use."""
    return (attempt.get("reason") or {}).get("kind") in _MEMORY


def size_of(profile: Optional[Mapping[str, Any]]) -> int:
    """The limit of a profile: heap and overhead. Bytes."""
    if not profile:
        return 0
    return int(profile.get("heap") or 0) + int(profile.get("overhead") or 0)


def _sizes(attempt: Mapping[str, Any]) -> str:
    """The sizes that an attempt had: one, or those of its growth in place."""
    steps = attempt.get("grown") or []
    if not steps:
        return format_bytes(size_of(attempt.get("profile")))
    sizes = [steps[0]["from"], *(step["to"] for step in steps)]
    return " → ".join(format_bytes(size) for size in sizes) + " (grown in place)"


def attempt_lines(row: Mapping[str, Any]) -> List[str]:
    """The ladder of a task: one line for each attempt, the first one first."""
    lines = []
    for number, attempt in enumerate(row.get("attempts") or [], start=1):
        parts = [f"attempt {number} at {_sizes(attempt)}: {_sentence(attempt.get('reason'))}"]
        ended, started = attempt.get("ended"), attempt.get("started")
        if ended and started:
            parts.append(f"after {(ended - started) / 1000:.1f} s")
        if attempt.get("peak"):
            parts.append(f"peak {format_bytes(attempt['peak'])}")
        parts.append(f"on {attempt.get('node')}")
        lines.append(", ".join(parts))
    return lines


@dataclass(frozen=True)
class TaskReport:
    """The attempts of one task, for a message."""

    #: Id of the task: ``APP/STAGE/INDEX``.
    task: str
    #: State of the task: ``done``, ``failed``, ``running`` …
    state: str
    #: Number of attempts.
    attempts: int
    #: Attempts that were killed for memory.
    kills: int
    #: Steps of growth in place.
    growths: int
    #: Limit of the last attempt. Bytes.
    size: int
    #: Largest measured memory use. Bytes.
    peak: Optional[int]
    #: Memory x time of all attempts. Byte-seconds.
    byte_seconds: float
    #: Verdict of the last attempt.
    verdict: str
    #: The whole text.
    text: str


def _fixes(attempt: Mapping[str, Any]) -> List[str]:
    lines = []
    for found in attempt.get("diagnosis") or []:
        cost = f" (costs: {found['trade_off']})" if found.get("trade_off") else ""
        lines.append(f"{found['cause']} → {found['fix']}{cost}")
    return lines


def _byte_seconds(attempt: Mapping[str, Any]) -> float:
    ended, started = attempt.get("ended"), attempt.get("started")
    if not ended or not started:
        return 0.0
    steps = attempt.get("grown") or []
    size = steps[0]["from"] if steps else size_of(attempt.get("profile"))
    total, since = 0.0, started
    for step in steps:
        total += size * (step["at"] - since)
        size, since = step["to"], step["at"]
    total += size * (ended - since)
    return float(total) / 1000


def report_of(app: str, row: Mapping[str, Any]) -> TaskReport:
    """The report of a task of the application ``app``."""
    attempts = list(row.get("attempts") or [])
    task = f"{app}/{row.get('task')}"
    last: Mapping[str, Any] = attempts[-1] if attempts else {}
    lines = [f"Headroom task {task}: {row.get('state')}"]
    lines += [f"  {line}" for line in attempt_lines(row)]
    if row.get("note") and row.get("state") == "failed":
        lines.append(f"  decision: {row['note']}")
    failed = [a for a in attempts if (a.get("reason") or {}).get("code") != 0 and a.get("reason")]
    if failed:
        lines += [f"  fix: {fix}" for fix in _fixes(failed[-1])]
        tail = [line for line in str(failed[-1].get("log_tail") or "").splitlines() if line.strip()]
        if tail and row.get("state") == "failed":
            lines.append("  end of standard error:")
            lines += [f"    {line}" for line in tail[-_TAIL_LINES:]]
    if failed or not attempts:
        lines.append(f"  see: rmctl diagnose {task} · rmctl logs {task}")
    peaks = [a["peak"] for a in attempts if a.get("peak")]
    return TaskReport(
        task=task,
        state=str(row.get("state")),
        attempts=len(attempts),
        kills=sum(1 for a in attempts if is_memory_kill(a)),
        growths=sum(len(a.get("grown") or []) for a in attempts),
        size=size_of(last.get("profile")),
        peak=max(peaks) if peaks else None,
        byte_seconds=sum(_byte_seconds(a) for a in attempts),
        verdict=verdict_of(last.get("reason")),
        text="\n".join(lines),
    )
