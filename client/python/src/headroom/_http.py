"""The REST interface of the resource manager, with the standard library only.

Settings come from the same places as those of ``rmctl``, with the same precedence: argument,
environment variable, context of the user's file, file of this machine, socket of this host,
default.
"""

from __future__ import annotations

import errno
import http.client
import importlib
import json
import os
import re
import select
import socket
import ssl
import stat
import threading
import urllib.parse
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Type, Union

from headroom.errors import ClusterUnreachable, RequestRefused, SettingsError

__all__ = [
    "ClientSettings",
    "HttpResponse",
    "JsonLines",
    "RestClient",
    "UpgradedConnection",
    "load_settings",
]

#: Default address of the resource manager.
DEFAULT_ADDRESS = "http://127.0.0.1:7070"
#: Socket of a resource manager on this host.
DEFAULT_SOCKET = "/run/headroom/resourcemanager.sock"
#: Settings file of this machine.
MACHINE_FILE = "/etc/headroom/client.toml"
#: Timeout of a connection attempt. Seconds.
CONNECT_TIMEOUT = 3.0
#: Default timeout of a call. Seconds.
CALL_TIMEOUT = 10.0
#: Longest time without data on a stream; the server sends a heartbeat every 5 s. Seconds.
SILENCE_TIMEOUT = 20.0
#: Largest body of an error response that is read. Bytes.
MAX_ERROR_BYTES = 64 << 10

_UNIX_PREFIX = "unix:"
_MAX_IDLE_CONNECTIONS = 4
_CONTEXT_KEYS = frozenset({"addr", "ca", "cert", "key", "token_file", "output", "timeout"})

Query = Optional[Mapping[str, Union[str, int, None]]]


@dataclass(frozen=True)
class ClientSettings:
    """Address and credentials of a resource manager."""

    #: ``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:PATH``.
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
    def is_local(self) -> bool:
        """True if the resource manager runs on this host."""
        if self.address.startswith(_UNIX_PREFIX):
            return True
        return _is_loopback(urllib.parse.urlsplit(self.address).hostname or "")

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
            _UNIX_PREFIX + DEFAULT_SOCKET if os.path.exists(DEFAULT_SOCKET) else None,
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
        address=_checked_address(address),
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


def _checked_address(address: str) -> str:
    text = address.rstrip("/")
    wrong = SettingsError(
        f"{address!r} is not an address; write for example http://127.0.0.1:7070, "
        "https://rm.example:7070 or unix:/run/headroom/resourcemanager.sock"
    )
    if text.startswith(_UNIX_PREFIX):
        if not text[len(_UNIX_PREFIX) :].startswith("/"):
            raise wrong
        return text
    try:
        parts = urllib.parse.urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise wrong from None
    if not valid or parts.query or parts.fragment:
        raise wrong
    return text


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


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


@dataclass(frozen=True)
class HttpResponse:
    """A successful response."""

    #: HTTP status.
    status: int
    #: Headers with names in lower case.
    headers: Dict[str, str]
    #: The body.
    data: bytes

    def json(self) -> Any:
        """The body as JSON; ``None`` if it is empty."""
        return json.loads(self.data) if self.data else None

    @property
    def index(self) -> Optional[int]:
        """The ``X-Headroom-Index`` of the resource, for long polls."""
        text = self.headers.get("x-headroom-index", "")
        return int(text) if text.isdigit() else None


class RestClient:
    """A client of the ``/v1`` interface. Safe for use by several threads.

    Every call raises :class:`ClusterUnreachable` without an answer, and :class:`RequestRefused`
    for an answer with an error status.
    """

    def __init__(self, settings: Union[ClientSettings, str, None] = None) -> None:
        if settings is None or isinstance(settings, str):
            settings = load_settings(settings)
        self.settings = settings
        self._lock = threading.Lock()
        self._idle: List[http.client.HTTPConnection] = []
        self._owner = os.getpid()
        token = settings.read_token()
        parts = urllib.parse.urlsplit(settings.address)
        if token and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            raise SettingsError(
                f"a token is not sent to {settings.address}, because the connection is not "
                "encrypted; write https://"
            )

    def __enter__(self) -> RestClient:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address of the resource manager."""
        return self.settings.address

    def get(self, path: str, *, query: Query = None, timeout: Optional[float] = None) -> Any:
        """``GET`` with a JSON response."""
        return self.request("GET", path, query=query, timeout=timeout).json()

    def get_text(self, path: str, *, query: Query = None, timeout: Optional[float] = None) -> str:
        """``GET`` with a text response."""
        answer = self.request("GET", path, query=query, timeout=timeout)
        return answer.data.decode("utf-8", "replace")

    def get_after(
        self, path: str, index: int, wait: float, *, query: Query = None
    ) -> Tuple[Any, int]:
        """``GET`` as a long poll: returns when the index of the resource differs from ``index``,
        or after ``wait`` seconds. Returns the value with its present index."""
        more = dict(query or {}, wait=f"{max(1, int(wait * 1000))}ms", index=index)
        answer = self.request("GET", path, query=more, timeout=self.settings.timeout + wait)
        return answer.json(), index if answer.index is None else answer.index

    def post(
        self,
        path: str,
        body: Any = None,
        *,
        query: Query = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """``POST`` of a JSON body with a JSON response."""
        return self.request("POST", path, body, query=query, timeout=timeout).json()

    def put(self, path: str, body: Any = None, *, timeout: Optional[float] = None) -> Any:
        """``PUT`` of a JSON body with a JSON response."""
        return self.request("PUT", path, body, timeout=timeout).json()

    def delete(self, path: str, *, query: Query = None, timeout: Optional[float] = None) -> Any:
        """``DELETE`` with a JSON response."""
        return self.request("DELETE", path, query=query, timeout=timeout).json()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> HttpResponse:
        """One call. A body of ``bytes`` is sent as it is, any other one as JSON.

        ``timeout`` bounds each wait for data. Seconds.
        """
        target = _with_query(path, query)
        data, sent = self._encode(body, headers)
        limit = self.settings.timeout if timeout is None else timeout
        connection = self._take(limit)
        try:
            connection.request(method, target, data, sent)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error, f"{method} {path}") from error
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._put_back(connection)
        if not 200 <= response.status < 300:
            raise _refusal(response.status, content)
        found = {name.lower(): value for name, value in response.getheaders()}
        return HttpResponse(response.status, found, content)

    def lines(
        self, path: str, *, query: Query = None, silence: float = SILENCE_TIMEOUT
    ) -> JsonLines:
        """``GET`` with a stream of JSON objects, one per line.

        The result is an iterator and a context manager. It raises :class:`ClusterUnreachable` if
        no data comes for ``silence`` seconds.
        """
        target = _with_query(path, query)
        connection = self._connect(self.settings.timeout)
        try:
            connection.request("GET", target, None, self._headers())
            response = connection.getresponse()
            if response.status != 200:
                raise _refusal(response.status, response.read(MAX_ERROR_BYTES))
            if connection.sock is not None:
                connection.sock.settimeout(silence)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error, f"GET {path}") from error
        except BaseException:
            connection.close()
            raise
        return JsonLines(self, path, connection, response)

    def upgrade(self, path: str, protocol: str, *, timeout: float = 40.0) -> UpgradedConnection:
        """``POST`` that changes the connection to ``protocol``; returns the open connection."""
        connection = self._connect(self.settings.timeout)
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            wanted = {
                **self._headers(),
                "Connection": "Upgrade",
                "Upgrade": protocol,
                "Content-Length": "0",
            }
            connection.request("POST", path, None, wanted)
            response = connection.getresponse()
            if response.status != 101:
                raise _refusal(response.status, response.read(MAX_ERROR_BYTES))
            return UpgradedConnection(connection, response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error, f"POST {path}") from error
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _headers(self) -> Dict[str, str]:
        headers = {"Accept": "application/json"}
        token = self.settings.read_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _encode(
        self, body: Any, headers: Optional[Mapping[str, str]]
    ) -> Tuple[Optional[bytes], Dict[str, str]]:
        sent = self._headers()
        data: Optional[bytes] = None
        if isinstance(body, bytes):
            data = body
            sent["Content-Type"] = "application/octet-stream"
        elif body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        return data, sent

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        """An idle connection that the server has not closed, else a new one."""
        with self._lock:
            if self._owner != os.getpid():
                self._idle, self._owner = [], os.getpid()
            idle, self._idle = self._idle, []
            found: Optional[http.client.HTTPConnection] = None
            for connection in idle:
                if found is None and _is_quiet(connection):
                    found = connection
                elif _is_quiet(connection):
                    self._idle.append(connection)
                else:
                    connection.close()
        if found is not None and found.sock is not None:
            found.sock.settimeout(timeout)
            return found
        return self._connect(timeout)

    def _put_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE_CONNECTIONS and self._owner == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        address = self.settings.address
        if address.startswith(_UNIX_PREFIX):
            return _UnixConnection(address[len(_UNIX_PREFIX) :], timeout)
        parts = urllib.parse.urlsplit(address)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return _ManagerTlsConnection(host, parts.port, timeout, self._tls())
        return _TcpConnection(host, parts.port or 80, timeout)

    def _tls(self) -> ssl.SSLContext:
        settings = self.settings
        try:
            context = ssl.create_default_context(cafile=settings.ca)
            if settings.cert:
                context.load_cert_chain(settings.cert, settings.key)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(name for name in (settings.ca, settings.cert, settings.key) if name)
            raise SettingsError(f"the certificates cannot be used ({named}): {error}") from error
        return context

    def _unreachable(self, error: BaseException, call: str) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"no answer from {self.address} to {call}: {_cause(error)} "
            f"(address from: {self.settings.source}); `rmctl dev` starts a cluster on this host"
        )


class JsonLines:
    """A stream of JSON objects, one per line."""

    def __init__(
        self,
        client: RestClient,
        path: str,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        self._client = client
        self._path = path
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[Any]:
        try:
            while True:
                line = self._response.readline()
                if not line:
                    return
                if line.strip():
                    yield json.loads(line)
        except (OSError, http.client.HTTPException) as error:
            raise self._client._unreachable(error, f"GET {self._path}") from error
        finally:
            self.close()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream, also while another thread reads it."""
        _shut(self._connection.sock)
        self._connection.close()


class UpgradedConnection:
    """A connection in both directions after a change of protocol."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        if connection.sock is None:
            raise ConnectionError(errno.ENOTCONN, "the connection is closed")
        self._connection = connection
        #: The socket.
        self.socket: socket.socket = connection.sock
        # The response may have buffered bytes that follow its head: they are read first.
        self._reader = response.fp

    def readline(self, limit: int) -> bytes:
        """The next line with its end, at most ``limit`` bytes; empty at the end of the stream."""
        return self._reader.readline(limit)

    def send(self, data: bytes) -> None:
        """Sends all bytes."""
        self.socket.sendall(data)

    def set_timeout(self, seconds: float) -> None:
        """Sets the longest wait for data or for room to send. Seconds."""
        self.socket.settimeout(seconds)

    def close(self) -> None:
        """Closes the connection, also while another thread reads it."""
        _shut(self.socket)
        self._connection.close()


class _TcpConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._limit = timeout

    def connect(self) -> None:
        wait = min(CONNECT_TIMEOUT, self._limit)
        self.sock = socket.create_connection((self.host, self.port), wait)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(self._limit)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._limit = timeout

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self._limit)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


class _ManagerTlsConnection(http.client.HTTPSConnection):
    """A TLS connection to a server whose certificate is that of a resource manager, or has no
    role."""

    def __init__(
        self, host: str, port: Optional[int], timeout: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._limit = timeout
        self._tls = context

    def connect(self) -> None:
        raw = socket.create_connection((self.host, self.port), min(CONNECT_TIMEOUT, self._limit))
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.settimeout(self._limit)
            self.sock = self._tls.wrap_socket(raw, server_hostname=self.host)
        except BaseException:
            raw.close()
            raise
        certificate: Mapping[str, Any] = self.sock.getpeercert() or {}
        for kind, name in certificate.get("subjectAltName", ()):
            if kind == "URI" and name.startswith("headroom://") and name != "headroom://manager":
                self.sock.close()
                raise ssl.SSLError(f"the server has the certificate of {name[11:]}")


def _with_query(path: str, query: Query) -> str:
    pairs = [(name, str(value)) for name, value in (query or {}).items() if value is not None]
    if not pairs:
        return path
    sign = "&" if "?" in path else "?"
    return path + sign + urllib.parse.urlencode(pairs)


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """True if the connection is open and the server has sent nothing unasked (such as its end)."""
    sock = connection.sock
    if sock is None:
        return False
    try:
        poll = select.poll()
        poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False


def _refusal(status: int, content: bytes) -> RequestRefused:
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    fallback = content[:300].decode("utf-8", "replace").strip() or f"status {status}"
    return RequestRefused.of_problem(status, problem, fallback)


def _cause(error: BaseException) -> str:
    if isinstance(error, socket.timeout):
        return "no data in time"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the server closed the connection"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _shut(sock: Optional[socket.socket]) -> None:
    if sock is None:
        return
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
