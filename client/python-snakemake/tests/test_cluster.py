"""Workflows that need more memory than they state, fail, or are cancelled, on a real cluster."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import TestCluster
from headroom._http import RestClient

pytestmark = pytest.mark.cluster

#: A program that holds as many MiB as its input states, and writes a digest of them.
DIGEST = """
import hashlib, sys
size = int(open(sys.argv[1]).read())
data = bytearray(size << 20)
for place in range(0, len(data), 4096):
    data[place] = 120
open(sys.argv[2], "w").write(hashlib.sha256(data).hexdigest())
"""

SNAKEFILE = """
rule all:
    input: expand("out/{{i}}.txt", i=range({jobs}))

rule digest:
    input: "in/{{i}}.txt"
    output: "out/{{i}}.txt"
    resources: {resources}
    shell: "{command}"
"""


def workflow(folder: Path, sizes: list[int], resources: str, command: str | None = None) -> None:
    """Writes a workflow with one job for each size in MiB."""
    (folder / "in").mkdir(parents=True)
    for index, size in enumerate(sizes):
        (folder / "in" / f"{index}.txt").write_text(str(size))
    (folder / "digest.py").write_text(DIGEST)
    text = command or f"{sys.executable} digest.py {{input}} {{output}}"
    (folder / "Snakefile").write_text(
        SNAKEFILE.format(jobs=len(sizes), resources=resources, command=text)
    )


def command_of(cluster: str, *options: str) -> list[str]:
    base = [sys.executable, "-m", "snakemake", "--executor", "headroom", "--jobs", "500"]
    return [*base, "--headroom-address", cluster, *options]


def run(
    folder: Path, cluster: str, *options: str, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Runs the workflow; returns the exit code and the output of Snakemake."""
    done = subprocess.run(
        command_of(cluster, *options),
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    return done.returncode, done.stdout


def applications(cluster: str, name: str) -> list[dict[str, object]]:
    with RestClient(cluster) as client:
        found: list[dict[str, object]] = client.get("/v1/apps", query={"name": name})
    return found


def outputs(folder: Path) -> list[str]:
    files = sorted((folder / "out").iterdir(), key=lambda path: int(path.stem))
    return [file.read_text() for file in files]


def test_the_job_that_needs_more_gets_more_while_it_runs(tmp_path: Path, cluster: str) -> None:
    sizes = [20, 20, 500, 20]
    workflow(tmp_path, sizes, "mem_mb=100")
    code, text = run(tmp_path, cluster, "--headroom-name", "grows")
    assert code == 0, text
    assert re.search(r"digest/\d@1 grows in place", text), text
    assert "0 memory kills" in text
    (app,) = applications(cluster, "grows-digest")
    assert app["state"] == "finished"
    assert outputs(tmp_path)[0] == outputs(tmp_path)[3] != outputs(tmp_path)[2]


def test_a_killed_job_runs_again_and_costs_no_retry(tmp_path: Path, cluster: str) -> None:
    workflow(tmp_path, [20, 500], "mem_mb=100")
    code, text = run(tmp_path, cluster, "--headroom-name", "kills", "--headroom-no-growth")
    assert code == 0, text
    assert "Trying to restart job" not in text
    assert re.search(r"[1-9]\d* memory kills", text), text
    assert len(outputs(tmp_path)) == 2


def test_the_error_has_the_ladder_and_the_fix(tmp_path: Path, cluster: str) -> None:
    workflow(tmp_path, [500], "mem_mb=100, headroom_cap_mb=150")
    code, text = run(tmp_path, cluster, "--headroom-name", "capped", "--headroom-no-growth")
    assert code != 0
    assert "attempt 1 at 228 MiB: out of memory" in text, text
    assert "fix:" in text
    assert re.search(r"rmctl diagnose capped-digest\.\d+/digest/0", text)


def test_a_plain_failure_is_left_to_snakemake(tmp_path: Path, cluster: str) -> None:
    marker = "echo try >> tries; echo some advice >&2; exit 7"
    workflow(tmp_path, [1], "mem_mb=100", command=marker)
    code, text = run(tmp_path, cluster, "--headroom-name", "plain", "--retries", "1")
    assert code != 0
    assert (tmp_path / "tries").read_text() == "try\ntry\n"
    assert "some advice" in text
    assert [app["state"] for app in applications(cluster, "plain-digest")] == ["failed", "failed"]


def test_runtime_ends_a_job(tmp_path: Path, cluster: str) -> None:
    workflow(tmp_path, [1], "mem_mb=100, runtime=1", command="sleep 300")
    code, text = run(tmp_path, cluster, "--headroom-name", "slow")
    assert code != 0
    assert "ran longer than its time limit" in text, text


def test_a_job_that_fits_no_node_fails_with_a_sentence(tmp_path: Path, cluster: str) -> None:
    workflow(tmp_path, [1], "mem_mb=500000")
    code, text = run(tmp_path, cluster, "--headroom-name", "huge")
    assert code != 0
    assert "Error in rule digest" in text, text


def test_a_refused_submission_is_an_error_of_the_job(tmp_path: Path, cluster: str) -> None:
    workflow(tmp_path, [1], 'mem_mb=100, headroom_queue="root.none"')
    code, text = run(tmp_path, cluster, "--headroom-name", "refused")
    assert code != 0
    assert "Headroom did not accept the job" in text, text
    assert "root.none" in text


def test_cancelling_ends_all_applications(tmp_path: Path, cluster: str) -> None:
    workflow(tmp_path, [1, 1, 1], "mem_mb=100", command="touch started.{wildcards.i}; sleep 300")
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            command_of(cluster, "--headroom-name", "cancelled"),
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: any(tmp_path.glob("started.*")), 60)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    (app,) = applications(cluster, "cancelled-digest")
    assert app["state"] == "killed"
    assert "Snakemake was cancelled" in str(app["diagnostics"])


def test_jobs_go_on_after_the_cluster_was_killed(tmp_path: Path, own_cluster: TestCluster) -> None:
    command = (
        "touch started.{wildcards.i}; while [ ! -e go ]; do sleep 0.1; done; cp {input} {output}"
    )
    workflow(tmp_path, [5, 6], "mem_mb=100", command=command)
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            command_of(own_cluster.address, "--headroom-name", "outage"),
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: len(list(tmp_path.glob("started.*"))) == 2, 120)
        own_cluster.kill()
        wait_for(lambda: "the status is checked again" in (tmp_path / "log").read_text(), 30)
        own_cluster.start()
        (tmp_path / "go").touch()
        assert process.wait(200) == 0, (tmp_path / "log").read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert outputs(tmp_path) == ["5", "6"]


def test_further_jobs_wait_while_the_applications_are_limited(tmp_path: Path, cluster: str) -> None:
    workflow(tmp_path, [1] * 4, "mem_mb=100", command="touch {output}")
    options = ["--headroom-name", "limited", "--headroom-array-size", "1"]
    code, text = run(tmp_path, cluster, *options, "--headroom-max-applications", "1")
    assert code == 0, text
    apps = applications(cluster, "limited-digest")
    assert len(apps) == 4
    times = [(int(str(app["submitted"])), int(str(app["ended"]))) for app in apps]
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times))


def test_the_second_run_starts_with_the_learned_size(tmp_path: Path, cluster: str) -> None:
    growths = []
    for number in (1, 2):
        workflow(tmp_path / str(number), [300] * 8, "mem_mb=60")
        code, text = run(tmp_path / str(number), cluster, "--headroom-name", "learns")
        assert code == 0, text
        assert ("learned from earlier jobs" in text) == (number == 2)
        growths.append(text.count("grows in place"))
    # The learned size is close to the need, so that a job may come near it and grow once.
    assert growths[1] <= 8 < growths[0]


def test_the_rule_of_the_guide_runs(tmp_path: Path, cluster: str) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "snakemake.md"
    (rule,) = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "Snakefile").write_text(f'rule all:\n    input: "out/a.txt"\n\n{rule}')
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("some text")
    code, text = run(tmp_path, cluster, "--headroom-name", "guide")
    assert code == 0, text
    assert (tmp_path / "out" / "a.txt").read_text().startswith("b94f6f125c79e3a5")


def test_jobs_get_the_selected_variables(tmp_path: Path, cluster: str) -> None:
    command = "(printenv FLOW_VALUE; printenv FLOW_SECRET || echo none) > {output}"
    workflow(tmp_path, [1], "mem_mb=100", command=command)
    variables = {"FLOW_VALUE": "a {value}", "FLOW_SECRET": "hidden"}
    options = ["--headroom-name", "variables", "--headroom-env", "PATH", "FLOW_VALUE"]
    code, text = run(tmp_path, cluster, *options, env=variables)
    assert code == 0, text
    assert outputs(tmp_path) == ["a {value}\nnone\n"]


def test_a_working_directory_that_is_not_shared_is_one_sentence(
    tmp_path: Path, cluster: str
) -> None:
    workflow(tmp_path, [1], "mem_mb=100")
    code, text = run(tmp_path, cluster, "--shared-fs-usage", "input-output", "persistence")
    assert code != 0
    assert "a working directory that all nodes see" in text
    assert "Traceback" not in text, text


def test_an_unreachable_cluster_is_one_sentence(tmp_path: Path) -> None:
    workflow(tmp_path, [1], "mem_mb=100")
    code, text = run(tmp_path, "http://127.0.0.1:9")
    assert code != 0
    assert "rmctl dev" in text
    assert "Traceback" not in text, text


def wait_for(condition: object, seconds: float) -> None:
    """Waits until the condition holds."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
