"""The decorator ``headroom.task``: a function with options for its calls."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Iterable, Mapping, Optional, TypeVar

from headroom._sizes import Memory, Time, parse_memory, parse_time

if TYPE_CHECKING:
    from headroom._executor import Executor
    from headroom._futures import Future
    from headroom._map import MapResults

__all__ = ["TaskFunction", "default_executor", "task"]

T = TypeVar("T")

_default: Optional[Executor] = None
_default_lock = threading.Lock()


def default_executor() -> Executor:
    """The executor of functions with :func:`task`. It is made at its first use, with defaults, and
    ends with the interpreter."""
    global _default
    from headroom._executor import Executor

    with _default_lock:
        if _default is None or _default._is_shut:
            _default = Executor()
        return _default


class TaskFunction(Generic[T]):
    """A function with options. Called, it runs here; ``submit`` and ``map`` run it on the
    cluster."""

    def __init__(self, function: Callable[..., T], options: Dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        return self.function(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[T]:
        """Runs the function on the cluster, with the default executor."""
        return default_executor().submit(self, *args, **kwargs)

    def map(self, *iterables: Iterable[Any], **options: Any) -> MapResults[T]:
        """Runs the function for each tuple of arguments, with the default executor."""
        return default_executor().map(self, *iterables, **options)

    def __reduce__(self) -> Any:
        return (TaskFunction, (self.function, self.options))


def task(
    function: Optional[Callable[..., T]] = None,
    *,
    memory: Optional[Memory] = None,
    cpus: Optional[int] = None,
    timeout: Optional[Time] = None,
    priority: Optional[int] = None,
    idempotent: Optional[bool] = None,
    tags: Optional[Mapping[str, str]] = None,
) -> Any:
    """Gives a function options for its calls on the cluster.

    >>> @task(memory="2GiB")
    ... def square(n):
    ...     return n * n
    >>> square(3)
    9
    >>> square.options["memory"]
    2147483648
    """
    options: Dict[str, Any] = {
        "memory": None if memory is None else parse_memory(memory, "memory"),
        "cpus": cpus,
        "timeout": None if timeout is None else parse_time(timeout, "timeout"),
        "priority": priority,
        "idempotent": idempotent,
        "tags": None if tags is None else dict(tags),
    }

    def decorate(wrapped: Callable[..., T]) -> TaskFunction[T]:
        return TaskFunction(wrapped, options)

    return decorate if function is None else decorate(function)
