"""A shuffle between whose map and reduce side a node may be lost. Prints how often map tasks ran.

Arguments: file to create after the map side, file to wait for before the reduce side."""
import os
import sys
import time
from operator import add

from pyspark.sql import SparkSession

mapped, go = sys.argv[1:3]
spark = SparkSession.builder.appName("node-loss").getOrCreate()
context = spark.sparkContext
maps = context.accumulator(0)


def pair(number):
    # Once in each map task. It takes long enough that both executors get tasks.
    if number % 100 == 0:
        maps.add(1)
        time.sleep(0.2)
    return number % 12, number


sums = context.parallelize(range(1200), 12).map(pair).reduceByKey(add, 12)
print("FIRST", sums.count())
before = maps.value
open(mapped, "w").close()
deadline = time.time() + 120
while not os.path.exists(go) and time.time() < deadline:
    time.sleep(0.2)
print("RESULT", sorted(sums.collect()) == [(k, sum(range(k, 1200, 12))) for k in range(12)])
print("AGAIN", before == 12, maps.value > before)
spark.stop()
