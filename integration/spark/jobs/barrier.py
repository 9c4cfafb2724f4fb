"""A barrier stage whose second task fills its container once, and a shuffle after it.

Argument: a file that marks that it was filled. Prints RESULT with the sum."""
import os
import sys

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

marker = sys.argv[1]
spark = SparkSession.builder.appName("barrier").getOrCreate()
context = spark.sparkContext


def together(numbers):
    task = BarrierTaskContext.get()
    task.barrier()
    if task.partitionId() == 1 and not os.path.exists(marker):
        open(marker, "w").close()
        block = bytearray(900 << 20)
        block[::4096] = b"x" * len(block[::4096])
    task.barrier()
    yield sum(numbers) + len(task.getTaskInfos())


# Spark runs a barrier stage again only if a shuffle follows; it aborts a result stage.
sums = context.parallelize(range(100), 2).barrier().mapPartitions(together).map(lambda n: (n % 2, n)).groupByKey(2)
print("RESULT", sums.flatMap(lambda pair: pair[1]).sum())
spark.stop()
