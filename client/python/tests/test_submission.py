"""The submission channel's state machine: every key has one result, whatever breaks."""

from __future__ import annotations

import random

import pytest

from headroom._submission import (
    MAX_BATCH_TASKS,
    BatchRefused,
    JobOver,
    JournalLost,
    StageRefused,
    SubmissionState,
    TaskEnded,
)


class Master:
    """A master that keeps the contract, for the state machine alone."""

    def __init__(self, credit):
        self.limit = credit
        self.reset()

    def reset(self):
        self.stages, self.tasks, self.batches = set(), {}, set()
        self.results, self.cursor, self.closed = [], 0, False

    def credit(self):
        return self.limit - sum(not done for done in self.tasks.values())

    def take(self, line):
        kind = line["kind"]
        if kind == "stage":
            self.stages.add(line["name"])
            return [{"kind": "stage_accepted", "name": line["name"]}]
        if kind == "tasks":
            assert line["stage"] in self.stages, "a stage precedes its tasks"
            new = [item["key"] for item in line["items"] if item["key"] not in self.tasks]
            if line["batch"] not in self.batches and len(new) > self.credit():
                return [
                    {
                        "kind": "refused",
                        "subject": line["batch"],
                        "error": {"code": "HR0429", "retryable": True},
                    }
                ]
            if line["batch"] not in self.batches:
                self.batches.add(line["batch"])
                self.tasks.update(dict.fromkeys(new, False))
            return [{"kind": "accepted", "batch": line["batch"], "credit": self.credit()}]
        if kind == "cancel":
            for key in line["keys"]:
                if self.tasks.get(key) is False:
                    self.end(key, "cancelled")
        elif kind == "ack":
            self.results = [r for r in self.results if r["cursor"] > line["cursor"]]
        elif kind == "close":
            self.closed = True
        return []

    def end(self, key, outcome="succeeded"):
        self.tasks[key] = True
        self.cursor += 1
        self.results.append(
            {"kind": "ended", "cursor": self.cursor, "key": key, "outcome": outcome}
        )

    def welcome(self):
        return {
            "kind": "welcome",
            "version": 1,
            "credit": self.credit(),
            "cursor": self.cursor,
            "closed": self.closed,
        }


class World:
    """Client and master with two queues between them, which break now and then."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.state = SubmissionState("c")
        self.master = Master(self.random.choice([3, 50, 10_000]))
        self.state.declare_stage("s", {})
        self.state.declare_stage("t", {})
        self.up, self.down, self.after = None, None, 0
        self.ended = {}
        self.added = 0

    def connect(self):
        self.after = self.state.first_line()["after"]
        self.up, self.down = [], [self.master.welcome()]
        self.sent = self.after

    def cut(self):
        self.up = self.down = None
        self.state.disconnected()

    def step(self):
        choice = self.random.random()
        if self.up is None:
            self.connect()
        elif choice < 0.04:
            self.cut()
        elif choice < 0.05:
            self.master.reset()
            self.cut()
            # The manager's view of the application shows the new run.
            self.state.repeat_all()
        elif choice < 0.25 and self.added < 200:
            for _ in range(self.random.choice([1, 1, 5, 40])):
                self.added += 1
                self.state.add_task(self.random.choice("st"), {"key": f"k{self.added}"})
        elif choice < 0.28:
            open_keys = [
                k for k in map("k{}".format, range(1, self.added + 1)) if k not in self.ended
            ]
            if open_keys:
                for gone in self.state.cancel([self.random.choice(open_keys)]):
                    self.ended[gone] = "gone"
        elif choice < 0.5:
            self.up.extend(self.state.outgoing())
        elif choice < 0.7 and self.up:
            self.down.extend(self.master.take(self.up.pop(0)))
        elif choice < 0.8:
            waiting = [key for key, done in self.master.tasks.items() if not done]
            if waiting:
                self.master.end(self.random.choice(waiting))
        elif choice < 0.85:
            for row in self.master.results:
                if row["cursor"] > self.sent:
                    self.down.append(row)
                    self.sent = row["cursor"]
        elif choice < 0.88:
            self.down.append({"kind": "credit", "credit": self.master.credit()})
        elif self.down:
            for event in self.state.received(self.down.pop(0)):
                if isinstance(event, TaskEnded):
                    assert event.key not in self.ended, "a key has one result"
                    self.ended[event.key] = event.result["outcome"]
                elif isinstance(event, JournalLost):
                    self.cut()
                    break


@pytest.mark.parametrize("seed", range(150))
def test_every_key_has_exactly_one_result(seed):
    world = World(seed)
    for _ in range(1500):
        world.step()
    world.added, added = 200, world.added
    for _ in range(60_000):
        if len(world.ended) == added:
            break
        world.step()
    assert sorted(world.ended) == sorted(f"k{n}" for n in range(1, added + 1))
    assert world.state.open_tasks == 0


def connected(credit=10_000):
    state = SubmissionState("c")
    state.declare_stage("s", {"command": ["x"]})
    state.received({"kind": "welcome", "version": 1, "credit": credit, "cursor": 0})
    return state


def test_tasks_share_batches_up_to_the_limits():
    state = connected()
    for n in range(MAX_BATCH_TASKS + 5):
        state.add_task("s", {"key": str(n)})
    kinds = [(line["kind"], len(line.get("items", ()))) for line in state.outgoing()]
    assert kinds == [("stage", 0), ("tasks", MAX_BATCH_TASKS), ("tasks", 5)]
    assert state.outgoing() == []
    state = connected()
    for n in range(20):
        state.add_task("s", {"key": str(n), "input": "x" * 60_000})
    sizes = [sum(len(i["input"]) for i in line["items"]) for line in state.outgoing()[1:]]
    assert max(sizes) < 1 << 20 and len(sizes) == 2


def test_close_follows_the_last_task():
    state = connected()
    state.add_task("s", {"key": "a"})
    state.close()
    assert [line["kind"] for line in state.outgoing()] == ["stage", "tasks"]
    state.received({"kind": "accepted", "batch": "c.1", "credit": 9})
    assert [line["kind"] for line in state.outgoing()] == ["close"]
    state.disconnected()
    state.received({"kind": "welcome", "version": 1, "credit": 9, "cursor": 0})
    assert [line["kind"] for line in state.outgoing()] == ["close"], "repeated after a break"


def test_refusals():
    state = connected()
    state.add_task("s", {"key": "a"})
    state.outgoing()
    (event,) = state.received({"kind": "refused", "subject": "s", "error": {"detail": "bad"}})
    assert isinstance(event, StageRefused) and event.keys == ["a"]
    assert state.add_task("s", {"key": "b"}) == {"detail": "bad"}
    state = connected()
    state.add_task("s", {"key": "a"})
    state.outgoing()
    state.received({"kind": "stage_accepted", "name": "s"})
    (event,) = state.received({"kind": "refused", "subject": "c.1", "error": {"detail": "bad"}})
    assert isinstance(event, BatchRefused) and event.keys == ["a"]
    assert state.open_tasks == 0


def test_unknown_messages_and_fields_are_ignored():
    state = connected()
    assert state.received({"kind": "later", "x": 1}) == []
    assert state.received({}) == []
    (event,) = state.received({"kind": "over", "succeeded": True, "diagnostics": "d", "more": 1})
    assert event == JobOver(True, "d")
