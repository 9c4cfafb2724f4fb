"""A sort whose execution memory is off the heap. Its only task needs one page of memory."""
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("off-heap")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
rows = spark.range(0, 30000, 1, 1).selectExpr("id * 7919 % 30000 AS k").sortWithinPartitions("k").collect()
print("RESULT", len(rows), all(row[0] == number for number, row in enumerate(rows)))
spark.stop()
