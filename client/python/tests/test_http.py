"""Settings and the REST client."""

from __future__ import annotations

import doctest
import importlib
import os
import socket
import threading

import pytest
from fake_cluster import FakeCluster

from headroom import errors
from headroom._http import RestClient, load_settings
from headroom._settings import _parse_simple_toml


@pytest.mark.parametrize(
    "name", ["errors", "_settings", "_map", "_pickling", "_sizes", "_task", "_verdict"]
)
def test_examples_in_documentation(name):
    module = importlib.import_module(f"headroom.{name}")
    result = doctest.testmod(module)
    assert result.failed == 0
    assert name == "_task" or result.attempted > 0


FILE = """
current = "lab"   # the usual one

[contexts.lab]
addr = "https://lab:7070"
ca = '/ca.pem'
timeout = "1500ms"

[contexts."a b"]
addr = "http://other:1/"
token_file = "/t"
"""


def env(tmp_path, **more):
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    return {"HEADROOM_CONFIG": str(path), **more}


def test_precedence_of_settings(tmp_path):
    lab = load_settings(environ=env(tmp_path))
    assert (lab.address, lab.source, lab.ca, lab.timeout) == (
        "https://lab:7070",
        "context lab",
        "/ca.pem",
        1.5,
    )
    named = load_settings(environ=env(tmp_path, HEADROOM_ADDR="http://e:1"))
    assert (named.address, named.source) == ("http://e:1", "environment HEADROOM_ADDR")
    by_context = load_settings(context="a b", environ=env(tmp_path, HEADROOM_ADDR="http://e:1"))
    assert (by_context.address, by_context.token_file) == ("http://other:1", "/t")
    argument = load_settings("unix:/s", environ=env(tmp_path, HEADROOM_ADDR="http://e:1"))
    assert (argument.address, argument.is_local, argument.is_explicit) == ("unix:/s", True, True)
    none = load_settings(environ={"HOME": str(tmp_path / "none")})
    assert none.address == "http://127.0.0.1:7070" or none.source == "socket of this host"
    assert not none.is_explicit


def test_both_readers_of_the_file_agree():
    tomllib = pytest.importorskip("tomllib")
    assert _parse_simple_toml(FILE) == tomllib.loads(FILE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"HEADROOM_CONTEXT": "none"}, "there is no context none.*a b, lab"),
        ({"HEADROOM_ADDR": "lab:7070"}, "is not an address"),
        ({"HEADROOM_ADDR": "unix:relative"}, "is not an address"),
        ({"HEADROOM_CLIENT_CERT": "/c.pem"}, "/c.pem needs its key"),
        ({"HEADROOM_TIMEOUT": "soon"}, "is not a duration"),
    ],
)
def test_invalid_settings(tmp_path, change, message):
    with pytest.raises(errors.SettingsError, match=message):
        load_settings(environ=env(tmp_path, **change))


def test_an_invalid_file_is_named(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('[contexts.a]\nadr = "x"\n')
    with pytest.raises(errors.SettingsError, match=r"config.toml.*unknown key adr"):
        load_settings(environ={"HEADROOM_CONFIG": str(path)})


def test_a_token_is_not_sent_unencrypted_and_not_shown(tmp_path):
    settings = load_settings("http://10.0.0.7:7070", token="hru_secret", environ={})
    with pytest.raises(errors.SettingsError, match="https://"):
        RestClient(settings)
    assert "secret" not in repr(settings)
    path = tmp_path / "token"
    path.write_text("hru_1\n")
    path.chmod(0o644)
    with pytest.raises(errors.SettingsError, match="chmod 600"):
        RestClient(load_settings("http://127.0.0.1:1", token_file=str(path), environ={}))
    path.chmod(0o600)
    client = RestClient(load_settings("http://127.0.0.1:1", token_file=str(path), environ={}))
    assert client._headers()["Authorization"] == "Bearer hru_1"


def test_answers_errors_and_kept_connections():
    cluster = FakeCluster()
    try:
        client = RestClient(cluster.address)
        assert client.get("/v1/version") == {"version": "0.1.0"}
        with pytest.raises(errors.RequestRefused) as caught:
            client.get("/v1/apps/none.1")
        assert (caught.value.status, caught.value.code) == (404, "HR0404")
        assert len(cluster.connections) == 1, "the connection is used again"
        cluster.break_connections()
        assert client.get("/v1/version"), "a connection that the server closed is not used"
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(client.get("/v1/version")))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 8
        cluster.down = True
        cluster.break_connections()
        with pytest.raises(errors.ClusterUnreachable, match="argument addr"):
            RestClient(load_settings(cluster.address, environ={})).get("/v1/version")
    finally:
        cluster.stop()


def test_a_unix_socket(tmp_path):
    path = str(tmp_path / "rm.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve():
        connection, _ = listener.accept()
        connection.recv(4096)
        connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{"a":1}')
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    assert RestClient(f"unix:{path}").get("/v1/x") == {"a": 1}
    with pytest.raises(errors.ClusterUnreachable, match="No such file"):
        RestClient(f"unix:{path}.none").get("/v1/x")
    listener.close()
    os.unlink(path)
