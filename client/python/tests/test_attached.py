"""A process that takes over the calls of another one, which was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from fake_cluster import SOURCES

import headroom
from headroom import errors

SCRIPT = """
import os, sys, time
import headroom

def wait_for(path, n):
    while not os.path.exists(path):
        time.sleep(0.01)
    return n * n

ex = headroom.Executor(2, memory="64MiB", addr=sys.argv[1], warm=False, lease=10)
first = ex.submit(pow, 2, 3)
first.result(120)
futures = [ex.submit(wait_for, sys.argv[2], n) for n in range(3)] + [ex.submit(divmod, 1, 0)]
while not futures[0].running():
    time.sleep(0.01)
print(ex.app, *(f.key for f in futures), flush=True)
sys.stdin.read()
"""


def lose_a_client(address, path):
    """Starts calls that wait for a file, and kills the client. The application and the keys."""
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), address, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
    )
    app, *keys = client.stdout.readline().split()
    client.kill()
    client.communicate()
    return app, keys


def take_over(address, path):
    app, keys = lose_a_client(address, path)
    with headroom.attach(app, addr=address) as job:
        futures = [job.future(key) for key in keys]
        assert not futures[0].done()
        path.write_text("")
        assert [future.result(120) for future in futures[:3]] == [0, 1, 4]
        with pytest.raises(ZeroDivisionError):
            futures[3].result(120)
        assert futures[0].verdict == "succeeded" and futures[0].task.startswith(app)
        assert job.future(keys[1]) is futures[1]
        assert set(job.received()) >= set(keys)
        unknown = job.future("unknown")
    with pytest.raises(errors.TaskLost, match="has ended"):
        unknown.result(10)


def test_the_calls_of_a_killed_client(fake, tmp_path):
    take_over(fake.address, tmp_path / "go")


@pytest.mark.cluster
def test_the_calls_of_a_killed_client_on_a_cluster(real_cluster, tmp_path):
    take_over(real_cluster, tmp_path / "go")


def test_a_call_is_cancelled_by_its_new_client(fake, tmp_path):
    app, keys = lose_a_client(fake.address, tmp_path / "go")
    with headroom.attach(app, addr=fake.address) as job:
        assert job.future(keys[2]).cancel()
        assert job.future(keys[2]).cancelled()
        (tmp_path / "go").write_text("")
        assert job.future(keys[1]).result(60) == 1


def test_an_application_that_has_ended(executor, fake):
    executor.shutdown()
    job = headroom.attach(executor.app, addr=fake.address)
    with pytest.raises(errors.TaskLost, match="has ended"):
        job.future("any").result(30)
