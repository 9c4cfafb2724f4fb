"""Skewed group-bys one after another, each a job of its own that may fail. Prints one RESULT line of JSON.

Arguments: number of jobs, rows of an ordinary partition. The factors of skew follow from the number of the job."""
import json
import sys
import time

from skewed_groups import groups, session

jobs, rows = int(sys.argv[1]), int(sys.argv[2])
spark = session("skewed-jobs", 16)
failed, wrong, seconds = [], [], []
for job in range(jobs):
    factor = 4 + 2 * (job % 4)
    heavy = (3 * job) % 16
    expected = rows * 15 + rows * factor
    begin = time.time()
    skewed = groups(spark, 16, [heavy], factor, rows)
    try:
        total = skewed.groupBy().sum("n", "l").collect()[0][0]
        if total != expected:
            wrong.append(job)
    except Exception as error:  # what a user would see as a failed job
        failed.append(job)
    seconds.append(round(time.time() - begin, 2))
print("RESULT", json.dumps({"jobs": jobs, "failed": failed, "wrong": wrong, "seconds": seconds}))
spark.stop()
