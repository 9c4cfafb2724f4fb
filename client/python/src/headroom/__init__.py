"""Headroom for Python: calls on a cluster, each with a memory limit of its own.

A call that ran out of memory runs again with more; others are not disturbed::

    import headroom

    with headroom.Executor(memory="256MiB") as executor:
        for result in executor.map(work, inputs):
            ...

:class:`Executor` is a :class:`concurrent.futures.Executor`. See ``docs/guides/python.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from headroom._attached import AttachedJob, attach
    from headroom._executor import Executor, ExecutorView
    from headroom._futures import Future
    from headroom._task import TaskFunction, default_executor, task
    from headroom.errors import (
        AttemptReport,
        ClusterUnreachable,
        FunctionUnavailable,
        HeadroomError,
        MemoryExhausted,
        RemoteTraceback,
        RequestRefused,
        SettingsError,
        TaskFailed,
        TaskLost,
        TaskTimeout,
    )

__version__ = "0.1.0"

__all__ = [
    "AttachedJob",
    "AttemptReport",
    "ClusterUnreachable",
    "Executor",
    "ExecutorView",
    "FunctionUnavailable",
    "Future",
    "HeadroomError",
    "MemoryExhausted",
    "RemoteTraceback",
    "RequestRefused",
    "SettingsError",
    "TaskFailed",
    "TaskFunction",
    "TaskLost",
    "TaskTimeout",
    "attach",
    "default_executor",
    "task",
]

# Modules are imported at their first use: a call on a node needs few of them.
_MODULES = {
    "AttachedJob": "_attached",
    "Executor": "_executor",
    "ExecutorView": "_executor",
    "Future": "_futures",
    "TaskFunction": "_task",
    "attach": "_attached",
    "default_executor": "_task",
    "task": "_task",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted([*globals(), *__all__])
