"""The REST interface of the resource manager, with the standard library only."""

from __future__ import annotations

import errno
import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
import urllib.parse
from dataclasses import dataclass
from types import TracebackType
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from headroom._addresses import UNIX_PREFIX, AddressChoice, is_loopback
from headroom._leader_change import LeaderReplaced, wait_for_answer
from headroom._settings import ClientSettings, load_settings
from headroom.errors import ClusterUnreachable, HeadroomError, RequestRefused, SettingsError

__all__ = [
    "ClientSettings",
    "HttpResponse",
    "JsonLines",
    "RestClient",
    "UpgradedConnection",
    "load_settings",
]

#: Timeout of a connection attempt to the only address. Seconds.
CONNECT_TIMEOUT = 3.0
#: Timeout of a connection attempt to one of several addresses. Seconds.
LISTED_CONNECT_TIMEOUT = 1.0
#: Longest time without data on a stream; the server sends a heartbeat every 5 s. Seconds.
SILENCE_TIMEOUT = 20.0
#: Largest body of an error response that is read. Bytes.
MAX_ERROR_BYTES = 64 << 10

#: Pause of a call while the managers elect a leader. Seconds.
ELECTION_PAUSE = 0.2

_MAX_IDLE_CONNECTIONS = 4

T = TypeVar("T")
Query = Optional[Mapping[str, Union[str, int, None]]]


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


class _AttemptFailed(Exception):
    """One of the resource managers did not carry out a call."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _NotConnected(_AttemptFailed):
    """Nothing was sent."""


class _Interrupted(_AttemptFailed):
    """The request was sent, and no whole answer came."""


class _Replaced(_AttemptFailed):
    """The request was sent to a manager that is silent, and another one leads."""

    def __init__(self, cause: LeaderReplaced) -> None:
        super().__init__(cause)
        self.leader = cause.leader


class _Standby(_AttemptFailed):
    """A standby answered."""

    def __init__(self, cause: RequestRefused, leader: Optional[str]) -> None:
        super().__init__(cause)
        self.leader = leader


class RestClient:
    """A client of the ``/v1`` interface. Safe for use by several threads.

    A call goes to the leader: it is sent to the next address when one does not listen or belongs to
    a standby. It waits for an election, and leaves a silent manager when another one leads.

    Every call raises :class:`ClusterUnreachable` without an answer, and :class:`RequestRefused`
    for an answer with an error status.
    """

    def __init__(self, settings: Union[ClientSettings, str, None] = None) -> None:
        if settings is None or isinstance(settings, str):
            settings = load_settings(settings)
        self.settings = settings
        self._lock = threading.Lock()
        self._idle: List[Tuple[str, http.client.HTTPConnection]] = []
        self._owner = os.getpid()
        token = settings.read_token()
        addresses = settings.addresses
        for address in addresses:
            parts = urllib.parse.urlsplit(address)
            if token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
                raise SettingsError(
                    f"a token is not sent to {address}, because the connection is not "
                    "encrypted; write https://"
                )
        self._choice = AddressChoice(addresses, has_token=bool(token))
        self._connect_timeout = CONNECT_TIMEOUT if len(addresses) == 1 else LISTED_CONNECT_TIMEOUT

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
        """The address of the resource manager, or those of all, separated by commas."""
        return self.settings.address

    @property
    def current_address(self) -> str:
        """The address at which the next call begins."""
        return self._choice.current

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

        def attempt(address: str) -> HttpResponse:
            connection = self._take(address, limit)
            try:
                connection.request(method, target, data, sent)
                self._wait_for_answer(connection, address, limit)
                response = connection.getresponse()
                content = response.read()
            except LeaderReplaced as replaced:
                connection.close()
                raise _Replaced(replaced) from replaced
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise _Interrupted(error) from error
            except BaseException:
                connection.close()
                raise
            if response.will_close:
                connection.close()
            else:
                self._put_back(address, connection)
            if not 200 <= response.status < 300:
                _raise_refusal(response, content)
            found = {name.lower(): value for name, value in response.getheaders()}
            return HttpResponse(response.status, found, content)

        return self._send(method, path, attempt)

    def lines(
        self, path: str, *, query: Query = None, silence: float = SILENCE_TIMEOUT
    ) -> JsonLines:
        """``GET`` with a stream of JSON objects, one per line.

        The result is an iterator and a context manager. It raises :class:`ClusterUnreachable` if
        no data comes for ``silence`` seconds.
        """
        target = _with_query(path, query)

        def attempt(address: str) -> JsonLines:
            connection = self._connect(address, self.settings.timeout)
            try:
                connection.request("GET", target, None, self._headers())
                self._wait_for_answer(connection, address, self.settings.timeout)
                response = connection.getresponse()
                if response.status != 200:
                    _raise_refusal(response, response.read(MAX_ERROR_BYTES))
                if connection.sock is not None:
                    connection.sock.settimeout(silence)
            except LeaderReplaced as replaced:
                connection.close()
                raise _Replaced(replaced) from replaced
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise _Interrupted(error) from error
            except BaseException:
                connection.close()
                raise
            return JsonLines(self, path, connection, response)

        return self._send("GET", path, attempt)

    def upgrade(self, path: str, protocol: str, *, timeout: float = 40.0) -> UpgradedConnection:
        """``POST`` that changes the connection to ``protocol``; returns the open connection."""

        def attempt(address: str) -> UpgradedConnection:
            connection = self._connect(address, self.settings.timeout)
            try:
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
                    _raise_refusal(response, response.read(MAX_ERROR_BYTES))
                return UpgradedConnection(connection, response)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise _Interrupted(error) from error
            except BaseException:
                connection.close()
                raise

        return self._send("POST", path, attempt)

    def _send(self, method: str, path: str, attempt: Callable[[str], T]) -> T:
        """Sends a call to the leader. ``attempt`` sends it to one address."""
        is_repeatable = method in ("GET", "HEAD")
        route = self._choice.begin(is_repeatable=is_repeatable)
        failures: List[Tuple[str, _AttemptFailed]] = []
        until = time.monotonic() + self.settings.timeout
        while True:
            address = route.target
            try:
                answer = attempt(address)
            except _AttemptFailed as failed:
                failures.append((address, failed))
                if isinstance(failed, _Standby):
                    goes_on = self._choice.standby(route, failed.leader)
                elif isinstance(failed, (_Interrupted, _Replaced)):
                    if isinstance(failed, _Replaced):
                        goes_on = self._choice.replaced(route, failed.leader)
                    else:
                        goes_on = self._choice.interrupted(route)
                    if not goes_on and not route.is_repeatable:
                        del failures[:-1]
                else:
                    goes_on = self._choice.not_connected(route)
                if not goes_on and _is_election(failures) and time.monotonic() < until:
                    time.sleep(ELECTION_PAUSE)
                    route, failures = self._choice.begin(is_repeatable=is_repeatable), []
                elif not goes_on:
                    self._raise_failure(failures, f"{method} {path}")
            except HeadroomError:
                self._choice.answered(route)
                raise
            else:
                self._choice.answered(route)
                return answer

    def _raise_failure(self, failures: List[Tuple[str, _AttemptFailed]], call: str) -> NoReturn:
        cause = failures[-1][1].cause
        if len(failures) == 1:
            if isinstance(cause, HeadroomError):
                raise cause
            raise self._unreachable(cause, call, failures[0][0]) from cause
        causes = "; ".join(f"{address}: {_cause(failed.cause)}" for address, failed in failures)
        raise ClusterUnreachable(
            f"no resource manager answers as leader to {call}: {causes} "
            f"(addresses from: {self.settings.source}); `rmctl operator leader` shows all of them"
        ) from cause

    def _wait_for_answer(
        self, connection: http.client.HTTPConnection, target: str, timeout: float
    ) -> None:
        def ask(address: str, query: Mapping[str, str]) -> http.client.HTTPConnection:
            other = self._closed_connection(address, LISTED_CONNECT_TIMEOUT)
            try:
                other.connect()
                other.request("GET", _with_query("/v1/leader", query), None, self._headers())
            except BaseException:
                other.close()
                raise
            return other

        wait_for_answer(connection.sock, target, self._choice, ask, timeout)

    def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
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

    def _take(self, address: str, timeout: float) -> http.client.HTTPConnection:
        """An idle connection that the server has not closed, else a new one."""
        with self._lock:
            if self._owner != os.getpid():
                self._idle, self._owner = [], os.getpid()
            idle, self._idle = self._idle, []
            found: Optional[http.client.HTTPConnection] = None
            for owner, connection in idle:
                if not _is_quiet(connection):
                    connection.close()
                elif found is None and owner == address:
                    found = connection
                else:
                    self._idle.append((owner, connection))
        if found is not None and found.sock is not None:
            found.sock.settimeout(timeout)
            return found
        return self._connect(address, timeout)

    def _put_back(self, address: str, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE_CONNECTIONS and self._owner == os.getpid():
                self._idle.append((address, connection))
                return
        connection.close()

    def _connect(self, address: str, timeout: float) -> http.client.HTTPConnection:
        """A new, open connection."""
        connection = self._closed_connection(address, timeout)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _NotConnected(error) from error
        return connection

    def _closed_connection(self, address: str, timeout: float) -> http.client.HTTPConnection:
        if address.startswith(UNIX_PREFIX):
            return _UnixConnection(address[len(UNIX_PREFIX) :], timeout)
        parts = urllib.parse.urlsplit(address)
        host, wait = parts.hostname or "", min(self._connect_timeout, timeout)
        if parts.scheme == "https":
            return _ManagerTlsConnection(host, parts.port, (wait, timeout), self._tls())
        return _TcpConnection(host, parts.port or 80, (wait, timeout))

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

    def _unreachable(
        self, error: BaseException, call: str, address: Optional[str] = None
    ) -> ClusterUnreachable:
        if isinstance(error, ssl.SSLCertVerificationError):
            fix = (
                "HEADROOM_CACERT, or `ca` of the context, names the certificate of the cluster's "
                f"authority; it is {self.settings.ca or 'not set'}"
            )
        else:
            fix = "`rmctl dev` starts a cluster on this host"
        return ClusterUnreachable(
            f"no answer from {address or self.address} to {call}: {_cause(error)} "
            f"(address from: {self.settings.source}); {fix}"
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

    def send_now(self, data: bytes) -> int:
        """Sends as many bytes as there is room for, without a wait. Returns their number.

        Not for TLS.
        """
        try:
            return self.socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def set_timeout(self, seconds: float) -> None:
        """Sets the longest wait for data or for room to send. Seconds."""
        self.socket.settimeout(seconds)

    def close(self) -> None:
        """Closes the connection, also while another thread reads it."""
        _shut(self.socket)
        self._connection.close()


class _TcpConnection(http.client.HTTPConnection):
    """``timeouts`` are those of the connection attempt and of each wait for data."""

    def __init__(self, host: str, port: int, timeouts: Tuple[float, float]) -> None:
        super().__init__(host, port, timeout=timeouts[1])
        self._wait, self._limit = timeouts

    def connect(self) -> None:
        self.sock = socket.create_connection((self.host, self.port), self._wait)
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
        self,
        host: str,
        port: Optional[int],
        timeouts: Tuple[float, float],
        context: ssl.SSLContext,
    ) -> None:
        super().__init__(host, port, timeout=timeouts[1], context=context)
        self._wait, self._limit = timeouts
        self._tls = context

    def connect(self) -> None:
        raw = socket.create_connection((self.host, self.port), self._wait)
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


def _raise_refusal(response: http.client.HTTPResponse, content: bytes) -> NoReturn:
    refusal = _refusal(response.status, content)
    leader = response.getheader("headroom-leader")
    if response.status == 421 or (
        response.status == 503 and response.getheader("headroom-standby") is not None
    ):
        raise _Standby(refusal, leader)
    raise refusal


def _refusal(status: int, content: bytes) -> RequestRefused:
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    fallback = content[:300].decode("utf-8", "replace").strip() or f"status {status}"
    return RequestRefused.of_problem(status, problem, fallback)


def _is_election(failures: List[Tuple[str, _AttemptFailed]]) -> bool:
    """True if no manager took the call, and several of them run: they elect a leader."""
    standbys = [failed for _, failed in failures if isinstance(failed, _Standby)]
    sent = any(isinstance(failed, (_Interrupted, _Replaced)) for _, failed in failures)
    return bool(standbys) and len(failures) > 1 and not sent


def _cause(error: BaseException) -> str:
    if isinstance(error, RequestRefused):
        return error.detail or str(error)
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
