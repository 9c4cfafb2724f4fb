"""The rows of workers that ``rmctl ps`` shows."""

from __future__ import annotations

from headroom._job_view import MAX_ATTEMPTS, MAX_ENDED_ROWS, JobView

GIB = 1 << 30


def report(container, kind="task_oom", **more):
    return {
        "container": container,
        "node": "n1",
        "reason": {"kind": kind, **more},
        "evidence": {"own": {"peak": 7}},
        "diagnosis": [{"cause": "c", "fix": "f"}],
        "log_tail": "last words",
    }


def running(container="c1", task="workers-1GiB/0"):
    view = JobView()
    view.requested(task, GIB, 1.0)
    view.granted(task, container, "n1", 1000)
    return view


def only_row(view):
    patch = view.patch()
    (row,) = patch["tasks"]
    return row, patch


def test_a_row_waits_runs_and_ends():
    view = JobView()
    assert view.patch() is None
    view.requested("workers-1GiB/0", GIB, 1.0)
    row, _ = only_row(view)
    assert (row["state"], row["attempts"]) == ("pending", [])
    view.granted("workers-1GiB/0", "c1", "n1", 1000)
    row, patch = only_row(view)
    assert row["state"] == "running" and patch["totals"]["running"] == 1
    assert row["attempts"][0]["attempt"] == "workers-1GiB/0@1"
    view.exited("workers-1GiB/0", report("c1", "exit", code=0), 2000)
    row, patch = only_row(view)
    assert row["state"] == "done" and patch["totals"]["done"] == 1
    assert row["attempts"][0]["ended"] == 2000 and "diagnosis" not in row["attempts"][0]


def test_a_killed_worker_shows_its_verdict_and_then_its_next_container():
    view = running()
    view.exited("workers-1GiB/0", report("c1"), 2000)
    row, patch = only_row(view)
    assert row["state"] == "failed" and patch["totals"]["memory_kills"] == 1
    assert row["attempts"][0]["reason"] == {"kind": "task_oom"}
    assert row["attempts"][0]["log_tail"] == "last words"
    view.requested("workers-1GiB/0", GIB, 1.0)
    view.granted("workers-1GiB/0", "c2", "n2", 3000)
    row, _ = only_row(view)
    assert [a["container"] for a in row["attempts"]] == ["c1", "c2"]
    assert row["attempts"][1]["attempt"] == "workers-1GiB/0@2"


def test_a_released_worker_is_done_and_its_late_report_changes_nothing():
    view = running()
    view.withdrawn("workers-1GiB/0", 1500)
    view.exited("workers-1GiB/0", report("c1", "signal", signal=15), 2000)
    row, _ = only_row(view)
    assert row["state"] == "done" and row["attempts"][0]["reason"] == {"kind": "stopped"}


def test_only_changes_are_sent_and_everything_after_a_restart_of_the_manager():
    view = running()
    view.requested("workers-1GiB/1", GIB, 1.0)
    first = view.patch()
    assert len(first["tasks"]) == 2 and not first["full"]
    view.granted("workers-1GiB/1", "c2", "n1", 1000)  # while the first patch is on its way
    view.sent(first)
    row, patch = only_row(view)
    assert row["task"] == "workers-1GiB/1" and row["state"] == "running"
    view.sent(patch)
    assert view.patch() is None
    view.repeat_all()
    patch = view.patch()
    assert patch["full"] and len(patch["tasks"]) == 2


def test_rows_and_attempts_are_bounded():
    view = JobView()
    for number in range(MAX_ENDED_ROWS + 5):
        task = f"workers-1GiB/{number}"
        view.requested(task, GIB, 1.0)
        view.granted(task, f"c{number}", "n1", 1)
        view.exited(task, report(f"c{number}"), 2)
    patch = view.patch()
    assert patch["full"] and len(patch["tasks"]) == MAX_ENDED_ROWS
    view = JobView()
    for number in range(MAX_ATTEMPTS + 5):
        view.requested("workers-1GiB/0", GIB, 1.0)
        view.granted("workers-1GiB/0", f"c{number}", "n1", 1)
    row, _ = only_row(view)
    assert len(row["attempts"]) == MAX_ATTEMPTS
    assert row["attempts"][-1]["attempt"] == f"workers-1GiB/0@{MAX_ATTEMPTS + 5}"


def test_an_infeasible_worker_names_the_reason():
    view = JobView()
    view.requested("workers-9GiB/0", 9 * GIB, 1.0)
    view.infeasible("workers-9GiB/0", "no node has 9 GiB")
    row, _ = only_row(view)
    assert (row["state"], row["note"]) == ("failed", "no node has 9 GiB")
