"""Sizes and times as users write them."""

from __future__ import annotations

import re
from typing import Union

from headroom.errors import SettingsError

__all__ = ["parse_memory", "parse_time"]

Memory = Union[int, str]
Time = Union[int, float, str]

_MEMORY = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*$", re.IGNORECASE)
_TIME = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)\s*$")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_memory(value: Memory, name: str) -> int:
    """A size in bytes: a whole number, or a text such as ``512MiB`` or ``2 GiB``.

    >>> parse_memory("1.5GiB", "memory"), parse_memory(4096, "memory")
    (1610612736, 4096)
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise SettingsError(
            f"{name}={value!r} is not a size; write for example {name}='512MiB', or bytes"
        )
    if isinstance(value, int):
        size = value
    else:
        found = _MEMORY.match(value)
        if not found:
            raise SettingsError(f"{name}={value!r} is not a size; write for example '512MiB'")
        size = int(float(found[1]) * 1024 ** _POWERS[found[2].lower()])
    if size <= 0:
        raise SettingsError(f"{name}={value!r} must be above 0")
    return size


def parse_time(value: Time, name: str) -> float:
    """A time in seconds: a number, or a text such as ``90s`` or ``1.5h``.

    >>> parse_time("2m", "timeout"), parse_time(0.5, "timeout")
    (120.0, 0.5)
    """
    if isinstance(value, str):
        found = _TIME.match(value)
        if not found:
            raise SettingsError(f"{name}={value!r} is not a time; write seconds, or such as '90s'")
        seconds = float(found[1]) * _SECONDS[found[2]]
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SettingsError(f"{name}={value!r} is not a time; write seconds, or such as '90s'")
    else:
        seconds = float(value)
    if not seconds > 0:
        raise SettingsError(f"{name}={value!r} must be above 0")
    return seconds
