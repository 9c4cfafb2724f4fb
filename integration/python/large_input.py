"""Fifty inputs, one of which needs five times the memory: how many of them give a result."""
import json
import sys

import headroom
import pools

INPUTS = 50
LARGE = 17
LIMIT = 128 << 20


def load(number):
    """Memory of an input: 60 MiB, or 300 MiB."""
    data = bytearray((300 if number == LARGE else 60) << 20)
    for at in range(0, len(data), 4096):
        data[at] = number
    return number * number


def results(pool):
    """Number of right results, and the first error."""
    futures = [pool.submit(load, number) for number in range(INPUTS)]
    right, error = 0, ""
    for number, future in enumerate(futures):
        try:
            right += future.result(timeout=300) == number * number
        except BaseException as failure:  # what the tool raises is what is measured
            error = error or f"{type(failure).__name__}: {failure}"
    return right, error


def measure():
    figures = {}
    with headroom.Executor(pools.WORKERS, memory=LIMIT, name="large-input") as pool:
        futures = [pool.submit(load, number) for number in range(INPUTS)]
        right = [future.result(timeout=300) == n * n for n, future in enumerate(futures)]
        figures["headroom"] = sum(right)
        print(futures[LARGE].explain(), file=sys.stderr)
    with pools.memory_cgroup(pools.WORKERS * LIMIT) as enter, pools.process_pool(
        initializer=enter
    ) as pool:
        figures["pool"], error = results(pool)
        print("ProcessPoolExecutor:", error, file=sys.stderr)
    with pools.dask_pool(memory=LIMIT) as pool:
        figures["dask"], error = results(pool)
        print("Dask LocalCluster:", error, file=sys.stderr)
    return figures


if __name__ == "__main__":
    print("RESULT", json.dumps(measure()))
