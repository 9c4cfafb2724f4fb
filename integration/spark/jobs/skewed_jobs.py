"""Skewed group-bys one after another, each a job of its own that may fail. Prints one RESULT line of JSON.

Arguments: number of jobs, rows of an ordinary partition. The factors of skew follow from the number of the job."""
import json
import sys
import time

from pyspark.sql import SparkSession

jobs, rows = int(sys.argv[1]), int(sys.argv[2])
spark = (
    SparkSession.builder.appName("skewed-jobs")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.shuffle.partitions", "16")
    .getOrCreate()
)
failed, wrong, seconds = [], [], []
for job in range(jobs):
    factor = 4 + 2 * (job % 4)
    heavy = (3 * job) % 16
    expected = rows * 15 + rows * factor
    begin = time.time()
    keys = spark.range(0, 16, 1, 16).selectExpr(
        "id AS key", f"explode(sequence(1, IF(id = {heavy}, {factor * rows}, {rows}))) AS i"
    )
    groups = (
        keys.selectExpr("key", "repeat(cast(i % 10 AS string), 1000) AS value")
        .groupBy("key")
        .agg({"value": "collect_list"})
        .selectExpr("size(`collect_list(value)`) AS n", "length(`collect_list(value)`[0]) AS l")
    )
    try:
        total = groups.groupBy().sum("n", "l").collect()[0][0]
        if total != expected:
            wrong.append(job)
    except Exception as error:  # what a user would see as a failed job
        failed.append(job)
    seconds.append(round(time.time() - begin, 2))
print("RESULT", json.dumps({"jobs": jobs, "failed": failed, "wrong": wrong, "seconds": seconds}))
spark.stop()
