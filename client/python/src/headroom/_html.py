"""Tables for notebooks: the counts of the calls of an executor, and the attempts of a future."""

from __future__ import annotations

import html
import threading
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Optional, Sequence, Tuple

from headroom._verdict import MEMORY_REASONS
from headroom.errors import AttemptReport, format_bytes

__all__ = ["CallCounts", "executor_table", "future_table"]

Row = Tuple[str, ...]


@dataclass
class CallCounts:
    """The ended calls of an executor."""

    #: Calls with a value.
    done: int = 0
    #: Calls that raised, and those that have no result.
    failed: int = 0
    #: Calls that were cancelled.
    cancelled: int = 0
    #: Attempts that got more memory while they ran.
    grown: int = 0
    #: Attempts that were ended for their memory.
    killed: int = 0
    #: Highest memory use of an attempt. Bytes; ``None`` if none was measured.
    peak: Optional[int] = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add_end(self, error: Optional[BaseException]) -> None:
        """Adds the end of a call."""
        with self._lock:
            if error is None:
                self.done += 1
            else:
                self.failed += 1

    def add_cancelled(self) -> None:
        """Adds a cancelled call."""
        with self._lock:
            self.cancelled += 1

    def add_attempts(self, rows: Iterable[Dict[str, Any]]) -> None:
        """Adds the attempts of an ended task, as the application master reports them."""
        for row in rows:
            with self._lock:
                self.grown += bool(row.get("grown"))
                self.killed += (row.get("reason") or {}).get("kind") in MEMORY_REASONS
                self.peak = max(self.peak or 0, row.get("peak") or 0) or None


def executor_table(
    app: str, address: str, workers: int, counts: CallCounts, *, running: int, waiting: int
) -> str:
    """The table of an executor."""
    rows = [
        ("calls done", str(counts.done)),
        ("running", str(running)),
        ("waiting", str(waiting)),
        ("failed", str(counts.failed)),
        ("cancelled", str(counts.cancelled)),
        ("attempts grown in place", str(counts.grown)),
        ("attempts killed for memory", str(counts.killed)),
        ("highest peak", _size(counts.peak)),
    ]
    title = f"Executor {app} at {address}, {workers} calls at once"
    return _table(title, (), rows)


def future_table(
    call: str, state: str, task: Optional[str], attempts: Sequence[AttemptReport]
) -> str:
    """The table of a future."""
    rows = [
        (
            str(attempt.number),
            attempt.describe_sizes() if attempt.size else "",
            _size(attempt.peak),
            attempt.verdict or "running",
            attempt.node or "",
        )
        for attempt in attempts
    ]
    title = f"{call}: {state}" + (f" ({task})" if task else "")
    return _table(title, ("attempt", "memory", "peak", "verdict", "node"), rows)


def _size(size: Optional[int]) -> str:
    return "not measured" if size is None else format_bytes(size)


def _table(title: str, head: Row, rows: Sequence[Row]) -> str:
    lines = ["<table>", f"<caption>{html.escape(title)}</caption>"]
    if head:
        lines.append(_line("th", head))
    lines += [_line("td", row) for row in rows]
    return "\n".join([*lines, "</table>"])


def _line(cell: str, texts: Row) -> str:
    cells = "".join(f"<{cell}>{html.escape(text)}</{cell}>" for text in texts)
    return f"<tr>{cells}</tr>"
