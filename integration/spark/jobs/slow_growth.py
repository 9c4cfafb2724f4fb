"""A Python worker that fills its container step by step, and waits near the limit until the limit rises.

Prints RESULT: whether the limit rose, and whether the worker then used more than the first limit."""
import os
import time

from pyspark.sql import SparkSession


def memory_files():
    """The files of the memory limit and use of the container: cgroup v2 or v1."""
    group = os.environ["HEADROOM_CGROUP"]
    if os.path.exists(f"{group}/memory.max"):
        return f"{group}/memory.max", f"{group}/memory.current"
    return f"{group}/memory.limit_in_bytes", f"{group}/memory.usage_in_bytes"


def number(path):
    with open(path) as file:
        return int(file.read())


def fill(_):
    limit_file, use_file = memory_files()
    first = number(limit_file)
    held = []
    deadline = time.time() + 90
    while number(use_file) <= first + (32 << 20):
        if time.time() > deadline:
            raise RuntimeError(f"the limit stayed at {number(limit_file) >> 20} MiB")
        if number(use_file) + (24 << 20) < number(limit_file):
            held.append(bytearray(os.urandom(1 << 20) * 8))
        else:
            time.sleep(0.1)
    yield number(limit_file) > first, number(use_file) > first, len(held) > 0


spark = SparkSession.builder.appName("slow-growth").getOrCreate()
print("RESULT", spark.sparkContext.parallelize([0], 1).mapPartitions(fill).collect())
spark.stop()
