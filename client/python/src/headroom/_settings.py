"""Address and credentials of a resource manager, from the same places as those of ``rmctl``.

The precedence is: argument, environment variable, context of the user's file, file of this machine,
socket of this host, default.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import stat
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from headroom._addresses import UNIX_PREFIX, is_loopback, parse_addresses
from headroom.errors import SettingsError

__all__ = ["ClientSettings", "load_settings"]

#: Default address of the resource manager.
DEFAULT_ADDRESS = "http://127.0.0.1:7070"
#: Socket of a resource manager on this host.
DEFAULT_SOCKET = "/run/headroom/resourcemanager.sock"
#: Settings file of this machine.
MACHINE_FILE = "/etc/headroom/client.toml"
#: Default timeout of a call. Seconds.
CALL_TIMEOUT = 10.0

_CONTEXT_KEYS = frozenset({"addr", "ca", "cert", "key", "token_file", "output", "timeout"})


@dataclass(frozen=True)
class ClientSettings:
    """Address and credentials of a resource manager."""

    #: ``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:PATH``; of several resource managers
    #: all addresses, separated by commas.
    address: str = DEFAULT_ADDRESS
    #: Source of the address, such as ``argument addr`` or ``environment HEADROOM_ADDR``.
    source: str = "default"
    #: Authority of the resource manager, PEM.
    ca: Optional[str] = None
    #: Client certificate, PEM.
    cert: Optional[str] = None
    #: Key of the client certificate, PEM.
    key: Optional[str] = None
    #: The token itself. Secret: left out of the text form.
    token: Optional[str] = field(default=None, repr=False)
    #: File with a token, read again for every connection.
    token_file: Optional[str] = None
    #: Timeout of a call. Seconds.
    timeout: float = CALL_TIMEOUT

    @property
    def is_explicit(self) -> bool:
        """True if the address is configured: neither the default nor this host's socket."""
        return self.source not in ("default", "socket of this host")

    @property
    def addresses(self) -> Tuple[str, ...]:
        """The addresses of all resource managers."""
        return parse_addresses(self.address)

    @property
    def is_local(self) -> bool:
        """True if all resource managers run on this host."""
        return all(
            address.startswith(UNIX_PREFIX)
            or is_loopback(urllib.parse.urlsplit(address).hostname or "")
            for address in self.addresses
        )

    def read_token(self) -> Optional[str]:
        """The token, from the settings or its file."""
        if self.token:
            return self.token.strip()
        if not self.token_file:
            return None
        try:
            mode = os.stat(self.token_file).st_mode
            if mode & 0o007:
                raise SettingsError(
                    f"{self.token_file} can be read by every user (mode {stat.S_IMODE(mode):o}); "
                    f"chmod 600 {self.token_file}"
                )
            with open(self.token_file, encoding="utf-8") as file:
                return file.read().strip()
        except OSError as error:
            raise SettingsError(
                f"the token file {self.token_file} cannot be read: {error.strerror}"
            ) from error

    def environment(self) -> Dict[str, str]:
        """The environment variables that pass these settings to ``rmctl`` or to another client."""
        pairs = {
            "HEADROOM_ADDR": self.address,
            "HEADROOM_CACERT": self.ca,
            "HEADROOM_CLIENT_CERT": self.cert,
            "HEADROOM_CLIENT_KEY": self.key,
            "HEADROOM_TOKEN": self.token,
            "HEADROOM_TOKEN_FILE": self.token_file,
        }
        return {name: value for name, value in pairs.items() if value}


def load_settings(
    addr: Optional[str] = None,
    *,
    context: Optional[str] = None,
    token: Optional[str] = None,
    token_file: Optional[str] = None,
    ca: Optional[str] = None,
    cert: Optional[str] = None,
    key: Optional[str] = None,
    timeout: Optional[float] = None,
    environ: Optional[Mapping[str, str]] = None,
) -> ClientSettings:
    """Settings from arguments, environment, the two files of ``rmctl``, and defaults.

    Raises :class:`SettingsError` for an invalid file, an unknown context, an address that is not
    one, and a certificate without its key.
    """
    env = os.environ if environ is None else environ

    def variable(name: str) -> Optional[str]:
        return env.get(name) or None

    user_path = variable("HEADROOM_CONFIG") or os.path.join(
        variable("XDG_CONFIG_HOME") or os.path.join(variable("HOME") or "", ".config"),
        "rmctl",
        "config.toml",
    )
    user = _read_settings_file(user_path)
    machine = _read_settings_file(MACHINE_FILE)
    name = context or variable("HEADROOM_CONTEXT") or user.get("current")
    chosen = _select_context(user, name, user_path)

    candidates: List[Tuple[Optional[str], str]] = [
        (addr, "argument addr"),
        (chosen.get("addr") if context else None, f"context {name}"),
        (variable("HEADROOM_ADDR"), "environment HEADROOM_ADDR"),
        (chosen.get("addr"), f"context {name}"),
        (machine.get("addr"), MACHINE_FILE),
        (
            UNIX_PREFIX + DEFAULT_SOCKET if os.path.exists(DEFAULT_SOCKET) else None,
            "socket of this host",
        ),
    ]
    address, source = next(
        ((value, source) for value, source in candidates if value),
        (DEFAULT_ADDRESS, "default"),
    )
    pair = _first_pair(
        (cert, key),
        (variable("HEADROOM_CLIENT_CERT"), variable("HEADROOM_CLIENT_KEY")),
        (chosen.get("cert"), chosen.get("key")),
        (machine.get("cert"), machine.get("key")),
    )
    from_file = token_file or variable("HEADROOM_TOKEN_FILE")
    secret = token or (None if token_file else variable("HEADROOM_TOKEN"))
    limit = timeout or _parse_seconds(
        variable("HEADROOM_TIMEOUT") or chosen.get("timeout") or machine.get("timeout")
    )
    return ClientSettings(
        address=",".join(parse_addresses(address)),
        source=source,
        ca=ca or variable("HEADROOM_CACERT") or chosen.get("ca") or machine.get("ca"),
        cert=pair[0],
        key=pair[1],
        token=secret,
        token_file=from_file or chosen.get("token_file") or machine.get("token_file"),
        timeout=limit or CALL_TIMEOUT,
    )


def _select_context(user: Dict[str, Any], name: Optional[str], path: str) -> Dict[str, str]:
    if not name:
        return {}
    contexts = user.get("contexts") or {}
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise SettingsError(
            f"there is no context {name} in {path}; the contexts are: {known}; "
            "rmctl context set NAME --addr URL adds one"
        )
    chosen: Dict[str, str] = contexts[name]
    return chosen


def _first_pair(*pairs: Tuple[Optional[str], Optional[str]]) -> Tuple[Optional[str], Optional[str]]:
    for cert, key in pairs:
        if cert or key:
            if not (cert and key):
                lacks = "key" if cert else "certificate"
                raise SettingsError(f"{cert or key} needs its {lacks}: give cert and key together")
            return cert, key
    return None, None


_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _parse_seconds(text: Optional[str]) -> Optional[float]:
    if not text:
        return None
    pieces = re.findall(r"(\d+)\s*([a-z]+)\s*", text)
    if not pieces or re.sub(r"(\d+)\s*([a-z]+)\s*", "", text.strip()):
        raise SettingsError(f"{text!r} is not a duration; write for example 10s")
    unknown = [unit for _, unit in pieces if unit not in _DURATION_UNITS]
    if unknown:
        raise SettingsError(
            f"unknown unit {unknown[0]!r} of time in {text!r}; use ms, s, m, h or d"
        )
    return sum(int(number) * _DURATION_UNITS[unit] for number, unit in pieces)


def _read_settings_file(path: str) -> Dict[str, Any]:
    """The file's settings; a missing file has none."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    try:
        read = _parse_toml(text)
    except ValueError as error:
        raise SettingsError(f"{path}: {error}; rmctl config validate checks this file") from error
    tables = [read, *(read.get("contexts") or {}).values()]
    for table in tables:
        unknown = set(table) - _CONTEXT_KEYS - {"current", "contexts"}
        if unknown:
            raise SettingsError(
                f"{path}: unknown key {sorted(unknown)[0]}; a context has the keys "
                f"{', '.join(sorted(_CONTEXT_KEYS))}"
            )
    return read


_TOML_LINE = re.compile(
    r"""^\s*(?P<key>[\w-]+)\s*=\s*"""
    r"""(?:"(?P<basic>(?:[^"\\]|\\.)*)"|'(?P<raw>[^']*)')\s*(?:\#.*)?$"""
)
_TOML_TABLE = re.compile(
    r"""^\s*\[\s*contexts\s*\.\s*(?:"(?P<quoted>[^"]*)"|(?P<bare>[\w-]+))\s*\]\s*(?:\#.*)?$"""
)


def _parse_toml(text: str) -> Dict[str, Any]:
    """Parses a settings file: with the standard library, or in older Pythons the part of TOML that
    ``rmctl`` writes."""
    try:
        library = importlib.import_module("tomllib")
    except ImportError:
        return _parse_simple_toml(text)
    read: Dict[str, Any] = library.loads(text)
    return read


def _parse_simple_toml(text: str) -> Dict[str, Any]:
    """Parses strings at the top and in tables ``[contexts.NAME]``.

    >>> _parse_simple_toml('current = "a"\\n[contexts.a]\\naddr = "http://h:1"  # here')
    {'current': 'a', 'contexts': {'a': {'addr': 'http://h:1'}}}
    """
    root: Dict[str, Any] = {}
    table = root
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "[contexts]":
            continue
        opened = _TOML_TABLE.match(line)
        if opened:
            name = opened["quoted"] if opened["quoted"] is not None else opened["bare"]
            table = root.setdefault("contexts", {}).setdefault(name, {})
            continue
        pair = _TOML_LINE.match(line)
        if not pair:
            raise ValueError(f'line {number} is not `key = "text"`: {line.strip()}')
        basic = pair["basic"]
        table[pair["key"]] = pair["raw"] if basic is None else json.loads(f'"{basic}"')
    return root
