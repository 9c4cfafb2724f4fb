"""A shuffle after whose map side executors and other programs are killed. Prints how often map tasks ran.

Arguments: number of executors to kill, patterns of command lines of other programs to kill."""
import os
import signal
import subprocess
import sys
import time
from operator import add

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("shuffle-loss").getOrCreate()
context = spark.sparkContext
maps = context.accumulator(0)


def pair(number):
    if number < 12:
        maps.add(1)
    return number % 12, number


sums = context.parallelize(range(1200), 12).map(pair).reduceByKey(add, 12)
print("FIRST", sums.count())


def kill(pattern, most):
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True).stdout.split()
    for pid in found[:most]:
        os.kill(int(pid), signal.SIGKILL)
    print("KILLED", len(found[:most]))


kill("CoarseGrainedExecutorBackend.*--app-id " + context.applicationId, int(sys.argv[1]))
for pattern in sys.argv[2:]:
    kill(pattern, 1)
time.sleep(1)
print("RESULT", sorted(sums.collect()) == [(k, sum(range(k, 1200, 12))) for k in range(12)])
print("MAPS", maps.value)
spark.stop()
