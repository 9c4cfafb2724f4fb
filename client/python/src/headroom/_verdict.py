"""Attempts, verdicts and errors from the master's ``ended`` messages."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from headroom.errors import (
    AttemptReport,
    FunctionUnavailable,
    HeadroomError,
    MemoryExhausted,
    RemoteTraceback,
    TaskFailed,
    TaskLost,
    TaskTimeout,
    format_bytes,
)

__all__ = ["attempt_reports", "failure", "verdict_of"]

#: Reasons that mean: the task needed more memory than it had.
MEMORY_REASONS = frozenset({"heap_oom", "overhead_oom", "task_oom", "stalled_at_limit"})
#: Reasons for which the task is not to blame.
_FREE_REASONS = frozenset(
    {"ancestor_oom", "node_oom", "killed_externally", "stopped", "preempted", "node_lost"}
)
_SENTENCES = {
    "heap_oom": "an allocation failed at its memory limit",
    "overhead_oom": "killed by the kernel at its own memory limit",
    "task_oom": "killed by the kernel at its own memory limit",
    "stalled_at_limit": "stalled at its own memory limit",
    "ancestor_oom": "killed for the limit of an outer cgroup",
    "node_oom": "killed because the host ran out of memory",
    "killed_externally": "killed from outside",
    "stopped": "ended on request",
    "preempted": "preempted for another queue",
    "timeout": "ran longer than its timeout",
    "node_lost": "lost with its node",
    "launch_failed": "did not start",
}


def verdict_of(reason: Optional[Dict[str, Any]]) -> str:
    """The name of an exit reason; ``succeeded`` for exit code 0."""
    if not reason:
        return ""
    kind = str(reason.get("kind", ""))
    if kind == "exit" and reason.get("code") == 0:
        return "succeeded"
    return kind


def attempt_reports(result: Dict[str, Any]) -> Tuple[AttemptReport, ...]:
    """The attempts of an ended task."""
    reports: List[AttemptReport] = []
    for number, row in enumerate(result.get("attempts") or (), 1):
        profile = row.get("profile") or {}
        reason = row.get("reason") or {}
        evidence = row.get("evidence") or {}
        sentences = [
            f"{item.get('cause')}: {item.get('fix')}" for item in row.get("diagnosis") or ()
        ]
        reports.append(
            AttemptReport(
                number=number,
                size=int(profile.get("heap", 0)) + int(profile.get("overhead", 0)),
                peak=row.get("peak"),
                verdict=verdict_of(reason),
                dimension=row.get("dimension"),
                exit_code=reason.get("code", evidence.get("exit_code")),
                signal=reason.get("signal"),
                node=row.get("node"),
                evidence=tuple(sentences),
                grown_from=tuple(int(step.get("from", 0)) for step in row.get("grown") or ()),
            )
        )
    return tuple(reports)


def failure(
    result: Dict[str, Any],
    app: str,
    call: str,
    cap: Optional[int],
    remote: Optional[Tuple[str, str]] = None,
) -> HeadroomError:
    """The error of a failed task. ``remote`` is the text and the traceback of a ``MemoryError``."""
    attempts = attempt_reports(result)
    reason = result.get("reason") or {}
    verdict = verdict_of(reason)
    log_tail = str(result.get("log_tail") or "")
    common: Dict[str, Any] = {
        "attempts": attempts,
        "task": f"{app}/{result.get('task')}",
        "verdict": verdict,
        "log_tail": log_tail,
    }
    raised = verdict in MEMORY_REASONS or reason.get("code") == 3
    if remote is None and raised:
        remote = _memory_error_in(log_tail)
    error: HeadroomError
    if verdict in MEMORY_REASONS or (verdict == "exit" and remote is not None):
        error = _memory_error(result, call, cap, remote, common)
    elif verdict == "timeout":
        error = TaskTimeout(f"{call} ran longer than its timeout; {_see(common)}", **common)
    elif verdict == "launch_failed":
        error = _launch_error(call, log_tail, str(result.get("message") or ""), common)
    elif verdict in _FREE_REASONS:
        error = TaskLost(
            f"{call} was {_SENTENCES[verdict]} too often: {result.get('message') or verdict}; "
            f"{_see(common)}",
            **common,
        )
    else:
        last = log_tail.strip().splitlines()[-1:]
        unavailable = _unavailable("".join(last)) if _is_start_failure(reason, last) else None
        error = unavailable or _exit_error(result, call, reason, common)
    if remote is not None:
        error.__cause__ = RemoteTraceback(remote[1])
    return error


def _is_start_failure(reason: Dict[str, Any], last: List[str]) -> bool:
    """True if the call's Python did not start; exceptions of functions are results, not exits."""
    code = reason.get("code")
    return code == 127 or (code == 1 and "No module named headroom" in "".join(last))


def _memory_error_in(log_tail: str) -> Optional[Tuple[str, str]]:
    """Text and traceback of a ``MemoryError`` at the end of standard error."""
    lines = log_tail.strip().splitlines()
    found = bool(lines) and "MemoryError" in lines[-1].partition(":")[0]
    return (lines[-1], log_tail) if found else None


def _memory_error(
    result: Dict[str, Any],
    call: str,
    cap: Optional[int],
    remote: Optional[Tuple[str, str]],
    common: Dict[str, Any],
) -> MemoryExhausted:
    attempts: Tuple[AttemptReport, ...] = common["attempts"]
    killed = [attempt for attempt in attempts if attempt.verdict in MEMORY_REASONS]
    sizes = _list_sizes(_sizes_of(killed or attempts))
    dimension = result.get("dimension")
    detail = str(result.get("message") or "").strip().rstrip(".")
    fixes = [line for attempt in attempts[-1:] for line in attempt.evidence]
    if common["verdict"] == "exit" and remote is not None:
        text = f"{call} raised {remote[0]} far below its size"
        fix = "Request less at once: smaller arrays, blocks or partitions. No larger size helps."
        detail = ""
    else:
        text = f"{call} needs more memory than it may get: it ran out of memory at {sizes}"
        if cap is not None:
            text += f" (cap={format_bytes(cap)})"
            detail = detail if max(size for size in [0, *_sizes_of(attempts)]) < cap else ""
            fix = "Raise cap=, or give each call less data."
        else:
            fix = "Give each call less data, or add a node with more memory."
    if detail:
        text += f": {detail}"
    return MemoryExhausted(
        f"{text}. {fix} S{_see(common)[1:]}",
        dimension=dimension,
        cap=cap,
        fix="; ".join([fix, *fixes]),
        **common,
    )


def _sizes_of(attempts: Sequence[AttemptReport]) -> List[int]:
    return [attempt.size for attempt in attempts]


def _unavailable(text: str) -> Optional[FunctionUnavailable]:
    """The error of a Python of the nodes that does not exist or lacks a module."""
    missing = re.search(r"No module named '?([\w.]+)'?", text)
    if missing:
        module = missing[1]
        return FunctionUnavailable(
            f"the nodes' Python has no module {module}: install it there, or give "
            "Executor(python=PROGRAM) a Python that has it",
            module=module,
            log_tail=text,
        )
    absent = re.search(r"env: (\S+): No such file or directory", text)
    if absent:
        program = absent[1].strip("\u2018\u2019'")
        return FunctionUnavailable(
            f"the nodes have no program {program}: give Executor(python=PROGRAM) a Python of the "
            "nodes that has the packages headroom and cloudpickle",
            log_tail=text,
        )
    return None


def _launch_error(call: str, log_tail: str, message: str, common: Dict[str, Any]) -> HeadroomError:
    unavailable = _unavailable(log_tail)
    if unavailable is not None:
        return unavailable
    cause = log_tail.strip() or message or "no reason was reported"
    return TaskFailed(f"{call} did not start: {cause}; {_see(common)}", **common)


def _exit_error(
    result: Dict[str, Any], call: str, reason: Dict[str, Any], common: Dict[str, Any]
) -> TaskFailed:
    signal = reason.get("signal")
    code = reason.get("code")
    if signal is not None:
        how = f"was ended by signal {signal}"
    elif code == 0:
        how = "ended its process without a result (exit code 0)"
    elif code is not None:
        how = f"ended its process with exit code {code}"
    else:
        how = f"failed: {result.get('message') or 'no reason was reported'}"
    tail = common["log_tail"].strip().splitlines()
    last = f"; its last line: {tail[-1]}" if tail else ""
    return TaskFailed(
        f"{call} {how}{last}; {_see(common)}", exit_code=code, signal=signal, **common
    )


def _see(common: Dict[str, Any]) -> str:
    return f"see: rmctl diagnose {common['task']}"


def _list_sizes(sizes: List[int]) -> str:
    """Sizes for a sentence.

    >>> _list_sizes([64 << 20, 128 << 20, 192 << 20])
    '64, 128 and 192 MiB'
    """
    words = [format_bytes(size) for size in sizes]
    for index in range(len(words) - 1):
        number, unit = words[index].split(" ")
        if words[index + 1].endswith(" " + unit):
            words[index] = number
    if len(words) < 2:
        return "".join(words) or "its size"
    return ", ".join(words[:-1]) + " and " + words[-1]


def explain(
    call: str,
    task: Optional[str],
    state: str,
    attempts: Tuple[AttemptReport, ...],
    message: str,
) -> str:
    """A call's attempts with their verdicts, for users."""
    lines = [f"{call}: {state}" + (f" ({task})" if task else "")]
    for attempt in attempts:
        outcome = _SENTENCES.get(attempt.verdict, attempt.verdict or "runs")
        if attempt.verdict == "exit":
            outcome = f"exit code {attempt.exit_code}"
        elif attempt.verdict == "signal":
            outcome = f"signal {attempt.signal}"
        peak = "unknown" if attempt.peak is None else format_bytes(attempt.peak)
        lines.append(
            f"  attempt {attempt.number}: {attempt.describe_sizes()}, peak {peak}, "
            f"node {attempt.node}: {outcome}"
        )
        lines += [f"    {sentence}" for sentence in attempt.evidence]
    if message:
        lines.append(f"  {message}")
    if task:
        lines.append(f"  rmctl diagnose {task}")
    return "\n".join(lines)
