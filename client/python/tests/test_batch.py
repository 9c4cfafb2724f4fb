"""Job files of batch jobs, reports of tasks, and the watcher at the limits of its sources."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional

import pytest

from headroom._batch import MAX_NAME, BatchJob, escape_places, learned_size, name_of
from headroom._batch_watch import BatchWatcher
from headroom._report import attempt_lines, report_of
from headroom.errors import RequestRefused

MIB = 1 << 20


def a_job(**changes: Any) -> BatchJob:
    fields: Dict[str, Any] = {
        "name": "sums",
        "stage": "add",
        "command": ["echo", 'a "b" \\ {index} \x01\x7f é \N{GRINNING FACE}'],
        "memory": 100 * MIB,
        "directory": "/data dir",
        **changes,
    }
    return BatchJob(**fields)


def test_the_job_file_is_toml() -> None:
    tomllib = pytest.importorskip("tomllib")
    file = tomllib.loads(a_job(tasks=3, timeout=1.5, env={"A.B": "x\ny"}, cap=1 << 30).text())
    (stage,) = file["stage"]
    assert stage["command"] == a_job().command
    assert stage["env"] == {"A.B": "x\ny"}
    assert stage["array"] == "0-2"
    assert stage["timeout"] == "2s"
    assert file["executors"]["main"]["count"] == 3
    assert file["retry"] == {"max_attempts": 1, "cap": 1 << 30}


def test_a_job_of_one_task_has_no_array() -> None:
    text = a_job().text()
    assert "array" not in text
    assert "count = 1" in text


def test_the_submission_has_a_master_of_the_size_that_rmctl_gives() -> None:
    body = a_job(mode="fixed").submission("k1", "ann")
    master = body["master"]
    assert master["resource"] == {"memory": 72 * MIB, "cpus": 0}
    assert master["launch"]["command"][-4:] == ["--mode", "fixed", "--base-dir", "/data dir"]
    assert body["idempotency_key"] == "k1"
    large = a_job(tasks=10_000).submission("k2")
    assert large["master"]["resource"]["memory"] == 144 * MIB


def test_names() -> None:
    assert name_of("__a b__") == "a-b"
    assert name_of("...") == "job"
    assert len(name_of("x" * 200)) == MAX_NAME
    assert name_of("x" * 200) != name_of("x" * 201)
    assert escape_places("{a}") == "{{a}}"


def test_a_learned_size_needs_history() -> None:
    assert learned_size([], "add", None) is None
    assert learned_size([{"kind": "add", "user": "ann", "stated": None}], "add", None) is None
    rows = [
        {"kind": "add", "user": "ann", "stated": 5},
        {"kind": "add", "user": "bob", "stated": 9},
    ]
    assert learned_size(rows, "add", "ann") == 5
    assert learned_size(rows, "add", None) == 9


def an_attempt(number: int, heap: int, reason: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    return {
        "attempt": f"add/0@{number}",
        "profile": {"heap": heap, "overhead": 0, "cpus": 1},
        "node": "n1",
        "started": 1000,
        "ended": 3000 if reason else None,
        "peak": heap,
        "reason": reason,
        "diagnosis": [],
        "log_tail": "one\ntwo\n",
    }


def test_a_report_has_the_ladder_the_fix_and_the_end_of_the_output() -> None:
    killed = an_attempt(1, 64 * MIB, {"kind": "task_oom"})
    killed["grown"] = [{"at": 2000, "from": 32 * MIB, "to": 64 * MIB, "frozen_us": 5}]
    last = an_attempt(2, 128 * MIB, {"kind": "task_oom"})
    last["diagnosis"] = [{"cause": "its data filled it", "fix": "try 192 MiB", "trade_off": ""}]
    row = {"task": "add/0", "state": "failed", "note": "at the cap", "attempts": [killed, last]}
    report = report_of("sums.7", row)
    assert report.text.splitlines() == [
        "Headroom task sums.7/add/0: failed",
        "  attempt 1 at 32 MiB → 64 MiB (grown in place): out of memory at its own limit, "
        "after 2.0 s, peak 64 MiB, on n1",
        "  attempt 2 at 128 MiB: out of memory at its own limit, after 2.0 s, peak 128 MiB, on n1",
        "  decision: at the cap",
        "  fix: its data filled it → try 192 MiB",
        "  end of standard error:",
        "    one",
        "    two",
        "  see: rmctl diagnose sums.7/add/0 · rmctl logs sums.7/add/0",
    ]
    assert (report.kills, report.growths, report.attempts) == (2, 1, 2)
    assert report.size == 128 * MIB
    # One second at 32 MiB, one at 64, two at 128.
    assert report.byte_seconds == (32 + 64 + 2 * 128) * MIB


def test_a_success_has_only_its_attempts() -> None:
    row = {
        "task": "add/0",
        "state": "done",
        "attempts": [an_attempt(1, 64 * MIB, {"kind": "exit", "code": 0})],
    }
    text = report_of("sums.7", row).text
    assert text.splitlines()[1:] == [
        "  attempt 1 at 64 MiB: finished, after 2.0 s, peak 64 MiB, on n1"
    ]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ({"kind": "exit", "code": 4}, "ended with exit code 4"),
        ({"kind": "signal", "signal": 11}, "ended by signal 11"),
        ({"kind": "a_later_reason"}, "a_later_reason"),
        (None, "running"),
    ],
)
def test_every_reason_has_words(reason: Optional[Dict[str, Any]], words: str) -> None:
    (line,) = attempt_lines({"attempts": [an_attempt(1, MIB, reason)]})
    assert f": {words}," in line


class ScriptedClient:
    """Answers calls from a table, and notes them."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.calls: List[str] = []

    def get(self, path: str, query: Optional[Mapping[str, Any]] = None) -> Any:
        self.calls.append(path)
        found = self.answers.get(path)
        if found is None:
            raise RequestRefused("not found", status=404, code="HR0404")
        return found

    def get_text(self, path: str, query: Optional[Mapping[str, Any]] = None) -> str:
        self.calls.append(path)
        given = query or {}
        cursor = int(given.get("cursor", 0))
        if 0 < cursor < self.answers.get("oldest", 0):
            raise RequestRefused("gone", status=410, code="HR0411")
        events = [event for event in self.answers["events"] if event["index"] > cursor]
        if "app" in given:
            events = [event for event in events if event["app"] == given["app"]]
        return "".join(json.dumps(event) + "\n" for event in events)


def an_event(index: int, reason: str, name: str, app: str = "sums.7") -> Dict[str, Any]:
    return {"index": index, "reason": reason, "object": name, "app": app, "message": reason}


def a_watcher(answers: Mapping[str, Any]) -> Any:
    client: Any = ScriptedClient(answers)
    watcher = BatchWatcher(client)
    watcher.add("sums.7", "add", range(3), is_array=True)
    return watcher, client


RUNNING = [{"id": "sums.7", "state": "running"}]


def test_two_calls_are_enough_for_any_number_of_tasks() -> None:
    events = [an_event(5, "JobSubmitted", "sums.7")]
    watcher, client = a_watcher({"/v1/apps": RUNNING, "events": events})
    for number in range(8, 58):
        watcher.add(f"sums.{number}", "add", range(500), is_array=True)
        client.answers["/v1/apps"] = [
            *client.answers["/v1/apps"],
            {"id": f"sums.{number}", "state": "running"},
        ]
    watcher.poll()
    client.calls.clear()
    events.append(an_event(6, "TaskFinished", "add/1@2"))
    (end,) = watcher.poll()
    assert (end.app, end.index, end.succeeded) == ("sums.7", 1, True)
    assert client.calls == ["/v1/apps", "/v1/events"]
    # An event is counted once.
    assert watcher.poll() == []


def test_an_event_log_with_a_gap_is_replaced_by_the_rows() -> None:
    events = [an_event(5, "JobSubmitted", "sums.7")]
    rows = [
        {"task": f"add/{index}", "state": state, "attempts": []}
        for index, state in enumerate(["done", "running", "pending"])
    ]
    view = {"id": "sums.7", "state": "running", "job": {"tasks": rows, "totals": {}}}
    watcher, client = a_watcher({"/v1/apps": RUNNING, "events": events, "/v1/apps/sums.7": view})
    assert watcher.poll() == []
    client.answers.update(oldest=100, events=[an_event(120, "ContainerStarted", "sums.7.e1.c1")])
    assert [end.index for end in watcher.poll()] == [0]
    client.calls.clear()
    client.answers["events"].append(an_event(121, "TaskFinished", "add/2@1"))
    assert [end.index for end in watcher.poll()] == [2]
    assert client.calls == ["/v1/apps", "/v1/events"]


def test_an_application_that_is_gone_ends_its_tasks() -> None:
    watcher, _ = a_watcher({"/v1/apps": [], "events": []})
    ends = watcher.poll()
    assert [(end.index, end.succeeded, end.killed) for end in ends] == [
        (0, False, True),
        (1, False, True),
        (2, False, True),
    ]
    assert "does not know sums.7" in ends[0].diagnostics
    assert watcher.applications == 0


def test_an_application_that_ends_before_its_master_reports_fails_its_tasks() -> None:
    listed = {"id": "sums.7", "state": "failed", "diagnostics": "no node has 500 GiB"}
    watcher, _ = a_watcher({"/v1/apps": [listed], "events": [], "/v1/apps/sums.7": listed})
    ends = watcher.poll()
    assert [end.succeeded for end in ends] == [False] * 3
    assert ends[0].diagnostics == "no node has 500 GiB"


def test_events_of_other_applications_are_passed_over() -> None:
    events = [
        an_event(5, "JobSubmitted", "sums.7"),
        an_event(6, "TaskFinished", "add/0@1", app="other.3"),
        an_event(7, "TaskGrown", "add/1@1"),
    ]
    watcher, _ = a_watcher({"/v1/apps": RUNNING, "events": events})
    assert watcher.poll() == []
    assert [(news.index, news.reason) for news in watcher.take_news()] == [(1, "TaskGrown")]
    assert watcher.take_news() == []
