"""The environment of a task of submitit: its ids, checkpoints, time limit and memory failures.

Only tasks on a node use it, so it imports nothing of the client.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import types
from typing import Any, ClassVar, Dict, Optional

from submitit.core import job_environment, utils
from submitit.core import logger as submitit_logger

__all__ = ["HeadroomJobEnvironment", "MemoryFailure", "RestartRequested"]

#: Time between the checkpoint and the end of the time limit. Seconds.
DEFAULT_SIGNAL_DELAY = 90

#: Set in the tasks of an array.
ARRAY_VARIABLE = "SUBMITIT_HEADROOM_ARRAY"

#: Time between the checkpoint and the end of the time limit. Seconds.
DELAY_VARIABLE = "SUBMITIT_HEADROOM_SIGNAL_DELAY"


class MemoryFailure(BaseException):
    """A call raised ``MemoryError``. Not an ``Exception``, which submitit stores as a result."""


class RestartRequested(BaseException):
    """The call wrote a checkpoint at the end of its time, and runs again."""


class _EndSignalHandler(job_environment.SignalHandler):
    """Writes checkpoints: before a preemption, and before the end of the time limit."""

    def __init__(
        self,
        env: HeadroomJobEnvironment,
        paths: utils.JobPaths,
        delayed: utils.DelayedSubmission,
    ) -> None:
        super().__init__(env, paths, delayed)
        self.is_time_over = False
        #: The signal that is handled.
        self.handled: Optional[int] = None

    def has_timed_out(self) -> bool:
        """Whether the time limit is the reason. Submitit estimates it from the run time."""
        return self.is_time_over

    def on_signal(self, signum: int, frame: Optional[types.FrameType] = None) -> None:
        """Handles the first signal; a second one would interrupt the checkpoint."""
        if self.handled is not None:
            return
        self.handled = signum
        self.checkpoint_and_try_requeue(signum, frame)

    def on_time_over(self) -> None:
        """Called by the timer, in its own thread."""
        self.is_time_over = True
        os.kill(os.getpid(), HeadroomJobEnvironment._usr_sig())


class HeadroomJobEnvironment(job_environment.JobEnvironment):
    """The environment of a task of Headroom."""

    _env: ClassVar[Dict[str, str]] = {
        "job_id": "HEADROOM_APP",
        "num_tasks": "SUBMITIT_HEADROOM_NUM_TASKS",
        "num_nodes": "SUBMITIT_HEADROOM_NUM_NODES",
        "node": "SUBMITIT_HEADROOM_NODE_ID",
        "global_rank": "SUBMITIT_HEADROOM_GLOBAL_RANK",
        "local_rank": "SUBMITIT_HEADROOM_LOCAL_RANK",
    }

    #: Handler of signals; ``None`` outside of a running call.
    _handler: Optional[_EndSignalHandler] = None

    @property
    def array_job_id(self) -> Optional[str]:
        """The application of an array."""
        return os.environ.get("HEADROOM_APP") if os.environ.get(ARRAY_VARIABLE) else None

    @property
    def array_task_id(self) -> Optional[str]:
        """The index in an array."""
        return os.environ.get("HEADROOM_INDEX") if os.environ.get(ARRAY_VARIABLE) else None

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1. It is above 1 after a kill or a preemption."""
        return int(os.environ.get("HEADROOM_ATTEMPT", "1"))

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        """Sets up checkpoints, the time limit, and the report of a ``MemoryError``."""
        handler = _EndSignalHandler(self, paths, submission)
        self._handler = handler
        signal.signal(signal.SIGCONT, handler.bypass)
        # Headroom sends SIGTERM before it ends the container of a preempted job.
        signal.signal(signal.SIGTERM, handler.on_signal)
        signal.signal(self._usr_sig(), handler.on_signal)
        limit = submission._timeout_min * 60
        if limit > 0:
            delay = float(os.environ.get(DELAY_VARIABLE, DEFAULT_SIGNAL_DELAY))
            timer = threading.Timer(max(limit - delay, limit / 2), handler.on_time_over)
            timer.daemon = True
            timer.start()
            # Ends a call that does not return from native code to Python, and prints its place.
            faulthandler.dump_traceback_later(limit, exit=True)
        _report_memory_errors(submission)

    def _requeue(self, countdown: int) -> None:
        """Headroom runs a task again that it ends. After another signal, the task restarts."""
        submitit_logger.get_logger().info(
            f"Job {self.job_id} runs again ({countdown} remaining timeouts)"
        )
        if self._handler is not None and self._handler.handled != signal.SIGTERM:
            raise RestartRequested


def _report_memory_errors(submission: utils.DelayedSubmission) -> None:
    """Turns a ``MemoryError`` of the call into a :class:`MemoryFailure`."""
    run = submission.result

    def result() -> Any:
        try:
            return run()
        except MemoryError as error:
            raise MemoryFailure(str(error)) from error

    vars(submission)["result"] = result
