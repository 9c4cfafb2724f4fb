"""Runs the calls of one task on a node.

The executor starts it as ``python3 -m headroom.call FUNCTION``, or a fork server calls
:func:`main`. ``FUNCTION`` is the stage's function: base64 of its pickle, or a file reference as
JSON. The input file has the arguments; the value file gets one outcome for each call.

An outcome is a pickled tuple: ``("ok", value, seconds)`` or ``("error", pickled exception or None,
its type's name, its text, traceback, seconds)``.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from typing import Any, Callable, List, NoReturn, Optional, Tuple

from headroom._calls import (
    MAX_VALUE_BYTES,
    MEMORY_EXIT_CODE,
    PROGRESS_SUFFIX,
    CallInput,
    ErrorParts,
    decode_outcomes,
    decode_payload,
    encode_outcome,
    value_header,
    write_reference,
)

__all__ = ["main"]

#: Reasons of an attempt after which only the interrupted call runs at the larger size.
_MEMORY_REASONS = frozenset({"heap_oom", "overhead_oom", "task_oom", "stalled_at_limit"})


class _ValueFile:
    """The value file, which grows by a line for each call while it fits into a message."""

    def __init__(self, path: Optional[str]) -> None:
        self._path = path
        self._lines: List[str] = []
        self._size = 0
        self._file: Optional[int] = None

    def begin(self, lines: List[str]) -> None:
        """Writes the header and the outcomes of earlier attempts."""
        self._lines = list(lines)
        self._size = 64 + sum(map(len, lines))
        if self._path and self._size <= MAX_VALUE_BYTES:
            # Not a text file, whose layers cost a short call a tenth of its time.
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            _write(self._file, value_header() + "".join(lines))

    def add(self, line: str) -> None:
        """Appends an outcome."""
        self._lines.append(line)
        self._size += len(line)
        if self._file is not None:
            if self._size <= MAX_VALUE_BYTES:
                _write(self._file, line)
            else:
                os.close(self._file)
                self._file = None

    def finish(self, store: str, name: str, complete: bool) -> None:
        """Completes the value; a large one goes to the store."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if complete:
                return
        if not self._path:
            sys.exit("HEADROOM_VALUE_FILE is not set: the executor of this node is too old")
        if self._size <= MAX_VALUE_BYTES:
            text = value_header(complete=complete) + "".join(self._lines)
        elif store:
            data = "".join(self._lines).encode("ascii")
            reference = write_reference(os.path.join(store, name), data)
            text = value_header(reference, complete)
        else:
            from headroom.errors import TaskFailed

            error = TaskFailed(
                f"the result has {self._size} bytes, and the executor has no store for results "
                f"above {MAX_VALUE_BYTES} bytes; give Executor(store=DIRECTORY) a directory that "
                "the client and all nodes see"
            )
            text = value_header() + encode_outcome(_error_outcome(error, 0.0))
        with open(self._path, "w", encoding="ascii") as file:
            file.write(text)


def _write(file: int, text: str) -> None:
    data = text.encode("ascii")
    while data:
        data = data[os.write(file, data) :]


class _ProgressFile:
    """Outcomes of a task with several calls, for its next attempt."""

    def __init__(self, folder: str, key: str) -> None:
        self._path = os.path.join(folder, key + PROGRESS_SUFFIX) if folder else ""

    def read(self) -> List[str]:
        """Complete lines of earlier attempts."""
        if not self._path:
            return []
        try:
            with open(self._path, encoding="ascii") as file:
                lines = file.read().splitlines(keepends=True)
        except (OSError, ValueError):
            return []
        return lines[: len(decode_outcomes(lines))]

    def begin(self, lines: List[str]) -> None:
        """Replaces the file's content by complete lines."""
        if not self._path:
            return
        try:
            with open(self._path, "w", encoding="ascii") as file:
                file.write("".join(lines))
        except OSError:
            self._path = ""

    def add(self, line: str) -> None:
        """Appends a line."""
        if self._path:
            with open(self._path, "a", encoding="ascii") as file:
                file.write(line)

    def remove(self) -> None:
        """Removes the file."""
        if self._path:
            try:
                os.unlink(self._path)
            except OSError:
                pass


def main() -> None:
    """Runs the task that the environment and the arguments describe."""
    value = _ValueFile(os.environ.get("HEADROOM_VALUE_FILE"))
    try:
        with open(os.environ["HEADROOM_INPUT_FILE"], "rb", buffering=0) as file:
            call_input = CallInput.of_text(file.readall().decode("utf-8"))
    except KeyError:
        sys.exit(
            "headroom.call runs inside a task of headroom.Executor: HEADROOM_INPUT_FILE is not set"
        )
    except ValueError as error:
        _fail(value, _unavailable(str(error)))
        return
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if call_input.python != here:
        _fail(
            value,
            _unavailable(
                f"the client runs Python {call_input.python}, and the node runs Python {here} "
                f"({sys.executable}); pickled functions need the same minor version on both: give "
                "Executor(python=PROGRAM) the program of that version on the nodes"
            ),
        )
        return
    try:
        function, calls = _load(call_input, sys.argv[1] if len(sys.argv) > 1 else "")
    except MemoryError:
        value.begin([])
        _fail_for_memory(value, 0.0)
    except BaseException as error:
        _fail(value, _load_error(error), error)
        return
    _run(function, calls, call_input, value)


def _load(call_input: CallInput, stage_function: str) -> Tuple[Callable[..., Any], List[Any]]:
    payload: Any = call_input.function
    if payload is None:
        payload = stage_function
        if stage_function.startswith("{"):
            import json

            payload = json.loads(stage_function)
    function = pickle.loads(decode_payload(payload))
    return function, pickle.loads(decode_payload(call_input.calls))


def _load_error(error: BaseException) -> BaseException:
    """The error of a function or arguments that this node cannot load."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if isinstance(error, ModuleNotFoundError):
        return _unavailable(
            f"the node has no module {error.name!r} (Python {here}, {sys.executable}); install it "
            "there, or give Executor(python=PROGRAM) a Python that has it",
            error.name,
        )
    if isinstance(error, (ImportError, AttributeError, OSError)):
        return _unavailable(
            f"the node cannot load the call: {type(error).__name__}: {error} "
            f"(Python {here}, {sys.executable})"
        )
    return error


def _unavailable(message: str, module: Optional[str] = None) -> BaseException:
    from headroom.errors import FunctionUnavailable

    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return FunctionUnavailable(message, module=module, python=here)


def _fail(value: _ValueFile, error: BaseException, cause: Optional[BaseException] = None) -> None:
    """Ends the task with a result that raises ``error``."""
    value.begin([])
    value.add(encode_outcome(_error_outcome(error, 0.0, cause)))
    value.finish("", "", True)


def _run(
    function: Callable[..., Any], calls: List[Any], call_input: CallInput, value: _ValueFile
) -> None:
    folder = ""
    if len(calls) > 1:
        folder = call_input.store or os.environ.get("HEADROOM_APP_DIR", "")
    progress = _ProgressFile(folder, call_input.key)
    done = progress.read()
    only_next = bool(done) and os.environ.get("HEADROOM_PREVIOUS_REASON") in _MEMORY_REASONS
    progress.begin(done)
    value.begin(done)
    end = min(len(done) + 1, len(calls)) if only_next else len(calls)
    for args, kwargs in calls[len(done) : end]:
        line = encode_outcome(_call(function, args, kwargs, value))
        value.add(line)
        progress.add(line)
    name = f"{call_input.key}.{os.environ.get('HEADROOM_ATTEMPT', '1')}.value"
    try:
        value.finish(call_input.store, name, end == len(calls))
    except OSError as error:
        from headroom.errors import TaskFailed

        _fail(
            value,
            TaskFailed(
                f"the result cannot be written to the store {call_input.store}: {error}; it "
                "needs free space, and write access for the account of the container"
            ),
        )
    progress.remove()


def _call(function: Callable[..., Any], args: Any, kwargs: Any, value: _ValueFile) -> bytes:
    """One call; its pickled outcome."""
    began = time.perf_counter()
    try:
        result = function(*args, **kwargs)
    except MemoryError:
        _fail_for_memory(value, time.perf_counter() - began)
    except BaseException as error:
        return _error_outcome(error, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    try:
        return _dumps(("ok", result, seconds))
    except MemoryError:
        _fail_for_memory(value, seconds)
    except BaseException as error:
        name = type(result).__name__
        wrong = pickle.PicklingError(f"the result, of type {name}, cannot be sent back: {error}")
        return _error_outcome(wrong, seconds, error)


def _dumps(value: Any) -> bytes:
    kind = type(value[1])
    if kind in (int, float, str, bool, bytes, type(None)):
        return pickle.dumps(value, 5)
    import cloudpickle

    data: bytes = cloudpickle.dumps(value, 5)
    return data


def _error_outcome(
    error: BaseException, seconds: float, cause: Optional[BaseException] = None
) -> bytes:
    """The outcome of a call that raised ``error``."""
    shown = cause or error
    skipped = shown.__traceback__
    if cause is None and skipped is not None and skipped.tb_next is not None:
        skipped = skipped.tb_next  # the frame of this module
    text = "".join(traceback.format_exception(type(shown), shown, skipped))
    return pickle.dumps(
        ("error", _pickled_error(error), type(error).__name__, str(error), text, seconds), 5
    )


def _pickled_error(error: BaseException) -> Optional[bytes]:
    """The pickled exception, if it survives the way."""
    try:
        from cloudpickle import dumps
    except ImportError:
        from pickle import dumps
    try:
        data: bytes = dumps(error, 5)
        pickle.loads(data)
    except Exception:
        return _pickled_error_parts(error)
    return data


def _pickled_error_parts(error: BaseException) -> Optional[bytes]:
    """An exception that cannot be made again from its arguments: its parts, as far as they can be
    pickled."""
    try:
        import cloudpickle
    except ImportError:
        return None
    state = {}
    for name, value in list(vars(error).items()):
        try:
            pickle.loads(cloudpickle.dumps(value, 5))
        except Exception:
            continue
        state[name] = value
    try:
        data: bytes = cloudpickle.dumps(
            ErrorParts(type(error), tuple(map(_portable, error.args)), state), 5
        )
        pickle.loads(data).build()
    except Exception:
        return None
    return data


def _portable(value: Any) -> Any:
    """The value if it can be pickled, else its text."""
    try:
        import cloudpickle

        pickle.loads(cloudpickle.dumps(value, 5))
    except Exception:
        return repr(value)
    return value


def _fail_for_memory(value: _ValueFile, seconds: float) -> NoReturn:
    """Ends the process in the way by which the executor recognizes a full heap."""
    error = sys.exc_info()[1] or MemoryError()
    try:
        value.add(encode_outcome(_error_outcome(error, seconds)))
    except MemoryError:
        pass
    marker = os.environ.get("HEADROOM_OOM_MARKER")
    if marker:
        try:
            text = traceback.format_exception_only(type(error), error)[-1].strip()
            with open(marker, "w", encoding="utf-8") as file:
                file.write(text[:200])
        except OSError:
            pass
    sys.stderr.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    sys.stderr.flush()
    sys.exit(MEMORY_EXIT_CODE)


if __name__ == "__main__":
    main()
