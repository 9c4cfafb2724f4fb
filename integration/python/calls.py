"""Wall-clock time of trivial calls on two workers, for Headroom and for other pools.

Argument: number of calls.
"""
import json
import statistics
import sys
import time

import headroom
import pools


def rate(pool, calls):
    """Milliseconds for one of `calls` calls that are submitted together."""
    list_of = [pool.submit(pools.trivial, 0) for _ in range(pools.WORKERS * 2)]
    assert all(future.result() == 1 for future in list_of)
    begin = time.perf_counter()
    futures = [pool.submit(pools.trivial, number) for number in range(calls)]
    assert [future.result() for future in futures] == list(range(1, calls + 1))
    return (time.perf_counter() - begin) * 1000 / calls


def latency(pool, calls):
    """Median of the milliseconds from submit to result, one call at a time."""
    times = []
    for number in range(calls):
        begin = time.perf_counter()
        assert pool.submit(pools.trivial, number).result() == number + 1
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


class Figures(dict):
    """Figures by name. Each is printed when it is known."""

    def __setitem__(self, name, milliseconds):
        super().__setitem__(name, round(milliseconds, 3))
        print(f"{name}: {self[name]}", file=sys.stderr, flush=True)


def measure(calls):
    figures = Figures()
    with headroom.Executor(pools.WORKERS, memory="64MiB") as pool:
        figures["warm_call_ms"] = rate(pool, calls)
        figures["warm_latency_p50_ms"] = latency(pool, min(calls, 300))
        begin = time.perf_counter()
        assert sum(pool.map(pools.trivial, range(calls * 10))) == sum(range(1, calls * 10 + 1))
        figures["mapped_call_ms"] = (time.perf_counter() - begin) * 1000 / (calls * 10)
    with headroom.Executor(pools.WORKERS, memory="64MiB", max_tasks_per_child=1) as pool:
        figures["warm_call_in_own_process_ms"] = rate(pool, calls)
    with headroom.Executor(pools.WORKERS, memory="64MiB", warm=False) as pool:
        figures["cold_call_ms"] = rate(pool, max(calls // 10, 20))
    with pools.process_pool() as pool:
        figures["pool_call_ms"] = rate(pool, calls)
    with pools.process_pool(own_process=True) as pool:
        figures["pool_call_in_own_process_ms"] = rate(pool, max(calls // 10, 20))
    with pools.loky_pool() as pool:
        figures["loky_call_ms"] = rate(pool, calls)
    with pools.dask_pool() as pool:
        figures["dask_call_ms"] = rate(pool, calls)
    with pools.parsl_pool() as pool:
        figures["parsl_call_ms"] = rate(pool, calls)
    return figures


if __name__ == "__main__":
    print("RESULT", json.dumps(measure(int(sys.argv[1]))))
