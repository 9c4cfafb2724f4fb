"""Detection of a new leader while a call has no answer.

A leader that is paused, or whose host has ended, does not answer and refuses no connection. The
other managers know when another one leads, so a call that waits asks one of them. That answers when
the leader changes.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import time
from typing import Callable, List, Mapping, Optional

from headroom._addresses import AddressChoice

__all__ = ["LeaderReplaced", "wait_for_answer"]

#: Time without an answer after which another manager is asked. Seconds.
STALLED = 0.5
#: Longest time for which the other manager is asked to wait for a change. Seconds.
WAIT = 10.0
#: Time for the answer itself. Seconds.
ANSWER = 1.0
#: Pause between two questions. Seconds.
AGAIN = 0.2

#: Opens a connection to an address and sends ``GET /v1/leader`` with this query.
Ask = Callable[[str, Mapping[str, str]], http.client.HTTPConnection]


class LeaderReplaced(Exception):
    """Another manager leads, and the call has no answer."""

    def __init__(self, leader: str) -> None:
        super().__init__(f"it does not answer, and {leader} leads now")
        self.leader = leader


class _Over(Exception):
    """The call has an answer, or no time left."""


def wait_for_answer(
    sock: Optional[socket.socket], target: str, choice: AddressChoice, ask: Ask, timeout: float
) -> None:
    """Waits until ``sock`` has data, its connection has ended, or ``timeout`` has passed. Raises
    :class:`LeaderReplaced` if another manager leads instead of ``target``."""
    others = choice.others(target)
    if sock is None or not others:
        return
    call = _WaitingCall(sock, time.monotonic() + timeout, ask)
    try:
        call.wait(STALLED)
        before: Optional[str] = None
        while True:
            for other in others:
                # A manager that answers is asked until it fails; then the next one.
                named = call.leader_according_to(other, before)
                while named is not None:
                    leader = choice.replacement(target, named, before)
                    if leader is not None:
                        raise LeaderReplaced(leader)
                    before = named
                    call.wait(AGAIN)
                    named = call.leader_according_to(other, before)
                call.wait(AGAIN)
    except _Over:
        return


class _WaitingCall:
    def __init__(self, sock: socket.socket, until: float, ask: Ask) -> None:
        self._sock = sock
        self._until = until
        self._ask = ask

    def wait(self, seconds: float, other: Optional[socket.socket] = None) -> bool:
        """Waits for data of ``other``; returns whether there is any."""
        left = self._until - time.monotonic()
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            raise _Over
        found = _readable([self._sock, other] if other else [self._sock], min(seconds, left))
        if self._sock.fileno() in found or self._until <= time.monotonic():
            raise _Over
        return bool(found)

    def leader_according_to(self, address: str, before: Optional[str]) -> Optional[str]:
        """The leader that the manager at ``address`` knows: after a change if it is ``before``.
        ``None`` if it does not answer, or does not know."""
        query = {}
        if before is not None:
            query = {"other_than": before, "wait": f"{int(WAIT * 1000)}ms"}
        connection: Optional[http.client.HTTPConnection] = None
        try:
            connection = self._ask(address, query)
            if not self.wait(WAIT + ANSWER if query else ANSWER, connection.sock):
                return None
            response = connection.getresponse()
            view = json.loads(response.read()) if response.status == 200 else {}
            return None if view.get("problem") else view.get("leader")
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            return None
        finally:
            if connection is not None:
                connection.close()


def _readable(socks: List[socket.socket], seconds: float) -> List[int]:
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return [number for number, _ in poll.poll(max(0, int(seconds * 1000)))]
