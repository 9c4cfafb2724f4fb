"""Backend for joblib, and so for scikit-learn.

::

    import joblib
    import headroom.joblib

    with joblib.parallel_config(backend="headroom", memory="512MiB"):
        joblib.Parallel()(joblib.delayed(work)(n) for n in range(100))

The import registers the backend. Options of the backend are those of :class:`headroom.Executor`;
``executor=`` uses one that runs already.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from joblib._parallel_backends import AutoBatchingMixin
from joblib.parallel import ParallelBackendBase, register_parallel_backend

from headroom._executor import Executor
from headroom._futures import Future

__all__ = ["HeadroomBackend", "register"]


class HeadroomBackend(AutoBatchingMixin, ParallelBackendBase):
    """Runs the batches of joblib as calls of an executor."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(
        self,
        nesting_level: Optional[int] = None,
        inner_max_num_threads: Optional[int] = None,
        executor: Optional[Executor] = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._given = executor
        self._own: Optional[Executor] = None
        self._options: Dict[str, Any] = options
        self._futures: Dict[int, Future[Any]] = {}

    @property
    def executor(self) -> Executor:
        """The executor; made at the first use."""
        if self._given is not None:
            return self._given
        if self._own is None:
            env = self._prepare_worker_env(n_jobs=1) if self.inner_max_num_threads else {}
            options = {"name": "joblib", **self._options}
            options["env"] = {**env, **dict(options.get("env") or {})}
            self._own = Executor(**options)
        return self._own

    def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
        """The number of workers; ``-1`` means all of the cluster."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        workers = self.executor.worker_count
        if n_jobs is None:
            return 1
        return max(1, workers + 1 + n_jobs) if n_jobs < 0 else n_jobs

    def submit(
        self, func: Callable[[], Any], callback: Optional[Callable[[Any], None]] = None
    ) -> Future[Any]:
        """Runs a batch."""
        # joblib compares wall time with its aim, so a batch is described by its first call.
        future: Future[Any] = self.executor.submit(_BatchOfCalls(func))
        future._record.name = _describe(func)
        self._futures[id(future)] = future
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The result of an ended batch."""
        self._futures.pop(id(out), None)
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Ends the batches that have not ended."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            future.cancel(running=True)
        if not ensure_ready:
            self.terminate()

    def terminate(self) -> None:
        """Ends an executor of this backend's own."""
        own, self._own = self._own, None
        self._futures.clear()
        self.reset_batch_stats()
        if own is not None:
            own.shutdown(wait=True)


class _BatchOfCalls:
    """A batch of joblib, named after its function so that sizes are learned for it."""

    def __init__(self, batch: Callable[[], Any]) -> None:
        self._batch = batch
        self.__qualname__ = _describe(batch)

    def __call__(self) -> Any:
        return self._batch()


def _describe(batch: Any) -> str:
    from headroom._pickling import qualified_name

    items = getattr(batch, "items", None)
    if items:
        return qualified_name(items[0][0])
    return qualified_name(batch)


def register() -> None:
    """Registers the backend under the name ``headroom``."""
    register_parallel_backend("headroom", HeadroomBackend)


register()
