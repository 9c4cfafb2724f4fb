"""Tables of executors and futures for notebooks, read by an HTML parser."""

from __future__ import annotations

import html.parser

import pytest
from fake_cluster import FakeCluster, wait_until
from test_executor import need

import headroom
from headroom._html import CallCounts, executor_table, future_table
from headroom.errors import AttemptReport


class TableReader(html.parser.HTMLParser):
    """The caption and the texts of all cells; fails at a tag that is not closed in its place."""

    def __init__(self, text):
        super().__init__()
        self.caption = ""
        self.rows = []
        self.open = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        assert tag in {"table", "caption", "tr", "th", "td"}, tag
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in {"th", "td"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["caption"]:
            self.caption += data
        elif self.open and self.open[-1] in {"th", "td"}:
            self.rows[-1][-1] += data


def cells(executor):
    return dict(TableReader(executor._repr_html_()).rows)


def test_an_executor_shows_the_counts_of_its_calls(executor):
    futures = [executor.submit(need, 200 if n == 2 else 1, n) for n in range(4)]
    wrong = executor.submit(divmod, 1, 0)
    assert [future.result(60) for future in futures] == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        wrong.result(60)
    shown = cells(executor)
    assert (shown["calls done"], shown["failed"]) == ("4", "1")
    assert (shown["running"], shown["waiting"]) == ("0", "0")
    # 64 MiB and 128 MiB were too small for the third call.
    assert shown["attempts killed for memory"] == "2"
    assert shown["highest peak"] == "128 MiB"
    assert executor.app in TableReader(executor._repr_html_()).caption


def test_calls_that_run_wait_and_are_cancelled(monkeypatch, tmp_path):
    import threading

    gate = threading.Event()

    def run(task, spec):
        gate.wait(60)
        return {"kind": "exit", "code": 1}, None, ""

    cluster = FakeCluster(slots=1, run=run)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    try:
        with headroom.Executor(memory="64MiB", addr=cluster.address, warm=False) as executor:
            futures = [executor.submit(abs, n) for n in range(3)]
            wait_until(futures[0].running)
            assert futures[2].cancel()
            shown = cells(executor)
            assert (shown["running"], shown["waiting"], shown["cancelled"]) == ("1", "1", "1")
            assert TableReader(futures[2]._repr_html_()).caption == "abs(2): cancelled"
            gate.set()
            assert futures[0].exception(60) and futures[1].exception(60)
    finally:
        gate.set()
        cluster.stop()


def test_a_future_shows_its_attempts(executor):
    future = executor.submit(need, 100, 7)
    assert future.result(60) == 7
    table = TableReader(future._repr_html_())
    assert table.caption == f"need(100, 7): succeeded ({future.task})"
    assert table.rows == [
        ["attempt", "memory", "peak", "verdict", "node"],
        ["1", "64 MiB", "64 MiB", "task_oom", "fake-1"],
        ["2", "128 MiB", "10 MiB", "succeeded", "fake-1"],
    ]


def test_texts_are_escaped():
    call = "load('<script>alert(1)</script> & \"x\"')"
    attempt = AttemptReport(1, 1 << 20, None, "<b>", node="<i>", grown_from=(1 << 19,))
    table = TableReader(future_table(call, "failed", "a.1/load/0", [attempt]))
    assert table.caption == f"{call}: failed (a.1/load/0)"
    sizes = "512 KiB → 1 MiB (grown in place)"
    assert table.rows[1] == ["1", sizes, "not measured", "<b>", "<i>"]
    shown = executor_table("<a>", "http://h?a&b", 2, CallCounts(), running=0, waiting=0)
    assert TableReader(shown).caption == "Executor <a> at http://h?a&b, 2 calls at once"
