"""Short calls that share a process, on a real cluster: what they share, what stays their own."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import threading
import time

import pytest
from fake_cluster import MIB

import headroom
from headroom.errors import MemoryExhausted

pytestmark = pytest.mark.cluster


def one_worker(address, **options):
    return headroom.Executor(1, memory="64MiB", addr=address, **options)


def act(what, amount=0):
    """One function, so that all calls are of one stage. Returns the process that ran it."""
    if what == "use":
        data = bytearray(amount * MIB)
        data[::4096] = b"x" * len(data[::4096])
    elif what == "keep memory":
        sys.kept = bytearray(b"x" * (amount * MIB))
    elif what == "keep a thread":
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    elif what == "keep a file":
        sys.kept = os.open("/dev/null", os.O_RDONLY)
    elif what == "keep a process":
        sys.kept = subprocess.Popen(["sleep", "3600"])
    elif what == "sleep":
        time.sleep(0.05)
    elif what == "change surroundings":
        os.environ["HEADROOM_TEST_LEFT"] = "1"
        sys.path.insert(0, "/left")
        os.chdir("/")
    elif what == "look":
        return os.environ.get("HEADROOM_TEST_LEFT"), "/left" in sys.path, os.getcwd()
    return os.getpid()


def run(executor, *arguments):
    return executor.submit(act, *arguments).result(120)


def test_short_calls_share_a_process(real_cluster):
    with one_worker(real_cluster) as executor:
        pids = [run(executor, "nothing") for _ in range(40)]
    # A call that a busy machine made long ends its process.
    assert max(collections.Counter(pids).values()) > 5


@pytest.mark.parametrize("most", [1, 3])
def test_a_process_runs_at_most_as_many_calls_as_allowed(real_cluster, most):
    with one_worker(real_cluster, max_tasks_per_child=most) as executor:
        pids = [run(executor, "nothing") for _ in range(12)]
    counts = collections.Counter(pids).values()
    assert max(counts) <= most
    assert max(counts) > 1 or most == 1


@pytest.mark.parametrize(
    "what", ["keep memory", "keep a thread", "keep a file", "keep a process", "sleep"]
)
def test_a_process_with_something_left_runs_no_other_call(real_cluster, what):
    with one_worker(real_cluster) as executor:
        for _ in range(3):
            before = run(executor, what, 24)
            after = [run(executor, "nothing") for _ in range(3)]
            assert before not in after


def test_the_surroundings_are_those_of_the_executor(real_cluster):
    with one_worker(real_cluster) as executor:
        before = run(executor, "look")
        for _ in range(5):
            run(executor, "change surroundings")
            assert run(executor, "look") == before
        assert before[:2] == (None, False)


def test_a_kill_hits_one_call(real_cluster):
    with one_worker(real_cluster, grow=False, cap="128MiB") as executor:
        small = [executor.submit(act, "nothing") for _ in range(30)]
        large = executor.submit(act, "use", 90)
        too_large = executor.submit(act, "use", 400)
        small += [executor.submit(act, "nothing") for _ in range(30)]
        assert isinstance(large.result(120), int)
        assert len(large.attempts) == 2
        with pytest.raises(MemoryExhausted):
            too_large.result(120)
        for future in small:
            assert isinstance(future.result(120), int)
            assert len(future.attempts) == 1


def test_the_peak_of_a_call_is_its_own(real_cluster):
    with one_worker(real_cluster) as executor:
        used = executor.submit(act, "use", 30)
        used.result(120)
        after = executor.submit(act, "nothing")
        after.result(120)
        assert used.peak > 30 * MIB
        assert after.peak < 30 * MIB
