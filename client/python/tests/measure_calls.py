"""Latency and throughput of calls beside the standard library's pool; prints, asserts nothing.

HEADROOM_BIN_DIR=target/release python tests/measure_calls.py
"""

from __future__ import annotations

import concurrent.futures
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))

import headroom
from headroom._local_cluster import LocalCluster, find_rmctl


def nothing(n):
    return n


def measure(name, make):
    began = time.perf_counter()
    with make() as executor:
        executor.submit(nothing, 1).result()
        first = time.perf_counter() - began
        times = []
        for n in range(100):
            start = time.perf_counter()
            executor.submit(nothing, n).result()
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        futures = [executor.submit(nothing, n) for n in range(1000)]
        submitted = time.perf_counter() - start
        assert [f.result() for f in futures] == list(range(1000))
        rate = 1000 / (time.perf_counter() - start)
        start = time.perf_counter()
        more = {"chunksize": 100} if name == "pool" else {}
        assert sum(executor.map(nothing, range(20_000), **more)) == sum(range(20_000))
        mapped = 20_000 / (time.perf_counter() - start)
    print(
        f"{name:<6} first {first * 1000:7.1f} ms   p50 {statistics.median(times) * 1000:6.2f} ms   "
        f"submit {submitted:6.4f} ms each   {rate:8.0f} calls/s   map {mapped:8.0f} calls/s",
        flush=True,
    )


def main():
    measure("pool", lambda: concurrent.futures.ProcessPoolExecutor(2))
    cluster = LocalCluster(find_rmctl())
    try:
        for name, warm in (("warm", True), ("cold", False)):
            measure(
                name,
                lambda name=name, warm=warm: headroom.Executor(
                    2, memory="64MiB", addr=cluster.address, warm=warm, name=f"measure-{name}"
                ),
            )
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
