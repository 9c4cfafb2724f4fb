"""Joins and group-bys whose execution memory is off the heap."""
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("off-heap")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.shuffle.partitions", "8")
    .config("spark.sql.autoBroadcastJoinThreshold", "-1")
    .getOrCreate()
)
facts = spark.range(0, 300000, 1, 8).selectExpr("id % 1000 AS k", "id")
left = spark.range(0, 1000, 1, 8).selectExpr("id AS k", "id * 2 AS v")
right = spark.range(0, 1000, 1, 8).selectExpr("id AS k", "id * 3 AS w")
sums = facts.join(left, "k").join(right, "k").groupBy("k").sum("id", "v", "w").orderBy("k")
print("RESULT", [tuple(row) for row in sums.groupBy().sum("k", "sum(id)").collect()])
spark.stop()
