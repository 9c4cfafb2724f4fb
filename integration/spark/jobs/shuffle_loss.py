"""A shuffle whose executors are killed after the map side. Prints how often map tasks ran."""
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
pattern = "CoarseGrainedExecutorBackend.*--app-id " + context.applicationId
found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True).stdout.split()
for pid in found[: int(sys.argv[1])]:
    os.kill(int(pid), signal.SIGKILL)
time.sleep(1)
print("RESULT", sorted(sums.collect()) == [(k, sum(range(k, 1200, 12))) for k in range(12)])
print("MAPS", maps.value)
spark.stop()
