"""Progress of a map: ``tqdm`` if it is installed, else one line on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Optional

__all__ = ["ProgressDisplay"]

#: Interval of the plain line. Seconds.
_INTERVAL = 0.2


class ProgressDisplay:
    """Counts ended calls. Safe for use by several threads."""

    def __init__(self, total: int, name: str) -> None:
        self._total = total
        self._name = name
        self._done = 0
        self._shown = 0.0
        self._lock = threading.Lock()
        self._closed = False
        self._bar: Optional[Any] = None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            self._terminal = sys.stderr.isatty()
        else:
            self._terminal = False
            self._bar = tqdm(total=total, desc=name)

    def add(self, count: int = 1) -> None:
        """More calls have ended."""
        with self._lock:
            if self._closed:
                return
            self._done += count
            if self._bar is not None:
                self._bar.update(count)
            elif self._terminal:
                self._show()
            if self._done >= self._total:
                self._close()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= _INTERVAL or self._done >= self._total:
            self._shown = now
            sys.stderr.write(f"\r{self._name}: {self._done} of {self._total}")
            sys.stderr.flush()

    def close(self) -> None:
        """Ends the display."""
        with self._lock:
            if not self._closed:
                self._close()

    def _close(self) -> None:
        self._closed = True
        if self._bar is not None:
            self._bar.close()
        elif self._terminal and self._done:
            sys.stderr.write("\n")
            sys.stderr.flush()
