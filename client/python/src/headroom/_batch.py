"""Jobs of one stage for programs that hand over whole commands: a job file, and its submission.

A batch job is an application with an array of tasks that all have the same size. Each task runs in
an executor with one slot, so that its limit is exactly its memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

__all__ = ["BatchJob", "escape_places", "learned_size", "name_of"]

MIB = 1 << 20

#: Memory that the executor of a container keeps for itself. Bytes; the default of a job file.
EXECUTOR_RESERVE = 32 * MIB

#: Longest name of an application, and longest name of a stage or kind. Characters.
MAX_NAME = 63
MAX_STAGE_NAME = 40


def name_of(text: str, longest: int = MAX_NAME) -> str:
    """A valid name made of any text: letters, digits, dash and underscore.

    A name that is too long is shortened, and ends in a hash of the whole text.

    >>> name_of("my workflow/align.bam")
    'my-workflow-align-bam'
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")
    if not name:
        name = "job"
    if len(name) > longest:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = f"{name[: longest - 9].rstrip('-_')}-{digest}"
    return name


def escape_places(text: str) -> str:
    """A text for a command or variable of a job file, whose braces stay as they are.

    >>> escape_places("awk '{print $1}'")
    "awk '{{print $1}}'"
    """
    return text.replace("{", "{{").replace("}", "}}")


def learned_size(
    suggestions: Iterable[Mapping[str, Any]], stage: str, user: Optional[str]
) -> Optional[int]:
    """The size that the history of a stage suggests. Bytes; ``None`` with too little history.

    ``suggestions`` are rows of ``GET /v1/suggestions?job=NAME``. Without ``user``, the rows of all
    users count.
    """
    sizes = [
        int(row["stated"])
        for row in suggestions
        if row.get("kind") == stage
        and row.get("stated")
        and (user is None or row.get("user") == user)
    ]
    return max(sizes) if sizes else None


def _toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(title: str, rows: Mapping[str, Any]) -> str:
    lines = [f"{_key(key)} = {_toml(value)}" for key, value in rows.items() if value is not None]
    return "\n".join([title, *lines])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


@dataclass(frozen=True)
class BatchJob:
    """An application of one stage."""

    #: Name of the application. Applications of one name share a usage history.
    name: str
    #: Name of the stage, the key of the usage history within that name.
    stage: str
    #: Program and arguments. ``{index}`` and the other places of a job file are filled in.
    command: Sequence[str]
    #: Memory limit of a task at its first attempt. Bytes.
    memory: int
    #: Directory in which the tasks start.
    directory: str
    #: Number of tasks of an array; ``None`` for a job that is one task.
    tasks: Optional[int] = None
    #: Processors of a task.
    cpus: float = 1
    #: Most tasks that run at once; ``None`` for all of them.
    parallel: Optional[int] = None
    #: Additional environment variables. Places are filled in here too.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Longest run time of an attempt. Seconds.
    timeout: Optional[float] = None
    #: Attempts that may end in a plain failure.
    plain_attempts: int = 1
    #: Attempts that may end in a memory failure; ``None`` for the default of job files.
    memory_attempts: Optional[int] = None
    #: Size that no task exceeds. Bytes.
    cap: Optional[int] = None
    #: Reaction to memory failures; ``None`` for the default of job files.
    mode: Optional[str] = None
    #: First sizes: ``stated``, ``learned`` or ``shadow``.
    sizes: Optional[str] = None
    #: False if a task is killed at its limit instead of growing in place.
    grow: Optional[bool] = None
    #: Runtime of the program, such as ``python``.
    runtime: Optional[str] = None
    queue: Optional[str] = None
    priority: int = 0

    def text(self) -> str:
        """The job file."""
        count = self.tasks or 1
        timeout = None if self.timeout is None else f"{max(1, round(self.timeout))}s"
        head: Dict[str, Any] = {
            "version": 1,
            "name": self.name,
            "queue": self.queue,
            "priority": self.priority or None,
            "mode": self.mode,
            "sizes": self.sizes,
        }
        stage: Dict[str, Any] = {
            "name": self.stage,
            "array": None if self.tasks is None else f"0-{self.tasks - 1}",
            "command": list(self.command),
            "timeout": timeout,
            "grow": self.grow,
            "runtime": self.runtime,
        }
        retry: Dict[str, Any] = {
            "max_attempts": self.plain_attempts,
            "memory_attempts": self.memory_attempts,
            "cap": self.cap,
        }
        profile = {"memory": self.memory + EXECUTOR_RESERVE, "cpus": self.cpus}
        executors = {"profile": "task", "count": min(count, self.parallel or count)}
        tables: List[Tuple[str, Mapping[str, Any]]] = [
            ("[profiles.task]", profile),
            ("[executors.main]", executors),
            ("[retry]", retry),
            ("[[stage]]", stage),
        ]
        if self.env:
            tables.append(("[stage.env]", self.env))
        return "\n\n".join([_table("", head).lstrip(), *(_table(*t) for t in tables)]) + "\n"

    def submission(self, key: str, user: Optional[str] = None) -> Dict[str, Any]:
        """The body of ``POST /v1/apps``.

        ``key`` is the idempotency key: with the same key, the same application is meant. ``user``
        is left out by a client that authenticates.
        """
        command = ["appmaster", "--job", "job.toml", "--mode", self.mode or "headroom"]
        command += ["--base-dir", self.directory]
        # A master keeps a row of at most 8 KiB for each task.
        memory = 64 * MIB + 8 * 1024 * (self.tasks or 1)
        memory = -(-memory // (8 * MIB)) * 8 * MIB
        return {
            "name": self.name,
            "queue": self.queue,
            "priority": self.priority,
            "user": user,
            "idempotency_key": key,
            "master": {
                "kind": "managed",
                "resource": {"memory": memory, "cpus": 0},
                "max_attempts": 2,
                "launch": {"command": command, "files": {"job.toml": self.text()}},
            },
        }
