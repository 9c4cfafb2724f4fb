"""Executor for Parsl.

::

    import parsl
    from headroom.parsl import HeadroomExecutor

    parsl.load(parsl.Config(executors=[HeadroomExecutor(memory="512MiB")]))

The resource specification of an app may have ``memory`` (a size such as ``"2GiB"``, or MiB as a
number), ``cores``, ``priority`` and ``running_time_min``, as with Parsl's other executors. Leave
Parsl's ``retries`` at 0: Headroom repeats a call that ran out of memory, and nothing else.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from parsl.executors.base import ParslExecutor
from parsl.executors.errors import InvalidResourceSpecification

from headroom._executor import Executor, ExecutorView
from headroom._futures import Future

__all__ = ["HeadroomExecutor"]

_KEYS = frozenset({"memory", "cores", "priority", "running_time_min", "disk"})


class HeadroomExecutor(ParslExecutor):
    """Runs the apps of Parsl as calls of :class:`headroom.Executor`.

    :param label: name of the executor in Parsl.
    :param options: those of :class:`headroom.Executor`.
    """

    def __init__(self, label: str = "headroom", **options: Any) -> None:
        super().__init__()
        self.label = label
        self._options = options
        self._executor: Optional[Executor] = None

    def start(self) -> None:
        """Makes the executor."""
        self._executor = Executor(**{"name": self.label, **self._options})

    def submit(
        self,
        func: Callable[..., Any],
        resource_specification: Dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Future[Any]:
        """Runs an app."""
        if self._executor is None:
            raise RuntimeError(f"the executor {self.label} is not started; parsl.load starts it")
        view = self._view(self._executor, resource_specification or {})
        return view.submit(func, *args, **kwargs)

    def _view(self, executor: Executor, wanted: Dict[str, Any]) -> ExecutorView:
        unknown = set(wanted) - _KEYS
        if unknown:
            raise InvalidResourceSpecification(
                unknown, f"the executor {self.label} knows {', '.join(sorted(_KEYS))}"
            )
        memory = wanted.get("memory")
        minutes = wanted.get("running_time_min")
        return executor.with_(
            memory=f"{memory}MiB" if isinstance(memory, (int, float)) else memory,
            cpus=wanted.get("cores"),
            priority=wanted.get("priority"),
            timeout=None if minutes is None else float(minutes) * 60,
        )

    def shutdown(self) -> None:
        """Ends the executor."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None
        super().shutdown()

    def monitor_resources(self) -> bool:
        """False: the cluster measures each call itself."""
        return False
