"""Submitit on a real cluster: calls, arrays, memory, checkpoints, preemption, cancellation."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

submitit = pytest.importorskip("submitit")

from submitit.core import plugins, utils  # noqa: E402

from headroom._http import RestClient, load_settings  # noqa: E402
from headroom.errors import HeadroomError  # noqa: E402
from headroom.submitit import (  # noqa: E402
    HeadroomExecutor,
    HeadroomJob,
    HeadroomJobEnvironment,
    JobMemoryError,
    split_job_id,
)

pytestmark = pytest.mark.cluster

START_TIMEOUT = 30.0


def wait_for(condition: Callable[[], Any], seconds: float = 40.0) -> Any:
    """Waits until the condition is true; returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def _has_node(address: str) -> bool:
    try:
        nodes = RestClient(address).get("/v1/nodes")
    except HeadroomError:
        return False
    return any(node["state"] == "ready" for node in nodes)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A resource manager with one node agent of 2 GiB."""
    programs = os.environ.get("HEADROOM_BIN_DIR")
    if not programs:
        pytest.skip("HEADROOM_BIN_DIR does not name the directory of the programs of Headroom")
    state: Path = tmp_path_factory.mktemp("submitit-cluster")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [f"{programs}/rmctl", "dev", "--listen", f"127.0.0.1:{port}", "--memory", "2GiB"]
    with open(state / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, "--keep", str(state / "state")],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        )
    found = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: process.poll() is not None or _has_node(found), START_TIMEOUT)
        assert process.poll() is None, (state / "log").read_text()
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def executor(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An executor as users make it."""
    monkeypatch.setenv("HEADROOM_ADDR", address)
    # The jobs import this module.
    folders = [Path(__file__).parent.parent / "src", Path(__file__).parent]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    if "headroom" not in plugins.get_executors():
        pytest.skip("the package is not installed, so that submitit has no entry points")
    made = submitit.AutoExecutor(folder=tmp_path / "log", cluster="headroom")
    made.update_parameters(mem_gb=0.1, timeout_min=2, headroom_learn=False)
    return made


def add(left: int, right: int) -> int:
    print("adding", left, right)
    print("a note", file=sys.stderr)
    return left + right


def hold(mib: int) -> int:
    """Uses memory; returns the number of the attempt."""
    data = bytearray(mib << 20)
    for place in range(0, len(data), 4096):
        data[place] = 1
    return HeadroomJobEnvironment().attempt


def fail() -> None:
    raise ValueError("a mistake in the call")


def refuse_memory_once() -> int:
    """Raises MemoryError near the limit at the first attempt."""
    attempt = HeadroomJobEnvironment().attempt
    if attempt == 1:
        data = bytearray(80 << 20)
        for place in range(0, len(data), 4096):
            data[place] = 1
        raise MemoryError("no more")
    return attempt


def allocate_too_much() -> int:
    return len(bytearray(1 << 55))


def sleep_forever(started: str) -> None:
    Path(started).touch()
    time.sleep(600)


def ignore_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    time.sleep(600)


def variables() -> Dict[str, str]:
    return dict(os.environ)


class Counter(submitit.helpers.Checkpointable):
    """Counts in memory, and keeps the count over checkpoints."""

    def __init__(self, folder: str, goal: int) -> None:
        self.folder = folder
        self.goal = goal
        self.count = 0
        self.starts = 0

    def __call__(self) -> List[int]:
        self.starts += 1
        while self.count < self.goal:
            self.count += 1
            Path(self.folder, f"count-{self.starts}-{self.count}").touch()
            if self.starts == 1 and self.count == 3:
                # Longer than the test: only a checkpoint leads to the end.
                time.sleep(600)
        return [self.starts, self.count]


class SignalsItself(submitit.helpers.Checkpointable):
    """Sends itself the signal of submitit at its first start."""

    def __init__(self) -> None:
        self.starts = 0

    def __call__(self) -> int:
        self.starts += 1
        if self.starts == 1:
            os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(600)
        return self.starts


def test_submitit_finds_the_executor() -> None:
    if "headroom" not in plugins.get_executors():
        pytest.skip("the package is not installed, so that submitit has no entry points")
    assert plugins.get_executors()["headroom"] is HeadroomExecutor
    assert "headroom" in plugins.get_job_environments()


def test_a_call_has_a_result_logs_and_a_state(executor: Any) -> None:
    job = executor.submit(add, 1, right=2)
    assert job.result() == 3
    assert wait_for(lambda: job.get_info()["State"] == "COMPLETED")
    assert "adding 1 2" in job.stdout()
    assert "a note" in job.stderr()
    assert job.paths.stdout.name == f"{job.job_id}_0_log.out"


def test_an_array_is_one_application(executor: Any, address: str) -> None:
    jobs = executor.map_array(add, range(6), range(10, 16))
    assert [job.result() for job in jobs] == [10, 12, 14, 16, 18, 20]
    assert len({split_job_id(job.job_id)[0] for job in jobs}) == 1
    assert jobs[0].watcher.num_calls < 60
    assert "adding 5 15" in jobs[5].stdout()


def test_an_exception_is_raised_once_and_not_repeated(executor: Any) -> None:
    job = executor.submit(fail)
    with pytest.raises(utils.FailedJobError, match="a mistake in the call"):
        job.result()
    wait_for(lambda: job.get_info()["State"] == "FAILED")
    assert "attempt 2" not in job.explain()


def test_a_job_that_needs_more_memory_grows(executor: Any) -> None:
    jobs = executor.map_array(hold, [10, 300, 10])
    assert [job.result() for job in jobs] == [1, 1, 1]
    assert "grown in place" in jobs[1].explain()


def test_a_killed_job_runs_again_with_more_memory(executor: Any) -> None:
    executor.update_parameters(headroom_grow=False)
    job = executor.submit(hold, 300)
    assert job.result() > 1
    assert "attempt 1 at 102.4 MiB: out of memory at its own limit" in job.explain()


def test_the_cap_is_an_error_with_the_sizes_and_the_fix(executor: Any) -> None:
    executor.update_parameters(headroom_cap_gb=0.2)
    job = executor.submit(hold, 400)
    with pytest.raises(JobMemoryError) as caught:
        job.result()
    assert isinstance(caught.value, MemoryError)
    assert "204.8 MiB" in str(caught.value)
    assert "fix:" in str(caught.value)
    assert job.state == "OUT_OF_MEMORY"


def test_a_memory_error_of_python_leads_to_a_larger_size(executor: Any) -> None:
    executor.update_parameters(headroom_grow=False)
    assert executor.submit(refuse_memory_once).result() == 2


def test_a_memory_error_that_no_size_cures_is_not_repeated(executor: Any) -> None:
    job = executor.submit(allocate_too_much)
    with pytest.raises(utils.UncompletedJobError, match="MemoryError"):
        job.result()
    assert "attempt 2" not in job.explain()


def test_a_preempted_job_goes_on_from_its_checkpoint(executor: Any, tmp_path: Path) -> None:
    job = executor.submit(Counter(str(tmp_path), 5))
    wait_for((tmp_path / "count-1-3").exists)
    job._interrupt()
    assert job.result() == [2, 5]
    # The second run did not count from the start.
    assert not (tmp_path / "count-2-3").exists()
    assert (tmp_path / "count-2-4").exists()
    assert "Calling checkpoint method" in job.stderr() + job.stdout()


def test_preemption_for_another_queue_leads_to_a_checkpoint(
    executor: Any, address: str, tmp_path: Path
) -> None:
    leaves = {"default": {}, "low": {}, "high": {"guaranteed": "80%"}}
    with RestClient(address) as client:
        client.request("PUT", "/v1/queues", {"queues": leaves}, headers={"If-Match": "*"})
        cpus = int(client.get("/v1/nodes")[0]["offers"]["cpus"])
    folders = [tmp_path / str(index) for index in range(cpus)]
    executor.update_parameters(headroom_queue="root.low")
    calls = []
    for folder in folders:
        folder.mkdir()
        calls.append(Counter(str(folder), 5))
    low = executor.submit_array(calls)
    wait_for(lambda: all((folder / "count-1-3").exists() for folder in folders))
    executor.update_parameters(headroom_queue="root.high")
    assert executor.submit(add, 1, 2).result() == 3
    preempted = wait_for(lambda: [job for job in low if job.paths.result_pickle.exists()])
    assert preempted[0].result() == [2, 5]
    assert re.search("attempt 1 at .*: (preempted|stopped on request)", preempted[0].explain())
    for job in low:
        job.cancel()


def test_a_job_without_checkpoint_starts_again_after_preemption(
    executor: Any, tmp_path: Path
) -> None:
    job = executor.submit(sleep_forever, str(tmp_path / "started"))
    wait_for((tmp_path / "started").exists)
    (tmp_path / "started").unlink()
    job._interrupt()
    wait_for((tmp_path / "started").exists)
    job.cancel()


def test_the_time_limit_leads_to_a_checkpoint(executor: Any, tmp_path: Path) -> None:
    short = HeadroomExecutor(tmp_path / "log")
    # 6 s, with the checkpoint after half of it.
    short.update_parameters(mem_gb=0.1, timeout_min=0.1, learn=False)
    job = short.submit(Counter(str(tmp_path), 5))
    assert job.result() == [2, 5]
    assert "attempt 2" not in job.explain()


def test_the_signal_of_submitit_leads_to_a_checkpoint(executor: Any) -> None:
    assert executor.submit(SignalsItself()).result() == 2


def test_the_time_limit_of_a_job_without_checkpoint_is_an_error(
    executor: Any, tmp_path: Path
) -> None:
    short = HeadroomExecutor(tmp_path / "log")
    short.update_parameters(mem_gb=0.1, timeout_min=0.1, learn=False)
    job = short.submit(sleep_forever, str(tmp_path / "started"))
    with pytest.raises(utils.FailedJobError, match="not checkpointable"):
        job.result()


def test_a_call_that_never_returns_to_python_ends_at_the_time_limit(
    executor: Any, tmp_path: Path
) -> None:
    short = HeadroomExecutor(tmp_path / "log")
    short.update_parameters(mem_gb=0.1, timeout_min=0.1, learn=False)
    job = short.submit(ignore_signals)
    # The message has the place in the call.
    with pytest.raises(utils.UncompletedJobError, match="in ignore_signals"):
        job.result()
    assert job.state == "FAILED"


def test_cancelling_ends_one_job_of_an_array(executor: Any, tmp_path: Path) -> None:
    names = [str(tmp_path / f"started-{index}") for index in range(2)]
    jobs = executor.map_array(sleep_forever, names)
    wait_for(lambda: all(Path(name).exists() for name in names))
    jobs[0].cancel()
    wait_for(lambda: jobs[0].done(force_check=True))
    assert jobs[0].state == "CANCELLED"
    assert not jobs[1].done(force_check=True)
    jobs[1].cancel()
    wait_for(lambda: jobs[1].done(force_check=True))
    with pytest.raises(utils.UncompletedJobError, match="CANCELLED"):
        jobs[0].result()


def test_a_job_is_found_again_by_its_id(executor: Any, address: str) -> None:
    jobs = executor.map_array(add, [1, 2], [3, 4])
    found: HeadroomJob[int] = HeadroomJob(executor.folder, jobs[1].job_id)
    assert found.result() == 6
    assert wait_for(lambda: found.get_info()["State"] == "COMPLETED")
    found.cancel()
    assert found.get_info(mode="force")["State"] == "COMPLETED"


def test_a_pickled_job_has_no_token(executor: Any, address: str) -> None:
    job: HeadroomJob[int] = executor.submit(add, 1, 2)
    assert job.result() == 3
    job._settings = load_settings(address, token="a-secret-token")
    data = pickle.dumps(job)
    assert b"a-secret-token" not in data
    assert pickle.loads(data).job_id == job.job_id


def test_jobs_get_selected_variables(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBMITIT_TEST_HIDDEN", "hidden")
    executor.update_parameters(headroom_env={"VALUE": "a {value}"}, headroom_setup=["export A=b"])
    found = executor.submit(variables).result()
    assert found["VALUE"] == "a {value}"
    assert found["A"] == "b"
    assert "SUBMITIT_TEST_HIDDEN" not in found


def test_parameters_that_headroom_does_not_have_are_refused(executor: Any) -> None:
    with pytest.raises(ValueError, match="one process on one node"):
        executor.update_parameters(nodes=2)
    with pytest.raises(ValueError, match="GPUs"):
        executor.update_parameters(gpus_per_node=1)
    with pytest.raises(ValueError, match="known are"):
        HeadroomExecutor(executor.folder).update_parameters(partition="debug")


def test_an_unreachable_cluster_is_a_failed_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.submitit.SUBMIT_TIMEOUT", 0.2)
    executor = HeadroomExecutor(tmp_path / "log", addr="http://127.0.0.1:9")
    with pytest.raises(utils.FailedSubmissionError, match=r"127\.0\.0\.1:9"):
        executor.submit(add, 1, 2)


def test_the_example_of_the_guide_runs(address: str, executor: Any, tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "submitit.md"
    (example,) = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={**os.environ, "HEADROOM_ADDR": address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"sums\.\d+ 12\n\[0, 2, 4, 6\]\n", done.stdout)
