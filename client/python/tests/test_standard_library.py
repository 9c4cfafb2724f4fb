"""The standard library's own tests of executors, as the running Python has them installed, with
:class:`headroom.Executor` in place of its pools.

Left out are tests that start a script which imports ``concurrent.futures.NAME``, since they cannot
name another class: ``test_shutdown_of_scripts`` tests the same. ``test_cancel_futures`` requires
that a call runs a few microseconds after it was submitted; the pools mark calls as running before a
worker takes them. ``test_executor.py`` has a test that waits for the first call.

With ``HEADROOM_TEST_ADDR`` the tests run on that cluster instead of a fake one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import unittest

import pytest
from fake_cluster import SOURCES, FakeCluster

import headroom

try:
    try:
        from test.test_concurrent_futures import (
            executor,
            test_as_completed,
            test_shutdown,
            test_wait,
        )

        ExecutorTest = executor.ExecutorTest
        AsCompletedTests = test_as_completed.AsCompletedTests
        ExecutorShutdownTest = test_shutdown.ExecutorShutdownTest
        WaitTests = test_wait.WaitTests
    except ImportError:
        from test import test_concurrent_futures as installed

        ExecutorTest = installed.ExecutorTest
        AsCompletedTests = installed.AsCompletedTests
        ExecutorShutdownTest = installed.ExecutorShutdownTest
        WaitTests = installed.WaitTests
except ImportError:
    pytest.skip("this Python has no package `test`", allow_module_level=True)


class HeadroomMixin(unittest.TestCase):
    worker_count = 5

    def setUp(self):
        self.cluster = None
        self.address = os.environ.get("HEADROOM_TEST_ADDR")
        self.warm = bool(self.address)
        if self.address is None:
            self.cluster = FakeCluster(slots=self.worker_count)
            self.address = self.cluster.address
        self.executor = self.executor_type(max_workers=self.worker_count)

    def executor_type(self, max_workers):
        return headroom.Executor(
            max_workers, memory="32MiB", cpus=0.2, addr=self.address, warm=self.warm
        )

    def tearDown(self):
        self.executor.shutdown(wait=True)
        if self.cluster is not None:
            self.cluster.stop()


class HeadroomExecutorTest(ExecutorTest, HeadroomMixin):
    pass


class HeadroomAsCompletedTest(AsCompletedTests, HeadroomMixin):
    pass


class HeadroomWaitTest(WaitTests, HeadroomMixin):
    pass


class HeadroomShutdownTest(ExecutorShutdownTest, HeadroomMixin):
    test_cancel_futures = None
    test_interpreter_shutdown = None
    test_submit_after_interpreter_shutdown = None
    test_hang_gh83386 = None
    test_hang_issue39205 = None


SCRIPTS = {
    "the interpreter waits for calls": (
        "ex = headroom.Executor(2, addr=ADDR, warm=False)\n"
        "f = ex.submit(pow, 2, 3)\n"
        "f.add_done_callback(lambda f: print(f.result(), flush=True))\n",
        "8\n",
    ),
    "also after a shutdown without waiting": (
        "ex = headroom.Executor(2, addr=ADDR, warm=False)\n"
        "f = ex.submit(pow, 2, 3)\n"
        "f.add_done_callback(lambda f: print(f.result(), flush=True))\n"
        "ex.shutdown(wait=False)\n",
        "8\n",
    ),
    "and after the executor is gone": (
        "headroom.Executor(2, addr=ADDR, warm=False).submit(pow, 2, 3).add_done_callback(\n"
        "    lambda f: print(f.result(), flush=True))\n",
        "8\n",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_shutdown_of_scripts(fake, name, tmp_path):
    source, expected = SCRIPTS[name]
    path = tmp_path / "script.py"
    path.write_text(f"import headroom\nADDR = {fake.address!r}\n" + textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    assert all(master.over for master in fake.masters.values())
