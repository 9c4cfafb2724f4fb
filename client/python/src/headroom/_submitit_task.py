"""The program of a task of submitit: ``python -m headroom._submitit_task FOLDER``.

It loads the submitted call, runs it and writes its result, as ``submitit.core._submit`` does. In
addition, it sends the output into the log files of submitit, reports a ``MemoryError`` to Headroom
instead of storing it as a result, and starts again after a checkpoint at the end of its time.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import traceback
from pathlib import Path
from typing import List, NoReturn

from submitit.core.submission import process_job
from submitit.core.utils import JobPaths

from headroom._submitit_environment import (
    HeadroomJobEnvironment,
    MemoryFailure,
    RestartRequested,
)

#: Exit code after a ``MemoryError``, with the marker file.
MEMORY_EXIT_CODE = 3

#: Exit code of a call that raised an exception.
FAILURE_EXIT_CODE = 1


def main(arguments: List[str]) -> int:
    """Runs the call of the folder; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m headroom._submitit_task FOLDER", file=sys.stderr)
        return 2
    folder = arguments[0]
    os.environ["SUBMITIT_FOLDER"] = folder
    paths = HeadroomJobEnvironment().paths
    paths.folder.mkdir(parents=True, exist_ok=True)
    report = _redirect(paths)
    _remove_partial_files(paths)
    try:
        process_job(folder)
    except MemoryFailure:
        _print_failure(report)
        _write_marker()
        return MEMORY_EXIT_CODE
    except RestartRequested:
        _restart(folder, report)
    except Exception:
        # The result file has the exception. Standard error of the task has it too.
        _print_failure(report)
        return FAILURE_EXIT_CODE
    return 0


def _redirect(paths: JobPaths) -> int:
    """Sends standard output and error into the log files of submitit.

    Returns a descriptor of the standard error that Headroom keeps.
    """
    kept = os.dup(2)
    with open(paths.stdout, "ab") as out:
        os.dup2(out.fileno(), 1)
    if os.environ.get("SUBMITIT_STDERR_TO_STDOUT"):
        os.dup2(1, 2)
    else:
        with open(paths.stderr, "ab") as err:
            os.dup2(err.fileno(), 2)
    return kept


def _remove_partial_files(paths: JobPaths) -> None:
    """Removes files that a killed attempt wrote partly; submitit refuses to replace them."""
    for path in (paths.submitted_pickle, paths.result_pickle):
        Path(f"{path}.save_tmp").unlink(missing_ok=True)


def _print_failure(report: int) -> None:
    text = traceback.format_exc()
    sys.stderr.write(text)
    sys.stderr.flush()
    os.write(report, text.encode("utf-8", "replace"))


def _write_marker() -> None:
    """Reports to Headroom that the program was refused memory."""
    marker = os.environ.get("HEADROOM_OOM_MARKER")
    if marker:
        Path(marker).write_text("MemoryError", encoding="utf-8")


def _restart(folder: str, report: int) -> NoReturn:
    """Replaces this process by a new one, which runs the call that the checkpoint wrote."""
    faulthandler.cancel_dump_traceback_later()
    # The handlers end the processes that the call has started.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(report, 2)
    os.execv(sys.executable, [sys.executable, "-u", "-m", "headroom._submitit_task", folder])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
