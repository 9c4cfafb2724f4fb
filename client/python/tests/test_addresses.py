"""Several resource managers: the list of addresses, and calls that find the leader."""

from __future__ import annotations

import itertools
import json
import random
import socket
import threading

import pytest

from headroom import errors
from headroom._addresses import AddressChoice, parse_addresses
from headroom._http import RestClient, load_settings

#: The reaction of a manager that is paused: it answers nothing, and the connection stays open.
SILENT = object()


class Manager:
    """A resource manager that reacts to every request in the same way, or as a function of its
    first line says. Without a reaction, it closes the connection."""

    def __init__(self, reaction):
        self.reaction = reaction
        self.requests = []
        self._silent = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            data = b""
            while b"\r\n\r\n" not in data:
                piece = connection.recv(4096)
                if not piece:
                    break
                data += piece
            line = data.decode().split("\r\n")[0]
            self.requests.append(line)
            reaction = self.reaction(line) if callable(self.reaction) else self.reaction
            if reaction is SILENT:
                self._silent.append(connection)
                continue
            with connection:
                if reaction is not None:
                    connection.sendall(reaction)

    def stop(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._silent:
            connection.close()


def answer(status, document, headers=""):
    body = json.dumps(document)
    return (
        f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        f"{headers}\r\n{body}"
    ).encode()


LEADS = answer(200, {"it": "leads"})
NO_LEADER = answer(
    503,
    {"code": "HR0503", "detail": "a standby, which knows no leader", "retryable": True},
    "headroom-standby: true\r\n",
)


def standby_of(leader):
    document = {"code": "HR0421", "detail": "a standby", "retryable": True}
    return answer(421, document, f"headroom-leader: {leader}\r\n")


@pytest.fixture
def managers():
    running = []

    def start(*reactions):
        started = [Manager(reaction) for reaction in reactions]
        running.extend(started)
        return started

    yield start
    for manager in running:
        manager.stop()


def dead():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def client(*addresses, timeout=None):
    return RestClient(load_settings(", ".join(addresses), environ={}, timeout=timeout))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://a:1,,http://b:1", "no address at position 2"),
        ("http://a:1,b:1", "'b:1' is not an address"),
        ("http://a:1,http://a:1/", "http://a:1 is in the list twice"),
        ("https://a:1,http://b:1", "https://a:1 and http://b:1 are in one list"),
        ("unix:/s,http://b:1", "unix:/s is in a list with other addresses"),
        ("", "is not an address"),
    ],
)
def test_a_mistake_in_a_list_is_named(text, message):
    with pytest.raises(errors.SettingsError, match=message):
        parse_addresses(text)


def test_a_list_is_a_setting():
    settings = load_settings("http://127.0.0.1:1/ , http://localhost:2", environ={})
    assert settings.address == "http://127.0.0.1:1,http://localhost:2"
    assert settings.is_local
    assert settings.environment()["HEADROOM_ADDR"] == settings.address
    assert not load_settings("http://127.0.0.1:1,http://rm:2", environ={}).is_local
    with pytest.raises(errors.SettingsError, match="is not sent to http://rm:2"):
        RestClient(load_settings("http://127.0.0.1:1,http://rm:2", token="hru_1", environ={}))


def test_a_call_passes_a_dead_address_and_a_standby(managers):
    gone, (a, b) = dead(), managers(None, LEADS)
    a.reaction = standby_of(b.address)
    rest = client(gone, a.address, b.address)
    assert rest.post("/v1/x") == {"it": "leads"}
    assert rest.current_address == b.address
    assert rest.post("/v1/x") == {"it": "leads"}
    assert (len(a.requests), len(b.requests)) == (1, 2)


def test_standbys_that_name_each_other_end_the_call(managers):
    a, b = managers(None, None)
    a.reaction, b.reaction = standby_of(b.address), standby_of(a.address)
    with pytest.raises(errors.ClusterUnreachable, match=r"a standby; .*: a standby"):
        client(a.address, b.address, timeout=0.01).post("/v1/x")
    assert len(a.requests) == len(b.requests) <= 2
    alone = managers(standby_of("https://other:1"))[0]
    with pytest.raises(errors.RequestRefused) as caught:
        client(alone.address).post("/v1/x")
    assert (caught.value.code, caught.value.retryable) == ("HR0421", True)


def test_a_leader_that_appears_is_found_by_the_next_call(managers):
    a, b = managers(NO_LEADER, NO_LEADER)
    rest = client(a.address, b.address, timeout=0.01)
    with pytest.raises(errors.ClusterUnreachable, match="knows no leader"):
        rest.post("/v1/x")
    b.reaction = LEADS
    assert rest.post("/v1/x") == {"it": "leads"}


def test_a_call_waits_for_an_election(managers):
    a, b = managers(None, NO_LEADER)

    def elect(line):
        if len(a.requests) == 3:
            b.reaction = LEADS
        return NO_LEADER

    a.reaction = elect
    assert client(a.address, b.address).post("/v1/x") == {"it": "leads"}
    assert len(a.requests) == 3


def led_by(leader):
    return answer(200, {"own": leader, "state": "standby", "leader": leader})


def test_a_read_leaves_a_silent_manager_when_another_one_leads(managers):
    a, b = managers(SILENT, None)
    elected = []

    def standby(line):
        if not line.startswith("GET /v1/leader"):
            return LEADS
        if "other_than" not in line:
            return led_by(a.address)
        elected.append(line)
        return led_by(b.address)

    b.reaction = standby
    rest = client(a.address, b.address)
    assert rest.get("/v1/x") == {"it": "leads"}
    assert rest.current_address == b.address
    assert len(a.requests) == len(elected) == 1
    assert "wait=10000ms" in elected[0]


def test_a_change_that_a_silent_manager_may_have_made_is_not_repeated(managers):
    a, b = managers(SILENT, None)
    b.reaction = lambda line: led_by(b.address) if "/v1/leader" in line else LEADS
    rest = client(a.address, b.address)
    with pytest.raises(errors.ClusterUnreachable, match=r"does not answer, and .* leads now"):
        rest.post("/v1/x")
    assert [line.split()[1] for line in b.requests] == ["/v1/leader"]
    assert rest.post("/v1/x") == {"it": "leads"}, "the next call begins there"


def test_a_slow_leader_is_not_left(managers):
    a, b = managers(None, None)
    asked = threading.Event()

    def slow(line):
        assert asked.wait(10)
        return LEADS

    def standby(line):
        asked.set()
        return SILENT if "other_than" in line else led_by(a.address)

    a.reaction, b.reaction = slow, standby
    assert client(a.address, b.address).post("/v1/x") == {"it": "leads"}


def test_only_a_call_that_changes_nothing_is_sent_again_after_an_interruption(managers):
    a, b = managers(None, LEADS)
    rest = client(a.address, b.address)
    with pytest.raises(errors.ClusterUnreachable, match=a.address):
        rest.post("/v1/x")
    assert (len(a.requests), len(b.requests)) == (1, 0)
    assert rest.post("/v1/x") == {"it": "leads"}, "the next call begins elsewhere"
    assert client(a.address, b.address).get("/v1/x") == {"it": "leads"}
    with client(a.address, b.address).lines("/v1/x") as lines:
        assert list(lines) == [{"it": "leads"}]


def test_an_error_names_all_addresses():
    a, b = dead(), dead()
    with pytest.raises(errors.ClusterUnreachable) as caught:
        client(a, b).get("/v1/x")
    assert a in str(caught.value)
    assert b in str(caught.value)


def test_a_leader_that_is_not_in_the_list_is_followed_with_the_same_protection():
    def follows(address, leader, has_token=False):
        choice = AddressChoice([address], has_token=has_token)
        return choice.standby(choice.begin(is_repeatable=False), leader)

    assert follows("http://a:1", "http://x:1/")
    for strange in ("https://x:1", "http://u@x:1", "http://x:1/p", "unix:/x", "nonsense", ""):
        assert not follows("http://a:1", strange), strange
    assert not follows("http://127.0.0.1:1", "http://x:1", has_token=True)
    assert follows("http://127.0.0.1:1", "http://127.0.0.1:2", has_token=True)
    assert follows("https://a:1", "https://x:1", has_token=True)


def test_a_call_is_bounded_and_a_change_is_sent_once():
    chance = random.Random(7)
    names = [f"http://{name}:1" for name in "abcdef"]
    for count, _ in itertools.product(range(1, 5), range(300)):
        choice = AddressChoice(names[:count])
        for _ in range(4):
            is_repeatable = chance.random() < 0.5
            route = choice.begin(is_repeatable=is_repeatable)
            sent = []
            goes_on = True
            while goes_on:
                assert route.target not in sent
                sent.append(route.target)
                kind = chance.choice(["answered", "dead", "dead", "broken", "standby", "standby"])
                if kind == "answered":
                    choice.answered(route)
                    goes_on = False
                elif kind == "dead":
                    goes_on = choice.not_connected(route)
                elif kind == "broken":
                    goes_on = choice.interrupted(route)
                    assert is_repeatable or not goes_on
                else:
                    goes_on = choice.standby(route, chance.choice([*names, None]))
            assert len(sent) <= count + 1
