"""A fork whose process is a child of this process's parent.

``os.fork`` makes a child of the caller, so a process that the executor shall reap needs two forks.
``clone`` with ``CLONE_PARENT`` needs one. The other flags are those of ``fork`` of the C library,
which offers no such variant; what it keeps for each thread is set here.

Only for processes with one thread: handlers of ``pthread_atfork`` do not run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
from typing import Callable, Optional

__all__ = ["find_sibling_fork"]

_CLONE_PARENT = 0x0000_8000
_CLONE_CHILD_CLEARTID = 0x0020_0000
_CLONE_CHILD_SETTID = 0x0100_0000
_PR_GET_TID_ADDRESS = 40
#: Numbers of ``clone``, ``gettid``, ``set_robust_list`` and ``get_robust_list``, and the position
#: of the address of the thread's id among the arguments of ``clone``.
_SYSCALLS = {"x86_64": (56, 186, 273, 274, 3), "aarch64": (220, 178, 99, 100, 4)}


def find_sibling_fork(channel: socket.socket) -> Optional[Callable[[], int]]:
    """The fork of this module, or ``None`` where it does not work.

    ``channel`` is a socket pair's end that the executor has made: the executor must be the parent
    of this process, or the forked processes would be children of another one.
    """
    peer = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    numbers = _SYSCALLS.get(os.uname().machine)
    if numbers is None or sys.implementation.name != "cpython":
        return None
    if struct.unpack("3i", peer)[0] != os.getppid():
        return None
    try:
        return _SiblingFork(*numbers)
    except (OSError, AttributeError):
        return None


class _SiblingFork:
    """Forks, as ``os.fork`` does."""

    def __init__(
        self, clone: int, gettid: int, set_robust_list: int, get_robust_list: int, position: int
    ) -> None:
        # The calls keep the interpreter's lock: nothing may run between the two halves of a fork.
        self._library = ctypes.PyDLL(None, use_errno=True)
        self._library.syscall.restype = ctypes.c_long
        self._clone = clone
        self._set_robust_list = set_robust_list
        address = ctypes.c_void_p()
        if self._library.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the address of the thread's id is unknown")
        here = ctypes.c_int.from_address(address.value or 0) if address.value else None
        if here is None or here.value != self._library.syscall(ctypes.c_long(gettid)):
            raise OSError("the C library keeps the thread's id elsewhere")
        self._head, self._length = ctypes.c_void_p(), ctypes.c_size_t()
        own = ctypes.c_long(0)
        self._call(get_robust_list, own, ctypes.byref(self._head), ctypes.byref(self._length))
        flags = _CLONE_PARENT | _CLONE_CHILD_CLEARTID | _CLONE_CHILD_SETTID | signal.SIGCHLD
        arguments = [ctypes.c_long(flags), *(ctypes.c_void_p() for _ in range(4))]
        arguments[position] = ctypes.c_void_p(address.value)
        self._arguments = arguments

    def __call__(self) -> int:
        python = ctypes.pythonapi
        python.PyOS_BeforeFork()
        pid = self._library.syscall(ctypes.c_long(self._clone), *self._arguments)
        if pid != 0:
            error = ctypes.get_errno()
            python.PyOS_AfterFork_Parent()
            if pid < 0:
                raise OSError(error, os.strerror(error))
            return int(pid)
        python.PyOS_AfterFork_Child()
        self._call(self._set_robust_list, self._head, self._length)
        return 0

    def _call(self, number: int, *arguments: object) -> None:
        if self._library.syscall(ctypes.c_long(number), *arguments) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
