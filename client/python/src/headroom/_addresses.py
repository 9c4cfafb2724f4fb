"""The addresses of the resource managers of one cluster, and which of them a call is sent to. Pure.

A call begins at the current address, which all calls of a client share. It goes on at the next
address where nothing was sent or a standby answered, and at the leader that a standby names. After
an interruption only a call that changes nothing goes on. No address gets a call twice, and a call
is sent to at most one address more than the list has.
"""

from __future__ import annotations

import threading
import urllib.parse
from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Tuple

from headroom.errors import SettingsError

__all__ = ["UNIX_PREFIX", "AddressChoice", "CallRoute", "is_loopback", "parse_addresses"]

#: Prefix of the address of a Unix socket.
UNIX_PREFIX = "unix:"


def parse_addresses(text: str) -> Tuple[str, ...]:
    """The addresses of a list that is separated by commas, each without slashes at its end.

    >>> parse_addresses("http://a:7070/, http://b:7070")
    ('http://a:7070', 'http://b:7070')

    Raises :class:`SettingsError`, which names the entry with the mistake.
    """
    entries = [entry.strip().rstrip("/") for entry in text.split(",")]
    for position, entry in enumerate(entries):
        if not entry and len(entries) > 1:
            raise SettingsError(
                f"{text!r} has no address at position {position + 1}; write one comma between "
                "two addresses"
            )
        _check_address(entry)
        if entry in entries[:position]:
            raise SettingsError(f"{entry} is in the list twice; name each resource manager once")
    if len(entries) > 1:
        _check_list(entries)
    return tuple(entries)


def _check_list(entries: Sequence[str]) -> None:
    for entry in entries:
        if entry.startswith(UNIX_PREFIX):
            raise SettingsError(
                f"{entry} is in a list with other addresses; a Unix socket leads to one resource "
                "manager and stands alone"
            )
        if entry.partition(":")[0] != entries[0].partition(":")[0]:
            raise SettingsError(
                f"{entries[0]} and {entry} are in one list; write https:// for all resource "
                "managers, or http:// for all"
            )


def _check_address(address: str) -> None:
    wrong = SettingsError(
        f"{address!r} is not an address; write for example http://127.0.0.1:7070, "
        "https://rm.example:7070 or unix:/run/headroom/resourcemanager.sock"
    )
    if address.startswith(UNIX_PREFIX):
        if not address[len(UNIX_PREFIX) :].startswith("/"):
            raise wrong
        return
    try:
        parts = urllib.parse.urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise wrong from None
    if not valid or parts.query or parts.fragment:
        raise wrong


def is_loopback(host: str) -> bool:
    """True for the names and addresses of this host's loopback interface."""
    return host in ("localhost", "::1") or host.startswith("127.")


@dataclass
class CallRoute:
    """The way of one call through the addresses."""

    #: The address to which the call is sent now.
    target: str
    #: True if the call changes nothing, so that it may be sent again after an interruption.
    is_repeatable: bool
    #: Earlier addresses.
    left: List[str] = field(default_factory=list)


class AddressChoice:
    """The addresses with the current one. Safe for use by several threads.

    ``has_token`` keeps calls from following a standby to another host without encryption.
    """

    def __init__(self, addresses: Sequence[str], *, has_token: bool = False) -> None:
        self._addresses = tuple(addresses)
        self._has_token = has_token
        self._lock = threading.Lock()
        self._current = self._addresses[0]

    @property
    def current(self) -> str:
        """The address at which the next call begins."""
        with self._lock:
            return self._current

    def begin(self, *, is_repeatable: bool) -> CallRoute:
        """Begins a call."""
        return CallRoute(self.current, is_repeatable)

    def answered(self, route: CallRoute) -> None:
        """The target answered, and is no standby."""
        with self._lock:
            # A late answer at the former address does not move other calls back.
            if route.left:
                self._current = route.target

    def not_connected(self, route: CallRoute) -> bool:
        """Nothing was sent. Returns whether the route has another target."""
        with self._lock:
            self._leave(route.target)
            return self._advance(route, None)

    def standby(self, route: CallRoute, leader: Optional[str]) -> bool:
        """A standby answered, which perhaps named the leader. Returns whether the route has another
        target."""
        with self._lock:
            named = self._find_leader(leader) if leader else None
            self._leave(route.target)
            if named and named != route.target:
                self._current = named
            return self._advance(route, named)

    def interrupted(self, route: CallRoute) -> bool:
        """The request was sent, and no whole answer came. Returns whether the route has another
        target."""
        with self._lock:
            self._leave(route.target)
            return route.is_repeatable and self._advance(route, None)

    def replaced(self, route: CallRoute, leader: str) -> bool:
        """The target is silent, and ``leader`` leads. The request was sent. Returns whether the
        route has another target."""
        with self._lock:
            self._current = leader
            return route.is_repeatable and self._advance(route, leader)

    def others(self, target: str) -> Tuple[str, ...]:
        """The other addresses."""
        return tuple(address for address in self._after(target) if address != target)

    def replacement(self, target: str, named: str, before: Optional[str]) -> Optional[str]:
        """The leader that replaced the one at ``target``, if ``named`` says so: a leader by the
        word of another manager. ``before`` is what it said earlier. A listed address is another
        manager; one that is not listed may be another name of ``target``, until it changes."""
        leader = self._find_leader(named)
        if leader is None or leader == target:
            return None
        has_changed = before is not None and before != named
        return leader if has_changed or leader in self._addresses else None

    def _after(self, address: str) -> Tuple[str, ...]:
        if address not in self._addresses:
            return self._addresses
        begin = self._addresses.index(address) + 1
        return self._addresses[begin:] + self._addresses[:begin]

    def _leave(self, failed: str) -> None:
        if self._current == failed:
            self._current = self._after(failed)[0]

    def _advance(self, route: CallRoute, leader: Optional[str]) -> bool:
        tried = [*route.left, route.target]
        if len(tried) > len(self._addresses):
            return False
        for candidate in (leader, self._current, *self._after(route.target)):
            if candidate and candidate not in tried:
                route.left, route.target = tried, candidate
                return True
        return False

    def _find_leader(self, text: str) -> Optional[str]:
        address = text.strip().rstrip("/")
        if address in self._addresses:
            return address
        try:
            _check_address(address)
        except SettingsError:
            return None
        parts = urllib.parse.urlsplit(address)
        is_origin = not parts.path and "@" not in parts.netloc
        is_same_scheme = parts.scheme == self._addresses[0].partition(":")[0]
        is_safe = (
            parts.scheme == "https" or not self._has_token or is_loopback(parts.hostname or "")
        )
        return address if is_origin and is_same_scheme and is_safe else None
