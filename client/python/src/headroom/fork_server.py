"""Fork server: a Python process that imports modules once and starts each call as a fork of itself.

    python3 -m headroom.fork_server --import pandas --import mylib

The executor of a job starts it for attempts with a ``fork_server``, and requests a process for each
attempt over a socket. ``docs/fork-server-protocol.md`` describes the messages. The command of an
attempt names the code to run, in one of four forms:

    MODULE:FUNCTION [ARG...]     imports the module and calls the function without arguments
    -c CODE [ARG...]             as ``python3 -c``
    -m MODULE [ARG...]           as ``python3 -m``
    SCRIPT [ARG...]              as ``python3 SCRIPT``

The exit code is that of Python: 0, the code of ``SystemExit``, or 1 after an uncaught exception,
with the traceback on standard error. An uncaught ``MemoryError`` is written to the file that
``HEADROOM_OOM_MARKER`` names, and the exit code is 3. SIGUSR2 prints the stack to standard error.

With ``--calls N`` a process whose call ends with code 0 and leaves no thread and no open file may
run up to N calls, one after the other.

The server reads no data of users before it forks, and has one thread. Standard library only.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
import types
from typing import Any, Dict, List, NoReturn, Optional, Sequence

from headroom._sibling_fork import find_sibling_fork

VERSION = 1
#: Variable with the number of the inherited socket.
CHANNEL_VARIABLE = "HEADROOM_FORK_SERVER_FD"
#: Maximum length of a message. Bytes.
MAX_MESSAGE_BYTES = 128 << 10
#: Maximum number of descriptors in a message.
MAX_DESCRIPTORS = 12
#: Exit code of a call that ran out of memory.
MEMORY_ERROR_EXIT_CODE = 3
#: Exit code of a process that could not be prepared for its call.
SETUP_EXIT_CODE = 126
#: Exit code of Python when standard output cannot be written.
FLUSH_EXIT_CODE = 120
#: Maximum length of the text in the file of HEADROOM_OOM_MARKER. Characters.
MAX_MARKER = 200
#: Message of a process that has ended its call and can run another one.
DONE = b"done"
#: Time for the threads of a module to end after a fork. Seconds.
THREAD_TIMEOUT = 0.2


# --- The server -----------------------------------------------------------------------------------


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Imports the modules, then serves requests until the executor closes the socket."""
    options = parse_arguments(arguments)
    number = options.channel
    in_child: List[str] = list(options.in_child)
    for name in options.imports:
        if name not in in_child and not import_without_threads(name):
            restart(options, [*in_child, name])
    channel = socket.socket(fileno=number)
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
    warnings = [
        f"{name} starts threads when it is imported, so each call imports it" for name in in_child
    ]
    for warning in warnings:
        print(f"headroom.fork_server: {warning}", file=sys.stderr)
    freeze_memory()
    send(channel, {"kind": "ready", "version": VERSION, "warnings": warnings})
    call = serve(channel)
    if call is not None:
        call.run_and_exit(in_child, options.calls)


def parse_arguments(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    """The checked options, and the number of the inherited socket as ``channel``."""
    parser = argparse.ArgumentParser(
        prog="python3 -m headroom.fork_server",
        description="Imports modules once and starts each call as a fork of itself.",
    )
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="import this module before the first fork; may be repeated",
    )
    parser.add_argument(
        "--import-in-child",
        dest="in_child",
        metavar="MODULE",
        action="append",
        default=[],
        help="import this module in each call, because it starts threads; may be repeated",
    )
    parser.add_argument(
        "--calls",
        metavar="N",
        type=int,
        default=1,
        help="let a process run up to N calls, one after the other; 1 without this option",
    )
    options = parser.parse_args(arguments)
    number = os.environ.pop(CHANNEL_VARIABLE, "")
    if not number.isdigit():
        parser.error(f"{CHANNEL_VARIABLE} is not set; only an executor starts a fork server")
    options.channel = int(number)
    os.set_inheritable(options.channel, False)
    return options


def import_without_threads(name: str) -> bool:
    """Imports a module. False if threads of it remain, with which a fork is not safe."""
    importlib.import_module(name)
    if thread_count() == 1:
        return True
    # Libraries such as OpenBLAS end their threads before a fork and start them again on demand.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + THREAD_TIMEOUT
    while thread_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.005)
    return thread_count() == 1


def thread_count() -> int:
    """The number of threads of this process, including those that Python does not know."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def restart(options: argparse.Namespace, in_child: Sequence[str]) -> NoReturn:
    """Replaces this process by one that leaves the modules ``in_child`` to the calls."""
    os.set_inheritable(options.channel, True)
    os.environ[CHANNEL_VARIABLE] = str(options.channel)
    command = [sys.executable, "-m", "headroom.fork_server", "--calls", str(options.calls)]
    for name in options.imports:
        command += ["--import", name]
    for name in in_child:
        command += ["--import-in-child", name]
    flush_output()
    os.execv(sys.executable, command)


def freeze_memory() -> None:
    """Keeps the collector away from objects that all calls share, so that no call copies them."""
    gc.collect()
    gc.disable()
    gc.freeze()


def serve(channel: socket.socket) -> Optional[Call]:
    """Answers requests until the socket is closed. Returns a call in each forked process, and
    ``None`` in the server."""
    forker = Forker(channel)
    own_environment = dict(os.environ)
    while True:
        packet, descriptors, _, _ = socket.recv_fds(
            channel, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        if not packet:
            return None
        request = parse_request(packet)
        if request is not None:
            try:
                request["env"] = environment_change(own_environment, request["env"])
                pid = forker.fork()
            except OSError as error:
                answer = {"kind": "failed", "attempt": request["attempt"], "error": str(error)}
            else:
                if pid == 0:
                    channel.close()
                    return Call(request, descriptors)
                answer = {"kind": "forked", "attempt": request["attempt"], "pid": pid}
            send(channel, answer)
        for descriptor in descriptors:
            os.close(descriptor)


def parse_request(packet: bytes) -> Optional[Dict[str, Any]]:
    """The request in a packet; ``None`` for a message of another kind, which is ignored."""
    try:
        message = json.loads(packet)
        if message["kind"] == "fork" and isinstance(message["attempt"], str):
            return dict(message)
    except (ValueError, KeyError, TypeError) as error:
        print(f"headroom.fork_server: invalid message, ignoring: {error!r}", file=sys.stderr)
    return None


class Forker:
    """Forks processes whose parent is the executor."""

    def __init__(self, channel: socket.socket) -> None:
        self._clone = find_sibling_fork(channel)

    def fork(self) -> int:
        """Returns the pid in the server, and 0 in the process."""
        flush_output()
        if self._clone is not None:
            try:
                return self._clone()
            except OSError as error:
                # The first process of a pid namespace has no sibling.
                print(f"headroom.fork_server: two forks for each call: {error}", file=sys.stderr)
                self._clone = None
        return self._fork_twice()

    def _fork_twice(self) -> int:
        """Forks a process whose parent ends, so that the executor becomes its parent."""
        pids_read, pids_write = os.pipe()
        middle = os.fork()
        if middle == 0:
            try:
                pid = os.fork()
                if pid == 0:
                    os.close(pids_read)
                    os.close(pids_write)
                    return 0
                os.write(pids_write, b"%d\n" % pid)
            except OSError as error:
                os._exit(error.errno or 1)
            os._exit(0)
        os.close(pids_write)
        _, status = os.waitpid(middle, 0)
        # The second process may still hold the other end: without a pid, no end of file comes.
        os.set_blocking(pids_read, False)
        try:
            return int(os.read(pids_read, 32))
        except (BlockingIOError, ValueError):
            code = os.waitstatus_to_exitcode(status)
            why = os.strerror(code) if code > 0 else f"its parent was ended by signal {-code}"
            raise OSError(f"the second fork failed: {why}") from None
        finally:
            os.close(pids_read)


def send(channel: socket.socket, message: Dict[str, Any]) -> None:
    """Sends one message to the executor."""
    channel.send(json.dumps(message).encode())


def flush_output() -> bool:
    """Writes buffered output. False if that failed."""
    succeeded = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            succeeded = False
    return succeeded


# --- The forked process ---------------------------------------------------------------------------


class Call:
    """One attempt in its own process, from the fork to the end, and those that follow in it."""

    def __init__(self, request: Dict[str, Any], descriptors: Sequence[int]) -> None:
        self.accept(request, descriptors)

    def accept(self, request: Dict[str, Any], descriptors: Sequence[int]) -> None:
        """Takes the attempt of a request."""
        self.request = request
        self.descriptors = list(zip(request.get("descriptors", []), descriptors))

    def run_and_exit(self, modules: Sequence[str], calls: int = 1) -> NoReturn:
        """Prepares the process, waits until the executor watches it, runs the code, and exits.
        ``modules`` are imported before the code. The process runs at most ``calls`` calls."""
        gate = socket.socket(fileno=self.descriptor("gate"))
        try:
            self.prepare()
        except Exception as error:
            may_run(gate, f"failed {type(error).__name__}: {error}".encode()[:4096])
            os._exit(SETUP_EXIT_CODE)
        if not may_run(gate):
            os._exit(SETUP_EXIT_CODE)
        # The first collection would otherwise visit, and so copy, what the fork has left.
        gc.freeze()
        gc.enable()
        if calls <= 1:
            gate.close()
            exit_process(run_program(self.request["command"], modules))
        before = ProcessState()
        for _ in range(calls - 1):
            code = run_program(self.request["command"], modules)
            if code != 0 or not before.restore():
                exit_process(code)
            if not self.receive_next(gate):
                exit_process(0)
        gate.close()
        exit_process(run_program(self.request["command"], modules))

    def receive_next(self, gate: socket.socket) -> bool:
        """Ends the attempt and waits for the next one. False if there is none."""
        if not flush_output():
            return False
        try:
            gate.send(DONE)
            packet, descriptors, _, _ = socket.recv_fds(
                gate, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return False
        request = parse_request(packet) if packet else None
        if request is None:
            return False
        self.accept(request, descriptors)
        self.redirect_output()
        change_environment(environment_change(dict(os.environ), request["env"]))
        os.chdir(request["cwd"])
        return True

    def descriptor(self, role: str) -> int:
        """The descriptor of this role."""
        return next(number for name, number in self.descriptors if name == role)

    def prepare(self) -> None:
        """Joins the cgroup first, so that everything that follows is charged to the attempt."""
        for name, number in self.descriptors:
            if name == "cgroup":
                os.write(number, b"0")
                os.close(number)
        score = self.request.get("oom_score_adj")
        if score is not None:
            number = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
            os.write(number, b"%d" % score)
            os.close(number)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)
        self.redirect_output()
        change_environment(self.request["env"])
        os.chdir(self.request["cwd"])
        # Without a new seed all calls would draw the same numbers; `random` does this by itself.
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed()

    def redirect_output(self) -> None:
        """Writes to the logs of the attempt from now on."""
        for role, target in (("stdout", 1), ("stderr", 2)):
            number = self.descriptor(role)
            os.dup2(number, target)
            os.close(number)


class ProcessState:
    """The part of a process's state that a call must leave as it was."""

    def __init__(self) -> None:
        self._files = open_file_count()
        self._path = list(sys.path)
        self._arguments = list(sys.argv)
        self._main = sys.modules["__main__"]

    def restore(self) -> bool:
        """Undoes what is easily undone. False if the process must not run another call."""
        sys.path[:] = self._path
        sys.argv = list(self._arguments)
        sys.modules["__main__"] = self._main
        temporary = sys.modules.get("tempfile")
        if temporary is not None:
            temporary.__dict__["tempdir"] = None
        return thread_count() == 1 and open_file_count() <= self._files


def open_file_count() -> int:
    """The number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def environment_change(own: Dict[str, str], env: Dict[str, str]) -> Dict[str, Optional[str]]:
    """The variables by which ``env`` differs from ``own``; ``None`` for a removed one. Most are
    equal, and a process that compared them would copy the memory of all of them."""
    change: Dict[str, Optional[str]] = {
        name: value for name, value in env.items() if own.get(name) != value
    }
    change.update((name, None) for name in own if name not in env)
    return change


def change_environment(change: Dict[str, Optional[str]]) -> None:
    """Changes the environment of this process."""
    for name, value in change.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    if "TZ" in change:
        time.tzset()


def may_run(gate: socket.socket, message: bytes = b"ready") -> bool:
    """Sends a message on the gate. False if the executor has given up the attempt."""
    try:
        gate.send(message)
        return gate.recv(16) == b"run"
    except OSError:
        return False


def run_program(command: Sequence[str], modules: Sequence[str]) -> int:
    """Runs the code that ``command`` names. Returns the exit code."""
    try:
        for name in modules:
            importlib.import_module(name)
        return exit_code(execute(list(command)))
    except SystemExit as request:
        return exit_code(request.code)
    except KeyboardInterrupt:
        report_exception()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 128 + signal.SIGINT
    except MemoryError as error:
        report_exception()
        write_marker(error)
        return MEMORY_ERROR_EXIT_CODE
    except BaseException:
        report_exception()
        return 1


def execute(command: List[str]) -> Any:
    """Runs the code; returns the result of a function, and ``None`` otherwise."""
    program, arguments = command[0], command[1:]
    if program == "-c":
        sys.argv = ["-c", *arguments[1:]]
        sys.path.insert(0, "")
        return run_source(arguments[0], "<string>")
    if program == "-m":
        sys.argv = arguments
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return None
    module, colon, function = program.partition(":")
    sys.argv = command
    if colon and os.sep not in program:
        sys.path.insert(0, os.getcwd())
        sys.modules["__main__"] = types.ModuleType("__main__")
        target: Any = importlib.import_module(module)
        for name in function.split("."):
            target = getattr(target, name)
        return target()
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    with io.open_code(os.path.abspath(program)) as file:
        return run_source(file.read(), program)


def run_source(source: Any, path: str) -> None:
    """Runs source code as the main module."""
    code = compile(source, path, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    if path != "<string>":
        module.__file__ = path
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def exit_code(value: Any) -> int:
    """The exit code for the argument of ``sys.exit``."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def own_frames_removed(trace: Optional[types.TracebackType]) -> Optional[types.TracebackType]:
    """The part of a traceback below this file and the loaders of modules."""
    own = {__file__, runpy.__file__, "<frozen runpy>"}
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    return trace


def report_exception() -> None:
    """Prints the present exception as Python does, then frees what its frames hold."""
    kind, error, trace = sys.exc_info()
    if kind is None or error is None:
        return
    try:
        flush_output()
        shown = own_frames_removed(trace)
        sys.excepthook(kind, error.with_traceback(shown), shown)
    except Exception:
        traceback.print_exc()
    if trace is not None:
        traceback.clear_frames(trace)


def write_marker(error: MemoryError) -> None:
    """Reports that memory was refused, in the words of the exception."""
    path = os.environ.get("HEADROOM_OOM_MARKER")
    if path:
        text = traceback.format_exception_only(type(error), error)[-1].strip()
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text[:MAX_MARKER])
        except OSError as failure:
            print(f"headroom.fork_server: {path} cannot be written: {failure}", file=sys.stderr)


def exit_process(code: int) -> NoReturn:
    """Ends the process as Python does, but leaves the memory of the server as it is: taking it
    apart would copy all of it."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    if not flush_output() and code == 0:
        code = FLUSH_EXIT_CODE
    os._exit(code)


if __name__ == "__main__":
    main()
