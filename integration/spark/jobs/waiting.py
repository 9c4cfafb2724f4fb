"""Stages of short tasks until a file exists: time for a test to kill daemons in mid-job."""
import os
import sys
import time

from pyspark.sql import SparkSession

started, end = sys.argv[1:3]
spark = SparkSession.builder.appName("waiting").getOrCreate()
context = spark.sparkContext
rounds = 0
deadline = time.time() + 150
while not os.path.exists(end) and time.time() < deadline:
    total = context.parallelize(range(40), 4).map(lambda n: (time.sleep(0.02), n)[1]).sum()
    assert total == 780, total
    rounds += 1
    if rounds == 1:
        open(started, "w").close()
print("RESULT", total, os.path.exists(end))
spark.stop()
