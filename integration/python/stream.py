"""A stream of calls whose executors and master are killed meanwhile. Argument: number of calls."""
import collections
import json
import sys
import time

import headroom
import pools


def main(calls):
    begin = time.perf_counter()
    seen = collections.Counter()
    with headroom.Executor(pools.WORKERS, memory="64MiB", name="stream", lease="300s") as pool:
        waiting = collections.deque()
        for number in range(calls):
            waiting.append((number, pool.submit(pools.trivial, number)))
            while len(waiting) > 2000:
                take(waiting, seen)
        while waiting:
            take(waiting, seen)
    seconds = time.perf_counter() - begin
    lost = sum(1 for number in range(calls) if seen[number] == 0)
    print("RESULT", json.dumps({"calls": calls, "lost": lost, "seconds": seconds}))


def take(waiting, seen):
    """Waits for the oldest call and counts it if its result is right."""
    number, future = waiting.popleft()
    if future.result(timeout=300) == number + 1:
        seen[number] += 1


if __name__ == "__main__":
    main(int(sys.argv[1]))
