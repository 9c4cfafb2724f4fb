"""Work, silence, work: with dynamic allocation the executors go away and come back."""
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("idle").getOrCreate()
context = spark.sparkContext


def executors():
    return context._jsc.sc().getExecutorMemoryStatus().size() - 1


def work():
    return context.parallelize(range(60), 12).map(lambda n: (time.sleep(0.1), n)[1]).sum()


print("RESULT first", work())
deadline = time.time() + 60
while executors() > 0 and time.time() < deadline:
    time.sleep(0.2)
print("RESULT idle", executors())
print("RESULT second", work())
spark.stop()
