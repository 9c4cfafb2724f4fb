"""The directory through which large functions, arguments and results travel.

Client and nodes must see it under the same path. It belongs to one session; the session's lock
file shows later sessions whether its client still lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import warnings
from typing import Dict, Iterator, Optional

from headroom._calls import StoreReference, write_reference
from headroom.errors import SettingsError

__all__ = ["SessionStore", "default_store_directory"]

#: Age after which the directory of a client that died is removed. Seconds.
_ABANDONED_AFTER = 3600.0
#: Size above which a path is the better argument. Bytes.
_LARGE = 1 << 30


def default_store_directory() -> str:
    """The user's directory for the stores of sessions."""
    state = os.environ.get("XDG_STATE_HOME")
    home = os.path.expanduser("~")
    if not state and home != "~" and os.path.isdir(home):
        state = os.path.join(home, ".local", "state")
    if not state:
        state = tempfile.gettempdir()
    return os.path.join(state, "headroom", "python")


class SessionStore:
    """The store of one executor."""

    def __init__(self, root: str, session: str) -> None:
        self.path = os.path.join(os.path.abspath(root), session)
        self._written: Dict[str, StoreReference] = {}
        try:
            os.makedirs(root, mode=0o700, exist_ok=True)
            _remove_abandoned(root)
            os.mkdir(self.path, 0o700)
            self._lock: Optional[int] = os.open(
                os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise SettingsError(
                f"the store {root} cannot be used: {error.strerror}; give "
                "Executor(store=DIRECTORY) a directory that the client and all nodes can write"
            ) from error

    def put(self, name: str, data: bytes) -> StoreReference:
        """Writes a file of this session."""
        if len(data) > _LARGE:
            warnings.warn(
                f"{len(data) >> 20} MiB are written to the store for one call; pass the path of a "
                "file instead",
                stacklevel=4,
            )
        path = os.path.join(self.path, name)
        try:
            return write_reference(path, data)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{len(data)} bytes cannot be written to the store: {error.strerror}; free space "
                "there, or give Executor(store=DIRECTORY) another directory",
                path,
            ) from error

    def put_content(self, digest: str, data: bytes) -> StoreReference:
        """Writes content once, under its digest."""
        known = self._written.get(digest)
        if known is None:
            known = self._written[digest] = self.put(f"{digest[:32]}.content", data)
        return known

    def remove(self, path: str) -> None:
        """Removes a file of this session; other paths are left alone."""
        if os.path.dirname(path) == self.path:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def close(self) -> None:
        """Removes the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_abandoned(root: str) -> None:
    """Removes the directories of clients that died."""
    for path in _old_directories(root):
        try:
            lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # its client lives
        finally:
            os.close(lock)


def _old_directories(root: str) -> Iterator[str]:
    before = time.time() - _ABANDONED_AFTER
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.stat().st_mtime < before:
                yield entry.path
