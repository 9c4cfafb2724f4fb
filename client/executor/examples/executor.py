#!/usr/bin/env python3
"""An executor for Headroom in Python, by docs/executor-protocol.md. Standard library only.

It makes no cgroups: it measures its tasks by /proc and wait4, ends those beyond their limit by itself, and gives no verdict that would
need a counter of the kernel. One loop owns everything; a result is kept until the master has acknowledged it.
"""
import collections, glob, json, os, re, resource, select, signal, socket, subprocess, sys, time, urllib.parse, urllib.request

VERSION, MAX_LINE, MOST_RESULTS, MOST_VALUE, MOST_VALUES = 1, 1 << 20, 200, 16 << 10, 300_000
GRACE, GRACE_AT_END, SILENCE, GIVE_UP, LAST_ACKS, SAMPLE = 2.0, 1.2, 30.0, 120.0, 10.0, 0.2  # seconds
NOT_FOR_TASKS = {"HEADROOM_" + name for name in (
    "TASK_SHM_BYTES TOKEN_FILE CA_FILE LISTEN ADVERTISE APP_TOKEN MASTER_URL SLOTS CGROUP OOM_MARKER CACHED_BYTES INPUT_FILE "
    "VALUE_FILE LOG HEAP_BYTES".split())}
FULL = re.compile(r"^.*(?:java\.lang\.OutOfMemoryError|heap out of memory|runtime: out of memory|std::bad_alloc).*$"
                  r"|^[\w.]*MemoryError(?:: .*)?$|^memory allocation of \d+ bytes failed$", re.M)
# Words of an allocation that was refused: below three quarters of the limit it was not refused for the limit.
REFUSED = re.compile(r"MemoryError|runtime: out of memory|bad_alloc|memory allocation of")
COUNTERS = dict.fromkeys("high max oom oom_kill oom_group_kill".split(), 0)
STAT = dict.fromkeys("anon file file_mapped shmem kernel kernel_stack slab_unreclaimable sock workingset_refault_file".split())


def log(*words):
    print(*words, file=sys.stderr, flush=True)


def end_of(path, most=None):
    """The last bytes of a file as text; None when it is not there."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - most) if most else 0)
            return file.read().decode(errors="ignore")
    except OSError:
        return None


def processes():
    """Living processes by the marker file in their environment, which is another one for each attempt; daemons of a task have it too."""
    found = collections.defaultdict(list)
    for path in glob.glob("/proc/[0-9]*/environ"):
        if marker := re.search(r"(?:^|\0)HEADROOM_OOM_MARKER=([^\0]*)", end_of(path) or ""):
            found[marker[1]].append(int(path.split("/")[2]))
    return found


def memory(pid):
    """Its resident memory, bytes; pages that several processes map are split between them."""
    found = re.search(r"^Pss:\s+(\d+)", end_of(f"/proc/{pid}/smaps_rollup") or "", re.M)
    return int(found[1]) << 10 if found else 0


def remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass  # never there, or a directory: then it is no value either


def value_of(path):
    """The value that a program wrote, as fields of its report."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > MOST_VALUE:
                return {"value_too_large": size}
            return {"value": file.read(MOST_VALUE).decode()}
    except (OSError, ValueError):
        return {}


def report(start, kind, dimension=None, tail="", missing=(), started=None, peak=None, **more):
    own = {"limit": start.get("limit"), "current": 0, "peak": peak, "stat": STAT, "events": COUNTERS, "local": COUNTERS}
    evidence = {"enforcer": "poll", "exit_code": None, "signal": None, "stop_asked": None, "own": own, "outer": [], "victims": [],
                "heap_budget": start.get("heap"), "heap": None, "heap_marker": None, "missing": list(missing)}
    return {"attempt": start["attempt"], "container": os.environ["HEADROOM_CONTAINER"], "reason": kind, "dimension": dimension,
            "evidence": evidence | more, "diagnosis": [], "started": started, "ended": int(time.time() * 1000), "timeline": [],
            "log_tail": tail}


class Task:
    """One attempt whose process runs."""

    def __init__(self, start, directory):
        self.start, self.cause, self.kill_at, self.near, self.current, self.peak = start, None, None, False, 0, 0
        stage, index, attempt = re.fullmatch(r"(.+)/(\d+)@(\d+)", start["attempt"]).groups()
        self.path = f"{directory}/tasks/{stage}-{index}-{attempt}"
        self.marker = self.path + ".oom-marker"
        os.makedirs(f"{directory}/tasks", exist_ok=True)
        told = {"TASK": f"{stage}/{index}", "STAGE": stage, "INDEX": index, "ATTEMPT": attempt, "SLOTS": start["slots"],
                "OOM_MARKER": self.marker, "CACHED_BYTES": self.path + ".cached", "MEMORY_BYTES": start["limit"], "HEAP_BYTES": start["heap"]}
        env = {name: value for name, value in os.environ.items() if name not in NOT_FOR_TASKS}
        self.input, self.value = self.path + ".input", self.path + ".value"
        for path in (self.input, self.value):
            remove(path)
        if (text := start.get("input")) is not None:
            told |= {"INPUT_FILE": self.input, "VALUE_FILE": self.value}
            with open(os.open(self.input, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        env |= {"HEADROOM_" + name: str(value) for name, value in told.items() if value is not None} | start["env"]
        if output := start.get("output"):
            os.makedirs(os.path.dirname(output), exist_ok=True)
            os.mkdir(output)  # one that is there belongs to somebody else
        with open(self.path + ".out", "wb") as out, open(self.path + ".err", "wb") as err:
            self.process = subprocess.Popen(start["command"], env=env, cwd=start["cwd"], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=err, start_new_session=True)
        self.pid, self.began, self.started = self.process.pid, time.monotonic(), int(time.time() * 1000)
        self.floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # what that of a child begins with

    def stop(self, cause, grace):
        if self.cause is None:  # the first cause stands
            self.cause, self.kill_at = cause, time.monotonic() + grace
            if grace:
                os.kill(self.pid, signal.SIGTERM)

    def kill_all(self):
        """Ends all its processes, its first one in any case: nobody has waited for that yet, so its number is still its own."""
        deadline = time.monotonic() + 1
        os.kill(self.pid, signal.SIGKILL)
        while (pids := processes()[self.marker]) and time.monotonic() < deadline:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.002)

    def measure(self, pids):
        """True when it has just come near its limit."""
        self.current = sum(map(memory, pids))
        self.peak, limit, was_near = max(self.peak, self.current), self.start["limit"], self.near
        if limit and self.current > limit:
            self.stop("over_limit", 0)
        self.near = bool(limit) and self.current > limit * 9 // 10
        return self.near and not was_near

    def look(self, at):
        """Heeds its deadlines; its report once it has ended."""
        if self.start["timeout_ms"] and at - self.began >= self.start["timeout_ms"] / 1000:
            self.stop("timeout", GRACE)
        if self.kill_at and at >= self.kill_at:
            self.kill_at = self.kill_all()
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.kill_all()
        _, status, used = os.wait4(self.pid, 0)
        self.process.returncode = code = os.waitstatus_to_exitcode(status)
        if used.ru_maxrss > self.floor:
            self.peak = max(self.peak, used.ru_maxrss << 10)
        return self.judge(*((code, None) if code >= 0 else (None, -code)))

    def full_memory(self):
        """The words by which its runtime named its memory as full."""
        marker = end_of(self.marker, 200)
        if marker is not None:
            return marker.strip() or "out-of-memory marker file"
        found = FULL.search(end_of(self.path + ".err", 1 << 16) or "") or FULL.search(end_of(self.path + ".out", 1 << 16) or "")
        return found and found[0][:300]

    def was_refused(self, heap, words):
        return not heap and REFUSED.search(words) and (self.peak or 0) * 4 < self.start["limit"] * 3

    def judge(self, code, number):
        heap, marker, dimension = self.start["heap"], None if code == 0 else self.full_memory(), None
        if self.cause == "over_limit" and code != 0:
            reason, dimension = {"kind": "overhead_oom" if heap else "task_oom"}, "overhead" if heap else "native"
        elif self.cause in ("asked", "timeout"):
            reason = {"kind": "stopped" if self.cause == "asked" else "timeout"}
        elif code == 0:
            reason = {"kind": "exit", "code": 0}
        elif code in self.start["heap_exit_codes"] or marker and not self.was_refused(heap, marker):
            reason, dimension = {"kind": "heap_oom"}, "heap" if heap else "native"
        elif number == signal.SIGKILL:
            reason = {"kind": "killed_externally"}
        else:
            reason = {"kind": "exit", "code": code} if number is None else {"kind": "signal", "signal": number}
        more = {} if self.start.get("input") is None else value_of(self.value)
        for path in (self.input, self.value):
            remove(path)
        return more | report(self.start, reason, dimension, tail=end_of(self.path + ".err", 4096) or "", started=self.started,
                      peak=self.peak or None, exit_code=code, signal=number, stop_asked=self.cause, heap_marker=marker)


class Executor:
    """Slots, results and the line to the master."""

    def __init__(self, env):
        self.env, self.slots, self.master = env, int(env["SLOTS"]), env["MASTER_URL"]
        self.running, self.unacked, self.acked = {}, {}, collections.deque(maxlen=4096)
        self.line, self.buffer, self.up_at, self.heard_at, self.alone, self.tries = None, b"", 0, None, time.monotonic(), 0
        self.next_try = self.next_sample = self.next_words = 0
        self.told_to_end, self.end_with, self.draining, self.idle_since = False, None, False, None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "told_to_end", True))

    def run(self):
        while True:
            if self.line is None and time.monotonic() >= self.next_try:
                self.connect()
            if select.select([self.line] if self.line else [], [], [], 0.02)[0]:
                self.hear()
            if self.told_to_end:
                self.end(0)
            self.look(time.monotonic())
            if not self.running and self.end_with is not None:
                return self.end_with
            if not self.running and self.draining:
                self.idle_since = self.idle_since or time.monotonic()
                if not self.unacked or time.monotonic() - self.idle_since > LAST_ACKS:
                    return 0

    def end(self, code):
        if self.end_with is None:
            self.end_with = code
            for task in self.running.values():
                task.stop("asked", GRACE_AT_END)

    def connect(self):
        if self.tries and not self.ask():
            return self.end(0)
        self.tries += 1
        self.next_try = time.monotonic() + min(1.0, 0.05 * 2 ** min(self.tries, 5))
        where = urllib.parse.urlsplit(self.master)
        try:
            self.line = socket.create_connection((where.hostname, where.port), 3)
        except OSError:
            return
        self.line.settimeout(10)
        self.buffer, self.up_at, self.heard_at = b"", time.monotonic(), None
        each = max(1, 400_000 // max(1, len(self.unacked)) // 6 - 400)  # a character is at most six bytes of JSON
        told, later, values = [], [], 0
        for result in self.unacked.values():
            values += len(json.dumps(result.get("value", "")))
            (told if values <= MOST_VALUES else later).append(result | {"log_tail": result["log_tail"][-each:]})
        self.say(kind="hello", version=VERSION, container=self.env["CONTAINER"], token=self.env["APP_TOKEN"], slots=self.slots,
                 task_groups=False, inputs=True, running=[*self.running, *(result["attempt"] for result in later)], unacked=told)
        for result in later:
            self.say(kind="ended", report=result)

    def ask(self):
        """Asks where the master is now; false when there will be none any more."""
        try:
            with urllib.request.urlopen(f"{self.env['RM']}/v1/apps/{self.env['APP']}", timeout=2) as answer:
                app = json.load(answer)
        except (OSError, ValueError):
            return True
        self.master = app.get("master_url") or self.master
        return app.get("state") not in ("finished", "failed", "killed")

    def hang_up(self, why):
        log("the connection to the master ended:", why)
        self.line.close()
        if self.heard_at or time.monotonic() - self.up_at > 2:  # it was a good one
            self.alone, self.tries = time.monotonic(), 1
        self.line, self.next_try = None, time.monotonic() + min(1.0, 0.05 * 2 ** min(self.tries, 5))

    def say(self, **message):
        try:
            if self.line:
                self.line.sendall(json.dumps(message, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            self.hang_up(error)

    def hear(self):
        try:
            data = self.line.recv(1 << 16)
        except OSError as error:
            return self.hang_up(error)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        if not data or len(self.buffer) >= MAX_LINE:
            return self.hang_up("a line that is too long" if data else "closed by the master")
        for line in lines:
            try:
                self.on(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log("the master sent an invalid line, ignoring:", repr(error))

    def on(self, message):
        kind, attempt = message["kind"], message.get("attempt")
        if kind == "refused":
            log("the master refused this executor:", message["why"])
            return None if message["oldest"] <= VERSION <= message["newest"] else self.end(3)
        self.heard_at, self.alone = time.monotonic(), None
        if kind == "start":
            self.begin(message)
        elif kind == "stop" and attempt in self.running:
            self.running[attempt].stop("asked", GRACE)
        elif kind == "ack" and self.unacked.pop(attempt, None):
            self.acked.append(attempt)
        elif kind == "shutdown":
            self.draining = True
        elif kind == "resize" and attempt in self.running:
            self.say(kind="resized", attempt=attempt, limit=self.running[attempt].start["limit"] or 0, frozen_us=None,
                     error="this executor cannot change the limit of a running task")

    def begin(self, start):
        attempt, free = start["attempt"], self.slots - sum(task.start["slots"] for task in self.running.values())
        if attempt in self.unacked:
            return self.say(kind="ended", report=self.unacked[attempt])
        if attempt in self.acked or attempt in self.running:
            return None
        if self.draining or self.end_with is not None:
            why = "the executor is ending"
        elif len(self.unacked) + len(self.running) >= MOST_RESULTS:
            why = "too many results wait for the master's acknowledgement"
        elif start.get("fork_server"):
            why = "this executor has no fork servers"
        elif not 1 <= start["slots"] <= free:
            why = f"the task takes {start['slots']} slots, but {free} of {self.slots} are free"
        else:
            try:
                task = self.running[attempt] = Task(start, self.env["CONTAINER_DIR"])
                return self.say(kind="started", attempt=attempt, at=task.started)
            except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
                why = f"the task cannot be started: {error}"
        self.tell(report(start, {"kind": "launch_failed"}, tail=why, missing=[f"not started: {why}"]))

    def tell(self, result):
        self.unacked[result["attempt"]] = result
        self.say(kind="ended", report=result)

    def look(self, at):
        """What is due: measurements, ends, signs of life, and a master that is silent or gone."""
        near = False
        if self.running and at >= self.next_sample:
            self.next_sample, pids = at + SAMPLE, processes()
            near = any([task.measure(pids[task.marker]) for task in self.running.values()])
        for attempt, task in list(self.running.items()):
            if result := task.look(at):
                del self.running[attempt]
                self.tell(result)
        if near or at >= self.next_words:
            self.next_words, tasks = at + 1, self.running.items()
            usage = [{"attempt": name, "current": task.current, "peak": task.peak, "heap": None} for name, task in tasks]
            self.say(**({"kind": "usage", "tasks": usage} if usage else {"kind": "alive"}))
        if self.line and self.heard_at and at - self.heard_at > SILENCE:
            self.hang_up("the master sends no heartbeats")
        if self.line is None and self.alone and at - self.alone > GIVE_UP:
            self.end(1)


def main():
    names = ["MASTER_URL", "APP_TOKEN", "SLOTS", "APP", "CONTAINER", "CONTAINER_DIR"]
    env = {name: os.environ.get("HEADROOM_" + name, "") for name in names + ["RM"]}
    wrong = [f"HEADROOM_{name}: not set" for name in names if not env[name]]
    if not (env["SLOTS"].isdigit() and 1 <= int(env["SLOTS"]) <= 1024):
        wrong.append(f"HEADROOM_SLOTS: {env['SLOTS']!r} is not a number from 1 to 1024")
    if not re.fullmatch(r"tcp://.+:\d+/?", env["MASTER_URL"]):
        wrong.append("HEADROOM_MASTER_URL: expected an address such as tcp://127.0.0.1:4711")
    for sentence in wrong:
        log(sentence)
    return 2 if wrong else Executor(env).run()


if __name__ == "__main__":
    sys.exit(main())
