"""The exceptions of the package.

All of them can be pickled, so that they pass between processes without losing a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Tuple

__all__ = [
    "AttemptReport",
    "ClusterUnreachable",
    "FunctionUnavailable",
    "HeadroomError",
    "MemoryExhausted",
    "RemoteTraceback",
    "RequestRefused",
    "SettingsError",
    "TaskFailed",
    "TaskLost",
    "TaskTimeout",
    "format_bytes",
]

_UNITS: Tuple[Tuple[str, int], ...] = (
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
)


def format_bytes(size: int) -> str:
    """A number of bytes for users, with at most two decimals.

    >>> format_bytes(2 << 30), format_bytes(1536 << 20), format_bytes(100)
    ('2 GiB', '1.5 GiB', '100 B')
    """
    for unit, factor in _UNITS:
        if size >= factor:
            number = f"{size / factor:.2f}".rstrip("0").rstrip(".")
            return f"{number} {unit}"
    return f"{size} B"


@dataclass(frozen=True)
class AttemptReport:
    """One attempt of a task, as the application master reported it."""

    #: Number of the attempt, from 1.
    number: int
    #: Memory limit, after the last increase. Bytes; 0 if it is unknown.
    size: int
    #: Highest memory use that was measured. Bytes; ``None`` if it was not measured.
    peak: Optional[int]
    #: Outcome such as ``succeeded``, ``task_oom``, ``app_error``; empty while the attempt runs.
    verdict: str
    #: The quantity that ran out: ``native``, ``heap`` or ``overhead``.
    dimension: Optional[str] = None
    #: Exit code of the program.
    exit_code: Optional[int] = None
    #: Signal that ended the program.
    signal: Optional[int] = None
    #: Node of the attempt.
    node: Optional[str] = None
    #: The evidence for the verdict, one sentence each.
    evidence: Tuple[str, ...] = ()
    #: Earlier limits of an attempt that got more memory while it ran. Bytes.
    grown_from: Tuple[int, ...] = ()

    def describe_sizes(self) -> str:
        """The limits of the attempt for users.

        >>> AttemptReport(1, 160 << 20, None, "", grown_from=(64 << 20,)).describe_sizes()
        '64 MiB → 160 MiB (grown in place)'
        """
        sizes = " → ".join(map(format_bytes, [*self.grown_from, self.size]))
        return sizes + " (grown in place)" if self.grown_from else sizes


class HeadroomError(Exception):
    """Base class of all exceptions of this package."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def message(self) -> str:
        """The whole sentence for users."""
        return str(self)

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_rebuild_error, (type(self), str(self)), dict(self.__dict__))


def _rebuild_error(kind: Any, message: str) -> HeadroomError:
    error: HeadroomError = kind(message)
    return error


class SettingsError(HeadroomError, ValueError):
    """An argument, an environment variable or a settings file is invalid."""


class ClusterUnreachable(HeadroomError, ConnectionError):
    """No resource manager answers at the address."""


class RequestRefused(HeadroomError):
    """The resource manager or the application master refused a request."""

    #: HTTP status; 0 for a refusal inside a submission channel.
    status: int = 0
    #: The stable error code such as ``HR0404``; empty if the answer had none.
    code: str = ""
    #: Description of this occurrence.
    detail: str = ""
    #: Remedies.
    hints: Tuple[str, ...] = ()
    #: True if the same request may succeed later.
    retryable: bool = False
    #: The exact reason, for problems that programs treat differently from others of their code.
    reason: Optional[str] = None
    #: The whole problem document.
    problem: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of_problem(cls, status: int, problem: Dict[str, Any], fallback: str) -> RequestRefused:
        """Builds the error from a problem document (RFC 9457)."""
        code = str(problem.get("code") or "")
        detail = str(problem.get("detail") or problem.get("title") or fallback)
        hints = tuple(str(hint) for hint in problem.get("hints") or ())
        retryable = problem.get("retryable")
        if retryable is None:
            retryable = status in (421, 429, 500, 502, 503, 504)
        label = code or (f"HTTP {status}" if status else "refused")
        message = f"{detail} ({label})"
        if hints:
            message += "; " + "; ".join(hints)
        return cls(
            message,
            status=status,
            code=code,
            detail=detail,
            hints=hints,
            retryable=bool(retryable),
            reason=problem.get("reason"),
            problem=dict(problem),
        )


class _AttemptError(HeadroomError):
    """An error with the attempts of a task."""

    #: All attempts, the first one first.
    attempts: Tuple[AttemptReport, ...] = ()
    #: Id of the task for ``rmctl diagnose``, such as ``square.3/square/7``.
    task: Optional[str] = None
    #: Outcome of the last attempt, such as ``task_oom`` or ``app_error``.
    verdict: Optional[str] = None
    #: The end of standard error of the last attempt.
    log_tail: str = ""

    @property
    def sizes(self) -> List[int]:
        """Memory limit of every attempt. Bytes."""
        return [attempt.size for attempt in self.attempts]


class MemoryExhausted(_AttemptError, MemoryError):
    """A call needs more memory than the largest size that it may get."""

    #: The quantity that ran out: ``native``, ``heap`` or ``overhead``.
    dimension: Optional[str] = None
    #: The largest size that the call may get. Bytes; ``None`` if it is unknown.
    cap: Optional[int] = None
    #: The remedy.
    fix: str = ""


class TaskFailed(_AttemptError):
    """A call ended by a signal or an exit code instead of with a result."""

    #: Exit code of the program.
    exit_code: Optional[int] = None
    #: Signal that ended the program.
    signal: Optional[int] = None


class TaskTimeout(TaskFailed, TimeoutError):
    """A call ran longer than its ``timeout``."""


class TaskLost(_AttemptError):
    """The cluster or the application ended before the call had a result."""


class FunctionUnavailable(HeadroomError, ImportError):
    """The node cannot load the function: a module is missing or the Python version differs."""

    #: The missing module.
    module: Optional[str] = None
    #: Python version of the node, such as ``3.11``.
    python: Optional[str] = None


class RemoteTraceback(Exception):
    """The traceback of a function's exception on the node, as the cause of that exception."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text
