"""Group-by with 40 partitions, 3 of which hold eight times the rows of the others.

The groups are collected on the Java heap. Prints RESULT with sums that do not depend on retries."""
import sys

from pyspark.sql import SparkSession

rows = int(sys.argv[1])
spark = (
    SparkSession.builder.appName("skew")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.shuffle.partitions", "40")
    .getOrCreate()
)
keys = spark.range(0, 40, 1, 40).selectExpr(
    "id AS key", f"explode(sequence(1, IF(id IN (5, 17, 29), {8 * rows}, {rows}))) AS i"
)
groups = (
    keys.selectExpr("key", "repeat(cast(i % 10 AS string), 1000) AS value")
    .groupBy("key")
    .agg({"value": "collect_list"})
    .selectExpr("key", "`collect_list(value)` AS all")
    .selectExpr("key", "size(all) AS n", "length(all[0]) AS l")
)
print("RESULT", groups.groupBy().sum("key", "n", "l").collect())
spark.stop()
