"""Eight tasks; the Python worker of one needs more memory than its executor has beside the heap."""
import sys

from pyspark.sql import SparkSession

mib = int(sys.argv[1])
spark = SparkSession.builder.appName("python-memory").getOrCreate()


def use(number):
    if number == 3:
        block = bytearray(mib << 20)
        block[::4096] = b"x" * len(block[::4096])
    return number


print("RESULT", sum(spark.sparkContext.parallelize(range(8), 8).map(use).collect()))
spark.stop()
